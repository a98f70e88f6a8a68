//! The options that say what is written of a run, and where.

use std::path::PathBuf;

use clap::Args;

use super::RecordFormat;

/// What is written, and where.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Print the programs and their probe points at the end, as `query` in a script does
    #[arg(long, help_heading = "Output")]
    pub query: bool,
    /// Print the variables at the end, as `getvars` in a script does
    #[arg(long, short_alias = 'g', help_heading = "Output")]
    pub getvars: bool,
    /// Where the guest's console goes: stdio, none or a file [default: stdio without probes or with
    /// --log-to com1, else none].
    /// stdio is standard output unless records go there, then standard error
    #[arg(long, value_name = "WHERE", help_heading = "Output")]
    pub console: Option<String>,
    /// How to print records
    #[arg(
        short,
        long,
        visible_alias = "output",
        value_enum,
        default_value = "text",
        help_heading = "Output"
    )]
    pub format: RecordFormat,
    /// Put instruction count and symbol before each text record
    #[arg(long, help_heading = "Output")]
    pub symbols: bool,
    /// Show data by the templates of this template directory (docs/records.md)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub templates: Option<PathBuf>,
    /// Write records to this file instead of standard output
    #[arg(short, long = "output-file", value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Where records go: file (with -o), stdout, or out of a serial port of the guest, com1 or com2
    /// [default: file with -o, else stdout]
    #[arg(long, value_name = "WHERE", help_heading = "Output")]
    pub log_to: Option<String>,
    /// Where the output of the guest's second serial port goes: stdio, none or a file
    /// [default: stdio with --log-to com2, else none]
    #[arg(long, value_name = "WHERE", help_heading = "Output")]
    pub com2: Option<String>,
    /// Print the digest of the machine at the end
    #[arg(long, help_heading = "Output")]
    pub digest: bool,
    /// Print counters at the end
    #[arg(long, help_heading = "Output")]
    pub stats: bool,
}
