//! The one clock: retired instructions, and the virtual nanoseconds that follow from them.
//!
//! One instruction is 1 ns. HLT skips to the next event: what it skips is virtual time but not instructions. Invariant:
//! only the run loop, the block hook and a handler's request advance it, and never by host time.

use serde::{Deserialize, Serialize};

/// Instruction count and virtual time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    /// Retired instructions; blocks are counted as they begin and corrected when they do not complete.
    pub icount: u64,
    /// Virtual ns that HLT skipped, or that a handler let pass.
    pub skipped: u64,
    /// Instruction count at which the next event is due, or the run ends or may pause.
    pub deadline: u64,
    /// The count that the block hook compares with: the deadline, or 0 to look at every block.
    pub limit: u64,
}

impl Clock {
    /// Virtual time in ns.
    #[inline]
    pub fn now(&self) -> u64 {
        self.icount + self.skipped
    }
}

/// A position in a run, between two instructions. The other fields tell apart states with the same instruction count.
/// Moments are ordered as the run passes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Moment {
    /// Retired instructions.
    pub icount: u64,
    /// Virtual time, ns: it passes in HLT, while no instruction retires.
    pub virtual_ns: u64,
    /// Exceptions and interrupts delivered since the last instruction retired or a snapshot was restored.
    pub delivered: u32,
}
