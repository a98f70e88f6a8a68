//! Handlers on trial, and altered runs: what a handler does in a state in which the guest is not.
//!
//! A trial runs a handler once, at once. Neither the guest nor the run is changed: no record, no count, no request of the handler
//! is kept. An altered run is a run at a real hit, which sees other values than the guest's.

use super::Interposer;
use super::handler::set_variables;
use super::host::Guest;
use super::view::View;
use crate::d::{DDrops, Runtime};
use crate::model::{AlteredRun, Difference, ProgramId};
use std::sync::Arc;
use trapline_emu::Core;
use trapline_rpn::{Argument, Lines, Observer, Outcome, Termination, Unhandled, Vars, Verified};

/// The variables of a handler on trial.
#[derive(Clone, Default)]
pub struct TrialState {
    lv: Vec<u64>,
    gv: Vec<u64>,
    d: Option<Box<Runtime>>,
}

impl TrialState {
    /// Takes over another state.
    pub fn set(&mut self, other: &Self) {
        self.lv.clone_from(&other.lv);
        self.gv.clone_from(&other.gv);
        self.d.clone_from(&other.d);
    }

    /// Local and global variables.
    pub fn variables(&self) -> (&[u64], &[u64]) {
        (&self.lv, &self.gv)
    }

    /// Whether they are those of a clause of D.
    pub fn is_d(&self) -> bool {
        self.d.is_some()
    }

    /// Sets the variables that differ.
    pub fn alter(&mut self, differences: &[Difference]) {
        set_variables(differences, &mut self.lv, &mut self.gv);
    }

    /// What a D program has dropped.
    pub fn drops(&self) -> DDrops {
        self.d.as_ref().map(|d| d.drops()).unwrap_or_default()
    }
}

/// The result of a trial. What an RPN handler has logged is [`Interposer::trial_log`].
#[derive(Debug)]
pub struct Trial {
    /// How it ended.
    pub outcome: Outcome,
    /// The exception that ended it.
    pub unhandled: Option<Unhandled>,
    /// The records of a clause of D.
    pub records: Vec<Vec<u8>>,
}

impl Interposer {
    /// Lets a program's handlers see other values than the guest's at some of their runs, in place of those that it had so far.
    pub fn alter(&mut self, id: ProgramId, runs: Vec<AlteredRun>) {
        if let Some(program) = self.inserted.programs.get_mut(id.0) {
            program.altered = (!runs.is_empty()).then(|| Arc::from(runs));
        }
        self.inserted.mark_altered();
    }

    /// The altered runs of a program.
    pub fn altered(&self, id: ProgramId) -> &[AlteredRun] {
        let program = self.inserted.programs.get(id.0);
        program.and_then(|program| program.altered.as_deref()).unwrap_or_default()
    }

    /// The program of a probe, the number of the probe point in it, and its runs so far.
    pub fn point_of(&self, probe: u32) -> Option<(ProgramId, usize, u64)> {
        let own = self.inserted.probes.get(probe as usize)?;
        let program = self.inserted.programs.get(own.program as usize)?;
        let point = (probe as usize).checked_sub(program.probes.start)?;
        Some((ProgramId(own.program as usize), point, own.run))
    }

    /// An argument of a probe as it is now, if it has one of this number.
    pub fn argument_of(&self, core: &Core, probe: u32, number: u8) -> Option<u64> {
        let arguments = self.inserted.probes.get(probe as usize)?.arguments.as_ref()?;
        arguments.argument(core, Argument::Number(number)).ok()
    }

    /// Whether a probe is at the first instruction of a function: the stack pointer is at the return address.
    pub fn is_at_call(&self, probe: u32) -> bool {
        self.inserted.probes.get(probe as usize).is_some_and(|probe| probe.at_call)
    }

    /// The program of the last handler of which an assertion did not hold since the last call.
    pub fn take_refuted(&mut self) -> Option<&str> {
        let probe = self.runner.asked.refuted.take()?;
        let program = self.inserted.probes.get(probe as usize)?.program;
        Some(self.inserted.programs.get(program as usize)?.name())
    }

    /// The handler of a probe, and the lines of its source.
    pub fn handler(&self, probe: u32) -> Option<(&Arc<Verified>, &Lines)> {
        let own = self.inserted.probes.get(probe as usize)?;
        Some((&own.handler, &own.rest.lines))
    }

    /// The variables that a probe's handler would have now.
    pub fn trial_state(&self, probe: u32) -> Option<TrialState> {
        let own = self.inserted.probes.get(probe as usize)?;
        let program = self.inserted.programs.get(own.program as usize)?;
        Some(TrialState { lv: program.lv.clone(), gv: self.inserted.gv.clone(), d: program.d.clone() })
    }

    /// Runs the handler of a probe on trial: as its run of this number, with these variables, in the guest that the view shows.
    /// Without an observer, it runs as in a run. `None` if there is no such probe, or its D program has ended.
    pub fn try_handler<V: View, O: Observer>(
        &mut self,
        core: &mut Core,
        (index, run): (u32, u64),
        state: &mut TrialState,
        view: &mut V,
        observer: Option<&mut O>,
    ) -> Option<Trial> {
        let probe = self.inserted.probes.get(index as usize)?;
        let before = (self.stats, self.runner.asked.frozen_after, self.runner.asked.refuted);
        // Each run is a firing of its own.
        self.stats.traps = self.stats.traps.wrapping_add(run);
        let TrialState { lv, gv, d } = state;
        let mut guest = Guest {
            core,
            profile: &self.profile,
            stats: &mut self.stats,
            asked: &mut self.runner.asked,
            ip: None,
            probe,
            unwinder: &mut self.recorder.stacks.unwinder,
            d: d.as_deref_mut(),
            firing: (index, run),
            view,
        };
        let begun = guest.begin_clause(lv);
        let outcome = begun.then(|| {
            let vars = Vars { lv, gv };
            match observer {
                Some(observer) => self.runner.vm.run_observed(&probe.handler, &mut guest, observer, vars),
                None => self.runner.vm.run(&probe.handler, &mut guest, vars),
            }
        });
        (self.stats, self.runner.asked.frozen_after, self.runner.asked.refuted) = before;
        let asked = &mut self.runner.asked;
        (asked.any, asked.stop, asked.wrote, asked.passed, asked.panics) =
            (false, false, false, false, false);
        let outcome = outcome?;
        let failed = outcome.termination == Termination::Exception;
        let records = match d {
            Some(d) if !failed && outcome.recorded() => {
                d.take_records(index).into_iter().map(|(_, data)| data).collect()
            }
            _ => Vec::new(),
        };
        Some(Trial { outcome, unhandled: failed.then(|| self.runner.vm.unhandled()), records })
    }

    /// What the handler of the last trial has logged.
    pub fn trial_log(&self) -> &[u8] {
        self.runner.vm.log()
    }
}
