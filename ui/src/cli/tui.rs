//! The options of the terminal user interface.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use trapline_session::numbers;

use super::{CmdlineArgs, GuestArgs, ProbeArgs, RecordingArgs, text};
use crate::devices::DeviceArgs;
use crate::named_file::named_file;

/// The ending of a recording's name.
const RECORDING: &str = "tlr";

/// The colours of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Theme {
    /// For a dark background
    Dark,
    /// For a light background
    Light,
}

/// `tui`.
#[derive(Debug, Args)]
pub struct TuiArgs {
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
    /// End the run after N hits
    #[arg(long, value_name = "N", value_parser = numbers::positive, help_heading = "Course of the run")]
    pub stop_after: Option<u64>,
    /// End the run when the console shows this text; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = text, help_heading = "Course of the run")]
    pub until: Vec<String>,
    /// End the run as a crash when the console shows this text; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = text, help_heading = "Course of the run")]
    pub crash_on: Vec<String>,
    /// End the run after N instructions, such as 300M or 2G
    #[arg(long, value_name = "N", value_parser = numbers::positive, help_heading = "Course of the run")]
    pub limit_insns: Option<u64>,
    /// The recording of the run.
    #[command(flatten)]
    pub recording: RecordingArgs,
    /// Also look for the files of a recording's guest in this folder, by their names; may be repeated
    #[arg(long, value_name = "DIR", help_heading = "Guest")]
    pub image_dir: Vec<PathBuf>,
    /// Memory for the snapshots used to go back, such as 64M or 1G [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = numbers::size, help_heading = "Screen")]
    pub history_mem: Option<u64>,
    /// Colours for a dark or a light background; there are none with NO_COLOR or --color never
    #[arg(long, value_enum, default_value = "dark", help_heading = "Screen")]
    pub theme: Theme,
    /// File of key bindings that replace default ones, one KEY = "ACTION" per line [default: ~/.config/trapline/keys.toml]
    #[arg(long, value_name = "FILE", help_heading = "Screen")]
    pub keys: Option<PathBuf>,
    /// File of bookmarks, stop points and layout, read at the beginning if it is there, and written at the end
    #[arg(long, value_name = "FILE", help_heading = "Screen")]
    pub session: Option<PathBuf>,
    /// Show the data of records by the templates of this template directory (docs/records.md)
    #[arg(long, value_name = "FILE", value_parser = named_file(), help_heading = "Screen")]
    pub templates: Option<PathBuf>,
    /// Look for source files whose path begins with FROM in TO instead; may be repeated
    #[arg(long, value_name = "FROM=TO", value_parser = substitution, help_heading = "Screen")]
    pub substitute_path: Vec<(String, String)>,
    /// Print at the end how long frames and answers to input took, and how large the list of hits is
    #[arg(long, help_heading = "Screen")]
    pub frame_stats: bool,
}

/// Both parts of a substitution.
///
/// # Errors
/// It has another form.
fn substitution(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(from, _)| !from.is_empty());
    let parts = parts.map(|(from, to)| (from.to_owned(), to.to_owned()));
    parts.ok_or_else(|| "write FROM=TO, for example /build/linux=/home/me/linux".to_owned())
}

impl TuiArgs {
    /// Whether it is a recording that is opened.
    pub fn is_recording(&self) -> bool {
        Path::new(&self.guest.image).extension().is_some_and(|ending| ending == RECORDING)
    }
}
