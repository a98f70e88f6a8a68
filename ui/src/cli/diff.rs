//! The options of `diff`.

use std::path::PathBuf;

use clap::Args;
use trapline_session::numbers;

use super::{CmdlineArgs, FormArgs};

/// `diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// A recording
    #[arg(value_name = "A.tlr", help_heading = "Arguments")]
    pub a: PathBuf,
    /// A second recording; without it, compare with a run of a changed guest, with the same inputs
    #[arg(
        value_name = "B.tlr",
        help_heading = "Arguments",
        conflicts_with_all = ["image", "mem", "cmdline", "append"]
    )]
    pub b: Option<PathBuf>,
    /// Change the guest: use this image instead of the recorded one
    #[arg(long, value_name = "FILE", help_heading = "Guest")]
    pub image: Option<PathBuf>,
    /// Change the guest: give it this much memory
    #[arg(long, value_name = "SIZE", value_parser = numbers::memory, help_heading = "Guest")]
    pub mem: Option<u64>,
    /// Change the guest: this kernel command line.
    #[command(flatten)]
    pub cmdline: CmdlineArgs,
    /// Also look for the guests' files in this folder, by their names; may be repeated
    #[arg(long, value_name = "DIR", help_heading = "Guest")]
    pub image_dir: Vec<PathBuf>,
    /// Also compare the hits of these probes by function, over the whole of each run [default SPEC: fbt:::entry]
    #[arg(
        long,
        value_name = "SPEC",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "fbt:::entry",
        help_heading = "Output"
    )]
    pub hits: Option<String>,
    /// The form of the output.
    #[command(flatten)]
    pub form: FormArgs,
}
