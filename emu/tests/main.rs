//! The tests of this crate in one binary: one module per subject. A new file needs its `mod` line here.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

mod blocks_told;
mod common;
mod counting;
mod data_breakpoints;
mod devices;
mod exceptions;
mod execute_breakpoints;
mod host_state;
mod hostile;
mod in_line;
mod interrupts;
mod libm;
mod modes;
mod moments;
mod paging;
#[path = "common/patience.rs"]
mod patience;
mod pauses;
mod random_programs;
mod self_modifying;
mod snapshots;
mod soundness;
mod stand_ins;
mod strings;
mod stubs;
mod taken_over;
mod undefined;
mod untranslatable;
mod user_code;
mod views;
mod watch;
mod watch_accesses;
#[path = "common/watching.rs"]
mod watching;
mod x87;
