//! Statically defined probes: from the bytes of ELF files to tables of sites with names and arguments.
//!
//! | Kind | Read by |
//! |---|---|
//! | `<sys/sdt.h>` in user programs | [`StapNotes`] |
//! | calls to `__dtrace_probe_NAME`, USDT and is-enabled calls | [`CallSites`] |
//!
//! All of it is pure: a file's bytes in, a table and a list of refusals out; nothing here arms, and nothing runs. One
//! bad entry never takes another with it. Rules: reference/providers.md, section C.

mod calls;
mod elf;
mod evaluate;
mod grammar;
mod notes;
mod operand;
mod register;

pub use calls::{CallError, CallErrorKind, CallSite, CallSites, Domain, Purpose};
pub use evaluate::{EvaluateError, Scene, Value};
pub use grammar::{ArgumentError, ArgumentErrorKind, argument, arguments};
pub use notes::{NoteError, NoteErrorKind, RawNote, StapNotes, StapProbe};
pub use operand::{Argument, Format, Memory, Operand, SymbolTerm};
pub use register::Register;
