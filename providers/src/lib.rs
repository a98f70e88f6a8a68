//! Names to sites: DProbes offsets, function globs, and the probes of providers.
//!
//! A provider turns what a user names (a symbol, an offset in a module, an address) into a [`Place`] that the
//! interposer can arm, and refuses what cannot be a probe point with a diagnostic that shows the source line.
//! Here: [`Target`] (what there is to probe), [`resolve`] (the locations of an RPN program), [`functions`] (what
//! `trapline list` shows), [`disassemble`] (what `trapline dis` shows) and [`sdt`] (statically defined probes);
//! a [`Catalog`] of [`Provider`]s, each of which knows [`Probe`]s by name: `fbt`, `pid`, `profile`, `sdt`,
//! `tracepoint` and those of user programs. [`Description`] says which are
//! meant, a [`Clause`] what a handler on the command line does, and [`enable()`] makes both what the interposer takes.
//! Not here: handling a trap.
//!
//! Everything is judged by the files, before the guest runs: the same program on the same files gives the same
//! places. What of it is there in a guest that has run, [`Present`] says.
//!
//! [`Place`]: trapline_interposer::Place

#![forbid(unsafe_code)]

mod abi;
mod catalog;
mod clause;
mod code;
mod convention;
mod description;
mod disassemble;
mod dprobes;
mod enable;
mod fbt;
mod flow;
mod glob;
mod list;
mod parameters;
mod pid;
mod present;
mod profile;
mod provider;
pub mod sdt;
mod source;
mod statics;
mod target;

pub use abi::{Abi, AbiError, AtEntry, AtOffset, AtReturn, AtTailCall};
pub use catalog::user_probes;
pub use catalog::{Catalog, MatchError, ProbeOptions};
pub use clause::{Clause, ClauseError};
pub use code::{Code, Refusal};
pub use description::{Description, DescriptionError};
pub use disassemble::{DisassembleError, Disassembly, Line, disassemble};
pub use dprobes::{Resolved, insert_error, resolve};
pub use enable::{ArgumentRefused, EnableError, Matched, enable, find};
pub use fbt::Rules;
pub use glob::{FunctionGlob, GlobError};
pub use list::{Function, functions, present_functions, user_functions};
pub use parameters::show_parameters;
pub use pid::{PidError, TargetError, TargetProcess};
pub use present::{Present, Process, Spot};
pub use provider::{Probe, Provider, ProviderError, Site};
pub use source::SourceError;
pub use statics::{Refused, refused, refused_of};
pub use target::Target;
