//! Statically defined probes: from the bytes of ELF files to tables of sites with names and arguments.
//!
//! | Kind | Read by |
//! |---|---|
//! | `<sys/sdt.h>` in user programs | [`StapNotes`] |
//! | calls to `__dtrace_probe_NAME`, USDT and is-enabled calls | [`CallSites`] |
//! | `trapline/probe.h` and other macro-declared probes | [`MacroProbes`] |
//! | Linux's function entries, static keys, static calls, tracepoints | [`LinuxSites`] |
//!
//! What an argument is worth at a hit: [`Argument::evaluate`] at a [`Scene`].
//!
//! All of it is pure: a file's bytes in, a table and a list of refusals out; nothing here arms, and nothing runs. One
//! bad entry never takes another with it. Rules: docs/providers.md, "Statically defined probes".

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
