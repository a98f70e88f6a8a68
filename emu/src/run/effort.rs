//! How much work the machine has done: an estimate of the time that running took, which does not depend on the host.
//!
//! Only what the guest does is counted, and no cost that depends on the engine's caches. The work is no part of the guest's
//! state and does not go back with a snapshot.

use super::Core;

/// The cost of an instruction that the machine executes itself, of an access to a device, and of the delivery of an exception
/// or an interrupt, in plain instructions.
const EVENT: u64 = 200;
/// The cost of a page from which instructions are fetched for the first time since it was written: its code is translated.
const CODE_PAGE: u64 = 100_000;

/// The work of a machine.
#[derive(Debug, Default)]
pub(crate) struct Effort {
    /// Instructions that ran before the last restore of a snapshot.
    before: u64,
    /// The instruction count after that restore.
    from: u64,
    events: u64,
    code_pages: u64,
}

impl Effort {
    /// Something has happened that takes longer than an instruction.
    #[inline]
    pub fn note_event(&mut self) {
        self.events += 1;
    }

    /// Instructions are fetched from a page for the first time since it was written.
    #[inline]
    pub fn note_code_page(&mut self) {
        self.code_pages += 1;
    }

    /// The instruction count jumps.
    pub fn jumps(&mut self, from: u64, to: u64) {
        self.before += from.saturating_sub(self.from);
        self.from = to;
    }
}

impl Core {
    /// The work that this machine has done since it was made, in plain instructions; what takes longer counts as several. The
    /// difference of two values is an estimate of the time between them that is the same on every host.
    pub fn effort(&self) -> u64 {
        let effort = &self.effort;
        let instructions = effort.before + self.cpu.hot.clock.icount.saturating_sub(effort.from);
        instructions + EVENT * effort.events + CODE_PAGE * effort.code_pages
    }
}
