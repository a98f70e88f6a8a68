//! The options of recordings: making one, and replaying one.

use std::path::PathBuf;

use clap::Args;
use trapline_session::Position;
use trapline_session::numbers;

use super::{OutputArgs, ProbeArgs};

/// How a run is recorded.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Recording")]
pub struct RecordingArgs {
    /// Record the run into this file, for `trapline replay` (docs/recordings.md)
    #[arg(long, value_name = "FILE.tlr")]
    pub record: Option<PathBuf>,
    /// Store the image, the initial RAM disk and all other files of the guest in the recording
    #[arg(long, requires = "record")]
    pub embed: bool,
    /// Instructions between checkpoints [default: 67108864]
    #[arg(long, value_name = "N", value_parser = numbers::positive, requires = "record")]
    pub checkpoint_insns: Option<u64>,
    /// Store the hashes of the pages that change between checkpoints
    #[arg(long, requires = "record")]
    pub pages: bool,
}

/// `replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The recording
    #[arg(help_heading = "Arguments", value_name = "FILE.tlr")]
    pub file: PathBuf,
    /// Compare the run with each checkpoint of the recording; stop at the first difference, with exit code 5
    #[arg(long, help_heading = "Course of the run")]
    pub verify: bool,
    /// Stop at this position: an instruction count, hit:N, end or end-N
    #[arg(long, value_name = "POSITION", help_heading = "Course of the run")]
    pub to: Option<Position>,
    /// Run to this position, then execute commands from standard input, one per line: actions of scripts, and commands that
    /// go back and forth (docs/travel.md)
    #[arg(long, value_name = "POSITION", conflicts_with = "to", help_heading = "Course of the run")]
    pub at: Option<Position>,
    /// Memory for the snapshots that --at uses to go back, such as 64M or 1G [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = numbers::size, requires = "at", help_heading = "Course of the run")]
    pub history_mem: Option<u64>,
    /// Insert the probes of -n and -p at this position [default: the beginning]
    #[arg(long, value_name = "POSITION", help_heading = "Probes")]
    pub from: Option<Position>,
    /// Leave the recording at the probes' first hit or at --at: the run continues differently, and is recorded into this file
    #[arg(long, value_name = "FILE.tlr", help_heading = "Course of the run")]
    pub branch: Option<PathBuf>,
    /// Print the content of the recording, and do not run it
    #[arg(long, conflicts_with_all = ["verify", "to", "at", "from", "branch"], help_heading = "Output")]
    pub info: bool,
    /// Print the speed of the replay at the end
    #[arg(long, help_heading = "Output")]
    pub speed_report: bool,
    /// Also look for the guest's files in this folder, by their names; may be repeated
    #[arg(long, value_name = "DIR", help_heading = "Guest")]
    pub image_dir: Vec<PathBuf>,
    /// Questions about all of it.
    #[command(flatten)]
    pub questions: QuestionArgs,
    /// Probes, and what they record.
    #[command(flatten)]
    pub probes: ProbeArgs,
    /// What is written, and where.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Questions about all of a recording.
#[derive(Debug, Args)]
#[command(next_help_heading = "Questions")]
pub struct QuestionArgs {
    /// List the last instructions that wrote to these bytes: a number, a symbol of the kernel or SYMBOL+OFFSET
    /// (docs/questions.md)
    #[arg(
        long,
        value_name = "ADDRESS[:LENGTH]",
        conflicts_with_all = ["verify", "to", "at", "from", "branch", "info", "speed_report"]
    )]
    pub who_wrote: Option<String>,
    /// List the calls of this kernel function: arguments, return value, duration
    #[arg(
        long,
        value_name = "FUNCTION",
        conflicts_with_all = ["who_wrote", "verify", "to", "at", "from", "branch", "info", "speed_report"]
    )]
    pub calls: Option<String>,
    /// List where this condition on registers and memory becomes true, such as `u32[jiffies] > 1000 && eax == 0`, between
    /// --from and --to: every instruction of that part is executed alone
    #[arg(
        long,
        value_name = "EXPR",
        allow_hyphen_values = true,
        conflicts_with_all = ["who_wrote", "calls", "before", "verify", "at", "branch", "info", "speed_report"]
    )]
    pub when: Option<String>,
    /// With --when: end at the first match
    #[arg(long, requires = "when", conflicts_with = "last")]
    pub first: bool,
    /// Consider only the part before this position
    #[arg(long, value_name = "POSITION")]
    pub before: Option<Position>,
    /// With --who-wrote and --when: list this many [default: 10]
    #[arg(long, value_name = "N", value_parser = numbers::positive)]
    pub last: Option<u64>,
}

impl QuestionArgs {
    /// Whether there is a question.
    pub fn any(&self) -> bool {
        self.who_wrote.is_some() || self.calls.is_some() || self.when.is_some()
    }
}
