//! The life of a hit: trap in, handlers, displaced instruction, commit, resume.
//!
//! A record is committed when its handler ends, and taken back if the displaced instruction then faults, but for
//! those with `logonfault`: nobody reads the channel in between. That the instruction has completed is known at
//! once when it is emulated, else at the next trap or stop.

use crate::core_file;
use crate::displace::{self, Displaced};
use crate::host::Guest;
use crate::insert::bytes_at;
use crate::module::ProbedModule;
use crate::provided::HandlerError;
use crate::table::{Interposer, Pending};
use trapline_emu::{Core, Fault, PAGE, Seg, Trap, TrapInterposer, Verdict, WatchHit};
use trapline_rpn::{Outcome, Termination, Vars};
use trapline_trace::{Exception, Header, HeaderItems, Kind, RecordView, TraceHead, WatchItem};

impl TrapInterposer for Interposer {
    fn trap(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        if self.pending.is_some() {
            self.completed(core);
        }
        let index = trap.patch as usize;
        let Some(site) = self.sites.get_mut(index) else { return Verdict::Declined };
        self.stats.traps += 1;
        let sp = core.env().gpr(4);
        let retry = !self.retries.is_empty() && self.retries.remove(&index) == Some(sp);
        self.first_seq = self.channels.next_seq();
        if !self.unfinished.is_empty() && self.unfinished.remove(&index) == Some(sp) {
            return self.resume(core, trap, index, sp);
        }
        let (first, several) = (site.first, site.several);
        self.hit(core, first, trap, retry);
        if several {
            self.hits_from(core, 1, trap, retry);
        }
        self.resume(core, trap, index, sp)
    }

    fn stub(&mut self, core: &mut Core, number: u32) -> Verdict {
        self.stub_hit(core, number)
    }

    fn watched(&mut self, core: &mut Core, hit: &WatchHit) {
        self.hit_without_site(core, hit.id, Some(hit.ip), Some(&crate::watch::item(hit)));
    }

    fn faulted(&mut self, core: &mut Core) {
        self.stats.faulted += 1;
        self.awaiting.clear();
        // A probe that has had its last hit gets it back: the instruction will be tried again.
        self.expired.clear();
        if !self.due.is_empty() {
            self.no_longer_due(core);
        }
        if let Some(pending) = self.pending.take() {
            self.retries.insert(pending.site, pending.sp);
            let probes = &self.probes;
            let logonfault = |h: &Header| probes.get(h.probe as usize).is_some_and(|p| p.logonfault);
            self.stats.dropped += self.channels.take_back(self.first_seq, logonfault);
        }
        self.completed(core);
    }

    fn interrupted(&mut self, core: &mut Core) {
        self.awaiting.clear();
        if let Some(pending) = self.pending {
            self.unfinished.insert(pending.site, pending.sp);
        }
        self.completed(core);
    }

    fn settled(&mut self, core: &mut Core) {
        if !self.awaiting.is_empty() {
            self.hits_behind(core);
        }
        if !self.due.is_empty() {
            self.stop_when_due(core);
        }
        self.completed(core);
        self.look_after_modules(core);
    }

    fn page_rewritten(&mut self, core: &mut Core, page: u64) {
        let sites: Vec<usize> = self.by_paddr.range(page..page + PAGE).map(|(_, &s)| s).collect();
        let mut of_modules = false;
        for index in sites {
            let site = &mut self.sites[index];
            let now = bytes_at(core, site.paddr);
            if site.armed && now != site.original {
                site.original = now;
                if let Some(Displaced::OutOfLine { slot, .. }) = site.displaced.take() {
                    core.free_slot(slot);
                }
                self.unfinished.remove(&index);
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
    pub(crate) fn hits_from(&mut self, core: &mut Core, from: usize, trap: &Trap, retry: bool) {
        for n in from.. {
            let Some(&probe) = self.sites[trap.patch as usize].probes.get(n) else { break };
            self.hit(core, probe, trap, retry);
        }
    }

    /// One probe at one hit.
    #[inline(always)]
    fn hit(&mut self, core: &mut Core, index: u32, trap: &Trap, retry: bool) {
        if self.probes[index as usize].guarded && !self.admits(core, index, trap) {
            return;
        }
        let probe = &mut self.probes[index as usize];
        if probe.answers {
            core.env().set_gpr(0, 1);
            return;
        }
        if !retry {
            probe.seen += 1;
            if probe.seen <= probe.ignore {
                self.stats.ignored += 1;
                return;
            }
            probe.run += 1;
        } else if probe.seen <= probe.ignore {
            return;
        }
        let exhausted = probe.run >= probe.limit;
        self.stats.hits += 1;
        let program = &mut self.programs[probe.program];
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
        if self.is_odd(&outcome) {
            self.oddities(core, index, Some(trap.patch as usize), &outcome);
        }
        if outcome.recorded() {
            match trap.vector {
                // A watch of execution has no patch.
                1 => self.record(core, index, trap.ip, Some(&crate::watch::executed(trap)), &outcome),
                _ => self.record(core, index, trap.ip, None, &outcome),
            }
        }
        if outcome.remove || exhausted {
            self.last_hit(core, index, trap.patch as usize, retry, outcome.remove);
        }
    }

    /// Whether a hit is not like most.
    #[inline(always)]
    pub(crate) fn is_odd(&self, outcome: &Outcome) -> bool {
        let ordinary = matches!(outcome.termination, Termination::Exit | Termination::Abort);
        outcome.wraps > 0 || !ordinary || self.asked.stop
    }

    /// What few hits have: a stack that wrapped, an exception, an `exit n`, a wish to end the run.
    #[cold]
    pub(crate) fn oddities(&mut self, core: &mut Core, index: u32, site: Option<usize>, outcome: &Outcome) {
        self.stats.wraps += u64::from(outcome.wraps > 0);
        match outcome.termination {
            Termination::Exception => self.failed(index),
            Termination::ExitTo(1) => self.stats.debugger_exits += 1,
            Termination::ExitTo(2) => self.stats.dump_exits += 1,
            Termination::ExitTo(_) => self.take_core_file(core),
            Termination::Exit | Termination::Abort => {}
        }
        if std::mem::take(&mut self.asked.stop) {
            self.stop_here(core, index, site);
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
        let program = &self.programs[probe.program];
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

    /// The last displaced instruction has completed: probes that had their last hit go.
    #[inline]
    pub(crate) fn completed(&mut self, core: &mut Core) {
        self.pending = None;
        if !self.expired.is_empty() {
            self.disable_expired(core);
        }
    }

    #[cold]
    fn disable_expired(&mut self, core: &mut Core) {
        for probe in std::mem::take(&mut self.expired) {
            self.disable(core, probe as usize);
        }
    }

    /// Sees to the displaced instruction.
    #[inline(always)]
    fn resume(&mut self, core: &mut Core, trap: &Trap, site: usize, sp: u64) -> Verdict {
        if self.sites[site].wide != core.env().code64() {
            self.displace(core, trap, site);
        }
        let at_once =
            trap.in_line && self.awaiting.is_empty() && self.expired.is_empty() && self.due.is_empty();
        loop {
            match &self.sites[site].displaced {
                Some(Displaced::Emulated(_)) if at_once => {
                    self.stats.emulated += 1;
                    self.pending = Some(Pending { site, sp });
                    return Verdict::InLine;
                }
                Some(Displaced::OutOfLine { .. }) if at_once => {
                    self.stats.out_of_line += 1;
                    self.pending = Some(Pending { site, sp });
                    return Verdict::InLine;
                }
                Some(Displaced::Emulated(op)) => {
                    self.stats.emulated += 1;
                    if let Err(fault) = displace::emulate(core, op) {
                        self.pending = Some(Pending { site, sp });
                        return Verdict::Raise(fault);
                    }
                    if !self.awaiting.is_empty() {
                        core.as_retired(|core| self.hits_behind(core));
                    }
                    self.completed(core);
                    return Verdict::Resumed;
                }
                Some(Displaced::OutOfLine { slot, ip, linear })
                    if (*ip, *linear) == (trap.ip, trap.linear) =>
                {
                    self.stats.out_of_line += 1;
                    self.pending = Some(Pending { site, sp });
                    return Verdict::Slot(*slot);
                }
                Some(Displaced::Stepped) => {
                    self.stats.stepped += 1;
                    self.pending = Some(Pending { site, sp });
                    return Verdict::Step;
                }
                _ => self.displace(core, trap, site),
            }
        }
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
