//! The memory map: what the BIOS call E820h would report. Every way in which a system is told of its memory is a view of this
//! one: the boot information of each protocol, and the files of fw_cfg.

use super::CONVENTIONAL_END;
use crate::layout::RamLayout;

/// Memory that a system may use.
pub const USABLE: u32 = 1;
/// Memory that it must not use.
pub const RESERVED: u32 = 2;

const MIB: u64 = 1 << 20;

/// A range of physical addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// Its first address.
    pub start: u64,
    /// The address after its last one.
    pub end: u64,
    /// [`USABLE`] or [`RESERVED`].
    pub kind: u32,
}

impl MemoryRange {
    /// Bytes in it.
    pub fn size(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// The map of a machine with `mem_size` bytes of RAM, by address.
pub fn memory_map(mem_size: u64) -> Vec<MemoryRange> {
    let range = |start, end, kind| MemoryRange { start, end, kind };
    let layout = RamLayout::of(mem_size);
    let mut map = vec![
        range(0, CONVENTIONAL_END.min(mem_size), USABLE),
        range(CONVENTIONAL_END, 0xa_0000, RESERVED),
        range(0xf_0000, MIB, RESERVED),
        range(MIB, layout.low_end().max(MIB), USABLE),
        // Where a PC's flash is: reserved, as firmware reports it.
        range(0xfffc_0000, 1 << 32, RESERVED),
    ];
    map.extend(layout.ranges().skip(1).map(|high| range(high.start, high.end, USABLE)));
    map
}
