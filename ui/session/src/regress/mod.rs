//! Regression tests: recordings with what they must still give. docs/regression.md says how they are kept.
//!
//! A recording itself says what its digests, records, console and ending must be. Assertions beside it say more, and the
//! text of its records can be kept beside it, so that a difference can be shown.

mod check;
mod grammar;
mod update;

pub use check::{Case, CaseError, Failed, Passed};
