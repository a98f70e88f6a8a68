//! The subcommands, one per file. Each writes its data to the given writer and its messages to `Talk`.

pub mod build;
mod by_count;
pub mod check;
mod check_d;
pub mod demo;
pub mod diff;
pub mod dis;
pub mod dis_ppdf;
pub mod dtrace;
pub mod dump;
mod explain;
mod finding;
mod info;
mod insert;
pub mod list;
mod only;
mod position;
mod questions;
pub mod replay;
mod report;
pub mod run;
mod same_run;
pub mod trace;
mod travel;
pub mod tui;
pub mod verify;
