//! The tests of this crate in one binary: one module per subject. A new file needs its `mod` line here.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

#[path = "common/cases.rs"]
mod cases;
mod codes;
mod common;
#[path = "common/compare.rs"]
mod compare;
mod conformance;
mod cpp_oracle;
#[path = "common/ppdf.rs"]
mod files;
#[path = "common/generate.rs"]
mod generate;
#[path = "common/hostile.rs"]
mod hostile;
mod library;
mod lints;
mod mutation;
#[path = "common/naive.rs"]
mod naive;
mod observed;
mod oracle;
mod ppdf;
mod ppdf_hostile;
mod ppdf_random;
mod preprocessor;
mod programs;
mod roundtrip;
mod table;
mod watchpoints;
