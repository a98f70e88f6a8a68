//! Fuzzes the target `snapshot`.

#![no_main]

use trapline_fuzz_runner as _;
use trapline_fuzz_targets::{Checks, SNAPSHOT};

libfuzzer_sys::fuzz_target!(|input: &[u8]| (SNAPSHOT.run)(input, Checks::sampled(input)));
