//! Fuzzes the target `gdb`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{Checks, GDB};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (GDB.run)(input, Checks::sampled(input)));
