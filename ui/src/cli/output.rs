//! Output options of runs.

use std::path::PathBuf;

use clap::Args;

use super::RecordFormat;
use crate::named_file::named_file;

/// Output options.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Print the programs and their probe points at the end, like `query` in a script
    #[arg(long, help_heading = "Output")]
    pub query: bool,
    /// Print the variables at the end, like `getvars` in a script
    #[arg(long, short_alias = 'g', help_heading = "Output")]
    pub getvars: bool,
    /// Output of the guest's console: stdio, none, vga or a file [default: stdio without probes or with
    /// --log-to com1, else none].
    /// stdio is standard output, or standard error if records go to standard output; vga prints the text screen there at the
    /// end of the run instead
    #[arg(long, value_name = "WHERE", help_heading = "Output")]
    pub console: Option<String>,
    /// Format of records
    #[arg(
        short,
        long,
        visible_alias = "output",
        value_enum,
        default_value = "text",
        help_heading = "Output"
    )]
    pub format: RecordFormat,
    /// Print instruction count and symbol before each text record
    #[arg(long, help_heading = "Output")]
    pub symbols: bool,
    /// Format data by the templates of this template directory (docs/records.md)
    #[arg(long, value_name = "FILE", value_parser = named_file(), help_heading = "Output")]
    pub templates: Option<PathBuf>,
    /// Write records to this file instead of standard output
    #[arg(short, long = "output-file", value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Destination of records: file (with -o), stdout, or a serial port of the guest, com1 or com2
    /// [default: file with -o, else stdout]
    #[arg(long, value_name = "WHERE", help_heading = "Output")]
    pub log_to: Option<String>,
    /// Output of the guest's second serial port: stdio, none or a file
    /// [default: stdio with --log-to com2, else none]
    #[arg(long, value_name = "WHERE", help_heading = "Output")]
    pub com2: Option<String>,
    /// Print the digest of the machine's state at the end
    #[arg(long, help_heading = "Output")]
    pub digest: bool,
    /// Print counters of hits, records and instructions at the end
    #[arg(long, help_heading = "Output")]
    pub stats: bool,
}
