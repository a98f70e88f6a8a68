//! Handlers on trial, and altered runs (docs/fuzzing.md).

use trapline_interposer::{AlteredRun, Interposer, Trial, TrialRun, TrialState, View};
use trapline_rpn::Observer as RpnObserver;

use super::Session;
use super::apply::Answer;
use crate::commands::CommandError;

impl Session {
    /// As [`Interposer::try_handler`]: neither the guest nor the run is changed.
    pub fn try_handler<V: View, O: RpnObserver>(
        &mut self,
        at: TrialRun,
        state: &mut TrialState,
        view: &mut V,
        observer: Option<&mut O>,
    ) -> Option<Trial> {
        let interposer = self.interposer.as_mut()?;
        interposer.try_handler(self.machine.core_mut(), at, state, view, observer)
    }

    /// As [`Interposer::take_refuted`].
    pub fn take_refuted(&mut self) -> Vec<(u32, u32)> {
        self.interposer.as_mut().map(Interposer::take_refuted).unwrap_or_default()
    }

    /// Lets handlers of a program see other values at some of their runs.
    pub(super) fn alter(&mut self, name: &str, runs: Vec<AlteredRun>) -> Answer {
        let id = self.find(name)?;
        let points =
            self.programs().iter().find(|program| program.id == id).map_or(0, |program| program.points.len());
        if let Some(run) = runs.iter().find(|run| run.point >= points) {
            return Err(CommandError::UnknownPoint { name: name.to_owned(), point: run.point, points });
        }
        let count = runs.len() as u64;
        if let Some(interposer) = self.interposer.as_mut() {
            Interposer::alter(interposer, id, runs);
        }
        let runs = crate::plural::counted(count, "run");
        Ok(self.done("alter", name, format!("altered {runs} of {name}")))
    }
}
