//! Drives the session along its course: forward by running it with its inputs, and back by a rung of the ladder.

use std::convert::Infallible;

use trapline_emu::{Moment, Stop};

use super::ladder::Due;
use super::{Arrival, Met, Rung, StopPoint, Timeline, TravelError};
use crate::commands::Command;
use crate::recording::{Event, Position};
use crate::session::{Observer, Search, Witness};

/// Where to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// The first moment with this instruction count.
    Count(u64),
    /// This moment.
    Moment(Moment),
}

impl Goal {
    pub fn is_reached(self, now: Moment) -> bool {
        match self {
            Self::Count(count) => now.icount >= count,
            Self::Moment(moment) => now >= moment,
        }
    }

    pub fn icount(self) -> u64 {
        match self {
            Self::Count(count) => count,
            Self::Moment(moment) => moment.icount,
        }
    }

    /// The latest moment of a rung that is not after the goal. A rung with the goal's count is at the first moment of
    /// this count.
    fn latest_rung(self) -> Moment {
        match self {
            Self::Count(icount) => Moment { icount, virtual_ns: u64::MAX, delivered: u32::MAX },
            Self::Moment(moment) => moment,
        }
    }
}

/// An observer that drops everything.
pub struct Discard;

impl Observer for Discard {
    type Error = Infallible;
}

type Told<T, O> = Result<Result<T, TravelError>, <O as Observer>::Error>;

impl Timeline {
    /// As [`Timeline::goto`], and reports to an observer what happens while the run advances, but not what happened
    /// before the rung from which it starts.
    ///
    /// # Errors
    /// The observer's errors, or there is no such position.
    pub fn goto_telling<O: Observer>(&mut self, position: Position, observer: &mut O) -> Told<Arrival, O> {
        let inside = match self.inside_of(position) {
            Ok(inside) => inside,
            Err(error) => return Ok(Err(error)),
        };
        let outside = inside.map_or(position, |(icount, _)| Position::At { icount, ordinal: 0 });
        let resolved = self.goal(outside).and_then(|goal| {
            let entered = inside.map(|(icount, executed)| self.enter(icount, executed)).transpose()?;
            Ok((goal, entered))
        });
        let (goal, entered) = match resolved {
            Ok(resolved) => resolved,
            Err(error) => return Ok(Err(error)),
        };
        // The search for a hit has laid rungs on the way, and the observer is to be told of that way.
        let by_hit = matches!(position, Position::Hit(_) | Position::InHit { .. });
        let arrival = match by_hit && self.is_ahead(goal) {
            true => {
                self.inside = None;
                self.advance(goal, observer)?
            }
            false => self.go_telling(goal, observer)?,
        };
        if let (Ok(_), Some(inside)) = (&arrival, entered) {
            self.entered(inside);
        }
        if position == Position::BeforeEnd(0) && arrival.is_ok() {
            return Ok(self.take_last(observer)?.and(arrival));
        }
        Ok(arrival)
    }

    /// The instruction count and the number of operations of a position inside of a hit.
    fn inside_of(&mut self, position: Position) -> Result<Option<(u64, u64)>, TravelError> {
        match position {
            Position::At { icount, ordinal: ordinal @ 1.. } => Ok(Some((icount, ordinal))),
            Position::InHit { hit, operation } => self.find_operation(hit, operation).map(Some),
            _ => Ok(None),
        }
    }

    pub(super) fn goal(&mut self, position: Position) -> Result<Goal, TravelError> {
        let first = self.ladder.begins();
        let icount = match position {
            Position::At { icount, .. } => icount,
            Position::Hit(hit) | Position::InHit { hit, .. } => {
                return self.moment_of_hit(hit).map(Goal::Moment);
            }
            Position::BeforeEnd(0) => return self.end.map(Goal::Moment).ok_or(TravelError::NoEnd),
            Position::BeforeEnd(before) => {
                let end = self.end.ok_or(TravelError::NoEnd)?.icount;
                end.checked_sub(before).ok_or(TravelError::Before { asked: position, first })?
            }
        };
        match self.end {
            _ if icount < first => Err(TravelError::Before { asked: position, first }),
            Some(end) if icount > end.icount => {
                Err(TravelError::PastEnd { asked: position, end: end.icount })
            }
            _ => Ok(Goal::Count(icount)),
        }
    }

    pub(super) fn go(&mut self, goal: Goal) -> Result<Arrival, TravelError> {
        let Ok(arrival) = self.go_telling(goal, &mut Discard);
        arrival
    }

    fn is_ahead(&self, goal: Goal) -> bool {
        let now = self.session.moment();
        match goal {
            Goal::Count(count) => now.icount < count,
            Goal::Moment(moment) => now < moment,
        }
    }

    /// Goes to the goal, from here if this is nearest, otherwise from the last rung before the goal.
    fn go_telling<O: Observer>(&mut self, goal: Goal, observer: &mut O) -> Told<Arrival, O> {
        self.inside = None;
        let (now, ahead) = (self.session.moment(), self.is_ahead(goal));
        let rung = self.ladder.at_or_before(goal.latest_rung());
        if let Some((_, rung)) = rung.filter(|(at, _)| !ahead || *at > now)
            && let Err(error) = self.climb_to(&rung)
        {
            return Ok(Err(error));
        }
        self.advance(goal, observer)
    }

    /// Goes to a rung.
    pub(crate) fn climb_to(&mut self, rung: &Rung) -> Result<(), TravelError> {
        self.inside = None;
        self.session.go_to_rung(&rung.saved)?;
        self.next = rung.next.unwrap_or_else(|| self.inputs_before(rung.saved.icount()));
        self.cost = (rung.cost, self.session.effort());
        Ok(())
    }

    /// Runs to a goal that is not in the past, and lays rungs on the way.
    fn advance<O: Observer>(&mut self, goal: Goal, observer: &mut O) -> Told<Arrival, O> {
        loop {
            let now = self.session.moment();
            if goal.is_reached(now) {
                return Ok(Ok(Arrival::There));
            }
            let due = self.ladder.next_due(now.icount, goal.icount());
            match self.turn(goal, due.map(|due| due.at), None, observer)? {
                Ok(None) => {}
                Ok(Some(arrival)) => return Ok(Ok(arrival)),
                Err(error) => return Ok(Err(error)),
            }
            if self.is_place_for_rung(now, due) {
                self.lay_rung();
            }
        }
    }

    /// Whether a turn from `now` has led to where a rung was due and is wanted, to the first moment with that count.
    pub(super) fn is_place_for_rung(&self, now: Moment, due: Option<Due>) -> bool {
        let here = self.session.moment();
        let is_there = |due: &Due| due.at == here.icount && here.delivered == 0 && here.icount > now.icount;
        due.filter(is_there).is_some_and(|due| self.ladder.wants(due, here, self.cost()))
    }

    /// The cost of running from the first rung to here.
    pub(super) fn cost(&self) -> u64 {
        let (cost, effort) = self.cost;
        cost + self.session.effort().saturating_sub(effort)
    }

    /// Lays a rung here.
    pub(super) fn lay_rung(&mut self) {
        let rung = self.rung();
        self.ladder.lay(self.session.moment(), rung);
    }

    /// Runs to a goal that is not in the past, and lays no rungs.
    pub(crate) fn run_on_to(&mut self, goal: Goal) -> Result<Arrival, TravelError> {
        loop {
            if goal.is_reached(self.session.moment()) {
                return Ok(Arrival::There);
            }
            let Ok(turned) = self.turn(goal, None, None, &mut Discard);
            if let Some(arrival) = turned? {
                return Ok(arrival);
            }
        }
    }

    /// As [`Timeline::run_on_to`], but searches, and runs to the end of the stretch with the first match. A match at
    /// the goal or after it does not count.
    pub(crate) fn search_on_to(
        &mut self,
        goal: Goal,
        points: Vec<StopPoint>,
    ) -> Result<Option<Met>, TravelError> {
        let mut search = Search::first_after(points, Some(self.session.moment()));
        self.search_to(goal, &mut search).map(|()| search.found())
    }

    /// Applies the inputs that are due at this moment.
    ///
    /// # Errors
    /// The run is not the one that was recorded.
    pub fn take_due(&mut self) -> Result<(), TravelError> {
        let Ok(taken) = self.take_due_telling(&mut Discard);
        taken
    }

    /// Applies the inputs at the end of the run, and gives them to the devices, as the run that ended there did.
    fn take_last<O: Observer>(&mut self, observer: &mut O) -> Told<(), O> {
        if let Err(error) = self.take_due_telling(observer)? {
            return Ok(Err(error));
        }
        let now = self.session.moment();
        self.session.stretch_to(now.icount, Some(now), None);
        self.drain(observer).map(Ok)
    }

    fn take_due_telling<O: Observer>(&mut self, observer: &mut O) -> Told<(), O> {
        let now = self.session.moment();
        while self.log.get(self.next).is_some_and(|next| next.at <= now) {
            if let Err(error) = self.come_in(now, None, observer)? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// The state here, to be restored later. Not in the middle of a delivery.
    pub(crate) fn rung(&mut self) -> Rung {
        Rung { saved: self.session.save_rung(), next: Some(self.next), cost: self.cost() }
    }

    /// Searches from a rung to a moment, or to the end. The state is invalid afterwards.
    pub(super) fn scan(
        &mut self,
        rung: &Rung,
        to: Option<Moment>,
        search: &mut Search,
    ) -> Result<(), TravelError> {
        self.climb_to(rung)?;
        self.search_to(to.map_or(Goal::Count(u64::MAX), Goal::Moment), search)
    }

    /// Searches from here to a goal that is not in the past, or to the end, and lays no rungs. The state is unusable
    /// afterwards.
    pub(crate) fn search_to(&mut self, goal: Goal, search: &mut Search) -> Result<(), TravelError> {
        self.session.begin_search(search);
        let scanned = loop {
            if search.is_over() || goal.is_reached(self.session.moment()) {
                break Ok(());
            }
            let Ok(turned) = self.turn(goal, None, Some(search), &mut Discard);
            match turned {
                Ok(None) => {}
                Ok(Some(_)) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.session.end_search(search);
        scanned
    }

    /// Reports to a witness all stop points that are met from the beginning to a position, or to the end. Afterwards
    /// the timeline is at the beginning again.
    ///
    /// # Errors
    /// There is no such position, or the run is not the one that was recorded.
    pub(crate) fn witness(
        &mut self,
        points: Vec<StopPoint>,
        before: Option<Position>,
        witness: Witness,
    ) -> Result<(), TravelError> {
        let goal = before.map(|before| self.goal(before)).transpose()?;
        let to = goal.map(|goal| match goal {
            Goal::Count(icount) => Moment { icount, ..Moment::default() },
            Goal::Moment(moment) => moment,
        });
        let Some((_, first)) = self.ladder.first() else { return Ok(()) };
        let scanned = self.scan(&first, to, &mut Search::witnessed(points, witness));
        self.climb_to(&first)?;
        scanned
    }

    /// Passes on the output of the stretches so far.
    pub(super) fn drain<O: Observer>(&mut self, observer: &mut O) -> Result<(), O::Error> {
        if self.keeps_records { self.session.drain_to(observer) } else { self.session.pass_on(observer) }
    }

    /// Runs one stretch, or applies one input. Returns the arrival if the run goes no further.
    pub(super) fn turn<O: Observer>(
        &mut self,
        goal: Goal,
        stop_at: Option<u64>,
        search: Option<&mut Search>,
        observer: &mut O,
    ) -> Told<Option<Arrival>, O> {
        if self.limits.cancelled() {
            return Ok(Err(TravelError::Interrupted));
        }
        let now = self.session.moment();
        if self.log.get(self.next).is_some_and(|next| next.at <= now) {
            return self.come_in(now, search.as_deref(), observer);
        }
        if self.end.is_some_and(|end| now >= end) {
            self.drain(observer)?;
            return Ok(Ok(Some(Arrival::End(self.ending.clone()))));
        }
        let moment = if let Goal::Moment(moment) = goal { Some(moment) } else { None };
        let next = self.log.get(self.next).map(|logged| logged.at);
        let until = [moment, next, self.end].into_iter().flatten().min();
        let count = if let Goal::Count(count) = goal { count } else { u64::MAX };
        let (stop, whole) = self.session.stretch_to(count.min(stop_at.unwrap_or(u64::MAX)), until, search);
        if whole || stop != Stop::Limit {
            self.drain(observer)?;
        }
        match stop {
            Stop::Limit | Stop::Text(_) => Ok(Ok(None)),
            Stop::Requested => {
                self.session.pass_stop();
                Ok(Ok(None))
            }
            stop => Ok(self.ended(stop)),
        }
    }

    /// The run has ended by itself.
    fn ended(&mut self, stop: Stop) -> Result<Option<Arrival>, TravelError> {
        let (at, why) = (self.session.moment(), self.session.ending_of(stop));
        if self.end.is_some_and(|end| end > at) && !self.branches {
            return Err(TravelError::Diverged { icount: at.icount, why: why.to_string() });
        }
        (self.end, self.ending) = (Some(at), Some(why.clone()));
        Ok(Some(Arrival::End(Some(why))))
    }

    /// Applies the input that is due. Records are drained first, as in the recorded run.
    fn come_in<O: Observer>(
        &mut self,
        now: Moment,
        search: Option<&Search>,
        observer: &mut O,
    ) -> Told<Option<Arrival>, O> {
        self.drain(observer)?;
        let Some(logged) = self.log.get(self.next) else { return Ok(Ok(None)) };
        if logged.at < now && !self.branches {
            let why = format!(
                "something came in at {} instructions, and the run does not stop there",
                logged.at.icount
            );
            return Ok(Err(TravelError::Diverged { icount: now.icount, why }));
        }
        self.next += 1;
        if let Event::Command(command) = &logged.event {
            let asks = matches!(command, Command::Query | Command::GetVars { .. } | Command::List { .. });
            let inside = self.log.iter().take(self.next).rev().find_map(|logged| match logged.event {
                Event::Begin => Some(true),
                Event::End(_) => Some(false),
                _ => None,
            });
            match self.session.apply(command.clone()) {
                Ok(reply) if asks || inside == Some(true) => observer.reply(&reply)?,
                Ok(_) => {}
                // In a different run, the target of a command may not exist.
                Err(_) if self.branches => {}
                Err(error) => {
                    return Ok(Err(TravelError::Diverged { icount: now.icount, why: error.to_string() }));
                }
            }
            if let Some(search) = search {
                self.session.note_hits(search);
            }
        }
        Ok(Ok(None))
    }
}
