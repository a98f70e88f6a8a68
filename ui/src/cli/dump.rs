//! The options of `dump`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use trapline_session::Compression;

use super::{FormArgs, MachineArgs};

/// How the pages of a dump are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Compress {
    /// An ELF core, as kdump leaves it
    None,
    /// The format of makedumpfile, with pages compressed by zlib
    Zlib,
    /// The same, by Zstandard
    Zstd,
}

impl From<Compress> for Compression {
    fn from(compress: Compress) -> Self {
        match compress {
            Compress::None => Self::None,
            Compress::Zlib => Self::Zlib,
            Compress::Zstd => Self::Zstd,
        }
    }
}

/// `dump`.
#[derive(Debug, Args)]
pub struct DumpArgs {
    /// A recording, whose name ends in .tlr; a kernel as `run` takes it; with --info a dump
    #[arg(value_name = "IMAGE|FILE.tlr|DUMP", help_heading = "Arguments")]
    pub image: PathBuf,
    /// The dump to write
    #[arg(
        short,
        long = "output-file",
        value_name = "FILE",
        required_unless_present = "info",
        conflicts_with = "info",
        help_heading = "Output"
    )]
    pub output: Option<PathBuf>,
    /// How pages are stored [default: none, an ELF core]
    #[arg(long, value_enum, value_name = "METHOD", conflicts_with = "info", help_heading = "Output")]
    pub compress: Option<Compress>,
    /// Print what a dump contains, and run nothing: the formats of kdump and makedumpfile are read
    #[arg(
        long,
        conflicts_with_all = ["at", "until", "limit_insns", "initrd", "module", "sym", "mem", "cmdline", "append"],
        help_heading = "Output"
    )]
    pub info: bool,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// The form of the output.
    #[command(flatten)]
    pub form: FormArgs,
}
