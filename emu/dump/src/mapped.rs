//! Ranges of physical memory.

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
}
