//! On hand-built memory.

#![allow(clippy::unwrap_used)]

use super::*;

#[path = "dump_tests.rs"]
mod dumps;
