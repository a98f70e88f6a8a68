//! The subcommands, one a file. Each writes its data to the writer it is given and its talk to `Talk`.

pub mod build;
pub mod check;
pub mod demo;
pub mod dis;
pub mod dis_ppdf;
pub mod dtrace;
mod explain;
mod finding;
mod info;
mod insert;
pub mod list;
mod only;
mod position;
pub mod replay;
mod report;
pub mod run;
pub mod trace;
mod travel;
pub mod verify;
