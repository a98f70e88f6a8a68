//! Ranges of physical memory.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A range of physical memory, and where the kernel maps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    /// Physical address of its first byte, at the beginning of a page.
    pub paddr: u64,
    /// Whole pages, in bytes.
    pub size: u64,
    /// Virtual address of its first byte; `None` if the kernel does not map all of it in one piece.
    pub vaddr: Option<u64>,
}

impl Mapped {
    /// First physical address after it.
    pub fn end(&self) -> u64 {
        self.paddr.saturating_add(self.size)
    }

    /// Its physical addresses.
    pub fn range(&self) -> Range<u64> {
        self.paddr..self.end()
    }

    /// The memory of these ranges, ascending and without overlaps.
    pub fn merged(all: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
        let mut sorted: Vec<Range<u64>> = all.collect();
        sorted.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in sorted {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }
}
