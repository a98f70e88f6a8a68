//! The life of a hit: trap in, handlers, displaced instruction, commit, resume.
//!
//! A record is staged when its handler ends and committed when the displaced instruction has completed: at once
//! when that is emulated, at the next trap or stop when it runs out of line (in between nothing can be
//! recorded). If it faults, staged records are dropped, but those with `logonfault`.

use crate::displace::{self, Displaced};
use crate::host::Guest;
use crate::insert::bytes_at;
use crate::table::{Interposer, Staged};
use trapline_emu::{Core, PAGE, Seg, Trap, TrapInterposer, Verdict};
use trapline_rpn::{Outcome, Termination, Vars};
use trapline_trace::{Exception, Header, HeaderItems, Kind, RecordView};

impl TrapInterposer for Interposer {
    fn trap(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        self.commit(core);
        let index = trap.patch as usize;
        if index >= self.sites.len() {
            return Verdict::Declined;
        }
        self.stats.traps += 1;
        let sp = core.env().gpr(4);
        let retry = self.sites[index].retry.take() == Some(sp);
        for n in 0.. {
            let Some(&probe) = self.sites[index].probes.get(n) else { break };
            self.hit(core, probe, trap, retry);
        }
        self.resume(core, index, trap, sp)
    }

    fn faulted(&mut self, core: &mut Core) {
        self.stats.faulted += 1;
        // A probe that has had its last hit gets it back: the instruction will be tried again.
        self.expired.clear();
        if let Some((site, sp)) = self.pending.take() {
            self.sites[site].retry = Some(sp);
        }
        let mut staged = std::mem::take(&mut self.staged);
        let before = staged.len();
        staged.retain(|s| s.logonfault);
        self.stats.dropped += (before - staged.len()) as u64;
        self.staged = staged;
        self.commit(core);
    }

    fn settled(&mut self, core: &mut Core) {
        self.commit(core);
    }

    fn page_rewritten(&mut self, core: &mut Core, page: u64) {
        let sites: Vec<usize> = self.by_paddr.range(page..page + PAGE).map(|(_, &s)| s).collect();
        for index in sites {
            let site = &mut self.sites[index];
            let now = bytes_at(core, site.paddr);
            if site.armed && now != site.original {
                site.original = now;
                if let Some(Displaced::OutOfLine { slot, .. }) = site.displaced.take() {
                    core.free_slot(slot);
                }
                self.stats.rewritten += 1;
                self.leave_foreign_page(core, index, page);
            }
        }
    }

    fn code_page(&mut self, core: &mut Core, paddr: u64) {
        self.arm_page(core, paddr);
    }

    fn wants_code_pages(&self) -> bool {
        self.probes.iter().any(|p| p.enabled && matches!(p.place, crate::table::Place::User { .. }))
    }
}

impl Interposer {
    /// One probe at one hit.
    #[inline]
    fn hit(&mut self, core: &mut Core, index: usize, trap: &Trap, retry: bool) {
        let probe = &mut self.probes[index];
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
        let exhausted = probe.run >= probe.maxhits;
        self.stats.hits += 1;
        let program = &mut self.programs[probe.program];
        let mut guest = Guest { core, profile: self.config.profile.as_deref(), stats: &mut self.stats };
        let outcome = self.vm.run(&probe.handler, &mut guest, Vars { lv: &mut program.lv, gv: &mut self.gv });
        self.stats.wraps += u64::from(outcome.wraps > 0);
        if matches!(outcome.termination, Termination::Exception { .. }) {
            self.stats.exceptions += 1;
        }
        if outcome.recorded() {
            self.stage(core, index, trap, &outcome);
        }
        if outcome.remove || exhausted {
            self.expired.push(index);
        }
    }

    /// Stages the record of a handler that has just run.
    fn stage(&mut self, core: &mut Core, index: usize, trap: &Trap, outcome: &Outcome) {
        let probe = &self.probes[index];
        let env = core.env();
        let items = self.config.header;
        let profile = self.config.profile.as_deref();
        let exception = match outcome.termination {
            Termination::Exception { code, parm1, parm2, line, .. } => {
                Some(Exception { code, parm1, parm2, line })
            }
            _ => None,
        };
        let header = Header {
            seq: 0,
            icount: core.icount(),
            time_ns: core.virtual_ns(),
            probe: index as u32,
            kind: Kind::Data,
            width: probe.handler.limits().width.bits(),
            termination: outcome.termination_code(),
            major: outcome.major.unwrap_or(probe.major),
            minor: outcome.minor.unwrap_or(probe.minor),
            cpu: 0,
            pid: if items.contains(HeaderItems::PID) { profile.map_or(0, |p| p.pid(core)) } else { 0 },
            uid: if items.contains(HeaderItems::UID) { profile.map_or(0, |p| p.uid(core)) } else { 0 },
            cs: env.seg(Seg::Cs).selector,
            ss: env.seg(Seg::Ss).selector,
            ip: trap.ip,
            sp: env.gpr(4),
            tsc: core.tsc(),
            exception,
        };
        let start = self.bytes.len();
        if items.contains(HeaderItems::NAME)
            && let Some(p) = profile
        {
            p.name_into(core, &mut self.bytes);
        }
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(self.vm.log());
        let end = self.bytes.len();
        let logonfault = probe.logonfault;
        self.staged.push(Staged { header, name: start..middle, data: middle..end, logonfault });
    }

    /// Commits what is staged: its displaced instruction has completed. Probes that had their last hit go.
    #[inline]
    fn commit(&mut self, core: &mut Core) {
        self.pending = None;
        if self.staged.is_empty() && self.expired.is_empty() {
            return;
        }
        self.commit_staged(core);
    }

    fn commit_staged(&mut self, core: &mut Core) {
        for probe in std::mem::take(&mut self.expired) {
            self.disable(core, probe);
        }
        for s in &self.staged {
            let view = RecordView {
                header: s.header,
                name: &self.bytes[s.name.clone()],
                data: &self.bytes[s.data.clone()],
            };
            self.channels.commit(&view);
        }
        self.staged.clear();
        self.bytes.clear();
    }

    /// Sees to the displaced instruction.
    #[inline]
    fn resume(&mut self, core: &mut Core, index: usize, trap: &Trap, sp: u64) -> Verdict {
        if let Some(Displaced::OutOfLine { slot, ip, linear }) = self.sites[index].displaced
            && (ip, linear) != (trap.ip, trap.linear)
        {
            // A slot jumps back to one address; this is another mapping of the page, or another segment base.
            core.free_slot(slot);
            self.sites[index].displaced = None;
        }
        let displaced = match self.sites[index].displaced {
            Some(known) => known,
            None => {
                let found = displace::displace(core, trap.linear, trap.ip);
                self.sites[index].displaced = Some(found);
                found
            }
        };
        self.pending = Some((index, sp));
        match displaced {
            Displaced::Emulated(op) => {
                self.stats.emulated += 1;
                match displace::emulate(core, &op) {
                    Ok(()) => {
                        self.commit(core);
                        Verdict::Resumed
                    }
                    Err(fault) => Verdict::Raise(fault),
                }
            }
            Displaced::OutOfLine { slot, .. } => {
                self.stats.out_of_line += 1;
                Verdict::Slot(slot)
            }
            Displaced::Stepped => {
                self.stats.stepped += 1;
                Verdict::Step
            }
        }
    }
}
