//! Dynamic probes on a deterministic full-system emulator.
fn main() {}
