//! Pauses: where a run stops so that its reader can take the output.
//!
//! What a reader receives, and when, must depend on instruction counts alone; so a run may pause at the multiples of a
//! count. Stopping at an exact count is expensive, because the machine single-steps to it. So it stops only at the
//! multiples at which output waits, and passes the others within its blocks.
//!
//! Output of a plain block cannot be seen before it ends, and an instruction that does not complete is uncounted. So a
//! multiple has been passed only when a boundary after it is reached.

use super::Core;
use crate::blocks::BlockCell;
use std::num::NonZeroU64;

/// The reader of a run's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reader {
    /// The run may pause at multiples of this many instructions.
    pub every: NonZeroU64,
    /// Bytes of the console that it has taken.
    pub shown: usize,
}

/// The pauses of a run.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    reader: Option<Reader>,
    /// The first multiple that is yet to be passed, or has been passed without a later boundary.
    next: u64,
    /// Instruction count at which the next event is due, or the run ends: the deadline without pauses.
    due: u64,
}

impl Pauses {
    fn every(&self) -> u64 {
        self.reader.map_or(u64::MAX, |reader| reader.every.get())
    }

    /// A run begins.
    fn begin(&mut self, icount: u64) {
        let every = self.every();
        self.next = (icount / every).saturating_add(1).saturating_mul(every);
    }

    /// The first multiple from `icount` on that is yet to be passed.
    #[inline]
    fn first_from(&self, icount: u64) -> u64 {
        if icount <= self.next {
            self.next
        } else {
            icount.checked_next_multiple_of(self.every()).unwrap_or(u64::MAX)
        }
    }
}

impl Core {
    /// Lets runs stop with [`Stop::Limit`](crate::Stop::Limit) at those multiples of a count at which something waits for a
    /// reader: output of the guest, or what the interposer has ([`TrapInterposer::waits`](crate::TrapInterposer::waits)). The
    /// guest does not notice.
    pub fn pause_for(&mut self, reader: Option<Reader>) {
        self.pauses.reader = reader;
    }

    /// A run begins.
    pub(super) fn begin_pauses(&mut self) {
        self.pauses.begin(self.cpu.hot.clock.icount);
    }

    /// Something is due at this count.
    pub(super) fn set_due(&mut self, due: u64) {
        self.pauses.due = due;
        self.set_deadline();
    }

    /// The deadline, from what is due and the next pause.
    #[inline]
    pub(super) fn set_deadline(&mut self) {
        let clock = &mut self.cpu.hot.clock;
        clock.deadline = self.pauses.due.min(self.pauses.first_from(clock.icount));
    }

    /// Between two instructions: whether the run pauses here.
    pub(super) fn pauses_here(&mut self) -> bool {
        let icount = self.cpu.hot.clock.icount;
        self.pauses.next = self.pauses.first_from(icount);
        if icount < self.pauses.next {
            return false;
        }
        let pauses = self.waits();
        self.pauses.next = self.pauses.next.saturating_add(self.pauses.every());
        pauses
    }

    /// At the boundary before block `b`, which would pass the deadline by running to the count `after`: whether the deadline
    /// is nothing but a pause that can be passed.
    #[cold]
    pub(super) fn passes_pause(&mut self, b: &BlockCell, after: u64) -> bool {
        let icount = self.cpu.hot.clock.icount;
        if after > self.pauses.due {
            return false;
        }
        self.pauses.next = self.pauses.first_from(icount);
        if icount == self.pauses.next {
            if self.waits() {
                return false;
            }
            self.pauses.next = self.pauses.next.saturating_add(self.pauses.every());
        }
        // These do something that may be waited for before they end.
        let plain = !b.is(BlockCell::SITE | BlockCell::CUT);
        after <= self.pauses.next
            || plain && after < self.pauses.next.saturating_add(self.pauses.every()) && !self.waits()
    }

    /// Whether something waits for the reader.
    fn waits(&mut self) -> bool {
        let Some(reader) = self.pauses.reader else { return false };
        let console = &self.cpu.console;
        let sent = console.sent.as_ref().is_some_and(|sent| !sent.is_empty());
        let until = self.pauses.next.saturating_add(reader.every.get());
        sent || console.text.len() != reader.shown
            || self.with_interposer(|i, _| i.waits(until)).unwrap_or(false)
    }
}
