//! Tests of the compiler of D.

#![allow(clippy::unwrap_used, clippy::panic)]

mod constants;
mod limits;
mod places;
