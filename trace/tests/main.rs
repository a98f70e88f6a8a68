//! The tests of this crate in one binary: one module per subject. A new file needs its `mod` line here.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

mod records;
mod stack_trace;
mod templates;
mod trace_file;
mod watch;
