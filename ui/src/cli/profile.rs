//! Options of `profile` and `top`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use trapline_session::numbers::{self, NumberError};

use super::Format;

/// Examples below the help of `profile`.
pub const EXAMPLES: &str = "\
Examples:
  A run        trapline profile embedded:ia32 -o flame.svg
  A recording  trapline profile boot.tlr --insns 1000 -- --to insns=2G
  A table      trapline profile embedded:ia32 --by function
  Exactly      trapline profile embedded:ia32 --exact '*' --by function";

/// Examples below the help of `top`.
pub const TOP_EXAMPLES: &str = "\
Examples:
  On the screen     trapline top bzImage -- --initrd initrd.gz
  As text           trapline top embedded:ia32 --every 1ms
  At the end only   trapline top boot.tlr --once --rows 20

On the screen, q quits, f and p show functions and processes, Space pauses, r resets the counts.";

/// Fewest instructions, and nanoseconds, between two samples.
const SHORTEST: u64 = 1000;

/// Samples in a second.
fn hz(text: &str) -> Result<u64, NumberError> {
    numbers::within(text, 1, 1_000_000_000 / SHORTEST)
}

/// Instructions between samples.
fn insns(text: &str) -> Result<u64, NumberError> {
    numbers::within(text, SHORTEST, u64::MAX)
}

/// What runs, and how it is sampled.
#[derive(Debug, Args)]
pub struct SampledArgs {
    /// What runs: an image, as for `run`, or a recording (FILE.tlr), as for `replay`
    #[arg(value_name = "IMAGE|FILE.tlr", help_heading = "Arguments")]
    pub image: String,
    /// Take N samples in a second of virtual time
    #[arg(long, value_name = "N", value_parser = hz, conflicts_with = "insns", help_heading = "Samples")]
    pub hz: Option<u64>,
    /// Take a sample after each N instructions [default: 10007]
    #[arg(long, value_name = "N", value_parser = insns, help_heading = "Samples")]
    pub insns: Option<u64>,
    /// Options of `run` or `replay`
    #[arg(last = true, value_name = "OPTION", help_heading = "Arguments")]
    pub options: Vec<OsString>,
}

/// What a table counts by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CountedBy {
    /// Function
    Function,
    /// Source line, by debugging information (DWARF)
    Line,
    /// Process: its name and number
    Process,
    /// Kernel, kernel module or program
    Module,
}

/// `profile`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// What runs.
    #[command(flatten)]
    pub sampled: SampledArgs,
    /// Count the instructions in these functions of the kernel instead, exactly: a glob; may be repeated
    #[arg(long, value_name = "FUNCTION", conflicts_with_all = ["hz", "insns"], help_heading = "Samples")]
    pub exact: Vec<String>,
    /// Print a table by this instead of stacks, the hottest first
    #[arg(long, value_enum, value_name = "WHAT", help_heading = "Output")]
    pub by: Option<CountedBy>,
    /// Write a flame graph to this file, or a profile of pprof if it ends in .pb, instead of folded stacks to standard output
    #[arg(
        short,
        long = "output-file",
        alias = "output",
        value_name = "FILE.svg",
        conflicts_with = "by",
        help_heading = "Output"
    )]
    pub output: Option<PathBuf>,
    /// Print the table of --by in this form
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "text",
        requires = "by",
        help_heading = "Output"
    )]
    pub format: Format,
}

/// `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// What runs.
    #[command(flatten)]
    pub sampled: SampledArgs,
    /// Print a table after each such time of the guest, such as 10ms or 1s, instead of showing a screen
    /// [default: 1s, where there is no terminal]
    #[arg(long, value_name = "TIME", value_parser = numbers::virtual_time, help_heading = "Output")]
    pub every: Option<u64>,
    /// Print the table of the whole run only, at its end
    #[arg(long, conflicts_with = "every", help_heading = "Output")]
    pub once: bool,
    /// Print at most N rows of each table [default: 10]
    #[arg(long, value_name = "N", value_parser = numbers::positive, help_heading = "Output")]
    pub rows: Option<u64>,
    /// Print tables in this form instead of showing a screen [default: text]
    #[arg(short, long, value_enum, value_name = "FORMAT", help_heading = "Output")]
    pub format: Option<Format>,
}
