//! The table of all findings: what each code means, with a wrong and a right example.
//!
//! It defines severities and feeds `check --explain` and the tests: every wrong example gives its
//! code, every right one gives no finding. The message of a single finding is written where it is made.
//! Invariant: names are unique and never change their meaning, because users' scripts depend on them.

mod table;

use crate::near::near_miss;
pub use table::CODES;

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The file does not compile.
    Error,
    /// It compiles, but is probably not what the author meant.
    Warning,
}

/// The stage that makes a finding.
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
    /// Its severity.
    pub severity: Severity,
    /// The stage that makes it.
    pub stage: Stage,
    /// Its title, in one line.
    pub title: &'static str,
    /// What it means and what to do, in a few sentences.
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

/// The code that the user probably meant.
#[must_use]
pub fn near(name: &str) -> Option<&'static str> {
    near_miss(name, CODES.iter().map(|row| row.name))
}
