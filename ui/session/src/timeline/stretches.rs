//! The stretches of a span, the last one first: for questions about what comes last.
//!
//! A span is run once as a whole, which lays the rungs at which stretches begin. A stretch is about as long as all that come
//! behind it: so what is near the end is found soon, and going back costs little where all of the span is looked at.

use trapline_emu::Moment;

use super::drive::{Discard, Goal};
use super::{Rung, Timeline, TravelError};
use crate::recording::Position;
use crate::session::Search;

/// Instructions that are stepped for the watches of a search, until it is better to search backwards. They take as long as
/// a few hundred times as many that are not stepped.
const MOST_STEPS: u64 = 50_000;

impl Timeline {
    /// Goes through a span backwards, stretch by stretch, from one position to another, or from the beginning and to the end.
    /// `look` is called at the beginning of each stretch, and goes on from there to the goal, where the stretch begins that
    /// was looked at before. If it answers false, the stretches further back are left out. Answers the instruction count at
    /// which the span begins.
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

    /// Searches from here to a position, or to the end, and lays rungs, as long as few instructions are stepped for it. Where
    /// it gives up, it answers the position up to which it has searched.
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
            let due =
                if tired { Some(now.icount + 1) } else { self.ladder.next_due(now.icount, goal.icount()) };
            let Ok(turned) = self.turn(goal, due, Some(search), &mut Discard);
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

    /// A goal, or the end of the run if that is known to come before: so rungs are laid just before it.
    fn known(&self, goal: Goal) -> Goal {
        self.end.filter(|end| !goal.is_reached(*end)).map_or(goal, Goal::Moment)
    }

    /// The rung at which the stretch before a moment begins, behind which so many instructions have been looked at.
    fn stretch_before(&self, end: Moment, looked: u64) -> Option<(Moment, Rung)> {
        let far = Moment { icount: end.icount.saturating_sub(looked), ..Moment::default() };
        let limit = if looked == 0 { end } else { far };
        let found = self.ladder.before(limit).or_else(|| self.ladder.first());
        found.map(|(at, rung)| (at, rung.clone()))
    }
}
