//! The options that name a machine and a moment of its run.

use std::path::{Path, PathBuf};

use clap::Args;
use trapline_session::{Position, numbers};

use super::{CmdlineArgs, text};
use crate::devices::DeviceArgs;

/// The ending of a recording's name.
const RECORDING: &str = "tlr";

/// A guest, and the moment at which its machine is looked at.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// Stop the machine at this position: an instruction count; in a recording also hit:N, end or end-N [default: end]
    #[arg(long, value_name = "POSITION", conflicts_with = "until", help_heading = "Course of the run")]
    pub at: Option<Position>,
    /// Stop the machine when the console shows this text; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = text, help_heading = "Course of the run")]
    pub until: Vec<String>,
    /// Stop the machine after N instructions if it still runs, with exit code 124
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
    /// Guest memory in bytes, from 1M to 32G [default: 256M]
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
}

/// Whether a file is a recording, by its name.
pub fn is_recording(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == RECORDING)
}

impl MachineArgs {
    /// An option about a guest that is to run, if one was given.
    pub fn of_guest(&self) -> Option<&'static str> {
        let all = [
            (!self.until.is_empty(), "--until"),
            (self.limit_insns.is_some(), "--limit-insns"),
            (!self.module.is_empty(), "--module"),
            (self.initrd.is_some(), "--initrd"),
            (!self.sym.is_empty(), "--sym"),
            (self.mem.is_some(), "--mem"),
        ];
        let mut all = all.into_iter().chain(self.cmdline.given()).chain(self.devices.given());
        all.find_map(|(given, option)| given.then_some(option))
    }

    /// An option about a machine that is to run to a position, if one was given.
    pub fn of_run(&self) -> Option<&'static str> {
        let more = [(self.at.is_some(), "--at"), (!self.image_dir.is_empty(), "--image-dir")];
        self.of_guest().or_else(|| more.into_iter().find_map(|(given, option)| given.then_some(option)))
    }
}
