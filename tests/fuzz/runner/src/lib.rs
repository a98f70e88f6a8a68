//! libFuzzer around the fuzz targets, a program for each: the linker leaves away what a target does not reach, counters of
//! its edges included, which libFuzzer looks through after each execution. Built and run by `scripts/fuzz`.

use mimalloc::MiMalloc;

/// A third of what a target does is to allocate.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;
