//! The options of `fuzz`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use trapline_fuzz::inputs::Input;
use trapline_session::{Position, numbers};

use super::{CmdlineArgs, GuestArgs, ProbeArgs};
use crate::devices::DeviceArgs;

/// Examples at the end of the help.
pub const EXAMPLES: &str = "\
Examples:
  A minute           trapline fuzz embedded:ia32 -p probes.rpn
  The same again     trapline fuzz embedded:ia32 -p probes.rpn --execs 10M --seed 7
  Another objective  trapline fuzz boot.tlr --objective budget=1000 --objective writes=none
  And the guest      trapline fuzz embedded:ia32 -p probes.rpn --continue 1000
  A function         trapline fuzz embedded:planted --function fbt::vortex_control:entry --input arg0:arg1
  In words           trapline fuzz --explain findings/exception-invalid_addr-probes.rpn-4.tlr

The exit code is 1 if something was found, 124 if not all was searched or reached, 0 otherwise; the others are those of `trapline --help`.";

/// A number of processes.
fn jobs(text: &str) -> Result<u64, numbers::NumberError> {
    numbers::within(text, 1, 256)
}

/// `fuzz`.
#[derive(Debug, Args)]
pub struct FuzzArgs {
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
    /// Probes, and what they record.
    #[command(flatten)]
    pub probes: ProbeArgs,
    /// Say in words how a finding differs from the real hit, and what happens; the recording is that of a finding
    #[arg(long, help_heading = "Findings")]
    pub explain: bool,
    /// Folder for findings, and for the recording of the run, run.tlr
    #[arg(long, value_name = "DIR", default_value = "findings", help_heading = "Findings")]
    pub findings: PathBuf,
    /// Folder of states that reach something: they are read at the beginning, and each new one is written at once, so that a
    /// later search goes on from there. Without it, the states of each search are in a folder of their own in that of findings
    #[arg(long, value_name = "DIR", help_heading = "Search")]
    pub corpus: Option<PathBuf>,
    /// Take the hits from this position of the run on: an instruction count; in a recording also hit:N
    #[arg(long, value_name = "POSITION", help_heading = "Search")]
    pub at: Option<Position>,
    /// Let the guest run on after the first handler of each state, for this many instructions, and compare it with its twin
    /// without probes; what the handler writes goes to the guest
    #[arg(long = "continue", value_name = "N", value_parser = numbers::positive, conflicts_with = "function", help_heading = "Search")]
    pub continued: Option<u64>,
    /// Run a function of the guest instead of handlers, from the real hits of this probe at its beginning, such as
    /// fbt::NAME:entry; handlers that assert then watch it
    #[arg(long, value_name = "PROBE", help_heading = "Search")]
    pub function: Option<String>,
    /// An input of the function, which the search changes: arg0:64 or arg0:arg1 for the memory to which an argument points, a
    /// general register, or addresses FIRST:LAST; may be repeated
    #[arg(long, value_name = "INPUT", requires = "function", help_heading = "Search")]
    pub input: Vec<Input>,
    /// Where a call of the function ends: return, or an instruction count [default: return]
    #[arg(long, value_name = "WHERE", help_heading = "Search")]
    pub until: Option<String>,
    /// Keep the states of this many real hits
    #[arg(long, value_name = "N", default_value = "8", value_parser = numbers::positive, help_heading = "Search")]
    pub hits: u64,
    /// Look for hits in this many instructions after the position [default: 4G]
    #[arg(long, value_name = "N", value_parser = numbers::positive, help_heading = "Search")]
    pub limit_insns: Option<u64>,
    /// End after this time, such as 60s, 10m or 2h [default: 60s, unless --execs is given]
    #[arg(long, value_name = "TIME", value_parser = numbers::time, help_heading = "Search")]
    pub time: Option<Duration>,
    /// End after this many executions of the handlers
    #[arg(long, value_name = "N", value_parser = numbers::positive, help_heading = "Search")]
    pub execs: Option<u64>,
    /// Seed of the search: with --execs, the same seed gives the same findings in the same order
    #[arg(long, value_name = "N", default_value = "0", value_parser = numbers::count, help_heading = "Search")]
    pub seed: u64,
    /// Search with this many processes, which share the states that reach something; only one gives the same each time
    #[arg(long, value_name = "N", default_value = "1", value_parser = jobs, help_heading = "Search")]
    pub jobs: u64,
    /// Search together with the processes that join at this address: 127.0.0.1:PORT, or 0.0.0.0:PORT for other machines, which is
    /// open to everybody who reaches it
    #[arg(long, value_name = "ADDR", conflicts_with = "join", help_heading = "Search")]
    pub broker: Option<SocketAddr>,
    /// Search together with the broker at this address, which searches the same
    #[arg(long, value_name = "ADDR", help_heading = "Search")]
    pub join: Option<SocketAddr>,
    /// What handlers must not do, switched on: panic, nondeterminism, interpreters, budget=N, exception[=NAME], truncated,
    /// lost, writes=RANGES, leak=RANGES, assert; with --continue also guest-crash, guest-differs. Of functions: panic,
    /// nondeterminism, assert, guest-crash, text[=TEXT], insns=N. All are on by default but those with = before their value.
    /// May be repeated
    #[arg(long, value_name = "NAME[=VALUE]", action = ArgAction::Append, help_heading = "Search")]
    pub objective: Vec<String>,
    /// An objective to switch off; may be repeated
    #[arg(long, value_name = "NAME", action = ArgAction::Append, help_heading = "Search")]
    pub no_objective: Vec<String>,
    /// What stays as it is at the real hits: variables (before the first handler runs), hits (those of one hit at a time)
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = ["variables", "hits"], help_heading = "Search")]
    pub fix: Vec<String>,
    /// Also look for a recording's files in this folder, by their names; may be repeated
    #[arg(long, value_name = "DIR", help_heading = "Guest")]
    pub image_dir: Vec<PathBuf>,
}
