//! Fuzzes the target `interpreter`.

#![no_main]

use trapline_fuzz_targets::{Checks, INTERPRETER};
use trapline_fuzz_runner as _;

libfuzzer_sys::fuzz_target!(|input: &[u8]| (INTERPRETER.run)(input, Checks::sampled(input)));
