//! Trapline as a library: boots a guest, probes it, steers the run and observes it.
//!
//! ```
//! use trapline_session::{Command, Condition, Error, GuestBuilder, Limits};
//!
//! fn main() -> Result<(), Error> {
//!     let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).start()?;
//!     session.apply(Command::clause("fbt::do_fork:entry { push pid; log 1 }"))?;
//!
//!     let ending = session.run_until(&Condition::end(), &Limits::insns(2_000_000_000));
//!
//!     let hits: Vec<_> = session.records().collect();
//!     for hit in &hits {
//!         let at = session.symbols().at(hit.header.ip).map(|at| at.to_string());
//!         println!("{:>9} {} pid {}", hit.header.icount, at.unwrap_or_default(), hit.data[0]);
//!     }
//!     println!("{ending} after {} instructions", session.icount());
//!     assert!(!hits.is_empty());
//!     Ok(())
//! }
//! ```
//!
//! A [`GuestBuilder`] names the parts of a guest. It makes a [`Session`], which [`run_until`](Session::run_until) runs
//! to a [`Condition`], [`step`](Session::step) by instructions, and [`run`](Session::run) with an [`Observer`] that
//! receives records and console output as they come. Everything that changes a run is a [`Command`] for
//! [`apply`](Session::apply), which returns a [`Reply`]; a [`Script`] applies commands at instruction counts, hits and
//! texts on the console.
//!
//! This crate prints nothing, never exits, and parses no command line. docs/embedding.md is the tutorial.
//!
//! The modules, each of which may use those before it: `plural`, `meter` (how far runs have come), `files`, `numbers`, `versioned`, `signed` (the refusal of a program), `ending` (why a run
//! ends), `crash` (how a kernel says that it crashed), `programs` (probe programs from files), `listing` (probes,
//! functions, loaded modules, processes), `snapshot_error`, `commands` and `replies`, `probing`, `recording` (a run as
//! a value in a file), `guest` (from files to a machine), `types` (types and symbols for D programs), `script`, `session`,
//! `replay`, `regress`, `timeline` (a session in which one can go back and forth), `compare` (two runs),
//! `questions` (about all of a recording).

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod commands;
mod compare;
mod crash;
mod ending;
mod error;
mod files;
mod guest;
mod kinds;
mod listing;
mod meter;
pub mod numbers;
mod plural;
mod probing;
mod programs;
mod questions;
mod recording;
mod regress;
mod replay;
mod replies;
mod script;
mod session;
mod signed;
mod snapshot_error;
mod timeline;
mod types;
mod versioned;

pub use commands::{Command, CommandError, DError, DSource, DText, InputLine, Selection, clause_option};
pub use compare::{
    Both, Bytes, Cause, Checkpoints, CompareError, ComparedRun, Comparison, DifferentCheckpoint, End, Field,
    FunctionHits, Input, Point, Register, Spot, Start, compare, hits_by_function,
};
pub use crash::tail as console_tail;
pub use ending::{Condition, Ending, Limits};
pub use error::Error;
pub use files::{FileError, file_name, io_sentence, read_file, text_of};
pub use guest::{Content, DEFAULT_MEMORY, Guest, GuestBuilder, GuestError, Places, ReplayError, user_module};
pub use kinds::Kind as FileKind;
pub use listing::{
    FunctionRow, How, ListError, Listed, Listing, Loaded, MappedRow, ModuleRow, ProbeRow, ProcessRow, Row,
    Rows, Running, SiteRow, SpotRow, Wanted,
};
pub use meter::{Meter, Metered};
pub use plural::counted;
pub use probing::Probing;
pub use programs::{
    ProgramError, SourceOptions, compile, compiled, preprocessed, public_key, read as read_program,
};
pub use questions::{
    Call, CalledFunction, Calls, ConditionError, Left, QuestionError, Span, Turn, Turns, Writer, Writers,
    calls, go_to_change, go_to_when, span_of, when, who_wrote,
};
pub use recording::{
    Blob, CHECKPOINT_INSNS, Checkpoint, Divergence, EmbeddedGuest, Event, FormatError, Hash, Logged,
    Position, PositionError, RecordedFile, Recorder, Recording, RecordingError, RecordsSum, RunConfig,
    Verifier,
};
#[doc(hidden)]
pub use recording::{Framer, Kind as ChunkKind};
pub use regress::{Case, CaseError, Failed, Passed};
pub use replay::{OwnPrograms, only_observe};
pub use replies::{DescriptionMatch, PointState, ProgramState, ProgramVariables, Reply};
pub use script::{DueHit, Script, ScriptError};
pub use session::{
    CountBy, DEnd, DProgram, DState, Deed, ExactError, Followed, Follower, Look, Names, Naming, NoHits,
    Observer, Operator, PositionUnknown, Reason, RecordedCourse, SavedSession, Session, StackFrame,
    StillError, TakesStates, TaskStack, TooLate, Way, probing_of_snapshot,
};
pub use signed::NotSigned;
pub use snapshot_error::SnapshotError;
pub use timeline::{
    Accept, Applied, Arrival, Between, Found, HISTORY_MEM, History, Layer, Met, Operation, Ran, Returning,
    StopPoint, Timeline, TravelError, inspector,
};
pub use trapline_dump::{Compression, CrashDump, DumpFile, DumpFormat, DumpInfo, Vmcore};
pub use trapline_emu::load::LinuxEntry;
pub use trapline_emu::platform::{PlatformKind, VirtioBus};
pub use trapline_emu::{CpuModel, Digest, Moment, SentByte, SnapshotMismatch, Watch, WatchKind};
pub use trapline_interposer::{
    AlteredRun, CoreFile, DClause, DVariable, Difference, HandlerError, HandlerState, HandlerTrace,
    ProbeNames, Service, ServiceCall, ServiceEffect, ServiceError, Thrown, Word,
};
pub use trapline_os::CodePointer;
pub use trapline_providers::{Abi, Rules, TargetProcess};
pub use trapline_rpn::Change;
pub use trapline_trace::d::{AggregatedValue, AggregationState, Bucket, Datum, EntryState, Printed};
pub use trapline_trace::{HeaderItems, Record, RecordView, Symbolize, shortened};
// All other types that the signatures here name are public in these crates.
pub use types::GuestTypes;
pub use versioned::{VERSION, Versioned};
pub use {
    serde_json, trapline_d, trapline_dti, trapline_dump, trapline_emu, trapline_interposer, trapline_os,
    trapline_providers, trapline_rpn, trapline_trace,
};
