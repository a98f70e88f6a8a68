//! The RPN probe-handler language of DProbes: parser, instruction table, assembler, verifier, interpreter.
//!
//! The language is that of dprobes.lang(8) 3.6.4; `docs/probe-language.md` defines what the man page
//! leaves open. The stages of a program:
//!
//! 1. [`parse`] turns source text into a [`Program`], or into [`Diagnostics`] that name every error.
//! 2. [`Program::link`] resolves symbols through a [`SymbolResolver`] and verifies each handler.
//! 3. [`Vm::run`] runs a [`Verified`] handler against a [`Host`], at each hit, without allocating.
//!
//! Reading a compiled program ([`ppdf`]) gives a [`Program`], which then passes stages 2 and 3.
//!
//! The instruction set is data ([`TABLE`]): parser, printer, encoder, decoder and verifier are views
//! of it. This crate never touches a guest directly, only through [`Host`].

#![forbid(unsafe_code)]

mod ast;
mod code;
mod diag;
mod findings;
mod host;
mod instructions;
mod library;
mod link;
mod lint;
mod logged;
mod near;
mod observed;
mod parse;
pub mod ppdf;
mod print;
mod regs;
mod routines;
pub mod services;
mod signature;
mod source;
mod verify;
mod vm;

pub use ast::{
    Atom, Expr, FileHeader, Instr, Location, MAXHITS_DEFAULT, ModType, Operand, ProbePoint, Program, Routine,
    Term, Watch,
};
pub use code::{CodeError, Insn, decode, decode_one, encode};
pub use diag::{Diagnostic, Diagnostics, Note};
pub use findings::{CODES, CodeRow, Severity, Stage, by_name as code_by_name, near as near_code};
pub use host::{Argument, ArgumentError, CallkError, CallkStack, Context, Fault, Host, OpState};
pub use instructions::{
    ALIASES, Alias, Effect, Group, Op, OperandKind, REMOVED, Removed, Row, TABLE, Throws, VARIES,
};
pub use library::LIBRARY;
pub use link::{
    AnySymbol, Lines, LinkedLocation, LinkedProbe, LinkedProgram, LocationForm, NoSymbols, SymbolResolver,
};
pub use near::near_miss;
pub use observed::{Change, Observer};
pub use parse::{FileLoader, Loader, NoFiles, ParseOptions, Preprocessed, parse, parse_with, preprocess};
pub use regs::{REGISTERS, Reg, RegRow, Shape, by_index, by_name};
pub use source::{Sources, Span};
pub use verify::{Limits, Unverified, Verified, VerifyError, Width, verify};
pub use vm::{
    DEFAULT_MAX_STEPS, MAX_CALLS, Outcome, StackTrace, Termination, Unhandled, Vars, Vm, exception,
};
