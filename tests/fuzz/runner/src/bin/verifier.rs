//! Fuzzes the target `verifier`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{Checks, VERIFIER};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (VERIFIER.run)(input, Checks::sampled(input)));
