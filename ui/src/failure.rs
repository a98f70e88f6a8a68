//! Exit codes, and everything that ends a command early.

use std::io;
use std::path::{Path, PathBuf};

use trapline_emu::MachineError;
use trapline_emu::load::LoadError;
use trapline_providers::{ArgumentRefused, GlobError, MatchError};
use trapline_rpn::Diagnostics;
use trapline_rpn::ppdf::{KeyError, UnwritableError};
use trapline_session::{
    CommandError, Ending, FileError, GuestError, ListError, NotSigned, ProgramError, RecordingError,
    ReplayError, ScriptError, SnapshotError, StillError, io_sentence,
};
use trapline_trace::{TemplateErrors, TraceFileError};
use trapline_tui::SavedError;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Ok,
    /// A handler was ended by an exception and `--fail-on-exception` was given.
    HandlerException,
    /// Two runs that were compared differ.
    Different,
    /// The command line is wrong.
    Usage,
    /// A probe program does not compile, verify or fit its target.
    Compile,
    /// The guest crashed or cannot go on.
    Crashed,
    /// A replay differs from the recorded run.
    Diverged,
    /// Records were lost and `--fail-on-loss` was given.
    Lost,
    /// A file cannot be read or written, or has the wrong content.
    BadFile,
    /// The instruction limit was reached.
    Limit,
    /// Ctrl-C or SIGTERM.
    Interrupted,
    /// The reader of standard output has closed it, as `head` does: 128 and the number of SIGPIPE.
    Closed,
    /// The status that a D program gave to `exit()`; 1 when the program is refused.
    Status(u8),
}

impl Exit {
    /// The status of a D program: its low byte, as of any program. A status that says of a failure does not become that of
    /// success.
    pub fn of_d(status: i32) -> Self {
        let [low, ..] = status.to_le_bytes();
        Self::Status(if low == 0 { u8::from(status != 0) } else { low })
    }

    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::HandlerException | Self::Different => 1,
            Self::Usage => 2,
            Self::Compile => 3,
            Self::Crashed => 4,
            Self::Diverged => 5,
            Self::Lost => 6,
            Self::BadFile => 7,
            Self::Limit => 124,
            Self::Interrupted => 130,
            Self::Closed => 141,
            Self::Status(status) => status,
        }
    }
}

impl From<&Ending> for Exit {
    fn from(ending: &Ending) -> Self {
        match ending {
            Ending::Halted | Ending::PoweredOff | Ending::Reset(_) | Ending::Until(_) => Self::Ok,
            Ending::Stopped | Ending::Left | Ending::HandlerStopped(_) | Ending::EnoughHits(_) => Self::Ok,
            Ending::CrashText(_)
            | Ending::KernelCrashed(_)
            | Ending::TripleFault(_)
            | Ending::CannotGoOn(_) => Self::Crashed,
            // The exit code that QEMU has at such a write.
            Ending::DebugExit(value) => Self::Status((value << 1 | 1) as u8),
            Ending::Limit => Self::Limit,
            Ending::Interrupted => Self::Interrupted,
            Ending::Unrecorded => Self::BadFile,
            Ending::ScriptFailed(_) => Self::Usage,
        }
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line is invalid.
    #[error("{0}")]
    Usage(String),
    /// A probe program does not compile, or does not fit the guest.
    #[error("{0}")]
    Compile(Diagnostics),
    /// Lines of a control script are invalid.
    #[error("{0}")]
    Script(Diagnostics),
    /// A probe program cannot be armed, and no line of it is to blame.
    #[error("{file}: {reason}")]
    Program {
        /// The program's file.
        file: String,
        /// The error.
        reason: String,
    },
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file cannot be written.
    #[error("cannot write {}: {}", path.display(), io_sentence(error))]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file is not a dump that can be read.
    #[error("{}: {error}", path.display())]
    Dump {
        /// The file.
        path: PathBuf,
        /// Why.
        error: trapline_dump::DumpError,
    },
    /// A dump is not a machine that can be looked at.
    #[error("{}: {error}", path.display())]
    Still {
        /// The file.
        path: PathBuf,
        /// Why.
        error: Box<StillError>,
    },
    /// A dump has no log of its kernel.
    #[error("{}: {error}", path.display())]
    NoLog {
        /// The file.
        path: PathBuf,
        /// Why.
        error: trapline_os::LogError,
    },
    /// Standard output cannot be written.
    #[error("cannot write standard output: {}", io_sentence(.0))]
    Output(io::Error),
    /// Standard error cannot be written, where what was asked for goes there.
    #[error("cannot write standard error: {}", io_sentence(.0))]
    Messages(io::Error),
    /// A program cannot be written as a PPDF file.
    #[error("{}{error}", if error.has_place() { String::new() } else { format!("{}: ", path.display()) })]
    Unwritable {
        /// The program's file.
        path: PathBuf,
        /// Why.
        error: UnwritableError,
    },
    /// A key file holds no private key.
    #[error("{} holds no key of this kind: {error}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        error: KeyError,
    },
    /// A probe program's file cannot be used.
    #[error(transparent)]
    BadProgram(ProgramError),
    /// There is no guest.
    #[error(transparent)]
    Guest(GuestError),
    /// Templates are invalid.
    #[error("{0}")]
    Templates(#[from] TemplateErrors),
    /// A file is not a trace file, or not a whole one.
    #[error("cannot read {}: {error}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// Why.
        error: TraceFileError,
    },
    /// A trace file is whole, but does not hold what a format shows.
    #[error("{}: {why}", path.display())]
    NotInTrace {
        /// The file.
        path: PathBuf,
        /// What is missing, and how to record it.
        why: String,
    },
    /// A snapshot cannot be restored.
    #[error("cannot restore {}: {error}", path.display())]
    Snapshot {
        /// The file.
        path: PathBuf,
        /// Why.
        error: SnapshotError,
    },
    /// A session file of the terminal user interface cannot be used.
    #[error("cannot use the session file {}: {error}", path.display())]
    TuiSession {
        /// The file.
        path: PathBuf,
        /// Why.
        error: SavedError,
    },
    /// A recording cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A replay differs from the recorded run.
    #[error("{0}")]
    Diverged(String),
    /// A recording cannot be replayed here.
    #[error(transparent)]
    Replay(ReplayError),
    /// A pattern is not a glob.
    #[error(transparent)]
    Glob(#[from] GlobError),
    /// A description of probes is malformed, or names none.
    #[error(transparent)]
    Probes(#[from] MatchError),
    /// A handler on the command line does not fit its probes.
    #[error(transparent)]
    Argument(ArgumentRefused),
}

impl From<ListError> for Failure {
    fn from(error: ListError) -> Self {
        match error {
            ListError::Glob(error) => Self::Glob(error),
            ListError::Probes(error) => Self::Probes(error),
            ListError::UnknownSystem | ListError::NoFunction { .. } => Self::Usage(error.to_string()),
        }
    }
}

impl From<ProgramError> for Failure {
    fn from(error: ProgramError) -> Self {
        match error {
            ProgramError::File(error) => Self::File(error),
            ProgramError::Compile(found) => Self::Compile(found),
            other => Self::BadProgram(other),
        }
    }
}

impl From<NotSigned> for Failure {
    fn from(error: NotSigned) -> Self {
        Self::BadProgram(error.into())
    }
}

impl From<ScriptError> for Failure {
    fn from(error: ScriptError) -> Self {
        match error {
            ScriptError::File(error) => Self::File(error),
            ScriptError::Lines(found) => Self::Script(found),
            ScriptError::Program(error) => error.into(),
        }
    }
}

impl From<GuestError> for Failure {
    fn from(error: GuestError) -> Self {
        match error {
            GuestError::File(error) => Self::File(error),
            other => Self::Guest(other),
        }
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Guest(error) => error.into(),
            other => Self::Replay(other),
        }
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::DoesNotFit { findings, .. } => Self::Compile(findings),
            CommandError::Handler(findings) => Self::Compile(findings),
            CommandError::NotArmed { name, reason } => Self::Program { file: name, reason },
            CommandError::Match(error) => Self::Probes(error),
            CommandError::Argument(error) => Self::Argument(error),
            CommandError::D(error) => match error.findings() {
                Some(findings) => Self::Compile(findings),
                None => Self::Usage(error.to_string()),
            },
            CommandError::List(error) => error.into(),
            CommandError::NotSigned(error) => error.into(),
            other => Self::Usage(other.to_string()),
        }
    }
}

impl Failure {
    /// The exit code of the failure.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Probes(MatchError::Nothing { .. } | MatchError::TooMany { .. }) | Self::Argument(_) => {
                Exit::Compile
            }
            Self::Probes(_) => Exit::Usage,
            Self::Usage(_) | Self::Glob(_) | Self::Script(_) => Exit::Usage,
            Self::Compile(_) | Self::Program { .. } | Self::Unwritable { .. } => Exit::Compile,
            Self::Diverged(_) => Exit::Diverged,
            Self::Guest(error) => exit_of(error),
            Self::Output(error) | Self::Messages(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                Exit::Closed
            }
            _ => Exit::BadFile,
        }
    }

    /// A failure to write `path`, or standard output without a path.
    pub fn writing(path: Option<&Path>, error: io::Error) -> Self {
        match path {
            Some(path) => Self::Write { path: path.to_owned(), error },
            None => Self::Output(error),
        }
    }
}

/// Incompatible parts are errors of the command line; damaged ones are bad files.
fn exit_of(error: &GuestError) -> Exit {
    match error {
        GuestError::UnknownEmbedded { .. }
        | GuestError::NeedsPc(_)
        | GuestError::NeedsLongMode(_)
        | GuestError::FwCfgName(_)
        | GuestError::GuestPath(_)
        | GuestError::Abi { .. }
        | GuestError::FollowsNumber(_) => Exit::Usage,
        GuestError::Machine(MachineError::Engine(_)) => Exit::Crashed,
        GuestError::Machine(
            MachineError::Load(LoadError::DoesNotFit { .. })
            | MachineError::Ram(_)
            | MachineError::ModulesNeedMultiboot(_),
        ) => Exit::Usage,
        _ => Exit::BadFile,
    }
}
