//! Handlers on trial, and altered runs: what a handler does in a state in which the guest is not.
//!
//! A trial runs a handler once, at once. Neither the guest nor the run is changed: no record, no count, no request of the handler
//! is kept. An altered run is a run at a real hit, which sees other values than the guest's.

use super::Interposer;
use super::handler::set_variables;
use super::host::Guest;
use super::view::View;
use crate::d::{DDrops, Runtime};
use crate::model::{AlteredRun, Difference, Place, ProgramId};
use std::ops::Range;
use std::sync::Arc;
use trapline_emu::Core;
use trapline_rpn::{Argument, Lines, Observer, Outcome, Termination, Unhandled, Vars, Verified};

/// Which run of a handler a trial is.
#[derive(Debug, Clone, Copy)]
pub struct TrialRun {
    /// The probe, as records count them.
    pub probe: u32,
    /// The number of the run there, from 1.
    pub run: u64,
    /// The number of the firing, which all handlers of the hit share.
    pub firing: u64,
    /// The instruction count of the hit.
    pub icount: u64,
}

/// The variables of all programs, for handlers on trial.
#[derive(Clone, Default)]
pub struct TrialState {
    /// The local variables of all programs, one program after the other, in order of insertion.
    lv: Vec<u64>,
    gv: Vec<u64>,
    programs: Vec<OfProgram>,
}

/// What a program has in a trial.
#[derive(Clone)]
struct OfProgram {
    /// The first of its local variables among all, and how many there are.
    locals: Range<usize>,
    d: Option<Box<Runtime>>,
}

impl TrialState {
    /// Takes over another state.
    pub fn set(&mut self, other: &Self) {
        self.lv.clone_from(&other.lv);
        self.gv.clone_from(&other.gv);
        self.programs.clone_from(&other.programs);
    }

    /// Takes over what another state has of programs that were inserted later.
    pub fn insert_later(&mut self, other: &Self) {
        self.lv.extend(other.lv.iter().skip(self.lv.len()));
        self.gv.extend(other.gv.iter().skip(self.gv.len()));
        self.programs.extend(other.programs.iter().skip(self.programs.len()).cloned());
    }

    /// Local and global variables.
    pub fn variables(&self) -> (&[u64], &[u64]) {
        (&self.lv, &self.gv)
    }

    /// Where the local variables of a program are among all.
    pub fn locals(&self, id: ProgramId) -> Range<usize> {
        self.programs.get(id.0).map_or(0..0, |program| program.locals.clone())
    }

    /// Sets the variables that differ; the number of a local variable is that among all.
    pub fn alter(&mut self, differences: &[Difference]) {
        set_variables(differences, &mut self.lv, &mut self.gv);
    }

    /// What a D program has dropped.
    pub fn drops(&self, id: ProgramId) -> DDrops {
        let program = self.programs.get(id.0);
        program.and_then(|program| program.d.as_ref()).map(|d| d.drops()).unwrap_or_default()
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

    /// The assertions that did not hold since the last call: the probe, and the operation of its handler; 0 for an RPN program, whose
    /// handler goes on.
    pub fn take_refuted(&mut self) -> Vec<(u32, u32)> {
        std::mem::take(&mut self.runner.asked.refuted)
    }

    /// Whether a probe is on an instruction, before which its handler runs: not a timer, a return, a watch or an event.
    pub fn has_instruction(&self, probe: u32) -> bool {
        self.inserted.probes.get(probe as usize).filter(|probe| !probe.returns_later).is_some_and(|probe| {
            matches!(
                probe.place,
                Place::Kernel { .. }
                    | Place::LockNop { .. }
                    | Place::Pointer { .. }
                    | Place::User { .. }
                    | Place::Module { .. }
                    | Place::ModulePointer { .. }
            )
        })
    }

    /// The handler of a probe, and the lines of its source.
    pub fn handler(&self, probe: u32) -> Option<(&Arc<Verified>, &Lines)> {
        let own = self.inserted.probes.get(probe as usize)?;
        Some((&own.handler, &own.rest.lines))
    }

    /// The variables that handlers would have now.
    pub fn trial_state(&self) -> TrialState {
        let mut state = TrialState { gv: self.inserted.gv.clone(), ..TrialState::default() };
        for program in &self.inserted.programs {
            let first = state.lv.len();
            state.lv.extend(&program.lv);
            state.programs.push(OfProgram { locals: first..state.lv.len(), d: program.d.clone() });
        }
        state
    }

    /// The numbers of a program's probes, as records count them.
    pub fn probes_of(&self, id: ProgramId) -> Range<u32> {
        let probes = self.inserted.programs.get(id.0).map_or(0..0, |program| program.probes.clone());
        probes.start as u32..probes.end as u32
    }

    /// Whether a probe's handler is a clause of D.
    pub fn is_clause(&self, probe: u32) -> bool {
        self.inserted.probes.get(probe as usize).is_some_and(|probe| probe.is_clause)
    }

    /// Runs the handler of a probe on trial, with these variables, in the guest that the view shows.
    /// Without an observer, it runs as in a run. `None` if there is no such probe, or its D program has ended.
    pub fn try_handler<V: View, O: Observer>(
        &mut self,
        core: &mut Core,
        TrialRun { probe: index, run, firing, icount }: TrialRun,
        state: &mut TrialState,
        view: &mut V,
        observer: Option<&mut O>,
    ) -> Option<Trial> {
        let probe = self.inserted.probes.get(index as usize)?;
        let before = (self.stats, self.runner.asked.frozen_after, self.runner.asked.refuted.len());
        self.stats.traps = firing;
        let TrialState { lv, gv, programs } = state;
        let OfProgram { locals, d } = programs.get_mut(probe.program as usize)?;
        let lv = lv.get_mut(locals.clone())?;
        let mut guest = Guest {
            core,
            profile: &self.profile,
            stats: &mut self.stats,
            asked: &mut self.runner.asked,
            ip: None,
            returned: false,
            probe,
            unwinder: &mut self.recorder.stacks.unwinder,
            d: d.as_deref_mut(),
            firing: (index, run),
            view,
        };
        let begun = guest.begin_clause_at(icount, lv);
        let outcome = begun.then(|| {
            let vars = Vars { lv, gv };
            match observer {
                Some(observer) => self.runner.vm.run_observed(&probe.handler, &mut guest, observer, vars),
                None => self.runner.vm.run(&probe.handler, &mut guest, vars),
            }
        });
        let asked = &mut self.runner.asked;
        (self.stats, asked.frozen_after) = (before.0, before.1);
        asked.refuted.truncate(before.2);
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
