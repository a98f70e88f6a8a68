//! Where a section of a kernel module is in memory.

use serde::{Deserialize, Serialize};
use trapline_emu::PAGE;

/// A section that has probes, in a loaded module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlacedPart {
    /// Linear address of its section.
    pub address: u64,
    /// Linear address of the page that its first probe is on.
    pub page: u64,
    /// Physical pages from that one on.
    pub frames: Vec<Option<u64>>,
}

impl PlacedPart {
    /// The physical address of a byte of the section; `None` outside these pages.
    pub fn paddr(&self, into: u64) -> Option<u64> {
        let va = self.address.checked_add(into)?;
        let page = usize::try_from(va.checked_sub(self.page)? / PAGE).ok()?;
        Some(self.frames.get(page).copied()?? + va % PAGE)
    }
}
