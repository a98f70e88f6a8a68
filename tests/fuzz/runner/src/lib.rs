//! libFuzzer around the fuzz targets, with one program for each target: the linker drops the code that a target does not
//! use, and its edge counters, which libFuzzer reads after each execution. `scripts/fuzz` builds and runs the programs.

#![cfg(feature = "libfuzzer")]

use mimalloc::MiMalloc;

/// A third of a target's time is spent in the allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;
