//! Fuzzes the target `session`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{Checks, SESSION};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (SESSION.run)(input, Checks::sampled(input)));
