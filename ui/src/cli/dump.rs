//! The options of `dump`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use trapline_session::{Compression, Position, numbers};

use super::{CmdlineArgs, FormArgs, text};
use crate::devices::DeviceArgs;

/// The ending of a recording's name.
const RECORDING: &str = "tlr";

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
    /// Dump the machine at this position: an instruction count; in a recording also hit:N, end or end-N [default: end]
    #[arg(long, value_name = "POSITION", conflicts_with = "until", help_heading = "Course of the run")]
    pub at: Option<Position>,
    /// Dump the machine when the console shows this text; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = text, help_heading = "Course of the run")]
    pub until: Vec<String>,
    /// Dump the machine after N instructions if it still runs, with exit code 124
    #[arg(
        long,
        value_name = "N",
        value_parser = numbers::positive,
        conflicts_with = "at",
        help_heading = "Course of the run"
    )]
    pub limit_insns: Option<u64>,
    // The brackets are part of the help, not a link.
    #[allow(rustdoc::broken_intra_doc_links)]
    /// Load this Multiboot module: 'FILE [ARGUMENTS]'; may be repeated
    #[arg(long, value_name = "FILE", help_heading = "Guest")]
    pub module: Vec<String>,
    /// Initial RAM disk for a Linux kernel
    #[arg(long, value_name = "FILE", help_heading = "Guest")]
    pub initrd: Option<PathBuf>,
    /// Read kernel symbols from this System.map or ELF file; may be repeated
    #[arg(long, value_name = "FILE", help_heading = "Guest")]
    pub sym: Vec<PathBuf>,
    /// Guest memory in bytes, from 1M to 3G [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = numbers::memory, help_heading = "Guest")]
    pub mem: Option<u64>,
    /// The kernel command line.
    #[command(flatten)]
    pub cmdline: CmdlineArgs,
    /// Devices.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// Also look for a recording's files in this folder, by their names; may be repeated
    #[arg(long, value_name = "DIR", help_heading = "Guest")]
    pub image_dir: Vec<PathBuf>,
    /// The form of the output.
    #[command(flatten)]
    pub form: FormArgs,
}

impl DumpArgs {
    /// Whether the machine of a recording is dumped.
    pub fn is_recording(&self) -> bool {
        self.image.extension().is_some_and(|ending| ending == RECORDING)
    }

    /// An option about a guest that is to run, if one was given.
    pub fn of_guest(&self) -> Option<&'static str> {
        let devices = &self.devices;
        let all = [
            (!self.until.is_empty(), "--until"),
            (self.limit_insns.is_some(), "--limit-insns"),
            (!self.module.is_empty(), "--module"),
            (self.initrd.is_some(), "--initrd"),
            (!self.sym.is_empty(), "--sym"),
            (self.mem.is_some(), "--mem"),
            (self.cmdline.cmdline.is_some(), "--cmdline"),
            (!self.cmdline.append.is_empty(), "--append"),
            (devices.platform.is_some(), "--platform"),
            (devices.disk.is_some(), "--disk"),
            (devices.virtio_console, "--virtio-console"),
        ];
        all.into_iter().find_map(|(given, option)| given.then_some(option))
    }
}
