//! Memory that is kept page by page, without those that are zero.

use serde::{Deserialize, Serialize};
use trapline_emu::{PAGE, PhysMem};

use crate::mapped::Mapped;

/// A copy of physical memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedPages {
    /// Numbers of the pages that are not zero, ascending.
    numbers: Vec<u32>,
    /// Their content, one after the other.
    content: Vec<u8>,
}

impl OwnedPages {
    /// Copies these ranges. Pages that cannot be read are zero.
    pub fn copy(memory: &dyn PhysMem, ranges: &[Mapped]) -> Self {
        let mut pages = Self::default();
        let mut page = [0; PAGE as usize];
        for paddr in ranges.iter().flat_map(|range| (range.paddr..range.end()).step_by(PAGE as usize)) {
            if memory.read(paddr, &mut page) && !is_zero(&page) {
                pages.numbers.push((paddr / PAGE) as u32);
                pages.content.extend(page);
            }
        }
        pages
    }

    fn page(&self, number: u64) -> Option<&[u8]> {
        let at = self.numbers.binary_search(&u32::try_from(number).ok()?).ok()? * PAGE as usize;
        self.content.get(at..at + PAGE as usize)
    }
}

impl PhysMem for OwnedPages {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        by_page(paddr, to, |number, within, part| {
            match self.page(number) {
                Some(page) => part.copy_from_slice(&page[within..within + part.len()]),
                None => part.fill(0),
            }
            true
        })
    }
}

/// Calls `read` for the part of each page: the number of the page, the offset in it, and where the part goes. Ends at
/// the first that cannot be read, and at the end of the address space.
pub(crate) fn by_page(
    paddr: u64,
    to: &mut [u8],
    mut read: impl FnMut(u64, usize, &mut [u8]) -> bool,
) -> bool {
    if paddr.checked_add(to.len() as u64).is_none() {
        return false;
    }
    let (mut at, mut rest) = (paddr, to);
    while !rest.is_empty() {
        let within = (at % PAGE) as usize;
        let (part, after) = rest.split_at_mut(rest.len().min(PAGE as usize - within));
        if !read(at / PAGE, within, part) {
            return false;
        }
        at += part.len() as u64;
        rest = after;
    }
    true
}

/// Whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let words = bytes.chunks_exact(16);
    let rest = words.remainder();
    words.map(|word| word.iter().fold(0, |all, byte| all | byte)).all(|all| all == 0)
        && rest.iter().all(|byte| *byte == 0)
}
