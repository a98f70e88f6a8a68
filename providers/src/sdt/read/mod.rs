//! Statically defined probes: from the bytes of ELF files to tables of sites with names and arguments.
//!
//! | Kind | Read by |
//! |---|---|
//! | `<sys/sdt.h>` in user programs | [`StapNotes`] |
//! | calls to `__dtrace_probe_NAME`, USDT and is-enabled calls | [`CallSites`] |
//! | `trapline/probe.h` and other macro-declared probes | [`MacroProbes`] |
//! | Linux's function entries, static keys, static calls, tracepoints | [`LinuxSites`] |
//!
//! [`Argument::evaluate`] gives the value of an argument at a [`Scene`].
//!
//! These are pure functions from a file's bytes to a table and a list of refusals; they arm and run nothing. A
//! damaged entry does not affect others. Rules: docs/providers.md, "Statically defined probes".

mod calls;
mod evaluate;
mod grammar;
mod guest;
mod kernel;
mod linux;
mod macros;
mod notes;
mod operand;
mod register;

pub use calls::{CallError, CallErrorKind, CallSite, CallSites, Domain, Purpose};
pub use evaluate::{EvaluateError, Scene, Value};
pub use grammar::{ArgumentError, ArgumentErrorKind, argument, arguments};
pub use guest::GuestScene;
pub use kernel::KernelFile;
pub use linux::{
    JumpLabel, LinuxError, LinuxSites, Standing, StaticCall, Tracepoint, tracepoint_arguments,
    tracepoint_call_arguments,
};
pub use macros::{Letter, MacroError, MacroErrorKind, MacroProbe, MacroProbes, Point};
pub use notes::{NoteError, NoteErrorKind, RawNote, StapNotes, StapProbe};
pub use operand::{Argument, Format, Memory, Operand, SymbolTerm};
pub use register::Register;
