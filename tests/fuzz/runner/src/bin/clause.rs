//! Fuzzes the target `clause`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{CLAUSE, Checks};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (CLAUSE.run)(input, Checks::sampled(input)));
