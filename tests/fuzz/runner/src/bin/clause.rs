//! Fuzzes the target `clause`.

#![no_main]

use trapline_fuzz_targets::{Checks, CLAUSE};
use trapline_fuzz_runner as _;

libfuzzer_sys::fuzz_target!(|input: &[u8]| (CLAUSE.run)(input, Checks::sampled(input)));
