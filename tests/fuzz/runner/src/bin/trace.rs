//! Fuzzes the target `trace`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{Checks, TRACE};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (TRACE.run)(input, Checks::sampled(input)));
