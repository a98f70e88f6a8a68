//! The handlers of a hit: which of them run, and their requests.

use super::Interposer;
use super::asked::Asked;
use super::core_file;
use super::host::Guest;
use super::life::{Parked, Part, Stage, Why};
use super::names::failed_elsewhere;
use super::record::executed;
use super::traced::{Traces, run_handler};
use super::view::{Altered, Real, View, Written};
use crate::model::{Difference, HandlerError, ProgramId};
use crate::sites::Site;
use std::sync::Arc;
use trapline_emu::{Core, Stop, Trap, Verdict};
use trapline_rpn::{Outcome, Termination, Vars, Vm};
use trapline_trace::WatchItem;

/// The state for running handlers.
pub(super) struct Runner {
    pub vm: Vm,
    pub asked: Asked,
    /// First failures of handlers that were not fetched yet.
    pub errors: Vec<HandlerError>,
    /// Traces of handlers, while they are traced.
    pub traces: Option<Box<Traces>>,
    /// What altered runs at the last trap have written, which the guest does not have; the next one at this trap sees it. No state
    /// is saved between handlers of a trap.
    pub altered: (u64, Written),
}

impl Runner {
    /// Whether a handler has done something rare.
    #[inline(always)]
    fn needs_slow_path(&self, outcome: &Outcome) -> bool {
        let ordinary = matches!(outcome.termination, Termination::Exit | Termination::Abort);
        outcome.wraps > 0 || !ordinary || self.asked.any
    }
}

/// Sets the variables that differ before a run of a handler.
pub(super) fn set_variables(differences: &[Difference], lv: &mut [u64], gv: &mut [u64]) {
    for difference in differences {
        let (variables, number, value) = match difference {
            Difference::Local { number, value } => (&mut *lv, *number, *value),
            Difference::Global { number, value } => (&mut *gv, *number, *value),
            _ => continue,
        };
        if let Some(variable) = variables.get_mut(number as usize) {
            *variable = value;
        }
    }
}

impl Interposer {
    /// Begins the hit of the trap's site. Returns its first probe, and whether there are others; or the verdict, if
    /// there is no probe.
    #[inline(always)]
    pub(super) fn begin(&mut self, trap: &Trap) -> Result<(u32, bool), Verdict> {
        let index = trap.patch as usize;
        let Some(site) = self.sites.get(index) else { return Err(Verdict::Declined) };
        if site.first == Site::NO_PROBE {
            // The last probe was removed after the trap had been translated.
            self.hit.stage = Stage::Over;
            return Err(Verdict::Step);
        }
        self.stats.traps += 1;
        self.hit.site = index;
        self.recorder.channels.begin_hit();
        Ok((site.first, site.several))
    }

    /// The probes of the trap's site from number `from` on, in order; they do not change while a handler runs.
    #[cold]
    pub(super) fn hits_from(&mut self, core: &mut Core, from: usize, trap: &Trap) {
        for n in from.. {
            let Some(&probe) = self.sites.probes_at(trap.patch as usize).get(n) else { break };
            self.run_probe(core, probe, trap, None);
        }
    }

    /// Continues a parked hit at this trap: an instruction that faulted is retried with its handlers, which are not
    /// counted again; the rest of an interrupted instruction runs without handlers.
    #[cold]
    pub(super) fn go_on(&mut self, core: &mut Core, trap: &Trap, parked: Parked) -> Verdict {
        if let Err(verdict) = self.begin(trap) {
            return verdict;
        }
        self.take_up(core, trap, parked);
        self.resume(core, trap)
    }

    /// Runs the handlers that are due when a parked hit goes on.
    fn take_up(&mut self, core: &mut Core, trap: &Trap, parked: Parked) {
        (self.hit.rare, self.hit.resumed) = (true, Some(parked.why));
        if parked.why == Why::Interrupted {
            self.hit.before = parked.parts;
            self.hit.expired = parked.expired;
            self.hit.due = parked.due;
            self.hit.held = parked.held;
            self.hit.counted = parked.counted;
            return;
        }
        for probe in parked.expired {
            if let Some(probe) = self.inserted.probes.get_mut(probe as usize) {
                probe.set_spent(false);
            }
        }
        self.hit.before = parked.parts;
        self.retry(core, trap);
    }

    /// Runs the handlers of the trap's site again: they are not counted again.
    pub(super) fn retry(&mut self, core: &mut Core, trap: &Trap) {
        self.runner.altered = Default::default();
        for n in 0.. {
            let Some(&probe) = self.sites.probes_at(trap.patch as usize).get(n) else { break };
            let before = self.hit.before.iter().find(|part| part.probe == probe).copied();
            self.run_probe(core, probe, trap, before);
        }
    }

    /// One probe at one hit; `before` is its part in this hit before the instruction faulted.
    #[inline(always)]
    pub(super) fn run_probe(&mut self, core: &mut Core, index: u32, trap: &Trap, before: Option<Part>) {
        if self.inserted.probes[index as usize].guarded {
            return self.run_guarded(core, index, trap, before);
        }
        self.run_admitted::<false, _>(core, index, trap, before, Real);
    }

    /// A probe whose hit is checked before its handler runs, or whose handler is a clause of D.
    #[inline(never)]
    fn run_guarded(&mut self, core: &mut Core, index: u32, trap: &Trap, before: Option<Part>) {
        if self.inserted.probes[index as usize].checked && !self.admits(core, index, trap) {
            return;
        }
        let is_clause = self.inserted.probes[index as usize].is_clause;
        match (is_clause, self.altered_run(index, before)) {
            (true, None) => self.run_admitted::<true, _>(core, index, trap, before, Real),
            (false, None) => self.run_admitted::<false, _>(core, index, trap, before, Real),
            (true, Some(mut view)) => {
                self.run_admitted::<true, _>(core, index, trap, before, &mut view);
                self.runner.altered = (self.stats.traps, view.into_written());
            }
            (false, Some(mut view)) => {
                self.run_admitted::<false, _>(core, index, trap, before, &mut view);
                self.runner.altered = (self.stats.traps, view.into_written());
            }
        }
    }

    /// The view of the handler's next run, or of the one that is retried, if that run is altered.
    fn altered_run(&mut self, index: u32, before: Option<Part>) -> Option<Altered> {
        let probe = self.inserted.probes.get(index as usize).filter(|probe| probe.altered)?;
        let run = before.map_or(Some(probe.run + 1), |part| part.run)?;
        let ignored = before.is_none() && probe.seen < probe.ignore.into();
        let program = self.inserted.programs.get_mut(probe.program as usize).filter(|_| !ignored)?;
        let point = (index as usize).checked_sub(program.probes.start)?;
        let runs = program.altered.as_ref()?;
        let found = runs.iter().find(|altered| altered.point == point && altered.run == run)?;
        let differences: Arc<[Difference]> = found.differences.as_slice().into();
        set_variables(&differences, &mut program.lv, &mut self.inserted.gv);
        let (trap, written) = std::mem::take(&mut self.runner.altered);
        let written = if trap == self.stats.traps { written } else { Written::default() };
        Some(Altered::new(differences, written, found.through))
    }

    /// One probe whose handler runs if `ignore` lets it.
    #[inline(always)]
    fn run_admitted<const IS_CLAUSE: bool, V: View>(
        &mut self,
        core: &mut Core,
        index: u32,
        trap: &Trap,
        before: Option<Part>,
        view: V,
    ) {
        let probe = &mut self.inserted.probes[index as usize];
        probe.hit = self.stats.traps;
        let run = match before {
            None => {
                probe.seen += 1;
                if probe.seen <= probe.ignore.into() {
                    self.stats.ignored += 1;
                    return;
                }
                probe.run += 1;
                probe.run
            }
            Some(Part { run: Some(run), .. }) => run,
            Some(Part { run: None, .. }) => return,
        };
        let exhausted = run >= probe.limit;
        self.stats.hits += 1;
        let program = &mut self.inserted.programs[probe.program as usize];
        let mut guest = Guest {
            core,
            profile: &self.profile,
            stats: &mut self.stats,
            asked: &mut self.runner.asked,
            ip: None,
            returned: false,
            probe,
            unwinder: &mut self.recorder.stacks.unwinder,
            d: if IS_CLAUSE { program.d.as_deref_mut() } else { None },
            firing: (index, run),
            view,
        };
        let vars = Vars { lv: &mut program.lv, gv: &mut self.inserted.gv };
        if IS_CLAUSE && !guest.begin_clause(vars.lv) {
            return;
        }
        let runs = (&mut self.runner.vm, &mut self.runner.traces);
        let outcome = run_handler(runs, probe, &mut guest, vars, false);
        program.ops += u64::from(outcome.steps);
        if IS_CLAUSE {
            if !self.ended_quietly(index, &outcome) {
                self.end_clause(core, index, (trap.ip, true), &outcome);
            }
            return;
        }
        if self.runner.needs_slow_path(&outcome) {
            self.handle_rare(core, index, true, &outcome);
        }
        if outcome.recorded() {
            match trap.vector {
                // A watch of execution has no patch.
                1 => self.record(core, index, trap.ip, Some(&executed(trap)), &outcome),
                _ => self.record(core, index, trap.ip, None, &outcome),
            }
        }
        if outcome.remove || exhausted {
            self.last_hit(core, index, run, before.is_some(), &outcome);
        }
    }

    /// One hit of a probe without a waiting instruction: at an access that has been made, after an instruction, or at a
    /// tick of its timer. `ip` is the instruction pointer that handlers see, if not the CPU's.
    pub(super) fn hit_without_site(
        &mut self,
        core: &mut Core,
        number: u32,
        ip: Option<u64>,
        watch: Option<&WatchItem>,
    ) {
        let Some(probe) = self.inserted.probes.get_mut(number as usize).filter(|p| p.enabled) else { return };
        probe.seen += 1;
        if probe.seen <= probe.ignore.into() {
            self.stats.ignored += 1;
            return;
        }
        probe.run += 1;
        let exhausted = probe.run >= probe.limit;
        self.stats.hits += 1;
        self.recorder.channels.begin_hit();
        let Some(program) = self.inserted.programs.get_mut(probe.program as usize) else { return };
        let mut guest = Guest {
            core,
            profile: &self.profile,
            stats: &mut self.stats,
            asked: &mut self.runner.asked,
            ip,
            returned: self.tail_calls.returning,
            probe,
            unwinder: &mut self.recorder.stacks.unwinder,
            d: program.d.as_deref_mut(),
            firing: (number, probe.run),
            view: Real,
        };
        let vars = Vars { lv: &mut program.lv, gv: &mut self.inserted.gv };
        if !guest.begin_clause(vars.lv) {
            return;
        }
        let is_clause = guest.d.is_some();
        let runs = (&mut self.runner.vm, &mut self.runner.traces);
        let outcome = run_handler(runs, probe, &mut guest, vars, true);
        program.ops += u64::from(outcome.steps);
        if is_clause {
            let ip = ip.unwrap_or_else(|| core.env().eip());
            self.end_clause(core, number, (ip, false), &outcome);
            return;
        }
        if self.runner.needs_slow_path(&outcome) {
            self.handle_rare(core, number, false, &outcome);
        }
        if outcome.recorded() {
            let ip = ip.unwrap_or_else(|| core.env().eip());
            self.record(core, number, ip, watch, &outcome);
        }
        if outcome.remove || exhausted {
            self.last_hit_without_site(core, number, &outcome);
        }
    }

    /// A hit that reached its probe's limit, or whose handler asked to be removed.
    #[cold]
    fn last_hit_without_site(&mut self, core: &mut Core, index: u32, outcome: &Outcome) {
        let Some(probe) = self.inserted.probes.get(index as usize) else { return };
        let id = ProgramId(probe.program as usize);
        let expired = outcome.remove || probe.run >= probe.rest.maxhits;
        self.note_hit(core, index, id, outcome);
        if expired {
            self.disable(core, index as usize);
        }
        self.stops.count(outcome);
        if self.enough_hits().is_some() {
            self.stop_here(core, index, false);
        }
        let Some(program) = self.inserted.programs.get_mut(id.0) else { return };
        program.counted += 1;
        if program.stop_at.is_some_and(|n| program.counted >= n) && !self.stops.fired.contains(&id) {
            self.stops.fired.push(id);
            core.finish(Stop::Requested);
        }
    }

    /// Handles rare outcomes: the stack wrapped, the handler ended by an exception or `exit n`, requested the end of
    /// the run, or wrote memory.
    #[cold]
    pub(super) fn handle_rare(&mut self, core: &mut Core, index: u32, at_site: bool, outcome: &Outcome) {
        self.stats.wraps += u64::from(outcome.wraps > 0);
        match outcome.termination {
            Termination::Exception => self.failed(index),
            Termination::ExitTo(1) => self.stats.debugger_exits += 1,
            Termination::ExitTo(2) => self.take_crash_dump(core),
            Termination::ExitTo(_) => self.take_core_file(core),
            Termination::Exit | Termination::Abort => {}
        }
        self.runner.asked.any = false;
        if std::mem::take(&mut self.runner.asked.stop) {
            self.stop_here(core, index, at_site);
        }
        self.take_overwritten(core, at_site);
    }

    /// A handler that wrote memory may have overwritten the probed instruction: then the new bytes are executed.
    pub(super) fn take_overwritten(&mut self, core: &mut Core, at_site: bool) {
        if std::mem::take(&mut self.runner.asked.wrote) && at_site {
            self.sites.displace_anew(core, self.hit.site);
        }
    }

    /// Notes that an exception has ended the handler of this probe; the first one at any of its sites is kept in full.
    fn failed(&mut self, index: u32) {
        self.stats.exceptions += 1;
        let probe = &mut self.inserted.probes[index as usize];
        probe.errors += 1;
        if probe.errors > 1 || failed_elsewhere(&self.inserted.probes, index) {
            return;
        }
        let probe = &self.inserted.probes[index as usize];
        let thrown = self.runner.vm.unhandled();
        let before = probe.handler.code().into_iter().take(thrown.at as usize);
        let offset = before.map(|insn| 1 + insn.op.row().operand.size()).sum();
        let line = probe.rest.lines.line(thrown.at);
        let at = thrown.at;
        let (code, parm1) = match thrown.out_of_steps {
            true => (0, self.runner.vm.max_steps().into()),
            false => (thrown.code, thrown.parm1),
        };
        self.runner.errors.push(HandlerError { probe: index, at, offset, line, code, parm1 });
    }

    /// `exit 2`: the first one takes a dump. On a real machine there is no second one.
    pub(super) fn take_crash_dump(&mut self, core: &Core) {
        self.stats.dump_exits += 1;
        let asked = &mut self.runner.asked;
        if let Some(take) = asked.dumps_with.as_ref().filter(|_| self.stats.dump_exits == 1) {
            asked.dump = Some(Box::new(take(core)));
        }
    }

    /// `exit 3`.
    fn take_core_file(&mut self, core: &Core) {
        if self.runner.asked.cores_left == 0 {
            self.stats.cores_left_out += 1;
            return;
        }
        self.runner.asked.cores_left -= 1;
        self.runner.asked.cores.push(core_file::take(core, self.profile.as_deref()));
    }
}
