//! The stretches of a span, the last one first: for questions about the last events of a run.
//!
//! A span is run once as a whole, which lays the rungs at which stretches begin. Each stretch is about as long as all later
//! ones together. So an event near the end is found soon, and a search of the whole span goes back only a few times.

use trapline_emu::Moment;

use super::drive::{Discard, Goal};
use super::ladder::Due;
use super::{Rung, Timeline, TravelError};
use crate::recording::Position;
use crate::session::Search;

/// The number of instructions stepped for watches after which a search continues backwards. A stepped instruction takes as
/// long as a few hundred others.
const MOST_STEPS: u64 = 50_000;

impl Timeline {
    /// Goes through a span backwards, stretch by stretch. Without `from`, the span starts at the beginning of the run; without
    /// `to`, it extends to the end. `look` is called at the beginning of each stretch and runs to the goal, which is the end
    /// of the stretch. If it returns false, earlier stretches are left out. Returns the instruction count at which the span
    /// begins.
    ///
    /// # Errors
    /// There is no such position, the run is not the one that was recorded, or `look` fails.
    pub(crate) fn each_stretch_back(
        &mut self,
        from: Option<Position>,
        to: Option<Position>,
        look: &mut dyn FnMut(&mut Self, Goal) -> Result<bool, TravelError>,
    ) -> Result<u64, TravelError> {
        let mut goal = to.map_or(Ok(Goal::Count(u64::MAX)), |to| self.goal(to))?;
        let from = from.map(|from| self.goal(from)).transpose()?;
        let Some(first) = self.ladder.first().map(|(at, _)| at) else { return Ok(0) };
        let begins = from.map_or(first.icount, Goal::icount);
        if goal.icount() < begins {
            return Err(TravelError::EndsBefore { begins, ends: goal.icount() });
        }
        self.go(self.known(goal))?;
        let (mut end, mut looked) = (self.session.moment(), 0);
        while let Some((at, rung)) = self.stretch_before(end, looked) {
            self.climb_to(&rung)?;
            let starts_here = from.filter(|from| !from.is_reached(at));
            if let Some(from) = starts_here {
                self.run_on_to(from)?;
            }
            let is_last = starts_here.is_some() || at == first;
            if !look(self, goal)? || is_last {
                break;
            }
            looked += end.icount - at.icount;
            (goal, end) = (Goal::Moment(at), at);
        }
        Ok(begins)
    }

    /// Searches from here to a position, or to the end, and lays rungs, until too many instructions have been stepped. If it
    /// gives up, it returns the position that it has reached.
    ///
    /// # Errors
    /// There is no such position, or the run is not the one that was recorded.
    pub(crate) fn search_while_cheap(
        &mut self,
        to: Option<Position>,
        search: &mut Search,
    ) -> Result<Option<Position>, TravelError> {
        let goal = to.map_or(Ok(Goal::Count(u64::MAX)), |to| self.goal(to))?;
        let goal = self.known(goal);
        let most = self.session.core().watched_steps() + MOST_STEPS;
        self.session.begin_search(search);
        let searched = loop {
            let now = self.session.moment();
            if goal.is_reached(now) {
                break Ok(None);
            }
            let tired = self.session.core().watched_steps() > most;
            let due = if tired {
                Some(Due::at(now.icount + 1))
            } else {
                self.ladder.next_due(now.icount, goal.icount())
            };
            let Ok(turned) = self.turn(goal, due.map(|due| due.at), Some(search), &mut Discard);
            match turned {
                Ok(None) => {}
                Ok(Some(_)) => break Ok(None),
                Err(error) => break Err(error),
            }
            if self.is_place_for_rung(now, due) {
                // What is saved has no watches of a search.
                self.session.end_search(search);
                self.lay_rung();
                if tired {
                    return Ok(Some(Position::At { icount: self.session.icount(), ordinal: 0 }));
                }
                self.session.begin_search(search);
            }
        };
        self.session.end_search(search);
        searched
    }

    /// The goal, or the end of the run if that is known to come first. Rungs are then laid close to it.
    fn known(&self, goal: Goal) -> Goal {
        self.end.filter(|end| !goal.is_reached(*end)).map_or(goal, Goal::Moment)
    }

    /// The rung at which the stretch before a moment begins; so many instructions after that moment have been searched.
    fn stretch_before(&self, end: Moment, looked: u64) -> Option<(Moment, Rung)> {
        let far = Moment { icount: end.icount.saturating_sub(looked), ..Moment::default() };
        let limit = if looked == 0 { end } else { far };
        self.ladder.before(limit).or_else(|| self.ladder.first())
    }
}
