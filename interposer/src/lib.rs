//! The probe table and the life of a hit.
//!
//! An [`Interposer`] is given linked RPN programs and a [`Place`] for each of their probe points. It patches the
//! fetch view of those places with `int3`, and the machine offers it every trap that comes out of a patch: it runs
//! the handlers against a NOFAULT host, sees to the displaced instruction, and commits the records when that has
//! completed (docs/architecture.md). It does not decide where probes go: `trapline-providers` does.
//!
//! The rooms: `table` (programs, probes, sites), `insert` (arming and its errors), `hit` (the hot path), `control` (what
//! is asked from outside), `displace` (which instructions are emulated, run out of line or stepped), `watch` (watchpoint
//! probes), `user` (pages of programs), `process` (whose they are), `leave` (probes behind an instruction), `timer` (probes
//! on time), `pointer` (macro-declared probes), `word` (semaphores and pointers of user programs), `host` (what a handler
//! sees of the guest), `provided` (what a provider says of a probe point), `service` (what it may ask for by `callk` and
//! `exit n`), `stacks` (what goes with a record when it is asked for), `core_file` (the core file that `exit 3` takes).

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod changed;
mod control;
mod core_file;
mod displace;
mod hit;
mod host;
mod insert;
mod leave;
mod life;
mod module;
mod pointer;
mod process;
mod provided;
mod service;
mod stacks;
mod table;
mod timer;
mod user;
mod watch;
mod word;

pub use control::{PointView, ProgramView, SavedTable};
pub use core_file::CoreFile;
pub use displace::{Way, way_of, why};
pub use insert::{InsertError, InsertErrorKind};
pub use process::{Processes, Who};
pub use provided::{Arguments, HandlerError, Point, Provided};
pub use service::SymbolNames;
pub use table::{Interposer, InterposerConfig, Place, ProbeNames, ProgramId, Stats};
pub use timer::{Clock, Timer};
