//! Where our own memory lies: in the engine's physical memory, and at linear addresses that no guest uses.

use crate::ram::{PAGE, SLOT_PAGES};

/// Physical address at which the shadow of RAM is mapped in the engine.
pub(crate) const SHADOW_BASE: u64 = 1 << 40;
/// Physical address of the slots in the engine.
pub(crate) const SLOT_PADDR: u64 = 1 << 41;
/// Physical address of the page that is mapped for everything that is neither RAM nor a device. The pages of devices
/// that the current instruction may access follow it.
pub(crate) const VOID_PADDR: u64 = 1 << 42;
/// Linear address of the slots: above 4 GiB and not canonical, so that no guest can map anything there. 64-bit code
/// that does access this address reaches the slots instead of raising #GP once a displaced instruction has run out of
/// line.
pub(crate) const SLOT_VA: u64 = 0x5452_4150 << 32;

/// Whether a linear address, not yet cut to the code's size, is one of the slots'.
pub(crate) fn in_slots(linear: u64) -> bool {
    (SLOT_VA..SLOT_VA + SLOT_PAGES * PAGE).contains(&linear)
}

/// Linear page through which blocks of a physical page are dropped.
pub(crate) const DROP_VA: u64 = SLOT_VA + (1 << 32);
