//! Translated blocks: what the machine knows of each, and exact counts.

mod count;
