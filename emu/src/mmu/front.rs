//! What was looked up last in the TLB, where it is found without a hash.
//!
//! It answers only what the TLB itself would answer; when it forgets is of no consequence.

use super::tlb::Entry;
use crate::ram::PAGE;
use std::cell::Cell;

const SLOTS: usize = 64;
/// No page begins here.
const EMPTY: u64 = u64::MAX;

/// One entry for each remainder of a page number.
#[derive(Debug)]
pub(super) struct Front(Box<[Cell<(u64, Entry)>; SLOTS]>);

impl Default for Front {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| Cell::new((EMPTY, Entry::DEAD)))))
    }
}

impl Clone for Front {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Front {
    #[inline]
    fn slot(&self, page: u64) -> &Cell<(u64, Entry)> {
        &self.0[(page / PAGE) as usize % SLOTS]
    }

    #[inline]
    pub fn get(&self, page: u64) -> Option<Entry> {
        let (at, entry) = self.slot(page).get();
        (at == page).then_some(entry)
    }

    pub fn set(&self, page: u64, entry: Entry) {
        self.slot(page).set((page, entry));
    }

    pub fn forget(&self, page: u64) {
        if self.get(page).is_some() {
            self.slot(page).set((EMPTY, Entry::DEAD));
        }
    }

    pub fn clear(&self) {
        self.0.iter().for_each(|slot| slot.set((EMPTY, Entry::DEAD)));
    }
}
