//! A session at one moment: saved, restored, written to a file and read from one.
//!
//! A saved session contains the machine, the interposer, and the session's own state between two runs. It does not
//! contain the guest's files, which the machine's identity names, nor the named snapshots of commands, which belong to
//! the session and not to one of its moments.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use trapline_emu::{Archive, Snapshot};
use trapline_interposer::{
    CoreFile, Definition, Output, SavedInterposer, StoredInterposer, StoredInterposerError,
};
use trapline_providers::{Clause, Resolved, Target, enable, resolve};
use trapline_rpn::Program;
use trapline_rpn::ppdf::VerifyingKey;
use trapline_trace::Record;

use super::d_program::definition;
use super::waiting::Waiting;
use super::{Session, new_interposer};
use crate::commands::{Brought, DSource};
use crate::probing::{AllOptions, Probing};
use crate::recording::Event;
use crate::signed::NotSigned;
use crate::snapshot_error::SnapshotError;
use crate::types::GuestTypes;

/// The part of a file for the state outside the machine, and its version.
const PART: &str = "session";
const VERSION: u16 = 8;

/// The origin of an inserted program, from which another process can insert it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Origin {
    name: String,
    text: OriginText,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum OriginText {
    Program(#[serde(with = "crate::commands::program")] Box<Program>),
    Clause(String),
    D(DSource),
}

impl Origin {
    pub fn program(name: &str, program: &Program) -> Self {
        Self { name: name.to_owned(), text: OriginText::Program(Box::new(program.clone())) }
    }

    pub fn clause(name: &str, text: &str) -> Self {
        Self { name: name.to_owned(), text: OriginText::Clause(text.to_owned()) }
    }

    pub fn d(name: &str, source: &DSource) -> Self {
        Self { name: name.to_owned(), text: OriginText::D(source.clone()) }
    }

    /// Checks it against the key that is required, if one is.
    fn check_signed(&self, wanted: Option<VerifyingKey>) -> Result<(), NotSigned> {
        let brought = match &self.text {
            OriginText::Program(program) => Brought::Program(&self.name, program),
            OriginText::Clause(text) => Brought::Clause(text),
            OriginText::D(source) => Brought::D(source),
        };
        brought.check(wanted)
    }

    fn define(&self, target: &Arc<Target>) -> Result<Definition, String> {
        let Resolved { program, points, .. } = match &self.text {
            OriginText::Program(program) => {
                resolve(target, program).map_err(|findings| findings.to_string())?
            }
            OriginText::Clause(text) => {
                let clause = Clause::parse(text).map_err(|error| error.to_string())?;
                let found = enable(target, &clause, &GuestTypes::new(Arc::clone(target)))
                    .map_err(crate::CommandError::from);
                found.map(|(resolved, _)| resolved).map_err(|error| error.to_string())?
            }
            OriginText::D(source) => {
                return definition(target, &self.name, source).map_err(|error| error.to_string());
            }
        };
        Definition::new(&self.name, &program, points).map_err(|error| error.kind.to_string())
    }

    /// The program as it was inserted, in a session of this guest.
    fn definition(&self, target: &Arc<Target>) -> Result<Arc<Definition>, SnapshotError> {
        self.define(target).map(Arc::new).map_err(|reason| {
            let name = self.name.clone();
            SnapshotError::Program { name, reason }
        })
    }
}

/// A session at one moment: machine, probes, records, statistics, console. A clone shares nearly all of it.
///
/// ```
/// use trapline_session::{Command, Condition, GuestBuilder, Limits};
///
/// let guest = GuestBuilder::embedded("ia32").memory(32 << 20);
/// let mut session = guest.start()?;
/// session.apply(Command::clause("fbt::do_fork:entry { push pid; log 1 }"))?;
/// session.run_until(&Condition::end(), &Limits::insns(1_000_000));
/// let file = session.snapshot().to_bytes()?;
///
/// // In another process, or later:
/// let mut other = guest.start()?;
/// let saved = other.read_snapshot(&file)?;
/// other.restore(&saved)?;
/// for session in [&mut session, &mut other] {
///     session.run_until(&Condition::end(), &Limits::none());
/// }
/// assert_eq!(other.digest(), session.digest());
/// assert!(other.records().eq(session.records()));
/// # Ok::<(), trapline_session::Error>(())
/// ```
#[derive(Clone)]
pub struct SavedSession {
    machine: Snapshot,
    interposer: Option<SavedInterposer>,
    origins: Arc<Vec<Origin>>,
    /// The options of the session's probes.
    options: Arc<AllOptions>,
    counts_hits: bool,
    shown: usize,
    records: Waiting,
    cores: Vec<Arc<CoreFile>>,
    /// Its number in the recording of the run.
    number: Option<u64>,
}

/// The state outside the machine, as stored in a file.
#[derive(Serialize, Deserialize)]
struct Stored {
    options: AllOptions,
    origins: Vec<Origin>,
    interposer: Option<StoredInterposer>,
    counts_hits: bool,
    shown: usize,
    records: Vec<Record>,
    cores: Vec<CoreFile>,
}

impl SavedSession {
    /// Instructions that had retired.
    pub fn icount(&self) -> u64 {
        self.machine.icount()
    }

    /// How many handlers of probes had run.
    pub(crate) fn hits(&self) -> u64 {
        self.interposer.as_ref().map_or(0, SavedInterposer::hits)
    }

    /// The machine's part.
    pub fn machine(&self) -> &Snapshot {
        &self.machine
    }

    /// The file form: [`Session::read_snapshot`] reads it, in any process. It holds the programs that were inserted,
    /// but not the guest's files.
    ///
    /// # Errors
    /// A program cannot be written as PPDF.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SnapshotError> {
        let mut archive = Archive::new();
        self.machine.store(&mut archive)?;
        let stored = Stored {
            options: AllOptions::clone(&self.options),
            origins: self.origins.to_vec(),
            interposer: self.interposer.as_ref().map(SavedInterposer::to_stored),
            counts_hits: self.counts_hits,
            shown: self.shown,
            records: self.records.iter().cloned().collect(),
            cores: self.cores.iter().map(|core| CoreFile::clone(core)).collect(),
        };
        archive.put(PART, VERSION, &stored)?;
        Ok(archive.to_bytes())
    }
}

/// What the probes of a snapshot's session recorded, from its file form, for a session that is to be restored from it;
/// `None` if it has no probes, and so fits any.
///
/// # Errors
/// The bytes are damaged, from a newer build, or not a snapshot.
pub fn probing_of_snapshot(file: &[u8]) -> Result<Option<Probing>, SnapshotError> {
    let stored: Stored = Archive::from_bytes(file)?.get(PART, VERSION)?;
    Ok(stored.interposer.is_some().then_some(stored.options.probing))
}

impl Session {
    /// Saves the session: the machine, the probes with all that they have counted and recorded, the console.
    ///
    /// It costs what has changed since the last one was taken or restored. The run is not affected.
    ///
    /// ```
    /// use trapline_session::GuestBuilder;
    ///
    /// let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).start()?;
    /// session.step(500_000);
    /// let (saved, digest) = (session.snapshot(), session.digest());
    /// session.step(500_000);
    /// session.restore(&saved)?;
    /// assert_eq!((session.icount(), session.digest()), (500_000, digest));
    /// # Ok::<(), trapline_session::Error>(())
    /// ```
    pub fn snapshot(&mut self) -> SavedSession {
        let number = self.course.number_snapshot();
        if let Some(number) = number {
            self.course.event(self.machine.moment(), || Event::Saved(number));
        }
        SavedSession { number, ..self.save() }
    }

    /// Whether the guest is in a saved state: registers, memory and devices.
    pub fn guest_is_in(&self, saved: &SavedSession) -> bool {
        self.machine.is_in(&saved.machine)
    }

    pub(super) fn save(&mut self) -> SavedSession {
        SavedSession {
            machine: self.machine.snapshot(),
            interposer: self.interposer.as_mut().map(|interposer| interposer.save(self.machine.core())),
            origins: Arc::clone(&self.origins),
            options: Arc::clone(&self.options),
            counts_hits: self.counts_hits,
            shown: self.shown,
            records: self.records.shared(),
            cores: self.cores.clone(),
            number: None,
        }
    }

    /// Restores a saved state, earlier or later: the session is then exactly as it was. Records made since then will
    /// come again under the same numbers, and counts go back too.
    ///
    /// This moves within the run, so it is not a [`Command`](crate::Command). A recording notes the restore of a
    /// snapshot that was taken while it was recorded, and cannot follow to another one.
    /// [`Command::Restore`](crate::Command::Restore) differs: there the run continues from the snapshot, while records
    /// and statistics are kept.
    ///
    /// # Errors
    /// The snapshot belongs to another machine, or to a session with other [`Probing`](super::Probing). Nothing has
    /// changed then.
    pub fn restore(&mut self, saved: &SavedSession) -> Result<(), SnapshotError> {
        let from = self.machine.moment();
        self.go_to(saved, Output::Travels)?;
        match saved.number {
            Some(number) => self.course.event(from, || Event::Restored(number)),
            None => self.course.spoil(),
        }
        Ok(())
    }

    /// Restores a snapshot; `output` says whether the output is restored too.
    pub(super) fn go_to(&mut self, saved: &SavedSession, output: Output) -> Result<(), SnapshotError> {
        self.check_options(&saved.options, saved.interposer.is_some())?;
        if !Arc::ptr_eq(&self.origins, &saved.origins) {
            self.check_origins(&saved.origins)?;
        }
        self.machine.restore(&saved.machine)?;
        match &saved.interposer {
            Some(state) => {
                let (machine, interposer) = self.probed();
                interposer.restore(machine.core_mut(), state, output);
            }
            None => self.take_probes_out(output),
        }
        self.origins = Arc::clone(&saved.origins);
        self.shown = match output {
            Output::Travels => {
                self.counts_hits = saved.counts_hits;
                self.records.clone_from(&saved.records);
                self.cores.clone_from(&saved.cores);
                saved.shown
            }
            Output::GoesOn => self.shown.min(self.machine.console().len()),
        };
        self.course.moved(self.machine.icount());
        Ok(())
    }

    /// Restores the state without probes.
    fn take_probes_out(&mut self, output: Output) {
        let Some(interposer) = &mut self.interposer else { return };
        interposer.take_out(self.machine.core_mut());
        if output == Output::Travels {
            self.interposer = None;
        }
    }

    /// Options of probes matter to a snapshot that has probes.
    fn check_options(&self, stored: &AllOptions, has_probes: bool) -> Result<(), SnapshotError> {
        let differences = if has_probes { self.options.differences(stored) } else { Vec::new() };
        if differences.is_empty() { Ok(()) } else { Err(SnapshotError::Options(differences)) }
    }

    /// Programs that must be signed must be so in a snapshot, too.
    fn check_origins(&self, origins: &[Origin]) -> Result<(), NotSigned> {
        origins.iter().try_for_each(|origin| origin.check_signed(self.signed_by))
    }

    /// Reads what [`SavedSession::to_bytes`] has written, for a session of the same guest to be restored.
    ///
    /// # Errors
    /// The bytes are damaged, from a newer build, or not a snapshot; or they belong to another machine, another guest
    /// or other programs.
    pub fn read_snapshot(&self, file: &[u8]) -> Result<SavedSession, SnapshotError> {
        let archive = Archive::from_bytes(file)?;
        let machine = Snapshot::load(&archive)?;
        machine.identity().check(self.machine.identity())?;
        let stored: Stored = archive.get(PART, VERSION)?;
        self.check_options(&stored.options, stored.interposer.is_some())?;
        self.check_origins(&stored.origins)?;
        let interposer =
            stored.interposer.map(|state| self.read_probes(state, &stored.origins)).transpose()?;
        let mut records = Waiting::default();
        records.extend(stored.records);
        Ok(SavedSession {
            machine,
            interposer,
            origins: Arc::new(stored.origins),
            options: Arc::clone(&self.options),
            counts_hits: stored.counts_hits,
            shown: stored.shown,
            records,
            cores: stored.cores.into_iter().map(Arc::new).collect(),
            number: None,
        })
    }

    /// The probes of a file, whose programs came from these origins.
    fn read_probes(
        &self,
        state: StoredInterposer,
        origins: &[Origin],
    ) -> Result<SavedInterposer, SnapshotError> {
        let definitions = origins.iter().map(|origin| origin.definition(&self.target));
        let definitions: Vec<_> = definitions.collect::<Result<_, _>>()?;
        let ram = self.machine.core().ram().layout();
        let saved = SavedInterposer::from_stored(state, definitions, ram)?;
        if new_interposer(&self.target, &self.probing, &|| None).could_be(&saved) {
            Ok(saved)
        } else {
            Err(StoredInterposerError::Impossible("the channels").into())
        }
    }
}
