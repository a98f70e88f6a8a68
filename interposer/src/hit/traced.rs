//! Traces of handlers: every operation that they execute at one instruction count.
//!
//! The interpreter is the one that runs all handlers; it is only observed. A trace is not part of what is saved.

use super::Interposer;
use super::host::Guest;
use super::view::View;
use crate::model::{Probe, ProgramId};
use std::sync::Arc;
use trapline_emu::Moment;
use trapline_rpn::{Change, Lines, Observer, OpState, Outcome, Termination, Unhandled, Vars, Verified, Vm};

/// Operations of which traces are kept, over all handlers.
const MOST_KEPT: usize = 1 << 20;

/// What of a list differs from the list before: it agrees up to `keep` and goes on with `fresh`.
#[derive(Debug)]
struct Tail<T> {
    keep: usize,
    fresh: Box<[T]>,
}

impl<T: Copy + PartialEq> Tail<T> {
    /// Makes `last` the list `now`, and answers how it differs.
    fn advance(last: &mut Vec<T>, now: &[T]) -> Self {
        let keep = last.iter().zip(now).take_while(|(one, other)| one == other).count();
        let fresh = now.get(keep..).unwrap_or_default();
        last.truncate(keep);
        last.extend_from_slice(fresh);
        Self { keep, fresh: fresh.into() }
    }

    fn apply(&self, list: &mut Vec<T>) {
        list.truncate(self.keep);
        list.extend_from_slice(&self.fresh);
    }
}

/// Variables that differ from those before: index and value.
type Changed = Box<[(usize, u64)]>;

fn advance_variables(last: &mut [u64], now: &[u64]) -> Changed {
    let mut changed = Vec::new();
    for (n, (last, now)) in last.iter_mut().zip(now).enumerate().filter(|(_, (last, now))| last != now) {
        *last = *now;
        changed.push((n, *now));
    }
    changed.into()
}

fn apply_variables(changed: &Changed, variables: &mut [u64]) {
    for (n, value) in changed {
        if let Some(variable) = variables.get_mut(*n) {
            *variable = *value;
        }
    }
}

/// How a state differs from the one before it.
#[derive(Debug)]
struct Step {
    /// None after the last operation.
    at: Option<u32>,
    calls: u32,
    stack: Tail<u64>,
    log: Tail<u8>,
    lv: Changed,
    gv: Changed,
}

/// One run of a handler, operation by operation.
#[derive(Debug)]
pub struct HandlerTrace {
    /// Of this program.
    pub program: ProgramId,
    /// At this probe, as records count them.
    pub probe: u32,
    /// The number of the clause, from 0, if the program is one of D.
    pub clause: Option<u32>,
    /// When: the moment that its record has.
    pub at: Moment,
    /// The instruction pointer that it saw.
    pub ip: u64,
    /// Whether it ran after an access or an instruction, or at a tick: the guest's state at its moment has its effects.
    pub after: bool,
    /// How it ended.
    pub outcome: Outcome,
    handler: Arc<Verified>,
    lines: Lines,
    lv: Vec<u64>,
    gv: Vec<u64>,
    /// One more than the operations.
    steps: Vec<Step>,
    changes: Vec<(usize, Change)>,
    thrown: Vec<(usize, Unhandled)>,
}

/// A handler before one of its operations, or after the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerState {
    /// Index of the next operation; none after the last one.
    pub at: Option<u32>,
    /// Calls that have not returned.
    pub calls: u32,
    /// The operand stack, top last.
    pub stack: Vec<u64>,
    /// What has been logged so far.
    pub log: Vec<u8>,
    /// Local variables of the program.
    pub lv: Vec<u64>,
    /// Global variables of the machine.
    pub gv: Vec<u64>,
    /// The last exception, caught or not.
    pub thrown: Option<Unhandled>,
}

impl HandlerTrace {
    /// How many operations were executed.
    pub fn operations(&self) -> usize {
        self.steps.len().saturating_sub(1)
    }

    /// The handler.
    pub fn handler(&self) -> &Verified {
        &self.handler
    }

    /// Source line of an instruction of the handler, 0 if it is not known.
    pub fn line(&self, at: u32) -> u32 {
        self.lines.line(at)
    }

    /// The state when so many operations have been executed.
    pub fn state(&self, executed: usize) -> HandlerState {
        let mut state = HandlerState {
            at: None,
            calls: 0,
            stack: Vec::new(),
            log: Vec::new(),
            lv: self.lv.clone(),
            gv: self.gv.clone(),
            thrown: self.thrown.iter().rev().find(|(n, _)| *n < executed).map(|(_, thrown)| *thrown),
        };
        for step in self.steps.iter().take(executed.saturating_add(1)) {
            (state.at, state.calls) = (step.at, step.calls);
            step.stack.apply(&mut state.stack);
            step.log.apply(&mut state.log);
            apply_variables(&step.lv, &mut state.lv);
            apply_variables(&step.gv, &mut state.gv);
        }
        state
    }

    /// What it changed of the guest, each with the number of the operation, from 0.
    pub fn changes(&self) -> &[(usize, Change)] {
        &self.changes
    }

    /// The exception that ended it.
    pub fn unhandled(&self) -> Option<Unhandled> {
        let ended = self.outcome.termination == Termination::Exception;
        self.thrown.last().filter(|_| ended).map(|(_, thrown)| *thrown)
    }
}

/// The handlers that ran at one instruction count.
#[derive(Debug, Default)]
pub struct Traces {
    icount: u64,
    /// In the order in which they ran.
    pub runs: Vec<HandlerTrace>,
    /// Whether they executed more operations than are kept.
    pub too_many: bool,
}

/// Watches one run.
struct Tracer {
    room: usize,
    stack: Vec<u64>,
    log: Vec<u8>,
    lv: Vec<u64>,
    gv: Vec<u64>,
    steps: Vec<Step>,
    changes: Vec<(usize, Change)>,
    thrown: Vec<(usize, Unhandled)>,
}

impl Tracer {
    fn step(&mut self, at: Option<u32>, state: &OpState<'_>) {
        let step = Step {
            at,
            calls: state.calls,
            stack: Tail::advance(&mut self.stack, state.stack),
            log: Tail::advance(&mut self.log, state.log),
            lv: advance_variables(&mut self.lv, state.lv),
            gv: advance_variables(&mut self.gv, state.gv),
        };
        self.steps.push(step);
    }

    /// The number of the operation that was told last.
    fn current(&self) -> usize {
        self.steps.len().saturating_sub(1)
    }
}

impl Observer for Tracer {
    fn before(&mut self, state: &OpState<'_>) {
        if self.room > 0 {
            self.room -= 1;
            self.step(Some(state.at), state);
        }
    }

    fn threw(&mut self, exception: Unhandled) {
        self.thrown.push((self.current(), exception));
    }

    fn changed(&mut self, change: Change) {
        self.changes.push((self.current(), change));
    }
}

impl Traces {
    fn run<V: View>(
        &mut self,
        vm: &mut Vm,
        probe: &Probe,
        guest: &mut Guest<'_, V>,
        vars: Vars<'_>,
        after: bool,
    ) -> Outcome {
        let at = guest.core.moment();
        if at.icount != self.icount || self.too_many {
            return vm.run(&probe.handler, guest, vars);
        }
        let ip = guest.ip.unwrap_or_else(|| guest.core.env().eip());
        let kept: usize = self.runs.iter().map(HandlerTrace::operations).sum();
        let Vars { lv, gv } = vars;
        let (first_lv, first_gv) = (lv.to_vec(), gv.to_vec());
        let mut tracer = Tracer {
            room: MOST_KEPT - kept,
            stack: Vec::new(),
            log: Vec::new(),
            lv: first_lv.clone(),
            gv: first_gv.clone(),
            steps: Vec::new(),
            changes: Vec::new(),
            thrown: Vec::new(),
        };
        let own = Vars { lv: &mut *lv, gv: &mut *gv };
        let outcome = vm.run_observed(&probe.handler, guest, &mut tracer, own);
        if tracer.steps.len() < outcome.steps as usize {
            self.too_many = true;
            return outcome;
        }
        let mut stack = vm.stack();
        stack.reverse();
        tracer.step(None, &OpState { at: 0, calls: 0, stack: &stack, log: vm.log(), lv, gv });
        self.runs.push(HandlerTrace {
            program: ProgramId(probe.program as usize),
            probe: guest.firing.0,
            clause: guest.d.is_some().then_some(probe.major),
            at,
            ip,
            after,
            outcome,
            handler: Arc::clone(&probe.handler),
            lines: probe.rest.lines.clone(),
            lv: first_lv,
            gv: first_gv,
            steps: tracer.steps,
            changes: tracer.changes,
            thrown: tracer.thrown,
        });
        outcome
    }
}

/// Runs a handler; traces it if handlers are traced.
#[inline(always)]
pub(super) fn run_handler<V: View>(
    (vm, traces): (&mut Vm, &mut Option<Box<Traces>>),
    probe: &Probe,
    guest: &mut Guest<'_, V>,
    vars: Vars<'_>,
    after: bool,
) -> Outcome {
    match traces {
        None => vm.run(&probe.handler, guest, vars),
        Some(traces) => run_traced(vm, traces, probe, guest, vars, after),
    }
}

#[cold]
#[inline(never)]
fn run_traced<V: View>(
    vm: &mut Vm,
    traces: &mut Traces,
    probe: &Probe,
    guest: &mut Guest<'_, V>,
    vars: Vars<'_>,
    after: bool,
) -> Outcome {
    traces.run(vm, probe, guest, vars, after)
}

impl Interposer {
    /// From now on traces the handlers that run at this instruction count, for [`Interposer::take_traces`]. The run is
    /// the same, and slower. This is not part of what is saved.
    pub fn trace_handlers(&mut self, icount: u64) {
        if self.runner.traces.as_ref().is_none_or(|traces| traces.icount != icount) {
            self.runner.traces = Some(Box::new(Traces { icount, ..Traces::default() }));
        }
    }

    /// Traces no more handlers; answers those that were traced.
    pub fn take_traces(&mut self) -> Traces {
        self.runner.traces.take().map(|traces| *traces).unwrap_or_default()
    }
}
