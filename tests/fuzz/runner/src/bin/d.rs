//! Fuzzes the target `d`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{Checks, D};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (D.run)(input, Checks::sampled(input)));
