//! The displaced instruction: how it runs, what is done when it has completed, and hits that wait until it does.

use super::Interposer;
use super::life::{Parked, Part, Stage, Why};
use crate::sites::{Displaced, Site, emulate};
use trapline_emu::{Core, Trap, Verdict};

impl Interposer {
    /// Ends the hit in progress after its displaced instruction has completed, and does what waited for that.
    #[inline(always)]
    pub(super) fn finish(&mut self, core: &mut Core) {
        if self.hit.rare {
            self.finish_rare(core);
        }
    }

    #[cold]
    fn finish_rare(&mut self, core: &mut Core) {
        let held = std::mem::take(&mut self.hit.held);
        self.recorder.channels.put_back(held, |_| true);
        if !self.hit.awaiting.is_empty() {
            self.hits_after(core);
        }
        if self.hit.passed {
            core.pass_time(0);
        }
        self.stop_when_due(core);
        for probe in std::mem::take(&mut self.hit.expired) {
            self.disable(core, probe as usize);
        }
        self.hit.clear();
    }

    /// Parks the hit whose displaced instruction has not completed.
    #[cold]
    pub(super) fn park(&mut self, core: &mut Core, why: Why) {
        let parts = self.parts();
        for &probe in &self.hit.expired {
            if let Some(probe) = self.inserted.probes.get_mut(probe as usize) {
                probe.set_spent(true);
            }
        }
        let profile = self.profile.as_deref();
        let replaced = self.parked.park(core, profile, &mut self.hit, (why, parts));
        self.hit.clear();
        if let Some(parked) = replaced {
            self.give_up(core, parked);
        }
    }

    /// The parts that probes have in the hit in progress.
    fn parts(&self) -> Vec<Part> {
        let here = self.sites.probes_at(self.hit.site);
        let mut parts = Vec::new();
        for &number in here {
            let Some(probe) = self.inserted.probes.get(number as usize).filter(|p| p.hit == self.stats.traps)
            else {
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
        parts
    }

    /// Notes where the hit in progress is, which a watch of execution has reported.
    #[cold]
    pub(super) fn note_watched(&mut self, core: &Core, trap: &Trap) {
        (self.hit.rare, self.hit.watched_at) = (true, Some((core.icount(), trap.linear)));
    }

    /// Whether a trap belongs to the hit in progress: its instruction is the one that a watch of execution has reported, and
    /// has not run yet.
    pub(super) fn is_joined(&self, core: &Core, trap: &Trap) -> bool {
        self.hit.stage == Stage::Displaced && self.hit.watched_at == Some((core.icount(), trap.linear))
    }

    /// Runs the handlers of another site of the hit in progress.
    #[cold]
    pub(super) fn join(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        let index = trap.patch as usize;
        let Some(site) = self.sites.get(index) else { return Verdict::Declined };
        if site.first == Site::NO_PROBE {
            return Verdict::Step;
        }
        self.hit.before = self.parts();
        self.hit.joined.push(self.hit.site);
        self.hit.site = index;
        self.stats.traps += 1;
        match self.hit.resumed {
            None => self.hits_from(core, 0, trap),
            Some(Why::Faulted) => self.retry(core, trap),
            Some(Why::Interrupted) => {}
        }
        self.resume(core, trap)
    }

    /// The parked hit that this trap resumes. Another hit of the same task is over, because the task has run something
    /// else.
    #[cold]
    pub(super) fn unpark(&mut self, core: &mut Core, site: usize) -> Option<Parked> {
        let (parked, goes_on) = self.parked.take(core, self.profile.as_deref(), site)?;
        if goes_on {
            return Some(parked);
        }
        self.give_up(core, parked);
        None
    }

    /// Ends a parked hit whose instruction will not complete.
    #[cold]
    pub(super) fn give_up(&mut self, core: &mut Core, parked: Parked) {
        self.stats.dropped += parked.held.len() as u64;
        self.stops.counted = self.stops.counted.saturating_sub(parked.counted);
        for probe in parked.expired {
            self.disable(core, probe as usize);
        }
    }

    /// Ends a parked hit whose task has run something else before an event is delivered.
    #[inline]
    pub(super) fn end_abandoned(&mut self, core: &mut Core) {
        if !self.parked.is_empty()
            && let Some(parked) = self.parked.take_abandoned(core, self.profile.as_deref())
        {
            self.give_up(core, parked);
        }
    }

    /// Ends the parked hits of a site that is disarmed or has another instruction. The completion of an interrupted
    /// instruction is no longer seen; its records count as committed.
    pub(super) fn leave_parked(&mut self, core: &mut Core, site: usize) {
        if self.parked.is_empty() {
            return;
        }
        for parked in self.parked.take_site(site) {
            self.recorder.channels.put_back(parked.held, |_| true);
            for probe in parked.expired {
                self.disable(core, probe as usize);
            }
        }
    }

    /// Decides how the displaced instruction runs.
    #[inline(always)]
    pub(super) fn resume(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        let sequel = self.hit.rare && self.hit.has_sequel();
        let at_once = trap.in_line && !sequel;
        self.hit.stage = Stage::Displaced;
        // Nearly all hits in line; the site is looked up once.
        if at_once
            && let Some(site) = self.sites.get(self.hit.site)
            && site.wide == core.env().code64()
        {
            match &site.displaced {
                Some(Displaced::Emulated(_)) => {
                    self.stats.emulated += 1;
                    return Verdict::InLine;
                }
                Some(Displaced::OutOfLine { .. }) => {
                    self.stats.out_of_line += 1;
                    return Verdict::InLine;
                }
                _ => {}
            }
        }
        // Whether a hit with a sequel is stepped must not depend on earlier hits of the site.
        let lacks_way = |site: &Site| site.wide != core.env().code64() || sequel && site.displaced.is_none();
        if self.sites.get(self.hit.site).is_some_and(lacks_way) {
            self.sites.displace(core, self.hit.site, trap.linear, trap.ip);
        }
        if sequel && self.must_step() {
            // Its completion is known at once, between two instructions.
            self.stats.stepped += 1;
            return Verdict::Step;
        }
        loop {
            let Some(site) = self.sites.get(self.hit.site) else { return Verdict::Step };
            match &site.displaced {
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
                    if let Err(fault) = emulate(core, op) {
                        return Verdict::Raise(fault);
                    }
                    if self.hit.rare {
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
                _ => self.sites.displace(core, self.hit.site, trap.linear, trap.ip),
            }
        }
    }

    /// Whether the displaced instruction must be stepped because the run stops after it, or because probes are removed
    /// that a later trap must not find.
    #[cold]
    fn must_step(&self) -> bool {
        let site = self.sites.get(self.hit.site);
        let emulated = matches!(site.and_then(|site| site.displaced.as_ref()), Some(Displaced::Emulated(_)));
        self.hit.passed || !self.hit.due.is_empty() || !self.hit.expired.is_empty() && !emulated
    }
}
