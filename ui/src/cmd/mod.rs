//! The subcommands, one a file. Each writes its data to the writer it is given and its talk to `Talk`.

pub mod check;
pub mod demo;
pub mod dis;
pub mod list;
pub mod run;
pub mod trace;
