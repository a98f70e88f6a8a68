//! Fuzzes the target `sites`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{Checks, SITES};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (SITES.run)(input, Checks::sampled(input)));
