//! Why nothing can be searched.

use trapline_session::{
    CommandError, GuestError, RecordingError, ReplayError, SnapshotError, TravelError, counted, io_sentence,
};

/// The exit code of what was interrupted.
pub const INTERRUPTED: u8 = 130;

/// Why nothing can be searched, or a finding cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum FuzzError {
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The recording cannot be replayed here.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The guest cannot be started.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// A position of the run cannot be reached.
    #[error(transparent)]
    Travel(#[from] TravelError),
    /// A state cannot be restored.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The differences of a finding cannot be applied.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The replay is another run.
    #[error("the recording cannot be followed: {0}")]
    Diverged(String),
    /// The run has no hit.
    #[error(
        "no handler runs before an instruction in this part of the run ({passed_over} hits without one were passed over): use probes that are hit"
    )]
    NoHits {
        /// Hits without an instruction.
        passed_over: u64,
    },
    /// The function is not called.
    #[error(
        "{function} is not hit in the {} of the recording: search from another --at, or further with --limit-insns",
        counted(*instructions, "instruction")
    )]
    NoCalls {
        /// The name of the probe.
        function: String,
        /// How long the recording is.
        instructions: u64,
    },
    /// None of the real calls of a function can be used.
    #[error("no real hit of {hits} can be used (--at and --hits take others): {first}")]
    NoneFits {
        /// How many there are.
        hits: u64,
        /// Why the first one cannot.
        first: Box<Self>,
    },
    /// The search was interrupted before it had begun.
    #[error("interrupted before the search had begun")]
    Interrupted,
    /// An input of a function cannot be used.
    #[error("--input {input}: at hit {hit}, {why}")]
    Input {
        /// The input.
        input: String,
        /// The hit, as the run counts them.
        hit: u64,
        /// Why.
        why: String,
    },
    /// A function does not return in the real run.
    #[error("at hit {hit}, the function does not return (--until ends it at an instruction count): {how}")]
    NoReturn {
        /// The hit, as the run counts them.
        hit: u64,
        /// How its call ended.
        how: String,
    },
    /// An objective is wrong.
    #[error("{0}")]
    Objective(String),
    /// The recording is not a finding.
    #[error("{0} is not a finding of `trapline fuzz`: it alters no run of a handler")]
    NotAFinding(String),
    /// A file cannot be written.
    #[error("cannot write {path}: {}", io_sentence(.error))]
    Write {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// Standard output cannot be written.
    #[error("cannot write standard output: {}", io_sentence(.0))]
    Output(std::io::Error),
    /// The search itself has failed.
    #[error("the search has failed: {0}")]
    Search(String),
}

impl FuzzError {
    /// The exit code, as `trapline --help` lists them.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted | Self::Travel(TravelError::Interrupted) => INTERRUPTED,
            Self::Objective(_)
            | Self::NoHits { .. }
            | Self::NoCalls { .. }
            | Self::NoneFits { .. }
            | Self::NoReturn { .. }
            | Self::Input { .. }
            | Self::Command(_)
            | Self::Travel(_) => 2,
            Self::Diverged(_) => 5,

            // 128 and the number of SIGPIPE: the reader has closed it, as `head` does.
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => 141,
            Self::Recording(_)
            | Self::Replay(_)
            | Self::Guest(_)
            | Self::Snapshot(_)
            | Self::NotAFinding(_)
            | Self::Search(_)
            | Self::Output(_)
            | Self::Write { .. } => 7,
        }
    }
}
