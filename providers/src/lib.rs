//! From names to sites: the locations of probe programs, and the probes of providers.
//!
//! A provider turns what a user names (a symbol, an offset in a module, a probe's description) into a [`Place`] that the
//! interposer can arm. It refuses what cannot be a probe point, and says why. Handling a trap is the interposer's.
//!
//! | Room | Holds |
//! |---|---|
//! | `object` | relocations, symbol entries and instructions of files |
//! | `target` | [`Target`], what there is to probe; [`ProbeOptions`], what the user has chosen; where a probe point can be |
//! | `name` | [`Description`]s, globs, and [`Clause`]s of the command line |
//! | `provider` | [`Provider`], [`Probe`] and [`Site`]; where functions have arguments and value |
//! | `fbt`, `pid`, `profile`, [`sdt`] | one provider each; `sdt` also has `tracepoint` and those that programs name |
//! | `catalog` | [`Catalog`]: all providers of a target, and one numbering |
//! | `apply` | [`resolve`] and [`enable()`] make probe points; [`functions`], [`disassemble`] and [`Present`] show what there is |
//!
//! A room imports only from rooms above it in this table. Everything is judged by the files, before the guest runs: the same
//! program on the same files gives the same places.
//!
//! [`Place`]: trapline_interposer::Place

#![forbid(unsafe_code)]

mod apply;
mod catalog;
mod fbt;
mod name;
mod object;
mod pid;
mod profile;
mod provider;
pub mod sdt;
mod target;

pub use apply::{
    ArgumentRefused, DisassembleError, Disassembly, EnableError, Function, Line, Matched, Present, Process,
    Resolved, Spot, disassemble, enable, find, functions, insert_error, present_functions, resolve,
    show_parameters, user_functions,
};
pub use catalog::{Catalog, MatchError, user_probes};
pub use name::{Clause, ClauseError, Description, DescriptionError, FunctionGlob, GlobError};
pub use pid::PidError;
pub use provider::{AtEntry, AtOffset, AtReturn, AtTailCall, OwnError, Probe, Provider, ProviderError, Site};
pub use sdt::{Refused, refused, refused_of};
pub use target::{
    Abi, AbiError, Code, ProbeOptions, Refusal, Rules, SourceError, Target, TargetError, TargetProcess,
};
