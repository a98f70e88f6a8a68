//! Drives a session along a recording: the recorded input is repeated at the same moments.

use trapline_emu::{Moment, Stop};

use super::run::Observer;
use super::{Session, TakesStates};
use crate::commands::Command;
use crate::ending::{Condition, Ending, Limits};
use crate::plural::counted;
use crate::recording::{Divergence, Event, Logged, Position, Recording, Verifier};
use crate::script::Script;

/// How a session follows a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The same run: input is repeated at the same moments, and a run that does not pass through one of them has
    /// diverged.
    Same,
    /// A branch: input is repeated at the same instruction counts, as far as the run passes through them.
    Branch,
}

/// Why a session stopped following a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// The recording is at its end. The text is why its last run ended; none if the recording is incomplete.
    End(Option<Ending>),
    /// The requested position was reached.
    Reached,
    /// The recording ended before the position.
    NeverReached,
    /// The run differs from the recorded one.
    Diverged(Divergence),
    /// The flag of the limits was raised.
    Interrupted,
}

/// Why a position cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PositionUnknown {
    /// It is inside a hit.
    #[error(
        "{0} is within a hit, where a replay does not stop: --at without --verify, --branch and --from goes into it"
    )]
    InsideOfHit(Position),
    /// It is before the beginning.
    #[error("{asked} is before the beginning of the recording, which has {}", counted(*end, "instruction"))]
    Before {
        /// The position.
        asked: Position,
        /// The last instruction count.
        end: u64,
    },
    /// The replay has passed it.
    #[error("{asked} lies before {}, which the replay has reached; give a later position", counted(*now, "instruction"))]
    Passed {
        /// The position.
        asked: Position,
        /// The instruction count of the replay.
        now: u64,
    },
    /// It is after the end.
    #[error("{asked} is past the end of the recording, which has {}", counted(*end, "instruction"))]
    PastEnd {
        /// The position.
        asked: Position,
        /// The last instruction count.
        end: u64,
    },
}

/// The rest of a recording.
pub struct Course<'a> {
    log: Vec<&'a Logged>,
    at: usize,
    end: Moment,
    whole: bool,
    way: Way,
    /// Whether the run has other programs, which may end it.
    others: bool,
    inside: bool,
    ending: Option<Ending>,
    /// The conditions that end a branch, besides the guest itself.
    condition: Condition,
}

/// Where to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    End,
    Icount(u64),
    Hits(u64),
}

impl<'a> Course<'a> {
    /// All of a recording, with the commands that `keep` selects.
    pub fn of(recording: &'a Recording, way: Way, keep: impl Fn(&Command) -> bool) -> Self {
        let kept = |logged: &&Logged| match &logged.event {
            Event::Command(command) => keep(command),
            _ => true,
        };
        Self {
            log: recording.log().iter().filter(kept).collect(),
            at: 0,
            end: recording.end(),
            whole: recording.is_whole(),
            way,
            others: false,
            inside: false,
            ending: None,
            condition: match recording.ending() {
                Some(Ending::Until(text)) => Condition::console(text),
                Some(Ending::CrashText(text)) => Condition::end().or_crash_text(text),
                _ => Condition::end(),
            },
        }
    }

    /// Other programs than those of the recording are inserted: one of them may end the run.
    #[must_use]
    pub fn with_others(mut self) -> Self {
        self.others = true;
        self
    }

    fn next(&self) -> Option<&'a Logged> {
        self.log.get(self.at).copied()
    }

    /// The moment to which the run goes next.
    fn next_moment(&self) -> Option<Moment> {
        let left = (!self.whole && self.ending.is_none()).then_some(self.end);
        self.next().map(|logged| logged.at).or(left)
    }

    /// Whether the next event is due.
    fn is_due(&self, now: Moment) -> bool {
        self.next().is_some_and(|next| match self.way {
            Way::Same => next.at == now,
            Way::Branch => next.at.icount <= now.icount,
        })
    }

    fn goal(&self, to: Option<Position>) -> Result<Goal, PositionUnknown> {
        let end = self.end.icount;
        let icount = match to {
            None => return Ok(Goal::End),
            Some(Position::Hit(hits)) => return Ok(Goal::Hits(hits)),
            Some(inside @ (Position::At { ordinal: 1.., .. } | Position::InHit { .. })) => {
                return Err(PositionUnknown::InsideOfHit(inside));
            }
            Some(Position::At { icount, .. }) => icount,
            Some(asked @ Position::BeforeEnd(before)) => {
                end.checked_sub(before).ok_or(PositionUnknown::Before { asked, end })?
            }
        };
        match to.filter(|_| icount > end) {
            Some(asked) => Err(PositionUnknown::PastEnd { asked, end }),
            None => Ok(Goal::Icount(icount)),
        }
    }
}

impl Session {
    /// Compares the rest of the run with the recording. `records` tells whether the records must be the same; they are
    /// not if other probes are inserted.
    pub fn verify(&mut self, recording: &Recording, records: bool) {
        self.verify_with(Verifier::new(recording, records));
    }

    /// Repeats the input from before the recorded run began: the programs of its command line.
    ///
    /// # Errors
    /// The input that cannot be repeated.
    pub fn begin_as(&mut self, course: &mut Course<'_>) -> Result<(), Divergence> {
        let first = |logged: &&Logged| logged.at.icount == 0 && matches!(logged.event, Event::Command(_));
        while course.next().filter(first).is_some() {
            let Ok(followed) = self.come_in(course, None, &Limits::none(), &mut super::run::Keep::default());
            if let Some(Followed::Diverged(diverged)) = followed {
                return Err(diverged);
            }
        }
        Ok(())
    }

    /// Follows a recording, to a position or its end. The observer gets the same calls as that of the recorded run. If
    /// the run is recorded itself, an interruption or a failure of the observer is its end.
    ///
    /// # Errors
    /// The observer's, or that the position is unknown.
    pub fn follow<O: Observer>(
        &mut self,
        course: &mut Course<'_>,
        to: Option<Position>,
        limits: &Limits,
        observer: &mut O,
    ) -> Result<Result<Followed, PositionUnknown>, O::Error> {
        let goal = match course.goal(to) {
            Ok(goal) => goal,
            Err(unknown) => return Ok(Err(unknown)),
        };
        if let (Goal::Icount(icount), Some(asked)) = (goal, to)
            && icount < self.icount()
        {
            return Ok(Err(PositionUnknown::Passed { asked, now: self.icount() }));
        }
        let followed = self.follow_to(course, goal, limits, observer);
        if matches!(followed, Ok(Followed::Interrupted | Followed::Diverged(_)) | Err(_)) {
            self.leave(course, Ending::Interrupted);
        }
        followed.map(Ok)
    }

    /// Ends a run that follows a recording before the recording does.
    pub fn leave(&mut self, course: &mut Course<'_>, ending: Ending) {
        self.ends(ending.clone());
        course.inside = false;
        course.ending = Some(ending);
    }

    fn follow_to<O: Observer>(
        &mut self,
        course: &mut Course<'_>,
        goal: Goal,
        limits: &Limits,
        observer: &mut O,
    ) -> Result<Followed, O::Error> {
        if observer.wants_sent() {
            self.machine.keep_sent();
        }
        if course.way == Way::Branch {
            self.watch_console(&course.condition, &Script::default());
        }
        if course.others && self.stopped_by_handler() {
            // `exit()` in BEGIN.
            self.pass_on(observer)?;
            return Ok(self
                .departed(course, self.machine.moment(), &Stop::Requested)
                .unwrap_or(Followed::Reached));
        }
        let mut counting = false;
        let mut last = None;
        loop {
            if let Goal::Hits(hits) = goal
                && let (Some(interposer), false) = (&mut self.interposer, counting)
            {
                interposer.stop_after_hits(hits);
                counting = true;
            }
            if goal == Goal::Icount(self.icount()) {
                return Ok(Followed::Reached);
            }
            if course.is_due(self.machine.moment()) {
                if let Some(followed) = self.come_in(course, last.take(), limits, observer)? {
                    return Ok(followed);
                }
                continue;
            }
            let Some(until) = course.next_moment().filter(|until| self.lies_ahead(*until, course)) else {
                return Ok(self.arrived(course, goal));
            };
            let from = self.icount();
            let stop = self.stretch(until, goal, course.way);
            self.pass_on(observer)?;
            if stop == Stop::Limit && self.icount() < until.icount && goal == Goal::End {
                self.offer_state(from, observer);
            }
            if limits.cancelled() {
                return Ok(Followed::Interrupted);
            }
            if let Some(followed) = self.departed(course, until, &stop) {
                return Ok(followed);
            }
            last = Some(stop);
        }
    }

    /// Whether the run has not reached the moment yet.
    fn lies_ahead(&self, until: Moment, course: &Course<'_>) -> bool {
        course.next().is_some() || self.machine.moment() < until
    }

    /// Continues the run to the end of a slice, or to `until`.
    fn stretch(&mut self, until: Moment, goal: Goal, way: Way) -> Stop {
        let asked = if let Goal::Icount(icount) = goal { icount } else { u64::MAX };
        match way {
            Way::Same => self.slice(asked, Some(until)).0,
            Way::Branch => self.slice(asked.min(until.icount), None).0,
        }
    }

    /// Why the following ends here, if it does: the run has left the recording, or stops at a requested hit.
    fn departed(&mut self, course: &Course<'_>, until: Moment, stop: &Stop) -> Option<Followed> {
        if let Some(found) = self.course.divergence() {
            return Some(Followed::Diverged(found.clone()));
        }
        if course.others && *stop == Stop::Requested && self.stopped_by_handler() {
            let ending = self.ended(stop.clone());
            self.ends(ending.clone());
            return Some(Followed::End(Some(ending)));
        }
        let enough = self.interposer.as_ref().and_then(trapline_interposer::Interposer::enough_hits);
        if enough.is_some() && *stop == Stop::Requested {
            return Some(Followed::Reached);
        }
        let now = self.machine.moment();
        let ended = !matches!(stop, Stop::Limit | Stop::Text(_));
        let missed =
            |why: String| Some(Followed::Diverged(Divergence::Missed { wanted: until, found: now, why }));
        match course.way {
            Way::Branch
                if *stop != Stop::Limit && !self.goes_on(stop, &course.condition, &Limits::none()) =>
            {
                let ending = self.why_ended(stop.clone(), &course.condition);
                self.ends(ending.clone());
                Some(Followed::End(Some(ending)))
            }
            Way::Same if now > until => missed("it does not pass through that moment".to_owned()),
            Way::Same if ended && now < until => {
                let ending = self.ended(stop.clone());
                missed(ending.to_string())
            }
            _ => None,
        }
    }

    fn stopped_by_handler(&self) -> bool {
        let interposer = self.interposer.as_ref();
        interposer.is_some_and(|i| i.stopped_by_handler() && i.enough_hits().is_none())
    }

    fn ended(&mut self, stop: Stop) -> Ending {
        self.why_ended(stop, &crate::ending::Condition::end())
    }

    /// Handles the end of the recording.
    fn arrived(&mut self, course: &mut Course<'_>, goal: Goal) -> Followed {
        if goal != Goal::End {
            return Followed::NeverReached;
        }
        if course.way == Way::Same {
            self.verify_end();
        }
        match self.course.divergence() {
            Some(found) => Followed::Diverged(found.clone()),
            None => Followed::End(course.ending.take()),
        }
    }

    /// Applies the logged event that is due. Returns why the session stops following, if it does.
    fn come_in<O: Observer>(
        &mut self,
        course: &mut Course<'_>,
        stop: Option<Stop>,
        limits: &Limits,
        observer: &mut O,
    ) -> Result<Option<Followed>, O::Error> {
        let Some(logged) = course.next() else { return Ok(None) };
        course.at += 1;
        match &logged.event {
            Event::Command(command) => {
                let asks = matches!(command, Command::Query | Command::GetVars { .. } | Command::List { .. });
                let applied = self.apply(command.clone());
                if command.goes_back() {
                    observer.states().into_iter().for_each(TakesStates::end);
                }
                if matches!(command, Command::End) {
                    self.pass_on(observer)?;
                }
                match applied {
                    Ok(reply) if course.inside || asks => observer.reply(&reply)?,
                    Ok(_) => {}
                    // In a branch, a program or snapshot that a command names may not exist.
                    Err(_) if course.way == Way::Branch => {}
                    Err(error) => {
                        let icount = logged.at.icount;
                        let error = error.to_string();
                        return Ok(Some(Followed::Diverged(Divergence::Command { icount, error })));
                    }
                }
            }
            Event::Begin => {
                course.inside = true;
                self.course.event(logged.at, || Event::Begin);
            }
            Event::Drain => {}
            Event::End(ending) => {
                course.inside = false;
                self.take_stop();
                let ending = &match course.way {
                    Way::Same => ending.clone(),
                    Way::Branch => self.end_of_branch(ending, &course.condition, limits, observer)?,
                };
                if course.way == Way::Branch && *ending == Ending::Interrupted {
                    return Ok(Some(Followed::Interrupted));
                }
                course.ending = Some(ending.clone());
                if let Some(diverged) =
                    self.ends_as(ending, stop, logged.at).filter(|_| course.way == Way::Same)
                {
                    return Ok(Some(Followed::Diverged(diverged)));
                }
                self.ends(ending.clone());
            }
            Event::Saved(number) => {
                let saved = self.snapshot();
                self.numbered.insert(*number, saved);
            }
            Event::Restored(number) => {
                observer.states().into_iter().for_each(TakesStates::end);
                let saved = self.numbered.get(number).cloned();
                let restored = saved.map(|saved| self.restore(&saved));
                if !matches!(restored, Some(Ok(()))) {
                    let error = format!("snapshot {number} is not there");
                    let icount = logged.at.icount;
                    return Ok(Some(Followed::Diverged(Divergence::Command { icount, error })));
                }
            }
        }
        Ok(None)
    }

    /// Runs a branch, which has reached the length of the recorded run, to an end of the same kind, for at most the
    /// same length again.
    fn end_of_branch<O: Observer>(
        &mut self,
        recorded: &Ending,
        condition: &Condition,
        limits: &Limits,
        observer: &mut O,
    ) -> Result<Ending, O::Error> {
        let by_itself = matches!(
            recorded,
            Ending::Halted
                | Ending::PoweredOff
                | Ending::Reset(_)
                | Ending::DebugExit(_)
                | Ending::TripleFault(_)
                | Ending::KernelCrashed(_)
                | Ending::Until(_)
                | Ending::CrashText(_)
        );
        if !by_itself {
            return Ok(Ending::Limit);
        }
        let limits = Limits { icount: self.icount().saturating_mul(2), ..limits.clone() };
        self.run_on(&mut Script::default(), condition, &limits, observer, None)
    }

    /// Forgets that a handler has asked for the stop.
    fn take_stop(&mut self) {
        if let Some(interposer) = &mut self.interposer {
            let _ = interposer.take_stopped_by();
        }
    }

    /// Checks that an ending made by the guest itself comes again, without another instruction.
    fn ends_as(&mut self, ending: &Ending, stop: Option<Stop>, at: Moment) -> Option<Divergence> {
        let natural = matches!(
            ending,
            Ending::Halted
                | Ending::PoweredOff
                | Ending::Reset(_)
                | Ending::DebugExit(_)
                | Ending::TripleFault(_)
        );
        if !natural {
            return None;
        }
        let stop = match stop {
            Some(Stop::Limit) | None => {
                let (machine, interposer) = self.trap_interposer();
                let next = machine.icount().saturating_add(1);
                machine.run(interposer, next)
            }
            Some(stop) => stop,
        };
        let found = self.ended(stop);
        let now = self.machine.moment();
        (found != *ending || now != at).then(|| {
            let why = format!("{found}; in the recording, {ending}");
            Divergence::Missed { wanted: at, found: now, why }
        })
    }
}
