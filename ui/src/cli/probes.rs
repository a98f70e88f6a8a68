//! Options of probes, and of the data that they record.

use std::path::PathBuf;

use clap::Args;
use trapline_providers::Clause;
use trapline_session::numbers;
use trapline_trace::{ChannelConfig, HeaderItems};

use super::{SourceArgs, depth, steps};

/// Probes, and the data that they record.
#[derive(Debug, Default, Args)]
pub struct ProbeArgs {
    /// Probe program to insert, source or PPDF file; may be repeated
    #[arg(short, long = "probe", aliases = ["insert", "apply-ppdf"], value_name = "FILE.rpn", help_heading = "Probes")]
    pub probe: Vec<PathBuf>,
    /// Clauses of D: 'SPEC[,SPEC..] [/ predicate /] { actions } ..', where SPEC is provider:module:function:name
    /// (docs/d.md). A description alone shows the arguments of each hit. May be repeated
    #[arg(short = 'n', long = "name", value_name = "CLAUSE", help_heading = "Probes")]
    pub clauses: Vec<String>,
    /// D program; may be repeated. All -s and -n of a command line are one program
    #[arg(short = 's', long = "d-script", value_name = "FILE.d", help_heading = "Probes")]
    pub d_scripts: Vec<PathBuf>,
    /// Option of D, such as strsize=64 or quiet; may be repeated (docs/d.md)
    #[arg(short = 'x', value_name = "OPTION[=VALUE]", help_heading = "Probes")]
    pub d_options: Vec<String>,
    /// Allow destructive actions of D
    #[arg(short = 'w', long, help_heading = "Probes")]
    pub destructive: bool,
    /// Probe by name with a handler in RPN: 'SPEC[,SPEC..] [/ predicate /] { handler }'. May be repeated
    /// (docs/providers.md)
    #[arg(long = "rpn", value_name = "CLAUSE", help_heading = "Probes")]
    pub rpn: Vec<String>,
    /// Record the kernel's stack with each hit, at most DEPTH return addresses, 32 by default (docs/providers.md, Stacks)
    #[arg(long, value_name = "DEPTH", num_args = 0..=1, default_missing_value = "32", value_parser = depth, help_heading = "Probes")]
    pub stack: Option<usize>,
    /// Record the user program's stack with each hit, at most DEPTH frames, 32 by default
    #[arg(long, value_name = "DEPTH", num_args = 0..=1, default_missing_value = "32", value_parser = depth, help_heading = "Probes")]
    pub ustack: Option<usize>,
    /// Enable only probe points of these groups; a script can enable the others
    #[arg(long, value_name = "GROUP", value_delimiter = ',', num_args = 1.., help_heading = "Probes")]
    pub group: Vec<String>,
    /// Enable only probe points of these types
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', num_args = 1.., help_heading = "Probes")]
    pub kind: Vec<String>,
    /// The preprocessor.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Items of each record, separated by commas: cpu, name, pid, uid, cs, eip, ss, esp, tsc, all, none [default: none]
    #[arg(long, value_name = "ITEMS", help_heading = "Output")]
    pub header: Option<HeaderItems>,
    /// Size in bytes and number of the sub-buffers that hold records, such as 64Kx16 [default: 64Kx16, growing]
    #[arg(long, value_name = "SIZE[xCOUNT]", value_parser = numbers::channel, help_heading = "Probes")]
    pub channel: Option<ChannelConfig>,
    /// Folder for the core files of `exit 3`: core.1, core.2 and so on; numbers that are in use there are skipped
    /// [default: .]
    #[arg(long, value_name = "DIR", help_heading = "Probes")]
    pub core_dir: Option<PathBuf>,
    /// Write at most N core files [default: 16]
    #[arg(long, value_name = "N", value_parser = numbers::count, help_heading = "Probes")]
    pub max_cores: Option<u64>,
    /// Limit of the RPN instructions that a handler executes per hit [default: 65536]
    #[arg(long, value_name = "N", value_parser = steps, help_heading = "Probes")]
    pub max_steps: Option<u32>,
    /// Allow any number of watchpoints of any size, beyond the four debug registers of the hardware
    #[arg(long, help_heading = "Probes")]
    pub watch_unlimited: bool,
}

impl ProbeArgs {
    /// Whether any probe is named.
    pub fn any(&self) -> bool {
        let clauses = self.clauses.len() + self.rpn.len();
        !self.probe.is_empty() || clauses > 0 || !self.d_scripts.is_empty()
    }

    /// Whether a D program is among the probes.
    pub fn has_d(&self) -> bool {
        !self.d_scripts.is_empty() || self.clauses.iter().any(|clause| !Clause::is_bare(clause))
    }

    /// Whether a program of RPN is among the probes.
    pub fn has_rpn(&self) -> bool {
        !self.probe.is_empty() || self.rpn_clauses().next().is_some()
    }

    /// The clauses of RPN: the descriptions of `-n` that have no body, then those of `--rpn`.
    pub fn rpn_clauses(&self) -> impl Iterator<Item = &String> {
        self.clauses.iter().filter(|clause| Clause::is_bare(clause)).chain(&self.rpn)
    }

    /// The clauses of D.
    pub fn d_clauses(&self) -> impl Iterator<Item = &String> {
        self.clauses.iter().filter(|clause| !Clause::is_bare(clause))
    }
}
