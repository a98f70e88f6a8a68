//! The options of `trapline-fuzz`. `trapline fuzz` passes them on; its help describes them.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Parser;
use trapline_fuzz::inputs::Input;
use trapline_session::{Position, numbers};

/// Searches for states in which the handlers of a recorded run, or a function of the guest, do what they must not.
/// `trapline fuzz` starts it; see there.
#[derive(Debug, Parser)]
#[command(name = "trapline-fuzz", version)]
pub struct Args {
    /// The recording of the run
    #[arg(value_name = "FILE.tlr")]
    pub recording: PathBuf,
    /// Folder for findings
    #[arg(long, value_name = "DIR")]
    pub findings: PathBuf,
    /// Folder of states that reach something
    #[arg(long, value_name = "DIR")]
    pub corpus: Option<PathBuf>,
    /// Take the hits from this position on
    #[arg(long, value_name = "POSITION")]
    pub at: Option<Position>,
    /// Let the guest run on after the first handler of a state, for this many instructions
    #[arg(long = "continue", value_name = "N", value_parser = numbers::positive, conflicts_with = "function")]
    pub continued: Option<u64>,
    /// Run a function of the guest: that at whose first instruction this probe is
    #[arg(long, value_name = "PROBE")]
    pub function: Option<String>,
    /// An input of the function
    #[arg(long, value_name = "INPUT", requires = "function")]
    pub input: Vec<Input>,
    /// Where a call of the function ends
    #[arg(long, value_name = "WHERE", default_value = "return", requires = "function")]
    pub until: String,
    /// Keep the states of this many real hits
    #[arg(long, value_name = "N", default_value = "8", value_parser = numbers::positive)]
    pub hits: u64,
    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = numbers::time)]
    pub time: Option<Duration>,
    /// End after this many executions
    #[arg(long, value_name = "N", value_parser = numbers::positive)]
    pub execs: Option<u64>,
    /// Seed of the search
    #[arg(long, value_name = "N", default_value = "0", value_parser = numbers::count)]
    pub seed: u64,
    /// Processes that search together
    #[arg(long, value_name = "N", default_value = "1", value_parser = jobs)]
    pub jobs: u64,
    /// Search together with processes that join at this address
    #[arg(long, value_name = "ADDR", conflicts_with = "join")]
    pub broker: Option<SocketAddr>,
    /// Search together with the process at this address
    #[arg(long, value_name = "ADDR")]
    pub join: Option<SocketAddr>,
    /// One process of several: it tells what it finds, and shares its states through the broker at this port
    #[arg(long, value_name = "PORT", hide = true)]
    pub port: Option<u16>,
    /// Only measure: the search, or what LibAFL does with a subject that does nothing
    #[arg(long, value_name = "WHAT", hide = true, requires = "execs", value_parser = ["search", "empty"])]
    pub speed: Option<String>,
    /// An objective to switch on
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub objective: Vec<String>,
    /// An objective to switch off
    #[arg(long, value_name = "NAME")]
    pub no_objective: Vec<String>,
    /// What stays as it is at the real hits
    #[arg(long, value_name = "WHAT", value_parser = ["variables", "hits"])]
    pub fix: Vec<String>,
    /// Also look for the recording's files in this folder
    #[arg(long, value_name = "DIR")]
    pub image_dir: Vec<PathBuf>,
    /// Print only the findings and the verdict
    #[arg(short, long)]
    pub quiet: bool,
}

/// A number of processes.
fn jobs(text: &str) -> Result<u64, numbers::NumberError> {
    numbers::within(text, 1, 256)
}

impl Args {
    /// The command of one process of several: that of this one, with a seed and a part of the executions of its own.
    pub fn of_job(&self, job: usize, port: u16) -> std::io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        let seed = self.seed.wrapping_add((job as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let values: [(&str, OsString); 5] = [
            ("--findings", self.findings.clone().into()),
            ("--hits", self.hits.to_string().into()),
            ("--seed", seed.to_string().into()),
            ("--port", port.to_string().into()),
            ("--jobs", "1".into()),
        ];
        let some = [
            ("--corpus", self.corpus.clone().map(OsString::from)),
            ("--at", self.at.map(|at| at.to_string().into())),
            ("--time", self.time.map(|time| format!("{}s", time.as_secs()).into())),
            ("--execs", self.execs.map(|execs| execs.div_ceil(self.jobs).to_string().into())),
            ("--continue", self.continued.map(|insns| insns.to_string().into())),
            ("--function", self.function.clone().map(OsString::from)),
            ("--until", self.function.as_ref().map(|_| self.until.clone().into())),
        ];
        command.arg(&self.recording);
        for (option, value) in values {
            command.arg(option).arg(value);
        }
        for (option, value) in some.into_iter().filter_map(|(option, value)| Some((option, value?))) {
            command.arg(option).arg(value);
        }
        let texts =
            [("--objective", &self.objective), ("--no-objective", &self.no_objective), ("--fix", &self.fix)];
        for (option, values) in texts {
            command.args(values.iter().map(|value| format!("{option}={value}")));
        }
        command.args(self.input.iter().map(|input| format!("--input={input}")));
        for folder in &self.image_dir {
            command.arg("--image-dir").arg(folder);
        }
        Ok(command)
    }
}
