//! Options of `profile`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use trapline_session::numbers;

/// Examples below the help.
pub const EXAMPLES: &str = "\
Examples:
  A run        trapline profile embedded:ia32 -o flame.svg
  A recording  trapline profile boot.tlr --insns 1000 -- --to insns=2G
  Exactly      trapline profile embedded:ia32 --exact 'fnv1a*'";

/// `profile`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// What runs: an image, as for `run`, or a recording (FILE.tlr), as for `replay`
    #[arg(value_name = "IMAGE|FILE.tlr")]
    pub image: String,
    /// Take N samples in a second of virtual time
    #[arg(long, value_name = "N", value_parser = numbers::positive, conflicts_with_all = ["insns", "exact"])]
    pub hz: Option<u64>,
    /// Take a sample after each N instructions [default: 10000]
    #[arg(long, value_name = "N", value_parser = numbers::positive, conflicts_with = "exact")]
    pub insns: Option<u64>,
    /// Count the instructions in these functions of the kernel instead, exactly: a glob; may be repeated
    #[arg(long, value_name = "FUNCTION")]
    pub exact: Vec<String>,
    /// Write a flame graph to this file, instead of folded stacks to standard output
    #[arg(short, long = "output-file", alias = "output", value_name = "FILE.svg")]
    pub output: Option<PathBuf>,
    /// Options of `run` or `replay`
    #[arg(last = true, value_name = "OPTION")]
    pub options: Vec<OsString>,
}
