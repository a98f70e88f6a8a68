//! The tests of this crate in one binary: a module a subject. A new file needs its `mod` line here.

mod records;
mod stack_trace;
mod templates;
mod trace_file;
mod watch;
