//! Translated blocks: what the machine knows of each, and exact counts.

pub(crate) mod cell;
mod count;
