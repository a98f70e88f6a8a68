//! The options of `dti`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use trapline_session::numbers;

use super::{FormArgs, MachineArgs};
use crate::devices::CPU_MODEL;

/// `dti`.
#[derive(Debug, Args)]
pub struct DtiArgs {
    /// What to do with channels.
    #[command(subcommand)]
    pub command: DtiCommand,
}

/// What to do with channels.
#[derive(Debug, Subcommand)]
pub enum DtiCommand {
    /// List the channels, with their levels and numbers of records
    List(DtiListArgs),
    /// Print the records of one or all channels, merged over the CPUs by time
    Show(DtiShowArgs),
    /// Run a guest, and print records as they are written
    Follow(DtiFollowArgs),
}

/// Where channels are. Here `--cpu` is the number of a CPU.
#[derive(Debug, Args)]
#[command(mut_arg(CPU_MODEL, |arg| arg.long(CPU_MODEL)))]
pub struct DtiSource {
    /// A recording, whose name ends in .tlr; a crash dump; or a kernel as `run` takes it
    #[arg(value_name = "IMAGE|FILE.tlr|DUMP", help_heading = "Arguments")]
    pub image: PathBuf,
    /// Start from the snapshot in this file, which `run --save` has written; without a position, it is looked at as it is
    #[arg(long, value_name = "FILE", help_heading = "Guest")]
    pub restore: Option<PathBuf>,
    /// The file is an image of the memory and nothing else, from physical address 0 on
    #[arg(long, help_heading = "Reading a dump")]
    pub raw: bool,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// The form of the output.
    #[command(flatten)]
    pub form: FormArgs,
}

/// `dti list`.
#[derive(Debug, Args)]
pub struct DtiListArgs {
    /// Where channels are.
    #[command(flatten)]
    pub source: DtiSource,
}

/// How the data of records are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DtiView {
    /// As text if all of it is text, otherwise as bytes
    Auto,
    /// As text
    Sprintf,
    /// As bytes, in hexadecimal digits and as characters
    Hex,
    /// Whole records in binary, as a read of the guest's file gives them
    Raw,
}

/// Which records are shown, and how.
#[derive(Debug, Args)]
pub struct DtiRecordArgs {
    /// The channel; all if omitted
    #[arg(help_heading = "Arguments")]
    pub name: Option<String>,
    /// How data are shown [default: auto]
    #[arg(long, value_enum, value_name = "VIEW", help_heading = "Output")]
    pub view: Option<DtiView>,
    /// Show data by this template, the text of a `fmt` statement (docs/records.md), such as 'tick %4u, task %4u'
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "view", help_heading = "Output")]
    pub template: Option<String>,
    /// Show data by the templates of this folder: the file CHANNEL.fmt has that of a channel, as --template takes it
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["view", "template"], help_heading = "Output")]
    pub templates: Option<PathBuf>,
    /// Only records of this CPU
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub cpu: Option<u16>,
    /// Only records that the guest itself has not read
    #[arg(long, help_heading = "Output")]
    pub unread: bool,
}

/// `dti show`.
#[derive(Debug, Args)]
pub struct DtiShowArgs {
    /// Where channels are.
    #[command(flatten)]
    pub source: DtiSource,
    /// The records.
    #[command(flatten)]
    pub records: DtiRecordArgs,
    /// Only records after the position in this file, which is then moved behind them; the guest's own is not touched
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub cursor: Option<PathBuf>,
    /// Begin with the oldest record, whatever the position in the file
    #[arg(long, requires = "cursor", help_heading = "Output")]
    pub reset: bool,
}

/// `dti follow`.
#[derive(Debug, Args)]
pub struct DtiFollowArgs {
    /// Where channels are.
    #[command(flatten)]
    pub source: DtiSource,
    /// The records.
    #[command(flatten)]
    pub records: DtiRecordArgs,
    /// Instructions between two looks at the channels [default: 1000000]
    #[arg(long, value_name = "N", value_parser = numbers::positive, help_heading = "Course of the run")]
    pub every: Option<u64>,
}
