//! Visits all states of a span, one after the other.

use serde::Serialize;
use trapline_emu::Moment;

use super::drive::{Discard, Goal};
use super::{Timeline, TravelError};
use crate::recording::Position;
use crate::session::Session;

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
}
