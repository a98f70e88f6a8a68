//! The one table of all findings: what each code means, with a wrong and a right example.
//!
//! It is the source of severities, of `check --explain` and of the tests: every wrong example gives its
//! code, every right one gives nothing. It is not the wording of a single finding.
//! Invariant: names are unique and never change their meaning; scripts hold them.

mod table;

use crate::near::near_miss;
pub use table::CODES;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The file does not compile.
    Error,
    /// It compiles, and probably does not mean what it says.
    Warning,
}

/// Where a finding is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Compiling a file.
    Compile,
    /// Linking it for a width and symbols.
    Link,
    /// Arming its probe points in a guest.
    Arm,
    /// Reading a control script.
    Script,
}

/// A kind of finding.
#[derive(Debug, Clone, Copy)]
pub struct CodeRow {
    /// Its name.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Where it is made.
    pub stage: Stage,
    /// One line.
    pub title: &'static str,
    /// A few sentences.
    pub explanation: &'static str,
    /// A program, or instructions of one, that gives it.
    pub wrong: &'static str,
    /// The same without it.
    pub right: &'static str,
}

/// The row of a code.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static CodeRow> {
    CODES.iter().find(|row| row.name == name)
}

/// A code that was perhaps meant.
#[must_use]
pub fn near(name: &str) -> Option<&'static str> {
    near_miss(name, CODES.iter().map(|row| row.name))
}
