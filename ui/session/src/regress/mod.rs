//! Regression tests: recordings with what they must still give. docs/regression.md says how they are kept.
//!
//! A recording itself contains the expected digests, records, console and ending. A file beside it may hold further
//! assertions, and another the text of its records, so that a difference can be shown.

mod check;
mod grammar;
mod shown;
mod update;

pub use check::{Case, CaseError, Failed, Passed};
