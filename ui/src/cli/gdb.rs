//! The options of the server for gdb.

use std::path::{Path, PathBuf};

use clap::Args;
use trapline_providers::TargetProcess;
use trapline_session::numbers;

use super::{CmdlineArgs, GuestArgs, SourceArgs, is_recording};
use crate::devices::DeviceArgs;

/// Examples below the help.
pub const EXAMPLES: &str = "\
Examples:
  A guest         trapline gdb embedded:ia32
                  gdb -ex 'target remote :1234'
  Without a port  gdb -ex 'target remote | trapline gdb embedded:ia32 --stdio'
  A recording     trapline gdb boot.tlr --listen 127.0.0.1:0
  One process     trapline gdb bzImage --initrd initrd.gz --user /bin/busybox

In gdb, `monitor help` lists what the server does beside gdb's own commands.";

/// `gdb`.
#[derive(Debug, Args)]
pub struct GdbArgs {
    /// The guest.
    #[command(flatten)]
    pub guest: GuestArgs,
    /// The kernel command line.
    #[command(flatten)]
    pub cmdline: CmdlineArgs,
    /// Guest memory in bytes, from 1M to 32G [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = numbers::memory, help_heading = "Guest")]
    pub mem: Option<u64>,
    /// Devices.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// Probe program to insert, source or PPDF file; may be repeated. `exit 1` of a handler stops the run
    #[arg(short, long, value_name = "FILE.rpn", help_heading = "Probe programs")]
    pub probe: Vec<PathBuf>,
    /// How they are read.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Also look for the files of a recording's guest in this folder, by their names; may be repeated
    #[arg(long, value_name = "DIR", help_heading = "Guest")]
    pub image_dir: Vec<PathBuf>,
    /// Wait for gdb at this address; port 0 means any free port
    #[arg(long, value_name = "[HOST:]PORT", default_value = "127.0.0.1:1234", help_heading = "Debugger")]
    pub listen: String,
    /// Use standard input and output in place of a port, for gdb's `target remote | COMMAND`
    #[arg(long, conflicts_with = "listen", help_heading = "Debugger")]
    pub stdio: bool,
    /// Show this process as a program: its name, its process id, or the path of its program in the guest
    #[arg(long, value_name = "NAME|PID|PATH", help_heading = "Debugger")]
    pub user: Option<TargetProcess>,
    /// Memory for the snapshots used to go back, such as 64M or 1G [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = numbers::size, help_heading = "Debugger")]
    pub history_mem: Option<u64>,
}

impl GdbArgs {
    /// Whether it is a recording that is debugged.
    pub fn is_recording(&self) -> bool {
        is_recording(Path::new(&self.guest.image))
    }
}
