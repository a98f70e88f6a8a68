//! Fuzzes the target `recording`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{Checks, RECORDING};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (RECORDING.run)(input, Checks::sampled(input)));
