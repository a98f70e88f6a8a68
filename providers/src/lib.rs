//! Names to sites: DProbes offsets and function globs.
//!
//! A provider turns what a user names (a symbol, an offset in a module, an address) into a [`Place`] that the
//! interposer can arm, and refuses what cannot be a probe point with a diagnostic that shows the source line.
//! Here: [`Target`] (what there is to probe), [`resolve`] (the locations of an RPN program), [`functions`] (what
//! `trapline list` shows), [`disassemble`] (what `trapline dis` shows) and [`sdt`] (statically defined probes). Not here:
//! handling a trap, guest memory while it runs. Room is left for fbt and pid.
//!
//! Everything is judged by the files, before the guest runs: the same program on the same files gives the same
//! places.
//!
//! [`Place`]: trapline_interposer::Place

#![forbid(unsafe_code)]

mod code;
mod disassemble;
mod dprobes;
mod list;
pub mod sdt;
mod target;

pub use code::{Code, Refusal};
pub use disassemble::{DisassembleError, Line, Listing, disassemble};
pub use dprobes::{Resolved, insert_error, resolve};
pub use list::{Function, FunctionGlob, GlobError, functions};
pub use target::Target;
