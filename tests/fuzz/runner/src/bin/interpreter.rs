//! Fuzzes the target `interpreter`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{Checks, INTERPRETER};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (INTERPRETER.run)(input, Checks::sampled(input)));
