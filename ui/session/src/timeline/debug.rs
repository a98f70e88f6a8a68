//! What debuggers ask of a timeline: single states, both ways, and runs that stay where they are interrupted.
//!
//! A state follows another one by an instruction, or by the delivery of an exception or an interrupt. Time that passes
//! while the processor is halted makes no state of its own.

use std::rc::Rc;

use trapline_emu::{Core, Moment};

use super::drive::{Discard, Goal};
use super::{Arrival, Found, Met, StopPoint, Timeline, TravelError};
use crate::ending::Ending;
use crate::recording::Position;
use crate::session::{Returning, Search};

/// A condition of stop points on the state in which they are met, and on their numbers.
pub type Accept = Rc<dyn Fn(&Core, usize) -> bool>;

/// What ended a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ran {
    /// This stop point was met: the timeline is there.
    Met(Met),
    /// The end of the run, as far as it is known, and why it ended, if it ended by itself: the timeline is there.
    End(Option<Ending>),
    /// The flag of [`Timeline::cancelled_by`] was raised when the run had come here. The timeline is at a saved state
    /// before, and [`Timeline::goto`] goes there when the flag is clear again.
    Interrupted(Position),
}

/// The part of a moment that tells states apart.
fn state(moment: Moment) -> (u64, u32) {
    (moment.icount, moment.delivered)
}

fn accepting(search: Search, accept: Option<&Accept>) -> Search {
    match accept.cloned() {
        Some(accept) => search.accepting(Box::new(move |core, point| accept(core, point))),
        None => search,
    }
}

impl Timeline {
    /// Goes forward to the next match of these stop points at which the condition holds, or to the end of the run. States
    /// are saved on the way, so that an interrupted run need not be repeated.
    ///
    /// # Errors
    /// The run is not the one that was recorded.
    pub fn run_on(&mut self, points: &[StopPoint], accept: Option<&Accept>) -> Result<Ran, TravelError> {
        self.run_on_telling(points, accept, None)
    }

    /// As [`Timeline::run_on`], and tells of each return to user mode on the way.
    ///
    /// # Errors
    /// As [`Timeline::run_on`].
    pub fn run_on_telling(
        &mut self,
        points: &[StopPoint],
        accept: Option<&Accept>,
        returning: Option<Returning>,
    ) -> Result<Ran, TravelError> {
        let here = self.session.moment();
        let search = accepting(Search::first_after(points.to_vec(), Some(here)), accept);
        let mut search = search.telling_returns(returning);
        let start = self.leave();
        let ran = self.run_searching(&mut search);
        let there = self.session.moment();
        self.together = search.together().to_vec();
        // The state of a search is not that of the run.
        if let Some((_, rung)) = self.ladder.at_or_before(there) {
            self.climb_to(&rung)?;
        }
        match (search.found(), ran) {
            (Some(met), Ok(_)) => self.arrive(met).map(|_| Ran::Met(met)),
            (None, Ok(ending)) => self.go(Goal::Moment(there)).map(|_| Ran::End(ending)),
            (found, Err(TravelError::Interrupted)) => {
                let icount = found.map_or(there, |met| met.at).icount;
                Ok(Ran::Interrupted(Position::At { icount, ordinal: 0 }))
            }
            (_, Err(error)) => {
                self.return_to(&start)?;
                Err(error)
            }
        }
    }

    /// Searches from here, and lays rungs, to the first match or to the end of the run; why it ended then.
    fn run_searching(&mut self, search: &mut Search) -> Result<Option<Ending>, TravelError> {
        self.inside = None;
        let goal = Goal::Count(u64::MAX);
        self.session.begin_search(search);
        let ended = loop {
            if search.is_over() {
                break Ok(None);
            }
            let now = self.session.moment();
            let due = self.ladder.next_due(now.icount, goal.icount());
            let Ok(turned) = self.turn(goal, due.map(|due| due.at), Some(search), &mut Discard);
            match turned {
                Ok(None) => {}
                Ok(Some(Arrival::End(ending))) => break Ok(ending),
                Ok(Some(Arrival::There)) => break Ok(None),
                Err(error) => break Err(error),
            }
            if !search.is_over() && self.is_place_for_rung(now, due) {
                // What is saved has no watches of a search.
                self.session.end_search(search);
                self.lay_rung();
                self.session.begin_search(search);
            }
        };
        self.session.end_search(search);
        ended
    }

    /// Goes back to the last match of these stop points at which the condition holds. An access that the instruction before
    /// this position has made is one, and the timeline then stays here.
    ///
    /// # Errors
    /// The run is not the one that was recorded.
    pub fn reverse_on(
        &mut self,
        points: &[StopPoint],
        accept: Option<&Accept>,
    ) -> Result<Found, TravelError> {
        let here = self.session.moment();
        let search = |before| Search::last_before(points.to_vec(), before).with_last_access();
        self.backwards(&|before| accepting(search(before), accept), here)
    }

    /// Goes to the next state.
    ///
    /// # Errors
    /// The run is not the one that was recorded.
    pub fn next_state(&mut self) -> Result<Arrival, TravelError> {
        self.inside = None;
        self.reach_next_state(None)
    }

    /// Which of these stop points is met on the way to the next state, if any. The timeline stays where it is.
    ///
    /// # Errors
    /// As [`Timeline::next_state`].
    pub fn met_next(&mut self, points: &[StopPoint]) -> Result<Option<usize>, TravelError> {
        if points.is_empty() {
            return Ok(None);
        }
        let here = self.leave();
        self.inside = None;
        let mut search = Search::first_after(points.to_vec(), Some(here.at));
        self.session.begin_search(&search);
        let searched = self.reach_next_state(Some(&mut search));
        self.session.end_search(&search);
        self.return_from(&here, searched)?;
        Ok(search.found().map(|met| met.point))
    }

    fn reach_next_state(&mut self, mut search: Option<&mut Search>) -> Result<Arrival, TravelError> {
        let from = self.session.moment();
        loop {
            let now = self.session.moment();
            let next = Moment { delivered: now.delivered + 1, ..now };
            let Ok(turned) = self.turn(Goal::Moment(next), None, search.as_deref_mut(), &mut Discard);
            if let Some(arrival) = turned? {
                return Ok(arrival);
            }
            let over = search.as_ref().is_some_and(|search| search.is_over());
            if over || state(self.session.moment()) != state(from) {
                return Ok(Arrival::There);
            }
        }
    }

    /// Goes to the state before this one; false at the beginning of the history.
    ///
    /// # Errors
    /// The run is not the one that was recorded.
    pub fn previous_state(&mut self) -> Result<bool, TravelError> {
        let here = self.session.moment();
        let Some((first, _)) = self.ladder.first().filter(|(first, _)| *first < here) else {
            return Ok(false);
        };
        let count = here.icount - u64::from(here.delivered == 0 && here.icount > first.icount);
        self.go(Goal::Count(count))?;
        // INT n retires and is delivered at once: its count has no state before.
        if state(self.session.moment()) == state(here) {
            if count <= first.icount {
                return Ok(false);
            }
            self.go(Goal::Count(count - 1))?;
        }
        loop {
            let at = self.leave();
            let arrival = self.reach_next_state(None)?;
            let next = self.session.moment();
            // A run that was changed at its end may end earlier when it comes there again.
            let ended = matches!(arrival, Arrival::End(_));
            if ended || next >= here || state(next) == state(here) {
                self.return_to(&at)?;
                return Ok(true);
            }
        }
    }
}
