//! Where RAM lies in physical memory: as on a PC, devices have the gigabyte below 4 GiB, and the RAM for which there is
//! no room below them is at 4 GiB and above.

use std::ops::Range;

/// The end of the RAM that lies below the devices.
pub const LOW_LIMIT: u64 = 3 << 30;
/// Where the rest of it begins.
pub const HIGH_START: u64 = 4 << 30;

/// The physical addresses of RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RamLayout {
    low: u64,
    /// The end of all of it; that of the low part where there is no other.
    end: u64,
}

impl RamLayout {
    /// That of a machine with `size` bytes of RAM.
    pub fn of(size: u64) -> Self {
        let low = size.min(LOW_LIMIT);
        let end = if size > low { HIGH_START.saturating_add(size - low) } else { low };
        Self { low, end }
    }

    /// Everything below `end`, as in a dump, whose own table says what is missing.
    pub(crate) fn below(end: u64) -> Self {
        Self { low: end, end }
    }

    /// The end of the RAM that begins at address 0.
    pub fn low_end(self) -> u64 {
        self.low
    }

    /// The address after the last byte.
    pub fn end(self) -> u64 {
        self.end
    }

    /// Bytes of RAM.
    pub fn size(self) -> u64 {
        self.ranges().map(|range| range.end - range.start).sum()
    }

    /// The RAM that begins at 0, and that above 4 GiB if there is any.
    pub fn ranges(self) -> impl Iterator<Item = Range<u64>> {
        let high = if self.end > self.low { HIGH_START..self.end } else { 0..0 };
        [0..self.low, high].into_iter().filter(|range| !range.is_empty())
    }

    /// Whether `len` bytes from `paddr` on are RAM.
    #[inline]
    pub fn contains(self, paddr: u64, len: u64) -> bool {
        let Some(end) = paddr.checked_add(len) else { return false };
        end <= self.low || (paddr >= HIGH_START && end <= self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_below_three_gibibytes_lies_above_four() {
        let gib = |n: u64| n << 30;
        let small = RamLayout::of(gib(3));
        assert_eq!((small.low_end(), small.end(), small.size()), (gib(3), gib(3), gib(3)));
        assert!(small.ranges().eq(std::iter::once(0..gib(3))));
        assert!(
            small.contains(gib(3) - 8, 8) && !small.contains(gib(3) - 7, 8) && !small.contains(gib(4), 1)
        );
        let large = RamLayout::of(gib(3) + 4096);
        assert_eq!((large.low_end(), large.end(), large.size()), (gib(3), gib(4) + 4096, gib(3) + 4096));
        assert_eq!(large.ranges().collect::<Vec<_>>(), [0..gib(3), gib(4)..gib(4) + 4096]);
        for (paddr, len, inside) in [
            (gib(3) - 1, 1, true),
            (gib(3) - 1, 2, false),
            (gib(3), 1, false),
            (gib(4) - 1, 1, false),
            (gib(4) - 1, 2, false),
            (gib(4), 4096, true),
            (gib(4), 4097, false),
            (gib(3) - 1, gib(1) + 2, false),
            (u64::MAX, 2, false),
        ] {
            assert_eq!(large.contains(paddr, len), inside, "{len} bytes at {paddr:#x}");
        }
        assert!(RamLayout::below(gib(8)).contains(gib(3), gib(2)));
    }
}
