//! What a user of `pid` sees when a description cannot be: DTrace's sentences, and behind them what would be right.

use crate::target::LARGEST;

/// A description that cannot be of `pid`'s probes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PidError {
    /// Neither `pid<N>` nor what stands for it.
    #[error("'{0}' is not a valid provider; pid and a process's number, pid$target and pid* would be right")]
    NotAProvider(String),
    /// A number that no process has.
    #[error("'{0}' does not contain a valid pid; 1 to {LARGEST} would be right")]
    InvalidPid(String),
    /// `$target` stands for nobody.
    #[error("'{0}' has no process to stand for; --target NAME, PID or PATH says which")]
    NoTarget(String),
    /// `a.out` of a program whose file is not known.
    #[error("a.out is {0}, which is no program among the known files; --file {0}=FILE gives it")]
    UnknownProgram(String),
    /// A name that is none.
    #[error(
        "'{0}' is an invalid probe name; entry, return, an offset in hexadecimal without 0x or a glob would be right"
    )]
    InvalidName(String),
    /// Of an absolute address, a name that is none.
    #[error(
        "'{0}' is an invalid probe name; with the '-' function one address in hexadecimal without 0x would be right"
    )]
    InvalidAddress(String),
    /// Behind the function.
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
        /// Where the instruction that it is in begins, and the next one; `None` behind what does not decode.
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
