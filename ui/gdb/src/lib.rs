//! The server that gdb connects to with `target remote`: a run that gdb moves forwards and backwards.
//!
//! The protocol's packets are those of the crate gdbstub; this crate has the guest behind them, and what gdbstub does not
//! have. A packet comes from `wire`, where each is checked, to `serve`, which answers a few itself and passes the others to
//! gdbstub, and from there to `target`, which implements gdbstub's traits for a [`Debuggee`].
//!
//! The modules, each of which may use those before it: `interrupt` (Ctrl-C), `wire` (the frames of packets), `check` (their form), `registers` (one table: the target
//! description and the values), `condition` (of breakpoints), `elf` (symbols as a file), `user` (one process), `calls` (its system calls), `threads` (tasks),
//! `call_frames` and `stacks` (the stacks that gdb shows), `files` (what gdb reads of the guest), `stops` (kinds of breakpoints, and stops), `breakpoints` (those that are set), `debuggee` (the run and its commands), `catch` (system calls
//! on the way), `resume` (how it goes on), `find` (of memory), `host_io`, `target`, `serve`.
//!
//! Stop points are the timeline's: the guest sees none of them, and a run that was debugged ends as one that was not.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod breakpoints;
mod call_frames;
mod calls;
mod catch;
mod check;
mod condition;
mod debuggee;
mod elf;
mod files;
mod find;
mod host_io;
mod interrupt;
mod registers;
mod resume;
mod serve;
mod stacks;
mod stops;
mod target;
mod threads;
mod user;
mod wire;

pub use debuggee::{Commands, Debuggee, NoCommands, Said};
pub use serve::{Gone, serve};
pub use user::NoProcess;
pub use wire::{Framer, Input, framed};
