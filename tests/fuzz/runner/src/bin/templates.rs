//! Fuzzes the target `templates`.

#![no_main]

use trapline_fuzz_targets::{Checks, TEMPLATES};
use trapline_fuzz_runner as _;

libfuzzer_sys::fuzz_target!(|input: &[u8]| (TEMPLATES.run)(input, Checks::sampled(input)));
