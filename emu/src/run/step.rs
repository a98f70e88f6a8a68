//! The machine's mode: it runs freely, or it steps an instruction that has special permits.
//!
//! Steps nest: an instruction whose patches are lifted may have a watched access, and that access may be a store into its own
//! page. So the permits are a stack, and each is given and taken back by [`Core::permitting`] alone.
//!
//! Invariant: while the machine runs freely, no permit exists.

use super::Core;

/// The state of the engine's current task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It runs until something needs the machine.
    Free,
    /// It is to run exactly one block of at most this many instructions.
    Capped(u32),
    /// That block has begun.
    Begun,
}

/// What the instruction that is being stepped may do.
#[derive(Debug)]
pub(super) enum Permit {
    /// To be fetched as the guest has it: the patches of its pages are lifted.
    Unpatched,
    /// To store into a page that it lies on.
    OwnPage,
    /// To be executed, although the execution of this linear address is watched: that has been reported.
    Execute(u64),
    /// To access watched pages. Those for which the engine was given TLB entries.
    Watched(Vec<u64>),
    /// To access devices.
    Devices(DeviceAccess),
    /// To lose the flags in the engine, if it faults: these were the flags before it.
    LoseFlags(u64),
}

/// The access to devices that an instruction makes.
#[derive(Debug)]
pub(super) struct DeviceAccess {
    /// Virtual time that the devices see.
    now: u64,
    /// Physical pages of devices that it may access.
    pages: Vec<u64>,
    /// Linear pages for which the engine was given TLB entries.
    linear: Vec<u64>,
}

impl DeviceAccess {
    /// Pages of devices that a machine has: two APICs, two virtio devices.
    pub const PAGES: u64 = 4;

    pub fn new(now: u64) -> Self {
        DeviceAccess { now, pages: Vec::new(), linear: Vec::new() }
    }

    /// Grants the device's page at `paddr` through linear page `page`; its number among those that were granted.
    pub fn grant(&mut self, paddr: u64, page: u64) -> Option<u64> {
        let known = self.pages.iter().position(|p| *p == paddr);
        let at = known.unwrap_or(self.pages.len()) as u64;
        if at >= Self::PAGES {
            return None;
        }
        if known.is_none() {
            self.pages.push(paddr);
        }
        self.linear.push(page);
        Some(at)
    }

    /// The physical page granted as number `at`, and the time.
    pub fn granted(&self, at: u64) -> Option<(u64, u64)> {
        Some((*self.pages.get(at as usize)?, self.now))
    }

    /// The linear pages that the access was granted through.
    pub fn linear(&self) -> impl Iterator<Item = u64> {
        self.linear.iter().copied()
    }
}

/// What the machine is doing.
#[derive(Debug)]
pub(crate) struct Step {
    phase: Phase,
    permits: Vec<Permit>,
}

impl Step {
    pub fn new() -> Self {
        Step { phase: Phase::Free, permits: Vec::new() }
    }

    /// Whether the engine runs freely.
    #[inline(always)]
    pub fn is_free(&self) -> bool {
        self.phase == Phase::Free
    }

    /// Whether the engine is about to run the block of one instruction.
    pub fn is_single(&self) -> bool {
        self.phase == Phase::Capped(1)
    }

    /// Whether the block of the step has begun.
    pub fn has_begun(&self) -> bool {
        self.phase == Phase::Begun
    }

    /// The engine is to run one block of at most `instructions`.
    pub fn cap(&mut self, instructions: u32) {
        self.phase = Phase::Capped(instructions);
    }

    /// The engine runs freely from now on.
    pub fn free(&mut self) {
        self.phase = Phase::Free;
    }

    /// The block of the step begins.
    pub fn begin(&mut self) {
        self.phase = Phase::Begun;
    }

    /// The engine goes back to the instruction that the block has begun with, and runs it alone.
    pub fn begin_again(&mut self) {
        if self.has_begun() {
            self.phase = Phase::Capped(1);
        }
    }

    /// Whether the instruction is fetched as the guest has it.
    pub fn is_unpatched(&self) -> bool {
        self.permits.iter().any(|p| matches!(p, Permit::Unpatched))
    }

    /// Whether the instruction may store into its own page.
    pub fn may_store_into_own_page(&self) -> bool {
        self.permits.iter().any(|p| matches!(p, Permit::OwnPage))
    }

    /// Whether the instruction at linear `at` may run although its execution is watched.
    pub fn may_execute(&self, at: u64) -> bool {
        let latest = self.permits.iter().rev().find_map(|p| match p {
            Permit::Execute(linear) => Some(*linear),
            _ => None,
        });
        latest == Some(at)
    }

    /// The flags before the instruction, if the engine loses them.
    pub fn lost_flags(&self) -> Option<u64> {
        self.permits.iter().rev().find_map(|p| match p {
            Permit::LoseFlags(flags) => Some(*flags),
            _ => None,
        })
    }

    /// The list of the watched pages that the instruction was given, if it may access such pages.
    pub fn watched_pages(&mut self) -> Option<&mut Vec<u64>> {
        self.permits.iter_mut().rev().find_map(|p| match p {
            Permit::Watched(given) => Some(given),
            _ => None,
        })
    }

    /// The access to devices that the instruction makes, if it may.
    pub(super) fn devices(&mut self) -> Option<&mut DeviceAccess> {
        self.permits.iter_mut().rev().find_map(|p| match p {
            Permit::Devices(access) => Some(access),
            _ => None,
        })
    }
}

impl Core {
    /// Does something while `permit` is given to the instruction at EIP. The permit as it has become.
    pub(super) fn permitting(&mut self, permit: Permit, act: impl FnOnce(&mut Core)) -> Option<Permit> {
        self.step.permits.push(permit);
        act(self);
        self.step.permits.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_permit_of_a_kind_counts() {
        let mut step = Step::new();
        step.permits.extend([Permit::Execute(1), Permit::Watched(vec![7]), Permit::Execute(2)]);
        assert!(step.may_execute(2) && !step.may_execute(1));
        assert_eq!(step.watched_pages(), Some(&mut vec![7]));
        assert!(!step.is_unpatched() && !step.may_store_into_own_page() && step.lost_flags().is_none());
        step.permits.pop();
        assert!(step.may_execute(1));
    }

    #[test]
    fn a_block_that_has_not_begun_cannot_begin_again() {
        let mut step = Step::new();
        step.begin_again();
        assert!(step.is_free());
        step.cap(5);
        step.begin_again();
        assert!(!step.is_single());
        step.begin();
        step.begin_again();
        assert!(step.is_single());
    }
}
