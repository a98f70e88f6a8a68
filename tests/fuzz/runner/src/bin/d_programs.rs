//! Fuzzes the target `d_programs`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{Checks, D_PROGRAMS};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (D_PROGRAMS.run)(input, Checks::sampled(input)));
