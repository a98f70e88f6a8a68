//! Fuzzes the target `templates`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{Checks, TEMPLATES};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (TEMPLATES.run)(input, Checks::sampled(input)));
