//! A timeline: a session in which one can go back and forth.
//!
//! It owns the session, its input with moments, and a ladder of saved sessions. Going somewhere restores the rung
//! before and runs from there; the input is repeated on the way. So the state at a position is that of a run that has
//! simply stopped there: memory, registers, devices, records, statistics, console.
//!
//! A position inside of a hit is the same position, and an operation of the handlers that run there (`inside`).
//!
//! Not here: the commands of a shell.

mod drive;
mod error;
mod handler;
mod inside;
mod ladder;
mod place;
mod search;
mod states;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trapline_emu::{Moment, WatchKind};

use crate::commands::Command;
use crate::ending::{Ending, Limits};
use crate::recording::{Event, Logged, Position, Recording};
use crate::replies::Reply;
use crate::session::{SavedSession, Session};

pub use crate::session::{Met, StopPoint};
pub use error::TravelError;
use inside::Inside;
pub use inside::Operation;
use ladder::Ladder;
pub use states::Between;

pub(crate) use drive::Goal;
pub(crate) use ladder::Rung;

/// Bytes that the states of a history may take, if nothing else is said.
pub const HISTORY_MEM: u64 = 512 << 20;

/// The result of going to a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// The position was reached.
    There,
    /// To the end of the run, as far as it is known; why it ended, if it did by itself.
    End(Option<Ending>),
}

/// What a search has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// This stop point: the timeline is there.
    Met(Met),
    /// Nothing: the timeline is where it was.
    Nothing,
}

/// The extent and cost of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// The first instruction count.
    pub first: u64,
    /// The last one, where it is known.
    pub end: Option<u64>,
    /// Saved states.
    pub rungs: usize,
    /// Bytes that they take.
    pub bytes: u64,
    /// The most instructions between two of them, that is, to run to get somewhere.
    pub widest: u64,
    /// Saved states that were dropped for lack of memory.
    pub thinned: u64,
}

/// A command was carried out.
#[derive(Debug)]
pub struct Applied {
    /// Its answer.
    pub reply: Reply,
    /// Whether the run had a future, which is gone: from here on it is another run.
    pub cut: bool,
}

/// A session in which one can go back and forth.
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
    /// What came in, the future included where it is known.
    log: Vec<Logged>,
    /// The first of `log` that has not come in.
    next: usize,
    /// Where what is known ends; none where the run may go on.
    end: Option<Moment>,
    /// Why it ends there.
    ending: Option<Ending>,
    ladder: Ladder,
    /// Whether it is another run than the recorded one: see [`Timeline::as_branch`].
    branches: bool,
    /// What journeys heed beside the run itself.
    limits: Limits,
    /// Where in a hit it is, if it is in one.
    inside: Option<Inside>,
}

impl Timeline {
    /// The timeline of a live run, from here on: the past of the session is not known to it.
    ///
    /// # Errors
    /// The session is recorded or verified.
    pub fn new(session: Session, history_mem: u64) -> Result<Self, TravelError> {
        Self::along(session, Vec::new(), None, history_mem)
    }

    /// The timeline of a recording, in a session at its beginning ([`Session::begin_as`]). It ends where the recording does, or where that goes back
    /// to a snapshot: from there on it is no line. `keep` says which of its commands come in.
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
        let first = Rung { saved: session.save_rung(), next };
        let ladder = Ladder::new(session.moment(), first, history_mem);
        let limits = Limits::none();
        Ok(Self { session, log, next, end, ending: None, ladder, branches: false, limits, inside: None })
    }

    /// Journeys end with [`TravelError::Interrupted`] soon after the flag has become true.
    #[must_use]
    pub fn cancelled_by(mut self, cancel: Arc<AtomicBool>) -> Self {
        self.limits = self.limits.cancelled_by(cancel);
        self
    }

    /// Tells where a live run has ended, and why, when another session of the same run has found it.
    pub fn ends_at(&mut self, end: Moment, ending: Option<Ending>) {
        (self.end, self.ending) = (Some(end), ending);
    }

    /// The timeline of another run, such as one of a changed guest: what came in comes in at the first moment at or after the
    /// recorded one, if it can, and the run ends there or by itself.
    #[must_use]
    pub fn as_branch(mut self) -> Self {
        self.branches = true;
        self
    }

    /// The session at this position, to be looked at.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// As [`Timeline::session`], for what needs it to be exclusive: its records, its counts.
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Ends the timeline where it is.
    pub fn into_session(self) -> Session {
        self.session
    }

    /// Goes to a state of another timeline that got the same until then: what came in before its instruction count has come
    /// in here too.
    pub(crate) fn take_over(&mut self, saved: &SavedSession) -> Result<(), TravelError> {
        self.session.go_to_rung(saved)?;
        self.next = self.log.partition_point(|logged| logged.at.icount < saved.icount());
        Ok(())
    }

    /// Why it ends, where that is known.
    pub(crate) fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Where it is.
    pub fn position(&self) -> Position {
        let ordinal = self.operation().map_or(0, |operation| operation.executed);
        Position::At { icount: self.session.icount(), ordinal }
    }

    /// The extent and cost of the history.
    pub fn history(&self) -> History {
        History {
            first: self.ladder.first().map_or(0, |(at, _)| at.icount),
            end: self.end.map(|end| end.icount),
            rungs: self.ladder.len(),
            bytes: self.ladder.measured(),
            widest: self.ladder.widest(),
            thinned: self.ladder.thinned(),
        }
    }

    /// Goes to a position: before what comes in there.
    ///
    /// # Errors
    /// There is no such position.
    pub fn goto(&mut self, position: Position) -> Result<Arrival, TravelError> {
        let Ok(arrival) = self.goto_telling(position, &mut drive::Discard);
        arrival
    }

    /// Goes this many instructions forwards.
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
        let first = self.ladder.first().map_or(0, |(at, _)| at.icount);
        let here = self.session.icount();
        let to = here.checked_sub(instructions).filter(|to| *to >= first);
        self.go(drive::Goal::Count(to.ok_or(TravelError::TooFarBack { instructions, here, first })?))
    }

    /// Carries out a command here. If something came in later, or the end was known, that is gone: from here on it is
    /// another run. A question changes nothing.
    ///
    /// # Errors
    /// The command was not carried out. The future is as it was.
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
                | Command::Stop
        );
        if !changes {
            return Ok(Applied { reply: self.session.apply(command)?, cut: false });
        }
        self.inside = None;
        let at = self.session.moment();
        // As when it comes in again.
        let Ok(()) = self.session.drain_to(&mut drive::Discard);
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

    /// The stop point of hits of the programs that are called so, or of all.
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
