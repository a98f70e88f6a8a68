//! Fuzzes the target `channels`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{CHANNELS, Checks};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (CHANNELS.run)(input, Checks::sampled(input)));
