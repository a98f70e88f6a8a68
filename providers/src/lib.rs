//! Resolves names to sites: the locations of probe programs, and the probes of providers.
//!
//! A provider turns a symbol, an offset in a module or a probe description into a [`Place`] that the
//! interposer can arm, or refuses it with the reason. The interposer handles the traps.
//!
//! | Module | Content |
//! |---|---|
//! | `object` | relocations, symbol entries and instructions of files |
//! | `target` | [`Target`], the files to probe; [`ProbeOptions`], the user's choices; where a probe point can be |
//! | `name` | [`Description`]s, globs, and [`Clause`]s of the command line |
//! | `provider` | [`Provider`], [`Probe`] and [`Site`]; the location of arguments and return values |
//! | `fbt`, `dti`, `pid`, `profile`, [`sdt`] | one provider each; `sdt` also has `tracepoint` and the providers that programs define |
//! | `system` | `syscall`, `proc`, `sched`, `io`: views of a kernel's functions |
//! | `catalog` | [`Catalog`]: all providers of a target, and one numbering |
//! | `apply` | [`resolve`] and [`enable()`] make probe points; [`functions`], [`disassemble`] and [`Present`] are for listings |
//!
//! A module imports only from modules above it in this table. The files determine every result, before the guest runs:
//! the same program on the same files gives the same places.
//!
//! [`Place`]: trapline_interposer::Place

#![forbid(unsafe_code)]

mod apply;
mod catalog;
mod dti;
mod fbt;
mod name;
mod object;
mod pid;
mod profile;
mod provider;
pub mod sdt;
mod system;
mod target;

pub use apply::{
    ArgumentRefused, DisassembleError, Disassembly, EnableError, Function, Line, Matched, OperandNames,
    Present, Process, Resolved, Spot, Typed, TypedLog, Untyped, disassemble, enable, find, functions,
    handler, insert_error, present_functions, resolve, show_parameters, user_functions,
};
pub use catalog::{Catalog, MatchError, user_probes};
pub use name::{Clause, ClauseError, Description, DescriptionError, FunctionGlob, GlobError};
pub use pid::PidError;
pub use provider::{
    ArgumentType, AtEntry, AtOffset, AtReturn, AtTailCall, Back, KernelCode, NoArguments, OwnError, Probe,
    Provider, ProviderError, Site,
};
pub use sdt::{Refused, refused, refused_of};
pub use system::SystemError;
pub use target::{
    Abi, AbiError, Code, NoModule, ProbeOptions, Refusal, Rules, SourceError, Target, TargetError,
    TargetProcess,
};
