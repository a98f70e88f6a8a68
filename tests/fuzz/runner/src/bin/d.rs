//! Fuzzes the target `d`.

#![no_main]

use trapline_fuzz_targets::{Checks, D};
use trapline_fuzz_runner as _;

libfuzzer_sys::fuzz_target!(|input: &[u8]| (D.run)(input, Checks::sampled(input)));
