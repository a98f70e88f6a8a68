//! Visits all states of a span, one after the other.

use serde::Serialize;
use trapline_emu::Moment;

use super::drive::{Discard, Goal};
use super::{Found, Timeline, TravelError};
use crate::recording::Position;
use crate::session::{Met, Session};

/// The event that led from one state to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Between {
    /// An instruction, with the handlers at it and what devices do when it retires.
    Instruction,
    /// The delivery of an exception or an interrupt, or an instruction that faulted and is retried.
    Delivery,
    /// An input: a command of a script, an NMI.
    Input,
    /// Time that passes while the processor is halted.
    Time,
}

impl Timeline {
    /// Passes each state from one position to another, or from the beginning or to the end, to a function, with the
    /// event that led to it from the preceding state. It stops early if the function returns false. Afterwards the
    /// timeline is at the last state that was passed.
    ///
    /// # Errors
    /// There is no such position, or the run is not the one that was recorded.
    pub(crate) fn each_state(
        &mut self,
        from: Option<Position>,
        to: Option<Position>,
        show: &mut dyn FnMut(&Session, Between) -> bool,
    ) -> Result<(), TravelError> {
        let to = to.map_or(Ok(Goal::Count(u64::MAX)), |to| self.goal(to))?;
        if let Some(from) = from {
            let from = self.goal(from)?;
            self.run_on_to(from)?;
            let begins = self.session.icount();
            if to.icount() < begins {
                return Err(TravelError::EndsBefore { begins, ends: to.icount() });
            }
        }
        self.each_state_to(to, show)
    }

    /// Shows each state from here to a goal that is not in the past, or to the end, as [`Timeline::each_state`] does.
    pub(crate) fn each_state_to(
        &mut self,
        to: Goal,
        show: &mut dyn FnMut(&Session, Between) -> bool,
    ) -> Result<(), TravelError> {
        let mut between = Between::Instruction;
        while show(&self.session, between) && !to.is_reached(self.session.moment()) {
            let (now, came) = (self.session.moment(), self.next);
            let next = Moment { delivered: now.delivered + 1, ..now };
            let Ok(turned) = self.turn(Goal::Moment(next), None, None, &mut Discard);
            let ended = turned?.is_some();
            let here = self.session.moment();
            between = match here {
                _ if self.next > came => Between::Input,
                _ if here.icount > now.icount => Between::Instruction,
                _ if here.delivered != now.delivered => Between::Delivery,
                _ => Between::Time,
            };
            if ended {
                show(&self.session, between);
                break;
            }
        }
        Ok(())
    }

    /// Goes to the next state, or to the last one before this, of which `met` holds, given the mark of the state before it and its
    /// own.
    ///
    /// # Errors
    /// The run is not the one that was recorded, or the search was cancelled.
    pub(crate) fn go_to_state<T: Copy>(
        &mut self,
        forwards: bool,
        mark: &dyn Fn(&Session) -> T,
        met: &dyn Fn(T, T) -> bool,
    ) -> Result<Found, TravelError> {
        let here = self.leave();
        let searched =
            if forwards { self.state_after(mark, met) } else { self.state_before(here.at, mark, met) };
        match searched {
            Ok(Some(at)) => self.arrive(Met { at, point: 0 }),
            other => self.return_from(&here, other).map(|_| Found::Nothing),
        }
    }

    fn state_after<T: Copy>(
        &mut self,
        mark: &dyn Fn(&Session) -> T,
        met: &dyn Fn(T, T) -> bool,
    ) -> Result<Option<Moment>, TravelError> {
        let (mut before, mut found) = (None, None);
        self.each_state_to(Goal::Count(u64::MAX), &mut |session, _| {
            let now = mark(session);
            let is_met = before.replace(now).is_some_and(|before| met(before, now));
            found = is_met.then(|| session.moment());
            !is_met
        })?;
        Ok(found)
    }

    fn state_before<T: Copy>(
        &mut self,
        here: Moment,
        mark: &dyn Fn(&Session) -> T,
        met: &dyn Fn(T, T) -> bool,
    ) -> Result<Option<Moment>, TravelError> {
        let mut found = None;
        // One instruction more: what was delivered before it belongs to this count.
        let to = Position::At { icount: here.icount.saturating_add(1), ordinal: 0 };
        self.each_stretch_back(None, Some(to), &mut |timeline, goal| {
            let mut before = None;
            timeline.each_state_to(goal, &mut |session, _| {
                let (now, at) = (mark(session), session.moment());
                if before.replace(now).is_some_and(|before| met(before, now)) && at < here {
                    found = Some(at);
                }
                true
            })?;
            Ok(found.is_none())
        })?;
        Ok(found)
    }
}
