//! A small cache of the TLB's latest lookups, which needs no hash.
//!
//! Invariant: each entry is the one that the TLB has for its page. An entry may be forgotten at any time.

use crate::ram::PAGE;
use std::cell::Cell;
use std::fmt;

const SLOTS: usize = 64;

/// A page and its entry.
type Slot<T> = Cell<Option<(u64, T)>>;

/// One entry for each remainder of a page number, with its page.
pub(super) struct Front<T>(Box<[Slot<T>; SLOTS]>);

impl<T> Default for Front<T> {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| Cell::new(None))))
    }
}

impl<T> fmt::Debug for Front<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Front")
    }
}

impl<T> Clone for Front<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<T: Copy> Front<T> {
    #[inline]
    fn slot(&self, page: u64) -> &Slot<T> {
        &self.0[(page / PAGE) as usize % SLOTS]
    }

    #[inline]
    pub fn get(&self, page: u64) -> Option<T> {
        self.slot(page).get().filter(|(at, _)| *at == page).map(|(_, entry)| entry)
    }

    pub fn set(&self, page: u64, entry: T) {
        self.slot(page).set(Some((page, entry)));
    }

    pub fn forget(&self, page: u64) {
        if self.get(page).is_some() {
            self.slot(page).set(None);
        }
    }

    pub fn clear(&self) {
        self.0.iter().for_each(|slot| slot.set(None));
    }
}
