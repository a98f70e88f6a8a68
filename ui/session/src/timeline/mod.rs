//! A timeline: a session that can go back and forth.
//!
//! It owns the session, its inputs with their moments, and a ladder of saved sessions. To go to a position, it restores
//! the rung before it and runs from there, with the inputs repeated on the way. So the state at a position is that of a
//! run that has simply stopped there: memory, registers, devices, records, statistics, console.
//!
//! A position inside of a hit is a position and an operation of the handlers that run there (`inside`).
//!
//! Single states, and runs that stay where they are interrupted, are for debuggers (`debug`).
//!
//! Not here: the commands of a shell.

mod debug;
mod drive;
mod error;
mod handler;
mod inside;
mod ladder;
mod place;
mod rungs;
mod search;
mod states;
mod stretches;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trapline_emu::{Moment, WatchKind};

use crate::commands::Command;
use crate::ending::{Ending, Limits};
use crate::recording::{Event, Logged, Position, Recording};
use crate::replies::Reply;
use crate::session::{SavedSession, Session};

pub use crate::session::{Met, Returning, StopPoint};
pub use debug::{Accept, Ran};
pub use error::TravelError;
use inside::Inside;
pub use inside::Operation;
use ladder::Ladder;
pub use place::inspector;
pub use rungs::Layer;
use rungs::Rungs;
pub use states::Between;

pub(crate) use drive::Goal;
pub(crate) use ladder::Rung;

/// The default of the bytes that the states of a history may take.
pub const HISTORY_MEM: u64 = 512 << 20;

/// The result of going to a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// The position was reached.
    There,
    /// The end of the run, as far as it is known, was reached; why it ended, if it ended by itself.
    End(Option<Ending>),
}

/// The result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// This stop point was met: the timeline is there.
    Met(Met),
    /// Nothing was found: the timeline has not moved.
    Nothing,
}

/// The extent and cost of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// The first instruction count.
    pub first: u64,
    /// The last one, if it is known.
    pub end: Option<u64>,
    /// Saved states.
    pub rungs: usize,
    /// Bytes that they take.
    pub bytes: u64,
    /// The most instructions between two of them: a journey runs at most this many.
    pub widest: u64,
    /// Saved states that were dropped for lack of memory.
    pub thinned: u64,
}

/// The result of a command.
#[derive(Debug)]
pub struct Applied {
    /// Its answer.
    pub reply: Reply,
    /// Whether the run had a known future, which is dropped: from here on it is a different run.
    pub cut: bool,
}

/// A session that can go back and forth.
///
/// ```
/// use trapline_session::{Command, GuestBuilder, HISTORY_MEM, Position, Timeline};
///
/// let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).start()?;
/// session.apply(Command::clause("fbt::do_fork:entry { push pid; log 1 }"))?;
/// let mut timeline = Timeline::new(session, HISTORY_MEM)?;
/// timeline.step(500_000)?;
/// let there = timeline.session().digest();
/// timeline.back(1)?;
/// timeline.step(1)?;
/// assert_eq!(timeline.session().digest(), there);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Timeline {
    session: Session,
    /// The inputs, including future ones that are known.
    log: Vec<Logged>,
    /// The first input of `log` that has not arrived.
    next: usize,
    /// The end of the known part; none if the run may continue.
    end: Option<Moment>,
    /// Why the run ends there.
    ending: Option<Ending>,
    ladder: Rungs,
    /// Whether the records of the run stay with the session.
    keeps_records: bool,
    /// The cost of running from the first rung to where the session was set to last, and the session's effort there.
    cost: (u64, u64),
    /// Whether the run differs from the recorded one: see [`Timeline::as_branch`].
    branches: bool,
    /// The limits of journeys: the flag that interrupts them.
    limits: Limits,
    /// The position within a hit, if the timeline is in one.
    inside: Option<Inside>,
    /// All stop points of the last search that are met where it has led.
    together: Vec<usize>,
}

impl Timeline {
    /// The timeline of a live run, from here on: it does not know the past of the session.
    ///
    /// # Errors
    /// The session is recorded or verified.
    pub fn new(session: Session, history_mem: u64) -> Result<Self, TravelError> {
        Self::along(session, Vec::new(), None, history_mem)
    }

    /// The timeline of a recording, in a session at its beginning ([`Session::begin_as`]). It ends where the recording
    /// ends or restores a snapshot: from there on, the run is not a line. `keep` selects the commands to apply.
    ///
    /// # Errors
    /// The session is recorded or verified.
    pub fn of(
        session: Session,
        recording: &Recording,
        keep: impl Fn(&Command) -> bool,
        history_mem: u64,
    ) -> Result<Self, TravelError> {
        let goes_back = |logged: &&Logged| match &logged.event {
            Event::Restored(_) => true,
            Event::Command(command) => command.goes_back(),
            _ => false,
        };
        let turn = recording.log().iter().find(goes_back).map(|logged| logged.at);
        let kept = |logged: &&Logged| match &logged.event {
            Event::Command(command) => keep(command),
            _ => true,
        };
        let line = recording.log().iter().take_while(|logged| !goes_back(logged));
        let log = line.filter(kept).cloned().collect();
        let mut timeline =
            Self::along(session, log, Some(turn.unwrap_or_else(|| recording.end())), history_mem)?;
        timeline.ending = recording.ending().filter(|_| turn.is_none()).cloned();
        Ok(timeline)
    }

    fn along(
        mut session: Session,
        log: Vec<Logged>,
        end: Option<Moment>,
        history_mem: u64,
    ) -> Result<Self, TravelError> {
        if session.is_noted() {
            return Err(TravelError::Noted);
        }
        let mut next = 0;
        while let Some(logged) = log.get(next)
            && logged.at.icount == 0
            && let Event::Command(_) = &logged.event
        {
            next += 1;
        }
        let first = Rung { saved: session.save_rung(), next: Some(next), cost: 0 };
        let cost = (0, session.effort());
        let ladder = Rungs::new(Ladder::new(session.moment(), first, history_mem));
        let limits = Limits::none();
        Ok(Self {
            session,
            log,
            next,
            end,
            ending: None,
            ladder,
            keeps_records: true,
            cost,
            branches: false,
            limits,
            inside: None,
            together: Vec::new(),
        })
    }

    /// Journeys end with [`TravelError::Interrupted`] soon after the flag has become true.
    #[must_use]
    pub fn cancelled_by(mut self, cancel: Arc<AtomicBool>) -> Self {
        self.limits = self.limits.cancelled_by(cancel);
        self
    }

    /// What lays the states of another session of the same run, so that the timeline need not run to where that session has
    /// been. From now on, no records and core files stay with the timeline's session: the other one has them.
    pub fn layer(&mut self) -> Layer {
        self.keeps_records = false;
        self.ladder.layer()
    }

    /// Sets the end of a live run, and the reason, after another session of the same run has found them.
    pub fn ends_at(&mut self, end: Moment, ending: Option<Ending>) {
        (self.end, self.ending) = (Some(end), ending);
    }

    /// The end of the run, and why it ends, as far as they are known.
    pub fn end(&self) -> Option<(Moment, Option<Ending>)> {
        Some((self.end?, self.ending.clone()))
    }

    /// The timeline of a different run, such as one of a changed guest: each input arrives at the first possible moment
    /// at or after the recorded one, and the run ends at the recorded end or by itself.
    #[must_use]
    pub fn as_branch(mut self) -> Self {
        self.branches = true;
        self
    }

    /// The session at this position, for reading.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// As [`Timeline::session`], for uses that need an exclusive reference: its records, its counts.
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Ends the timeline where it is.
    pub fn into_session(self) -> Session {
        self.session
    }

    /// Goes to a state of another timeline with the same inputs so far: all inputs before its instruction count have
    /// arrived here too.
    pub(crate) fn take_over(&mut self, saved: &SavedSession) -> Result<(), TravelError> {
        self.session.go_to_rung(saved)?;
        self.next = self.inputs_before(saved.icount());
        Ok(())
    }

    /// The number of inputs that arrive before an instruction count.
    fn inputs_before(&self, icount: u64) -> usize {
        self.log.partition_point(|logged| logged.at.icount < icount)
    }

    /// Why it ends, if this is known.
    pub(crate) fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// The current position.
    pub fn position(&self) -> Position {
        let ordinal = self.operation().map_or(0, |operation| operation.executed);
        Position::At { icount: self.session.icount(), ordinal }
    }

    /// The extent and cost of the history.
    pub fn history(&self) -> History {
        History {
            first: self.ladder.begins(),
            end: self.end.map(|end| end.icount),
            rungs: self.ladder.len(),
            bytes: self.ladder.measured(),
            widest: self.ladder.widest(),
            thinned: self.ladder.thinned(),
        }
    }

    /// The instruction counts of the saved states, ascending.
    pub fn saved_at(&self) -> Vec<u64> {
        self.ladder.counts()
    }

    /// The instruction counts of the known inputs, ascending: the commands of a recording, and those that were applied on the way.
    pub fn inputs_at(&self) -> Vec<u64> {
        let input = |logged: &&Logged| matches!(logged.event, Event::Command(_));
        self.log.iter().filter(input).map(|logged| logged.at.icount).collect()
    }

    /// Goes to a position, before the inputs that arrive there; at the end of the run ([`Position::BeforeEnd`] of 0), after
    /// them.
    ///
    /// # Errors
    /// There is no such position.
    pub fn goto(&mut self, position: Position) -> Result<Arrival, TravelError> {
        let Ok(arrival) = self.goto_telling(position, &mut drive::Discard);
        arrival
    }

    /// Goes this many instructions forward.
    ///
    /// # Errors
    /// The run is not the one that was recorded.
    pub fn step(&mut self, instructions: u64) -> Result<Arrival, TravelError> {
        let to = self.session.icount().saturating_add(instructions);
        self.go(drive::Goal::Count(to))
    }

    /// Goes this many instructions back.
    ///
    /// # Errors
    /// The history does not go back so far.
    pub fn back(&mut self, instructions: u64) -> Result<Arrival, TravelError> {
        let first = self.ladder.begins();
        let here = self.session.icount();
        let to = here.checked_sub(instructions).filter(|to| *to >= first);
        self.go(drive::Goal::Count(to.ok_or(TravelError::TooFarBack { instructions, here, first })?))
    }

    /// Carries out a command here. If later inputs or the end were known, they are dropped: from here on it is a
    /// different run. A query changes nothing.
    ///
    /// # Errors
    /// The command was not carried out. The known future is kept.
    pub fn apply(&mut self, command: Command) -> Result<Applied, TravelError> {
        if command.goes_back() {
            return Err(TravelError::Restore);
        }
        let changes = !matches!(
            command,
            Command::Query
                | Command::GetVars { .. }
                | Command::List { .. }
                | Command::Snapshot { .. }
                | Command::Dump
                | Command::Stop
        );
        if !changes {
            return Ok(Applied { reply: self.session.apply(command)?, cut: false });
        }
        self.inside = None;
        let at = self.session.moment();
        // As when the input arrives again.
        let Ok(()) = self.drain(&mut drive::Discard);
        let reply = self.session.apply(command.clone())?;
        let cut = self.next < self.log.len() || self.end.is_some();
        self.log.truncate(self.next);
        self.log.push(Logged { at, event: Event::Command(command) });
        self.next = self.log.len();
        (self.end, self.ending) = (None, None);
        self.ladder.cut(at);
        Ok(Applied { reply, cut })
    }

    /// The stop point of a breakpoint on the instruction at an address.
    pub fn breakpoint(address: u64) -> StopPoint {
        StopPoint::Watch(trapline_emu::Watch { kind: WatchKind::Execute, low: address, high: address })
    }

    /// The stop point of the hits of the programs with this name at which their predicates hold.
    ///
    /// # Errors
    /// No such program is inserted here.
    pub fn firings_of(&self, program: &str) -> Result<StopPoint, TravelError> {
        Ok(StopPoint::FiringOf(self.session.programs_named(program)?))
    }

    /// The numbers of all stop points of the last search for several that are met where it has led.
    pub fn met_together(&self) -> &[usize] {
        &self.together
    }

    /// The stop point of hits of the programs with this name, or of all programs.
    ///
    /// # Errors
    /// No such program is inserted here.
    pub fn hits_of(&self, program: Option<&str>) -> Result<StopPoint, TravelError> {
        Ok(match program {
            None => StopPoint::AnyHit,
            Some(name) => StopPoint::HitOf(self.session.programs_named(name)?),
        })
    }
}
