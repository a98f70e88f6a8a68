//! Probes after an instruction: the returns of functions in programs.
//!
//! The instruction, a return or a jump, is displaced as usual, but never out of line, so that its completion is known
//! at once. Then the handlers run: they see the state after it, and the site as instruction pointer
//! (docs/providers.md). A jump that stayed in its function is not a hit. A jump of the kernel to another function is one when
//! that has returned (`tail_calls.rs`).

use super::Interposer;
use super::life::Awaiting;
use crate::model::Place;
use trapline_emu::{Core, Trap};

impl Interposer {
    /// Whether the handler of a guarded probe runs now: it has hits left, the process passes its filter, its condition
    /// holds, and it runs before the instruction. A probe after the instruction is kept until that has completed; one that only answers
    /// does so here.
    #[inline(never)]
    pub(super) fn admits(&mut self, core: &mut Core, index: u32, trap: &Trap) -> bool {
        let Some(probe) = self.inserted.probes.get(index as usize).filter(|probe| !probe.spent) else {
            return false;
        };
        if probe.switches {
            self.switched(core, index);
            return false;
        }
        if let Some(filter) = probe.filter
            && !self.filters.pass(filter, core, self.profile.as_deref())
        {
            return false;
        }
        if probe.condition().is_some_and(|when| !when.holds(core)) {
            return false;
        }
        if probe.answers {
            core.env().set_gpr(0, 1);
            return false;
        }
        if probe.runs_after() {
            self.hit.rare = true;
            self.hit.awaiting.push(Awaiting { probe: index, ip: trap.ip });
            return false;
        }
        true
    }

    /// Runs the handlers after the displaced instruction has completed.
    #[cold]
    pub(super) fn hits_after(&mut self, core: &mut Core) {
        for Awaiting { probe, ip } in std::mem::take(&mut self.hit.awaiting) {
            let Some(waiting) = self.inserted.probes.get(probe as usize) else { continue };
            if waiting.returns_later {
                self.leave_later(core, probe, ip);
                continue;
            }
            let Place::UserExit { offset, stays_in, .. } = &waiting.place else { continue };
            // The module is mapped contiguously here: the distance in memory is the distance in the file.
            let now = offset.wrapping_add(core.env().eip().wrapping_sub(ip));
            if stays_in.as_ref().is_none_or(|own| !own.contains(&now)) {
                self.hit_without_site(core, probe, Some(ip), None);
            }
        }
    }
}
