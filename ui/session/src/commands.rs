//! Commands: everything that can be done to a run from outside, and the errors.
//!
//! Script lines, probe programs of the command line and all other inputs that control a run become [`Command`]s;
//! [`Session::apply`](crate::Session::apply) carries them out between two instructions. A command is self-contained, so
//! a list of commands with the instruction counts at which they were applied describes all input of a run. Not here:
//! when a command is due, and how it is carried out.

mod d_error;
mod d_source;
pub(crate) mod program;
mod signed;

use serde::{Deserialize, Serialize};
use trapline_emu::Unsettable;
use trapline_interposer::{AlteredRun, Difference, PointView};
use trapline_providers::{ArgumentRefused, Clause, ClauseError, EnableError, MatchError};
use trapline_rpn::{Diagnostics, Program};

use crate::files::file_name;
use crate::listing::{How, ListError, Wanted};
use crate::plural::counted;
use crate::signed::NotSigned;
use crate::snapshot_error::SnapshotError;
pub use d_error::DError;
pub(crate) use d_error::line_of;
pub use d_source::{DSource, DText};
pub(crate) use signed::Brought;

/// A change to a run, or a query.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Command {
    /// Adds a probe program and arms it.
    Insert {
        /// The name under which it is known: a path. Its last part suffices as a name if it is unique.
        name: String,
        /// The program; PPDF when it is serialized.
        #[serde(with = "program")]
        program: Box<Program>,
        /// The probe points to enable; the others are inserted disabled. The default selects all.
        only: Selection,
    },
    /// Puts a handler on the probes that a clause names: `SPEC[,SPEC..] [/ predicate /] [{ handler }]`, which is what `-n`
    /// takes without, and `--rpn` with a predicate or a handler. The program is known as `-n SPEC[,SPEC..]` or
    /// `--rpn SPEC[,SPEC..]`.
    Clause {
        /// The clause.
        text: String,
        /// The probe points to enable, as of [`Command::Insert`].
        only: Selection,
    },
    /// Removes a program. Its records are kept.
    Remove {
        /// Its name.
        name: String,
    },
    /// Enables or disables probe points.
    Switch {
        /// The probe points.
        points: Selection,
        /// Enables them.
        on: bool,
    },
    /// Asks for all programs and their probe points.
    Query,
    /// Asks for variables: those of one program and the global ones, or all.
    GetVars {
        /// The program.
        name: Option<String>,
    },
    /// Asks for what the guest has now: functions, probes, modules, processes.
    List {
        /// The kind of listing.
        wanted: Wanted,
        /// The details to show.
        how: How,
    },
    /// Saves machine and probe table.
    Snapshot {
        /// The name to restore it by; an older one of that name is forgotten.
        label: String,
    },
    /// Restores a snapshot.
    Restore {
        /// Its name.
        label: String,
    },
    /// Types into the guest.
    Type {
        /// The input line.
        line: InputLine,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Raises a non-maskable interrupt.
    Nmi,
    /// Lowers the semaphores that probes have raised in the guest's programs, at the end of the run.
    Silence,
    /// Ends the run.
    Stop,
    /// Adds a D program, arms it, and runs its clauses of BEGIN. It is known by the names of its texts
    /// ([`DSource::name`]).
    D(DSource),
    /// Runs the clauses of END of all D programs that have not run them yet, at the end of the run.
    End,
    /// Takes a crash dump.
    Dump,
    /// Sets the level of a channel of the Driver Tracing Interface, in the guest's memory.
    DtiLevel {
        /// The channel's name.
        name: String,
        /// The level, from -1 (off) to 7.
        level: i32,
    },
    /// Lets handlers of a program see other values than the guest's at some of their runs, and what they write then is seen by
    /// that run alone. It replaces what an earlier one has set (docs/fuzzing.md).
    Alter {
        /// The program.
        name: String,
        /// The runs.
        runs: Vec<AlteredRun>,
    },
    /// Puts numbers into registers and bytes into memory, as a debugger does, and a search over runs of the guest
    /// (docs/fuzzing.md).
    Put {
        /// [`Difference::Word`] of a general register, of the instruction pointer or the flags, [`Difference::Memory`], and
        /// [`Difference::Processor`] of what a debugger can write.
        values: Vec<Difference>,
    },
}

impl Command {
    /// Inserts a program with all its probe points enabled.
    pub fn insert(name: &str, program: Program) -> Self {
        Self::Insert { name: name.to_owned(), program: Box::new(program), only: Selection::default() }
    }

    /// Whether the run ends with it.
    pub fn stops(&self) -> bool {
        matches!(self, Self::Stop)
    }

    /// Whether the run continues from another state after it.
    pub fn goes_back(&self) -> bool {
        matches!(self, Self::Restore { .. })
    }

    /// Whether it only asks, or keeps something: the run is the same without it.
    pub(crate) fn only_asks(&self) -> bool {
        matches!(
            self,
            Self::Query
                | Self::GetVars { .. }
                | Self::List { .. }
                | Self::Snapshot { .. }
                | Self::Silence
                | Self::Stop
                | Self::End
                | Self::Dump
        )
    }

    /// The command as a script or the command line has it; without the text of a program.
    pub fn words(&self) -> String {
        match self {
            Self::Insert { name, .. } => format!("insert {name}"),
            Self::Clause { text, .. } => format!("{} '{text}'", clause_option(text)),
            Self::Remove { name } => format!("remove {name}"),
            Self::Switch { points, on } => {
                format!("{} {}", if *on { "enable" } else { "disable" }, points.words())
            }
            Self::Query => "query".to_owned(),
            Self::GetVars { name } => format!("getvars {}", name.as_deref().unwrap_or_default()),
            Self::List { .. } => "list".to_owned(),
            Self::Snapshot { label } => format!("snapshot {label}"),
            Self::Restore { label } => format!("restore {label}"),
            Self::Type { line: InputLine::Keyboard, bytes } => {
                format!("type keyboard \"{}\"", bytes.escape_ascii())
            }
            Self::Type { bytes, .. } => format!("type \"{}\"", bytes.escape_ascii()),
            Self::Nmi => "nmi".to_owned(),
            Self::Silence => "silence".to_owned(),
            Self::Stop => "stop".to_owned(),
            Self::D(source) => source.name(),
            Self::End => "end".to_owned(),
            Self::Dump => "dump".to_owned(),
            Self::DtiLevel { name, level } => format!("dti level {name} {level}"),
            Self::Alter { name, .. } => format!("alter {name}"),
            Self::Put { values } => format!("put {}", counted(values.len() as u64, "value")),
        }
        .trim_end()
        .to_owned()
    }

    /// Puts a handler on probes by their names.
    pub fn clause(text: &str) -> Self {
        Self::Clause { text: text.to_owned(), only: Selection::default() }
    }
}

/// A program's short name: the file name of its path, or a clause's descriptions.
pub fn short_name(name: &str) -> &str {
    let clause = ["-n ", "--rpn "].into_iter().find_map(|option| name.strip_prefix(option));
    clause.unwrap_or_else(|| file_name(name))
}

/// The option that takes a clause of RPN: `-n` for descriptions alone.
pub fn clause_option(text: &str) -> &'static str {
    if Clause::is_bare(text) { "-n" } else { "--rpn" }
}

/// Where typed input arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputLine {
    /// The first serial port.
    Com1,
    /// The virtio console.
    Virtio,
    /// The keyboard.
    Keyboard,
}

/// Probe points: those that match everything given. The default selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Of this program.
    pub name: Option<String>,
    /// The one of this number, from 0.
    pub point: Option<usize>,
    /// Of one of these groups; of any if there is none.
    pub groups: Vec<String>,
    /// Of one of these types; of any if there is none.
    pub kinds: Vec<String>,
}

impl Selection {
    /// Whether a probe point is selected by its group and type.
    pub fn holds(&self, point: &PointView<'_>) -> bool {
        let among = |list: &[String], value: Option<&str>| {
            list.is_empty()
                || value.is_some_and(|value| list.iter().any(|one| one.eq_ignore_ascii_case(value)))
        };
        among(&self.groups, point.group) && among(&self.kinds, point.kind)
    }

    /// In the notation of scripts.
    pub fn words(&self) -> String {
        let mut words: Vec<String> = self.name.iter().cloned().collect();
        words.extend(self.point.map(|point| point.to_string()));
        words.extend(self.groups.iter().map(|group| format!("group={group}")));
        words.extend(self.kinds.iter().map(|kind| format!("type={kind}")));
        words.join(" ")
    }
}

/// Why a command was not carried out. The run is as if it had not been tried.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// No such program.
    #[error("no program `{name}` is inserted; {known}")]
    UnknownProgram {
        /// The name.
        name: String,
        /// The programs that are inserted, as the end of a sentence.
        known: String,
    },
    /// Several programs have the same file name.
    #[error("`{name}` names {count} programs; use the path of one of them")]
    Ambiguous {
        /// The name.
        name: String,
        /// The number of programs.
        count: usize,
    },
    /// It is inserted already.
    #[error("`{0}` is already inserted")]
    Inserted(String),
    /// It does not fit the guest.
    #[error("`{name}` cannot be inserted: {}", first(findings))]
    DoesNotFit {
        /// Its name.
        name: String,
        /// What is wrong, with the places in its source.
        findings: Diagnostics,
    },
    /// It cannot be armed, and no line of its source is to blame.
    #[error("`{name}` cannot be inserted: {reason}")]
    NotArmed {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// Programs must be signed, and it is not.
    #[error(transparent)]
    NotSigned(#[from] NotSigned),
    /// Nothing runs in a dump.
    #[error("{0} cannot fire: a dump does not run, so only BEGIN and END fire in it")]
    NeverFires(String),
    /// A dump cannot be changed.
    #[error("{0} is refused: it may change the guest, and a dump can only be read")]
    ChangesDump(String),
    /// The text is not a clause.
    #[error(transparent)]
    Clause(#[from] ClauseError),
    /// A clause names no probes.
    #[error(transparent)]
    Match(MatchError),
    /// The handler of a clause does not compile.
    #[error("{0}")]
    Handler(Diagnostics),
    /// A D program cannot be compiled or inserted.
    #[error(transparent)]
    D(Box<DError>),
    /// The handler of a clause pushes an argument that a probe does not have.
    #[error(transparent)]
    Argument(ArgumentRefused),
    /// No such probe point.
    #[error("`{name}` has {}, counted from 0; there is no {point}", counted(*.points as u64, "probe point"))]
    UnknownPoint {
        /// The program.
        name: String,
        /// The number.
        point: usize,
        /// How many there are.
        points: usize,
    },
    /// It cannot be armed.
    #[error("a probe point cannot be enabled: {0}")]
    NotEnabled(String),
    /// Nothing is selected.
    #[error("no probe point that is inserted has {0}")]
    Nothing(String),
    /// No such snapshot.
    #[error("there is no snapshot `{label}`; {known}")]
    UnknownSnapshot {
        /// Its name.
        label: String,
        /// Those that exist, as the end of a sentence.
        known: String,
    },
    /// There is no virtio console to type into.
    #[error("the machine has no virtio console; --virtio-console adds one")]
    NoVirtioConsole,
    /// A character that no key types.
    #[error("no key of the keyboard types the character {0:#04x}")]
    NoKey(u8),
    /// The guest has no such channel.
    #[error("there is no channel {name}; {known}")]
    UnknownChannel {
        /// Its name.
        name: String,
        /// Those that exist, as the end of a sentence.
        known: String,
    },
    /// A channel cannot have the level.
    #[error("a channel cannot have the level {0}; use a number from -1 to 7")]
    Level(i32),
    /// Memory cannot be written.
    #[error("the guest's memory at {0:#x} cannot be written: its page is absent, read-only or not RAM")]
    NotWritable(u64),
    /// Something that cannot be put into the guest.
    #[error(
        "{0} cannot be put into the guest: only general registers, the instruction pointer, arithmetic flags and memory can"
    )]
    NotPut(String),
    /// A register cannot be put into the guest, or not with this value.
    #[error("{register} cannot be written: {why}")]
    NotWritten {
        /// Its name.
        register: String,
        /// Why.
        why: Unsettable,
    },
    /// Nothing can be listed.
    #[error(transparent)]
    List(ListError),
    /// The snapshot belongs to another machine.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

fn first(findings: &Diagnostics) -> &str {
    findings.list.first().map_or("it does not fit the guest", |finding| finding.message.as_str())
}

impl From<DError> for CommandError {
    fn from(error: DError) -> Self {
        Self::D(Box::new(error))
    }
}

impl From<EnableError> for CommandError {
    fn from(error: EnableError) -> Self {
        match error {
            EnableError::Match(error) => Self::Match(error),
            EnableError::Handler(found) => Self::Handler(found),
            EnableError::Argument(error) => Self::Argument(error),
        }
    }
}
