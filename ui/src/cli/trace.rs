//! Options of `trace`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use trapline_export::Weight;

use super::RecordFormat;
use crate::named_file::named_file;

/// The forms that `trace cat` prints: `trace convert` has the others.
fn printed() -> impl TypedValueParser<Value = RecordFormat> {
    let printed = [RecordFormat::Text, RecordFormat::Json, RecordFormat::Dtrace, RecordFormat::Raw];
    let values = printed.iter().filter_map(ValueEnum::to_possible_value);
    PossibleValuesParser::new(values).try_map(|name| RecordFormat::from_str(&name, false))
}

/// `trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// What to do with one.
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// What to do with a trace file.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Print a trace file as `run` would have printed it
    Cat(CatArgs),
    /// Convert a trace file to the format of another tool (docs/export.md)
    Convert(ConvertArgs),
}

/// The format of another tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// CTF 1.8, for babeltrace2 and Trace Compass: a folder
    Ctf,
    /// For ui.perfetto.dev and trace_processor, in binary
    Perfetto,
    /// Folded stacks, one line per stack, for flame graph tools
    Folded,
    /// A flame graph
    Svg,
    /// Stacks for pprof, in binary
    Pprof,
    /// One JSON object per line, like `trace cat -f json`
    Json,
    /// A table with one line per record
    Csv,
}

impl ExportFormat {
    /// The form of records.
    pub fn format(self) -> RecordFormat {
        match self {
            Self::Ctf => RecordFormat::Ctf,
            Self::Perfetto => RecordFormat::Perfetto,
            Self::Folded => RecordFormat::Folded,
            Self::Svg => RecordFormat::Svg,
            Self::Pprof => RecordFormat::Pprof,
            Self::Json => RecordFormat::Json,
            Self::Csv => RecordFormat::Csv,
        }
    }
}

/// `trace convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// The trace file, or - for standard input
    pub file: PathBuf,
    /// The format
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: ExportFormat,
    /// Write to this file, or for ctf this folder, instead of standard output
    #[arg(short, long = "output-file", alias = "output", value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// With folded, svg or pprof: what the width of a frame counts. count: hits or calls; insns or ns: what passes between entry
    /// and return; a number: the logged word, from 0; a name: an argument, or `returns` [default: count for recorded stacks,
    /// insns for calls]
    #[arg(long, value_name = "WHAT")]
    pub weight: Option<Weight>,
    /// With folded, svg or pprof: compare with this earlier trace file
    #[arg(long, value_name = "FILE")]
    pub diff: Option<PathBuf>,
}

/// `trace cat`.
#[derive(Debug, Args)]
pub struct CatArgs {
    /// The trace file, or - for standard input
    pub file: PathBuf,
    /// How to print records
    #[arg(short, long, visible_alias = "output", value_parser = printed(), default_value = "text")]
    pub format: RecordFormat,
    /// Put instruction count and symbol before each text record
    #[arg(long)]
    pub symbols: bool,
    /// Show data by the templates of this template directory (docs/records.md)
    #[arg(long, value_name = "FILE", value_parser = named_file())]
    pub templates: Option<PathBuf>,
    /// Show the run's counters, like `run --stats`
    #[arg(long)]
    pub stats: bool,
    /// Write to this file instead of standard output
    #[arg(short, long = "output-file", value_name = "FILE")]
    pub output: Option<PathBuf>,
}
