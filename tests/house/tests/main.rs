//! The house rules in one binary: one module per subject. A new file needs its `mod` line here.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

mod architecture;
mod behaviours;
mod circles;
mod dependencies;
mod host_speed;
mod numbers;
mod published;
mod references;
mod riddles;
mod scripts;
mod security;
mod test_files;
mod tests_can_fail;
mod toolchain;
