//! Fuzzes the target `notes`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{Checks, NOTES};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (NOTES.run)(input, Checks::sampled(input)));
