//! Physical memory, wherever it is: in a running machine, in a snapshot, in a file.

use crate::ram::{PAGE, Ram};
use crate::snapshot::Snapshot;

/// Physical memory that can be read.
pub trait PhysMem {
    /// Copies from a physical address; false when a byte is missing, and then the content of `to` has no meaning.
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool;
}

impl PhysMem for Ram {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        Ram::read(self, paddr, to)
    }
}

impl PhysMem for Snapshot {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        let size = u64::from(self.pages().len()) * PAGE;
        if paddr.checked_add(to.len() as u64).is_none_or(|end| end > size) {
            return false;
        }
        let mut at = paddr;
        let mut rest = to;
        while !rest.is_empty() {
            let within = (at % PAGE) as usize;
            let (part, after) = rest.split_at_mut(rest.len().min(PAGE as usize - within));
            match self.pages().get((at / PAGE) as u32) {
                Some(page) => part.copy_from_slice(&page[within..within + part.len()]),
                None => part.fill(0),
            }
            at += part.len() as u64;
            rest = after;
        }
        true
    }
}
