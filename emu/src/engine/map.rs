//! Where our own memory lies: in the engine's physical memory, and in the linear addresses that no guest has.

use crate::ram::{PAGE, SLOT_PAGES};

/// Physical address at which the shadow of RAM is mapped in the engine.
pub(crate) const SHADOW_BASE: u64 = 1 << 40;
/// Physical address of the slots in the engine.
pub(crate) const SLOT_PADDR: u64 = 1 << 41;
/// Physical address of the page that stands for everything that is neither RAM nor a device; the pages of devices that
/// an instruction may access now follow it.
pub(crate) const VOID_PADDR: u64 = 1 << 42;
/// Linear address of the slots: above 4 GiB, and not canonical, so that no guest has anything there. 64-bit code that
/// names it all the same finds them instead of #GP once a displaced instruction has run out of line.
pub(crate) const SLOT_VA: u64 = 0x5452_4150 << 32;

/// Whether a linear address, not yet cut to the code's size, is one of the slots'.
pub(crate) fn in_slots(linear: u64) -> bool {
    (SLOT_VA..SLOT_VA + SLOT_PAGES * PAGE).contains(&linear)
}

/// Linear page through which blocks of a physical page are dropped.
pub(crate) const DROP_VA: u64 = SLOT_VA + (1 << 32);
