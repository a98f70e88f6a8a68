//! The D language of DTrace, compiled to verified RPN programs.
//!
//! ```
//! let compiled = trapline_d::compile("BEGIN { x = 6; printf(\"%d\\n\", x * 7); exit(0); }")?;
//! assert_eq!(compiled.clauses.len(), 1);
//! assert!(compiled.clauses[0].handler.observe_only());
//! # Ok::<(), trapline_d::Error>(())
//! ```
//!
//! The stages: tokens, syntax tree, typed expressions, instructions, verifier. Errors have DTrace's tags and
//! sentences. What RPN has no instruction for is a service of the host, which the program calls with `callk`
//! (`trapline_rpn::services::d`). Tables describe records, aggregations and variables
//! (`trapline_trace::d::Tables`). The compiler knows no guest: it asks [`Types`] for types, symbols and arguments.

#![forbid(unsafe_code)]

mod ast;
mod check;
mod compile;
mod declare;
mod error;
mod generate;
mod guest;
mod inspect;
mod lex;
mod library;
mod markers;
mod node;
mod options;
mod parse;
mod pragma;
pub mod reference;
mod scope;
mod types;

pub use compile::{Compiled, CompiledClause, Compiler, MacroVariable, compile};
pub use error::Error;
pub use guest::{
    ArgumentPlace, ArgumentType, GuestArgument, GuestArguments, GuestMember, GuestSymbol, GuestType,
    GuestTypeId, NoTypes, TypeTag, Types,
};
pub use inspect::{Field, Fields, Found, Inspector, Seen, Standing};
pub use library::header;
pub use markers::file_of;
pub use options::{OptionError, Options};
pub use types::Model;
