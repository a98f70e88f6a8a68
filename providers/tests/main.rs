//! The tests of this crate in one binary: one module per subject. A new file needs its `mod` line here.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

mod arguments;
mod clauses;
mod codes;
mod common;
mod conventions;
mod embedded;
mod fbt_modules;
mod pid;
mod programs;
mod sdt_calls;
mod sdt_linux;
mod sdt_macros;
mod sdt_notes;
