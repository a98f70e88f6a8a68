//! The life of a hit: trap in, handlers, displaced instruction, commit, resume.
//!
//! A record is in the channel when its handler has ended. That is its commit if the displaced instruction completes, since
//! nobody reads the channel before. If it faults, the record is taken out again, unless its probe has `logonfault`; if it
//! is a repeated instruction and is interrupted, the record waits outside of the channel until the rest has run. That the
//! instruction has completed is known at once when it is emulated or stepped, else at the next trap or stop.

use crate::core_file;
use crate::displace::{self, Displaced};
use crate::host::Guest;
use crate::insert::bytes_at;
use crate::life::{Parked, Part, Stage, Task, Why};
use crate::module::ProbedModule;
use crate::provided::HandlerError;
use crate::table::Interposer;
use trapline_emu::{Core, Fault, PAGE, Seg, Trap, TrapInterposer, Verdict, WatchHit};
use trapline_rpn::{Outcome, Termination, Vars};
use trapline_trace::{Exception, Header, HeaderItems, Kind, RecordView, TraceHead, WatchItem};

impl TrapInterposer for Interposer {
    fn trap(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        let index = trap.patch as usize;
        self.finish(core);
        let parked = if self.parked.is_empty() { None } else { self.unpark(core, index) };
        let Some(site) = self.sites.get(index) else { return Verdict::Declined };
        if site.probes.is_empty() {
            // The last probe left after the trap had been translated.
            return Verdict::Step;
        }
        let (first, several) = (site.first, site.several);
        self.stats.traps += 1;
        let sp = core.env().gpr(4);
        self.hit.begin(index, trap.ip, sp, self.stats.traps, self.channels.begin_hit());
        match parked {
            None => {
                self.hit(core, first, trap, None);
                if several {
                    self.hits_from(core, 1, trap);
                }
            }
            Some(parked) => self.go_on(core, trap, parked),
        }
        self.resume(core, trap, index)
    }

    fn exception(&mut self, core: &mut Core, _: u8, _: u64) -> bool {
        self.leave_behind(core);
        if self.hit.stage == Stage::Displaced {
            // That it was the displaced instruction which faulted may only be said when the CPU is in the handler.
            self.hit.task = Some(Task::now(core, core.env().gpr(4)));
        }
        false
    }

    fn returned(&mut self, core: &mut Core) {
        if !self.parked.is_empty()
            && let Some(parked) = self.parked.returned(core)
        {
            self.give_up(core, parked);
        }
    }

    fn interrupting(&mut self, core: &mut Core) {
        self.leave_behind(core);
    }

    fn stub(&mut self, core: &mut Core, number: u32) -> Verdict {
        self.stub_hit(core, number)
    }

    fn watched(&mut self, core: &mut Core, hit: &WatchHit) {
        if self.hit.stage == Stage::Displaced {
            if hit.ip != self.hit.ip {
                self.finish(core);
            } else if self.is_repeated(self.hit.site) {
                // It may have iterations left.
                let records = self.channels.take_out(self.hit.first_seq);
                self.hit.held.append(records);
            }
        }
        self.hit_without_site(core, hit.id, Some(hit.ip), Some(&crate::watch::item(hit)));
    }

    fn faulted(&mut self, core: &mut Core) {
        self.stats.faulted += 1;
        if self.hit.stage != Stage::Displaced {
            return;
        }
        self.hit.awaiting.clear();
        self.hit.due.clear();
        self.counted_hits -= std::mem::take(&mut self.hit.counted);
        let mut records = std::mem::take(&mut self.hit.held);
        records.append(self.channels.take_out(self.hit.first_seq));
        let probes = &self.probes;
        let logonfault = |h: &Header| probes.get(h.probe as usize).is_some_and(|p| p.logonfault);
        self.stats.dropped += self.channels.put_back(records, logonfault);
        self.park(core, Why::Faulted);
    }

    fn interrupted(&mut self, core: &mut Core) {
        if self.hit.stage == Stage::Displaced {
            let records = self.channels.take_out(self.hit.first_seq);
            self.hit.held.append(records);
            self.park(core, Why::Interrupted);
        }
    }

    fn settled(&mut self, core: &mut Core) {
        self.finish(core);
        self.look_after_modules(core);
    }

    fn page_rewritten(&mut self, core: &mut Core, page: u64) {
        let sites: Vec<usize> = self.by_paddr.range(page..page + PAGE).map(|(_, &s)| s).collect();
        let mut of_modules = false;
        for index in sites {
            if self.sites[index].armed && self.look_again(core, index) {
                self.leave_parked(core, index);
                self.stats.rewritten += 1;
                of_modules |= self.has_module_probe(index);
                self.leave_foreign_page(core, index, page);
            }
        }
        if of_modules {
            self.arm_modules(core);
        }
    }

    fn code_page(&mut self, core: &mut Core, paddr: u64) {
        self.arm_page(core, paddr);
        // A user program has no part in the kernel's modules.
        if core.env().cpl() == 0 {
            self.arm_modules(core);
        }
    }

    fn wants_code_pages(&self) -> bool {
        self.user.any() || self.modules.iter().any(ProbedModule::is_enabled)
    }

    fn user_code(&mut self, core: &mut Core, page: u64, paddr: u64) -> Option<Fault> {
        self.settle_words(core, page, paddr)
    }

    fn wants_user_code(&self) -> bool {
        self.has_words()
    }
}

impl Interposer {
    /// The probes of the trap's site from number `from` on, in order; they do not change while a handler runs.
    #[cold]
    pub(crate) fn hits_from(&mut self, core: &mut Core, from: usize, trap: &Trap) {
        for n in from.. {
            let Some(&probe) = self.sites[trap.patch as usize].probes.get(n) else { break };
            self.hit(core, probe, trap, None);
        }
    }

    /// The trap goes on with a parked hit: an instruction that faulted is tried again, with its handlers, which are not
    /// counted anew; the rest of an interrupted one runs alone.
    #[cold]
    fn go_on(&mut self, core: &mut Core, trap: &Trap, parked: Parked) {
        if parked.why == Why::Interrupted {
            self.hit.before = parked.parts;
            self.hit.expired = parked.expired;
            self.hit.due = parked.due;
            self.hit.held = parked.held;
            self.hit.counted = parked.counted;
            return;
        }
        for probe in parked.expired {
            if let Some(probe) = self.probes.get_mut(probe as usize) {
                probe.set_spent(false);
            }
        }
        self.hit.before = parked.parts;
        for n in 0.. {
            let Some(&probe) = self.sites[trap.patch as usize].probes.get(n) else { break };
            let before = self.hit.before.iter().find(|part| part.probe == probe).copied();
            self.hit(core, probe, trap, before);
        }
    }

    /// One probe at one hit; `before` is its part in this hit before the instruction faulted.
    #[inline(always)]
    fn hit(&mut self, core: &mut Core, index: u32, trap: &Trap, before: Option<Part>) {
        if self.probes[index as usize].guarded && !self.admits(core, index, trap) {
            return;
        }
        let probe = &mut self.probes[index as usize];
        if probe.answers {
            core.env().set_gpr(0, 1);
            return;
        }
        probe.hit = self.hit.number;
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
        let program = &mut self.programs[probe.program as usize];
        let mut guest = Guest {
            core,
            profile: &self.config.profile,
            stats: &mut self.stats,
            asked: &mut self.asked,
            ip: None,
            arguments: probe.arguments.as_deref(),
            at_call: probe.at_call,
            unwinder: &mut self.stacks.unwinder,
        };
        let outcome = self.vm.run(&probe.handler, &mut guest, Vars { lv: &mut program.lv, gv: &mut self.gv });
        if self.needs_slow_path(&outcome) {
            self.oddities(core, index, true, &outcome);
        }
        if outcome.recorded() {
            match trap.vector {
                // A watch of execution has no patch.
                1 => self.record(core, index, trap.ip, Some(&crate::watch::executed(trap)), &outcome),
                _ => self.record(core, index, trap.ip, None, &outcome),
            }
        }
        if outcome.remove || exhausted {
            self.last_hit(index, run, before.is_some(), &outcome);
        }
    }

    /// Whether a hit needs more than its record: its stack wrapped, it did not end as most do, or something was asked for.
    #[inline(always)]
    pub(crate) fn needs_slow_path(&self, outcome: &Outcome) -> bool {
        let ordinary = matches!(outcome.termination, Termination::Exit | Termination::Abort);
        outcome.wraps > 0 || !ordinary || self.asked.any
    }

    /// What few hits have: a stack that wrapped, an exception, an `exit n`, a wish to end the run.
    #[cold]
    pub(crate) fn oddities(&mut self, core: &mut Core, index: u32, at_site: bool, outcome: &Outcome) {
        self.stats.wraps += u64::from(outcome.wraps > 0);
        match outcome.termination {
            Termination::Exception => self.failed(index),
            Termination::ExitTo(1) => self.stats.debugger_exits += 1,
            Termination::ExitTo(2) => self.stats.dump_exits += 1,
            Termination::ExitTo(_) => self.take_core_file(core),
            Termination::Exit | Termination::Abort => {}
        }
        self.asked.any = false;
        if std::mem::take(&mut self.asked.stop) {
            self.stop_here(core, index, at_site);
        }
        if std::mem::take(&mut self.asked.wrote) && at_site {
            // It may have written the very instruction: what runs is what stands there now.
            self.look_again(core, self.hit.site);
        }
    }

    /// An exception has ended the handler of this probe. Its first is kept whole.
    fn failed(&mut self, index: u32) {
        self.stats.exceptions += 1;
        let probe = &mut self.probes[index as usize];
        probe.rest.errors += 1;
        if probe.rest.errors > 1 {
            return;
        }
        let thrown = self.vm.unhandled();
        let before = probe.handler.code().iter().take(thrown.at as usize);
        let offset = before.map(|insn| 1 + insn.op.row().operand.size()).sum();
        let line = probe.lines.get(thrown.at as usize).copied().unwrap_or(0);
        let (at, code, parm1) = (thrown.at, thrown.code, thrown.parm1);
        self.errors.push(HandlerError { probe: index, at, offset, line, code, parm1 });
    }

    /// `exit 3`.
    fn take_core_file(&mut self, core: &Core) {
        if self.asked.cores_left == 0 {
            self.stats.cores_left_out += 1;
            return;
        }
        self.asked.cores_left -= 1;
        self.asked.cores.push(core_file::take(core, self.config.profile.as_deref()));
    }

    /// Commits the record of a handler that has just run.
    #[inline(never)]
    pub(crate) fn record(
        &mut self,
        core: &mut Core,
        index: u32,
        ip: u64,
        watch: Option<&WatchItem>,
        outcome: &Outcome,
    ) {
        if self.asked.frozen_after.is_some_and(|last| self.stats.hits > last) {
            self.stats.frozen += 1;
            return;
        }
        let probe = &self.probes[index as usize];
        let env = core.env();
        let items = self.config.header;
        let profile = self.config.profile.as_deref();
        let process = if probe.filter.is_some() { self.filters.process(core, profile) } else { 0 };
        let thrown = (outcome.termination == Termination::Exception).then(|| self.vm.unhandled());
        let (major, minor) = self.vm.codes();
        self.name.clear();
        if items.contains(HeaderItems::NAME)
            && let Some(p) = profile
        {
            p.name_into(core, &mut self.name);
        }
        let header = Header {
            seq: 0,
            icount: core.icount(),
            time_ns: core.virtual_ns(),
            probe: index,
            kind: Kind::Data,
            width: probe.handler.limits().width.bits(),
            termination: thrown.map_or(0, |t| t.x_field()),
            major: major.unwrap_or(probe.major),
            minor: minor.unwrap_or(probe.minor),
            cpu: 0,
            process,
            pid: if items.contains(HeaderItems::PID) { profile.map_or(0, |p| p.pid(core)) } else { 0 },
            uid: if items.contains(HeaderItems::UID) { profile.map_or(0, |p| p.uid(core)) } else { 0 },
            cs: env.seg(Seg::Cs).selector,
            ss: env.seg(Seg::Ss).selector,
            ip,
            sp: env.gpr(4),
            tsc: core.tsc(),
            exception: thrown.map(|t| Exception {
                code: t.code,
                parm1: t.parm1,
                parm2: t.parm2,
                line: probe.lines.get(t.at as usize).copied().unwrap_or(0),
            }),
        };
        self.channels.commit(&RecordView { header, name: &self.name, watch, data: self.vm.log() });
        if self.vm.stack_trace().is_some() {
            self.record_trace(header, index);
        }
        if self.stacks.any() {
            self.record_stacks(core, header, index);
        }
    }

    /// Commits the stack trace of the handler whose record is `data`, with codes (0,0) as DProbes did.
    #[cold]
    fn record_trace(&mut self, data: Header, index: u32) {
        let Some(trace) = self.vm.stack_trace() else { return };
        self.stats.traces_dropped += u64::from(trace.dropped);
        if trace.count == 0 {
            return;
        }
        let probe = &self.probes[index as usize];
        let program = &self.programs[probe.program as usize];
        let head = TraceHead {
            module: program.module.as_bytes(),
            offset: probe.rest.offset,
            id: program.id,
            major: probe.major,
            minor: probe.minor,
        };
        self.trace.clear();
        head.encode(data.width, trace.count, &mut self.trace);
        self.trace.extend_from_slice(trace.records);
        let header = Header { kind: Kind::StackTrace, major: 0, minor: 0, ..data };
        self.channels.commit(&RecordView { header, name: &self.name, watch: None, data: &self.trace });
    }

    /// The displaced instruction of the hit in progress has completed: what waited for that is done, and the hit is over.
    #[inline(always)]
    pub(crate) fn finish(&mut self, core: &mut Core) {
        self.hit.stage = Stage::Over;
        if self.hit.has_sequel() {
            self.finish_sequel(core);
        }
    }

    #[cold]
    fn finish_sequel(&mut self, core: &mut Core) {
        let held = std::mem::take(&mut self.hit.held);
        self.channels.put_back(held, |_| true);
        if !self.hit.awaiting.is_empty() {
            self.hits_behind(core);
        }
        self.stop_when_due(core);
        for probe in std::mem::take(&mut self.hit.expired) {
            self.disable(core, probe as usize);
        }
        self.hit.clear();
    }

    /// The displaced instruction has not completed: its hit waits for the rest.
    #[cold]
    fn park(&mut self, core: &mut Core, why: Why) {
        let here = self.sites.get(self.hit.site).map(|site| site.probes.as_slice()).unwrap_or_default();
        let mut parts = Vec::new();
        for &number in here {
            let Some(probe) = self.probes.get(number as usize).filter(|p| p.hit == self.hit.number) else {
                continue;
            };
            let before = self.hit.before.iter().find(|part| part.probe == number);
            let ran = probe.seen > probe.ignore.into();
            let now = Part { probe: number, run: ran.then_some(probe.run) };
            parts.push(before.copied().unwrap_or(now));
        }
        let missing = |part: &&Part| !parts.iter().any(|known| known.probe == part.probe);
        let before: Vec<Part> = self.hit.before.iter().filter(missing).copied().collect();
        parts.extend(before);
        for &probe in &self.hit.expired {
            if let Some(probe) = self.probes.get_mut(probe as usize) {
                probe.set_spent(true);
            }
        }
        let replaced = self.parked.park(core, &mut self.hit, why, parts);
        self.hit.clear();
        if let Some(parked) = replaced {
            self.give_up(core, parked);
        }
    }

    /// The parked hit that this trap goes on with. Another of the same task is over: the task has run something else.
    #[cold]
    fn unpark(&mut self, core: &mut Core, site: usize) -> Option<Parked> {
        let (parked, goes_on) = self.parked.take(core, site)?;
        if goes_on {
            return Some(parked);
        }
        self.give_up(core, parked);
        None
    }

    /// The instruction of a parked hit will not complete.
    #[cold]
    fn give_up(&mut self, core: &mut Core, parked: Parked) {
        self.stats.dropped += parked.held.len() as u64;
        self.counted_hits -= parked.counted;
        for probe in parked.expired {
            self.disable(core, probe as usize);
        }
    }

    /// An event is delivered at a boundary: whether a task has run something else before, shows there.
    #[inline]
    fn leave_behind(&mut self, core: &mut Core) {
        if !self.parked.is_empty()
            && let Some(parked) = self.parked.left_behind(core)
        {
            self.give_up(core, parked);
        }
    }

    /// A site is disarmed or has another instruction: hits that were parked there are over. That an interrupted instruction
    /// completes is not seen then; its records count as committed.
    pub(crate) fn leave_parked(&mut self, core: &mut Core, site: usize) {
        if self.parked.is_empty() {
            return;
        }
        for parked in self.parked.take_site(site) {
            self.channels.put_back(parked.held, |_| true);
            for probe in parked.expired {
                self.disable(core, probe as usize);
            }
        }
    }

    /// Reads a site's bytes again. If they are others, how it is displaced is to be found out anew.
    fn look_again(&mut self, core: &mut Core, site: usize) -> bool {
        let now = bytes_at(core, self.sites[site].paddr);
        let changed = now != self.sites[site].original;
        if changed {
            self.sites[site].original = now;
            self.forget_way(core, site);
        }
        changed
    }

    /// Whether a site's instruction is a string instruction with a repeat prefix.
    fn is_repeated(&self, site: usize) -> bool {
        let bytes = self.sites.get(site).map(|site| site.original).unwrap_or_default();
        displace::is_repeated(&bytes)
    }

    /// Sees to the displaced instruction.
    #[inline(always)]
    fn resume(&mut self, core: &mut Core, trap: &Trap, site: usize) -> Verdict {
        if self.sites[site].wide != core.env().code64() {
            self.displace(core, trap, site);
        }
        let sequel = self.hit.has_sequel();
        let at_once = trap.in_line && !sequel;
        self.hit.stage = Stage::Displaced;
        if sequel && self.must_step() {
            // Its completion is known at once, between two instructions.
            self.stats.stepped += 1;
            return Verdict::Step;
        }
        loop {
            match &self.sites[site].displaced {
                Some(Displaced::Emulated(_)) if at_once => {
                    self.stats.emulated += 1;
                    return Verdict::InLine;
                }
                Some(Displaced::OutOfLine { .. }) if at_once => {
                    self.stats.out_of_line += 1;
                    return Verdict::InLine;
                }
                Some(Displaced::Emulated(op)) => {
                    self.stats.emulated += 1;
                    if let Err(fault) = displace::emulate(core, op) {
                        return Verdict::Raise(fault);
                    }
                    if sequel {
                        core.as_retired(|core| self.finish(core));
                    }
                    self.hit.stage = Stage::Over;
                    return Verdict::Resumed;
                }
                Some(Displaced::OutOfLine { slot, ip, linear })
                    if (*ip, *linear) == (trap.ip, trap.linear) =>
                {
                    self.stats.out_of_line += 1;
                    return Verdict::Slot(*slot);
                }
                Some(Displaced::Stepped) => {
                    self.stats.stepped += 1;
                    return Verdict::Step;
                }
                _ => self.displace(core, trap, site),
            }
        }
    }

    /// Whether what waits for the completion of the displaced instruction needs it stepped: the run stops there, or probes
    /// go that a trap behind it must not find.
    #[cold]
    fn must_step(&self) -> bool {
        let site = self.sites.get(self.hit.site);
        let emulated = matches!(site.and_then(|site| site.displaced.as_ref()), Some(Displaced::Emulated(_)));
        !self.hit.due.is_empty() || !self.hit.expired.is_empty() && !emulated
    }

    /// Finds out how a site is displaced: at its first hit, when it is reached in code of another size, and when its slot
    /// is for another mapping of the page or another segment base than this hit's, since a slot jumps back to one address.
    #[cold]
    fn displace(&mut self, core: &mut Core, trap: &Trap, site: usize) {
        if let Some(Displaced::OutOfLine { slot, .. }) = self.sites[site].displaced.take() {
            core.free_slot(slot);
        }
        self.sites[site].wide = core.env().code64();
        let way = match self.sites[site].watch {
            // Nothing was displaced: the instruction runs where it is.
            Some(_) => Displaced::Stepped,
            None => displace::displace(core, trap.linear, trap.ip),
        };
        self.sites[site].displaced = Some(self.known_at_once(core, site, way));
    }
}
