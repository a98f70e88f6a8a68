//! Fuzzes the target `ppdf`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{Checks, PPDF};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (PPDF.run)(input, Checks::sampled(input)));
