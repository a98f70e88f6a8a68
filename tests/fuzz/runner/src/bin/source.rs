//! Fuzzes the target `source`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{Checks, SOURCE};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (SOURCE.run)(input, Checks::sampled(input)));
