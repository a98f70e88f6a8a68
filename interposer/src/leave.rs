//! Probes behind an instruction: where a function of a program is left.
//!
//! The instruction, a return or a jump, is displaced as usual, but never out of line, so that its completion is known at
//! once. Then the handlers run: they see the state behind it, and as instruction pointer the site (providers.md B). A
//! jump that stayed in its function has left nothing, and is no hit.

use crate::displace::Displaced;
use crate::life::Awaiting;
use crate::table::{Interposer, Place, Probe};
use trapline_emu::{Core, Trap};

impl Probe {
    /// Whether its handler runs when the instruction has completed.
    pub(crate) fn is_behind(&self) -> bool {
        matches!(self.place, Place::UserExit { .. })
    }

    /// Whether a hit is looked at more closely before its handler runs.
    pub(crate) fn is_guarded(&self) -> bool {
        self.filter.is_some() || self.is_behind() || self.spent
    }

    /// Notes whether it has had its last hit, whose instruction has not completed.
    pub(crate) fn set_spent(&mut self, spent: bool) {
        self.spent = spent;
        self.guarded = self.is_guarded();
    }
}

impl Interposer {
    /// Whether the handler of a guarded probe runs now: it has hits left, its process is meant, and it stands before its
    /// instruction. One behind it is kept for when that has completed.
    #[inline(never)]
    pub(crate) fn admits(&mut self, core: &Core, index: u32, trap: &Trap) -> bool {
        let probe = &self.probes[index as usize];
        if probe.spent {
            return false;
        }
        if let Some(filter) = probe.filter
            && !self.filters.pass(filter, core, self.config.profile.as_deref())
        {
            return false;
        }
        if probe.is_behind() {
            self.hit.awaiting.push(Awaiting { probe: index, ip: trap.ip });
            return false;
        }
        true
    }

    /// The displaced instruction has completed, and the state is that behind it.
    #[cold]
    pub(crate) fn hits_behind(&mut self, core: &mut Core) {
        let waiting = std::mem::take(&mut self.hit.awaiting);
        for Awaiting { probe, ip } in &waiting {
            let Some(Place::UserExit { offset, stays_in, .. }) =
                self.probes.get(*probe as usize).map(|p| &p.place)
            else {
                continue;
            };
            // The module is mapped in one piece here: as far as the CPU has gone, so far it has in the file.
            let now = offset.wrapping_add(core.env().eip().wrapping_sub(*ip));
            if stays_in.as_ref().is_none_or(|own| !own.contains(&now)) {
                self.hit_without_site(core, *probe, Some(*ip), None);
            }
        }
        // Its capacity serves the next hit.
        self.hit.awaiting = waiting;
        self.hit.awaiting.clear();
    }

    /// Whether a probe is on the site that runs behind its instruction.
    pub(crate) fn is_left_at(&self, site: usize) -> bool {
        let probes = self.sites.get(site).map(|site| site.probes.as_slice()).unwrap_or_default();
        probes.iter().any(|&probe| self.probes.get(probe as usize).is_some_and(Probe::is_behind))
    }

    /// How an instruction that is worked out as `way` is displaced at a site.
    pub(crate) fn known_at_once(&self, core: &mut Core, site: usize, way: Displaced) -> Displaced {
        match way {
            Displaced::OutOfLine { slot, .. } if self.is_left_at(site) => {
                core.free_slot(slot);
                Displaced::Stepped
            }
            way => way,
        }
    }
}
