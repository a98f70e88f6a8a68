//! The options of `dump`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use trapline_session::{Compression, numbers};

use super::{FormArgs, MachineArgs, ProbeArgs};

/// What of a dump is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Listed {
    /// The tasks, as `list --processes` shows those of a machine that has run
    Processes,
    /// The kernel modules, as `list --modules` shows them
    Modules,
    /// The stack of each task
    Stacks,
    /// The log of the kernel, as dmesg shows it
    Console,
}

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
    /// A recording, whose name ends in .tlr; a kernel as `run` takes it; a dump to read it
    #[arg(value_name = "IMAGE|FILE.tlr|DUMP", help_heading = "Arguments")]
    pub image: PathBuf,
    /// The dump to write
    #[arg(
        short,
        long = "output-file",
        value_name = "FILE",
        required_unless_present_any = ["info", "list", "probe", "clauses", "d_scripts", "rpn"],
        conflicts_with_all = ["info", "probe", "clauses", "d_scripts", "rpn"],
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
    /// List what is in the memory of a dump
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        conflicts_with_all = ["info", "output", "probe", "clauses", "d_scripts", "rpn"],
        help_heading = "Reading a dump"
    )]
    pub list: Option<Listed>,
    /// The kernel of a dump: its file, or a System.map [default: the kernel in the dump, if it is Linux]
    #[arg(long, value_name = "FILE", help_heading = "Reading a dump")]
    pub symbols: Option<String>,
    /// The file is an image of the memory and nothing else, from physical address 0 on
    #[arg(long, help_heading = "Reading a dump")]
    pub raw: bool,
    /// With --raw: the physical address of the top page table [default: it is searched for]
    #[arg(long, value_name = "ADDRESS", value_parser = numbers::count, requires = "raw", help_heading = "Reading a dump")]
    pub cr3: Option<u64>,
    /// Programs that read a dump.
    #[command(flatten)]
    pub programs: ProgramArgs,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// The form of the output.
    #[command(flatten)]
    pub form: FormArgs,
}

/// Programs that read a dump.
#[derive(Debug, Args)]
#[command(next_help_heading = "Reading a dump")]
pub struct ProgramArgs {
    /// Clauses of D for BEGIN and END, which read the memory of a dump (docs/d.md); may be repeated
    #[arg(short = 'n', long = "name", value_name = "CLAUSE")]
    pub clauses: Vec<String>,
    /// D program that reads a dump; may be repeated
    #[arg(short = 's', long = "d-script", value_name = "FILE.d")]
    pub d_scripts: Vec<PathBuf>,
    /// Option of D, such as strsize=64 or quiet; may be repeated
    #[arg(short = 'x', value_name = "OPTION[=VALUE]")]
    pub d_options: Vec<String>,
    /// A handler in RPN for BEGIN or END: 'BEGIN { handler }'; may be repeated
    #[arg(long = "rpn", value_name = "CLAUSE")]
    pub rpn: Vec<String>,
    /// Probe program whose handlers run once each, wherever its probe points are; may be repeated
    #[arg(short, long = "probe", value_name = "FILE.rpn")]
    pub probe: Vec<PathBuf>,
}

impl DumpArgs {
    /// Whether programs are to read a dump.
    pub fn has_programs(&self) -> bool {
        self.probes().any()
    }

    /// Its programs, as those of a run.
    pub fn probes(&self) -> ProbeArgs {
        let ProgramArgs { clauses, d_scripts, d_options, rpn, probe } = &self.programs;
        ProbeArgs {
            probe: probe.clone(),
            clauses: clauses.clone(),
            d_scripts: d_scripts.clone(),
            d_options: d_options.clone(),
            rpn: rpn.clone(),
            ..ProbeArgs::default()
        }
    }

    /// An option about reading a dump, if one was given.
    pub fn of_dump(&self) -> Option<&'static str> {
        let programs = &self.programs;
        let all = [
            (self.list.is_some(), "--list"),
            (self.symbols.is_some(), "--symbols"),
            (self.cr3.is_some(), "--cr3"),
            (self.raw, "--raw"),
            (!programs.clauses.is_empty(), "-n"),
            (!programs.d_scripts.is_empty(), "-s"),
            (!programs.d_options.is_empty(), "-x"),
            (!programs.rpn.is_empty(), "--rpn"),
            (!programs.probe.is_empty(), "-p"),
        ];
        all.into_iter().find_map(|(given, option)| given.then_some(option))
    }
}
