//! The displaced instruction: how it runs, what is done when it has completed, and hits that wait because it has not.

use super::Interposer;
use super::life::{Parked, Part, Stage, Why};
use crate::sites::{Displaced, Site, emulate};
use trapline_emu::{Core, Trap, Verdict};

impl Interposer {
    /// The displaced instruction of the hit in progress has completed: what waited for that is done, and the hit is over.
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
    pub(super) fn park(&mut self, core: &mut Core, why: Why) {
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
        for &probe in &self.hit.expired {
            if let Some(probe) = self.inserted.probes.get_mut(probe as usize) {
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
    pub(super) fn unpark(&mut self, core: &mut Core, site: usize) -> Option<Parked> {
        let (parked, goes_on) = self.parked.take(core, site)?;
        if goes_on {
            return Some(parked);
        }
        self.give_up(core, parked);
        None
    }

    /// The instruction of a parked hit will not complete.
    #[cold]
    pub(super) fn give_up(&mut self, core: &mut Core, parked: Parked) {
        self.stats.dropped += parked.held.len() as u64;
        self.stops.counted = self.stops.counted.saturating_sub(parked.counted);
        for probe in parked.expired {
            self.disable(core, probe as usize);
        }
    }

    /// An event is delivered at a boundary: whether a task has run something else before, shows there.
    #[inline]
    pub(super) fn leave_behind(&mut self, core: &mut Core) {
        if !self.parked.is_empty()
            && let Some(parked) = self.parked.left_behind(core)
        {
            self.give_up(core, parked);
        }
    }

    /// A site is disarmed or has another instruction: hits that were parked there are over. That an interrupted instruction
    /// completes is not seen then; its records count as committed.
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

    /// Sees to the displaced instruction.
    #[inline(always)]
    pub(super) fn resume(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        let sequel = self.hit.rare && self.hit.has_sequel();
        let at_once = trap.in_line && !sequel;
        self.hit.stage = Stage::Displaced;
        // Whether a hit with a sequel is stepped is not to depend on whether the site was hit before.
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

    /// Whether what waits for the completion of the displaced instruction needs it stepped: the run stops there, or probes
    /// go that a trap behind it must not find.
    #[cold]
    fn must_step(&self) -> bool {
        let site = self.sites.get(self.hit.site);
        let emulated = matches!(site.and_then(|site| site.displaced.as_ref()), Some(Displaced::Emulated(_)));
        !self.hit.due.is_empty() || !self.hit.expired.is_empty() && !emulated
    }
}
