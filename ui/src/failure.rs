//! Exit codes, and everything that ends a command early.

use std::io;
use std::path::{Path, PathBuf};

use trapline_emu::MachineError;
use trapline_emu::devices::virtio::DiskError;
use trapline_emu::load::LoadError;
use trapline_emu::symbols::SymbolError;
use trapline_providers::{ArgumentRefused, EnableError, GlobError, MatchError};
use trapline_rpn::Diagnostics;
use trapline_rpn::ppdf::{KeyError, PpdfError, UnwritableError, VerifyingKey};
use trapline_trace::{TemplateErrors, TraceFileError};

use crate::listing::ListError;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Ok,
    /// A handler was ended by an exception and `--fail-on-exception` was given.
    HandlerException,
    /// The command line is wrong.
    Usage,
    /// A probe program does not compile, verify or fit its target.
    Compile,
    /// The guest crashed or cannot go on.
    Crashed,
    /// Records were lost and `--fail-on-loss` was given.
    Lost,
    /// A file cannot be read or written or is not what it should be.
    BadFile,
    /// The instruction limit was reached.
    Limit,
    /// Ctrl-C.
    Interrupted,
}

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::HandlerException => 1,
            Self::Usage => 2,
            Self::Compile => 3,
            Self::Crashed => 4,
            Self::Lost => 6,
            Self::BadFile => 7,
            Self::Limit => 124,
            Self::Interrupted => 130,
        }
    }
}

/// Why a command did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Nothing to do it with.
    #[error("{0}")]
    Usage(String),
    /// A probe program is wrong.
    #[error("{0}")]
    Compile(Diagnostics),
    /// A control script is wrong.
    #[error("{0}")]
    Script(Diagnostics),
    /// A probe program is wrong in a way that no line can be blamed for.
    #[error("{file}: {reason}")]
    Program {
        /// The program's file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {}", path.display(), plain(error))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file is larger than anything that is accepted.
    #[error("cannot read {}: it has more than {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most that is accepted.
        limit: u64,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {}", path.display(), plain(error))]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Standard output cannot be written.
    #[error("cannot write standard output: {}", plain(.0))]
    Output(io::Error),
    /// A probe program is no text.
    #[error("{} is not text: byte {at} is not UTF-8", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// Where.
        at: usize,
    },
    /// A PPDF file cannot be used.
    #[error("{}: {error}", path.display())]
    Ppdf {
        /// The file.
        path: PathBuf,
        /// Why.
        error: PpdfError,
    },
    /// A program cannot be written as a PPDF file.
    #[error("{}{error}", if error.has_place() { String::new() } else { format!("{}: ", path.display()) })]
    Unwritable {
        /// The program's file.
        path: PathBuf,
        /// Why.
        error: UnwritableError,
    },
    /// A program is not signed as it must be.
    #[error("{} {how}, and only programs signed by {wanted} are taken", path.display())]
    NotSigned {
        /// The program's file.
        path: PathBuf,
        /// How it is signed.
        how: String,
        /// The key that it must be signed with.
        wanted: VerifyingKey,
    },
    /// A key file holds no such key.
    #[error("{} is no key for this: {error}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        error: KeyError,
    },
    /// An image cannot be loaded.
    #[error("cannot load {image}: {error}")]
    Image {
        /// Its name as given.
        image: String,
        /// Why.
        error: LoadError,
    },
    /// Symbols cannot be read.
    #[error("cannot read the symbols of {file}: {error}")]
    Symbols {
        /// Their file.
        file: String,
        /// Why.
        error: SymbolError,
    },
    /// A disk image is none.
    #[error("{}: {error}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// Why.
        error: DiskError,
    },
    /// Templates are wrong.
    #[error("{0}")]
    Templates(#[from] TemplateErrors),
    /// A trace file is none, or not a whole one.
    #[error("cannot read {}: {error}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// Why.
        error: TraceFileError,
    },
    /// A pattern is none.
    #[error(transparent)]
    Glob(#[from] GlobError),
    /// A description of probes is none, or names none.
    #[error(transparent)]
    Probes(#[from] MatchError),
    /// A handler on the command line and its probes do not go together.
    #[error(transparent)]
    Argument(ArgumentRefused),
    /// The machine cannot be built or loaded.
    #[error("cannot build the machine: {0}")]
    Machine(MachineError),
}

impl From<ListError> for Failure {
    fn from(error: ListError) -> Self {
        match error {
            ListError::Glob(error) => Self::Glob(error),
            ListError::Probes(error) => Self::Probes(error),
            ListError::UnknownSystem => Self::Usage(error.to_string()),
        }
    }
}

impl From<EnableError> for Failure {
    fn from(error: EnableError) -> Self {
        match error {
            EnableError::Match(error) => Self::Probes(error),
            EnableError::Handler(found) => Self::Compile(found),
            EnableError::Argument(error) => Self::Argument(error),
        }
    }
}

impl Failure {
    /// The exit code that says the same.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Probes(MatchError::Nothing { .. } | MatchError::TooMany { .. }) | Self::Argument(_) => {
                Exit::Compile
            }
            Self::Probes(_) => Exit::Usage,
            Self::Usage(_) | Self::Glob(_) | Self::Script(_) => Exit::Usage,
            Self::Compile(_) | Self::Program { .. } | Self::Unwritable { .. } => Exit::Compile,
            Self::Machine(MachineError::Engine(_)) => Exit::Crashed,
            Self::Machine(MachineError::Load(LoadError::DoesNotFit { .. })) => Exit::Usage,
            Self::Machine(MachineError::Ram(_) | MachineError::ModulesNeedMultiboot(_)) => Exit::Usage,
            _ => Exit::BadFile,
        }
    }

    /// A failure to write `path`, or standard output when there is none.
    pub fn writing(path: Option<&Path>, error: io::Error) -> Self {
        match path {
            Some(path) => Self::Write { path: path.to_owned(), error },
            None => Self::Output(error),
        }
    }
}

/// What the system says, without its error number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
