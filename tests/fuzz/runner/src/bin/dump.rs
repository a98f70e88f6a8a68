//! Fuzzes the target `dump`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{Checks, DUMP};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (DUMP.run)(input, Checks::sampled(input)));
