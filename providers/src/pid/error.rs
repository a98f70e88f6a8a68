//! Errors in descriptions of `pid` probes: DTrace's messages, followed by what to do.

use crate::target::LARGEST;

/// An invalid description of `pid` probes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PidError {
    /// Neither `pid<N>` nor one of the other forms.
    #[error("'{0}' is not a valid provider; use pid and a process id, pid$target or pid*")]
    NotAProvider(String),
    /// A number that is not a valid process id.
    #[error("'{0}' does not contain a valid pid; use 1 to {LARGEST}")]
    InvalidPid(String),
    /// `$target` without a target.
    #[error("'{0}' needs a process; give --target NAME, PID or PATH")]
    NoTarget(String),
    /// `a.out` of a program whose file is not known.
    #[error("a.out is {0}, whose file is not known; give it with --file {0}=FILE")]
    UnknownProgram(String),
    /// An invalid probe name.
    #[error(
        "'{0}' is an invalid probe name; use entry, return, an offset in hexadecimal without 0x, or a glob"
    )]
    InvalidName(String),
    /// An invalid probe name for the function `-`, which takes an absolute address.
    #[error(
        "'{0}' is an invalid probe name; with the '-' function, use one address in hexadecimal without 0x"
    )]
    InvalidAddress(String),
    /// An offset after the end of the function.
    #[error("offset {offset:#x} outside of function '{function}', which has {size:#x} bytes")]
    Outside {
        /// The offset.
        offset: u64,
        /// The function.
        function: String,
        /// Its size in bytes.
        size: u64,
    },
    /// In the middle of an instruction.
    #[error("offset {offset:#x} is not aligned on an instruction{}", around(.nearest))]
    Misaligned {
        /// The offset.
        offset: u64,
        /// Start of the instruction that contains it, and of the next one; `None` after bytes that do not decode.
        nearest: Option<(u64, u64)>,
    },
    /// No such function.
    #[error("failed to lookup '{function}' in module '{module}'{}", suggestion(.near))]
    Lookup {
        /// The function.
        function: String,
        /// The module as written.
        module: String,
        /// Names that resemble it.
        near: Vec<String>,
    },
    /// `-` in another module than `a.out`.
    #[error("only the a.out module is valid with the '-' function, not '{0}'")]
    OnlyProgram(String),
    /// A probe that the function cannot have.
    #[error("failed to create {what} probe for '{function}': {why}")]
    Create {
        /// Its name: entry, return, offset.
        what: &'static str,
        /// The function.
        function: String,
        /// Why.
        why: String,
    },
}

fn around(nearest: &Option<(u64, u64)>) -> String {
    nearest.map_or_else(String::new, |(start, end)| format!("; the nearest are at {start:x} and {end:x}"))
}

fn suggestion(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
}
