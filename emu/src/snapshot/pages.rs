//! The content of RAM at one moment, as pages that snapshots share.
//!
//! A table has two levels: a root of leaves, and leaves of pages. Both levels and the pages are shared by pointer, so a
//! table that differs from another in a few pages needs memory for those pages and their leaves only, and two tables
//! are compared by comparing pointers. A page of zeros is not stored.

use super::store::StoredPage;
use crate::ram::PAGE;
use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;

/// Pages of one leaf. Copying a leaf touches a counter in each of its pages, so a leaf is small.
const LEAF: usize = 32;

/// One page; `None` is all zero.
pub(crate) type Page = Option<Arc<StoredPage>>;

#[derive(Debug, Clone, Default)]
struct Leaf([Page; LEAF]);

/// The pages of RAM. A clone shares all of them.
#[derive(Debug, Clone)]
pub(crate) struct PageTable {
    leaves: Arc<Vec<Option<Arc<Leaf>>>>,
    pages: u32,
}

fn same<T: ?Sized>(a: Option<&Arc<T>>, b: Option<&Arc<T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

/// A page of a leaf.
fn page_of(leaf: Option<&Arc<Leaf>>, at: usize) -> Option<&Arc<StoredPage>> {
    leaf?.0[at].as_ref()
}

/// Whether a page is all zero; many bytes are compared at a time.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

impl PageTable {
    /// A table of `pages` pages of zeros.
    pub fn zeroed(pages: u32) -> Self {
        PageTable { leaves: Arc::new(vec![None; (pages as usize).div_ceil(LEAF)]), pages }
    }

    /// How many pages there are.
    pub fn len(&self) -> u32 {
        self.pages
    }

    /// The content of a page; `None` is all zero.
    pub fn get(&self, page: u32) -> Option<&[u8]> {
        self.leaves.get(page as usize / LEAF)?.as_ref()?.0[page as usize % LEAF].as_deref().map(Deref::deref)
    }

    /// Stores the content of a page. Nothing happens beyond the last page.
    pub fn set(&mut self, page: u32, bytes: &[u8]) {
        let content = (!is_zero(bytes)).then(|| Arc::new(StoredPage::of(bytes)));
        if self.get(page).is_none() && content.is_none() {
            return;
        }
        if let Some(leaf) = Arc::make_mut(&mut self.leaves).get_mut(page as usize / LEAF) {
            Arc::make_mut(leaf.get_or_insert_default()).0[page as usize % LEAF] = content;
        }
    }

    /// The pages that are stored, in order.
    pub fn stored(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let leaves = (0..).zip(self.leaves.iter()).filter_map(|(n, leaf)| Some((n, leaf.as_ref()?)));
        leaves.flat_map(|(n, leaf)| {
            let pages = (0..).zip(&leaf.0);
            pages.filter_map(move |(at, page)| Some((n * LEAF as u32 + at, &***page.as_ref()?)))
        })
    }

    /// Pages whose content is not shared with `other`: all that differ, and perhaps more. Both tables have the same
    /// number of pages.
    pub fn differing(&self, other: &PageTable) -> Vec<u32> {
        let mut found = Vec::new();
        if Arc::ptr_eq(&self.leaves, &other.leaves) {
            return found;
        }
        for (n, (ours, theirs)) in (0..).zip(self.leaves.iter().zip(other.leaves.iter())) {
            if same(ours.as_ref(), theirs.as_ref()) {
                continue;
            }
            for at in 0..LEAF {
                if !same(page_of(ours.as_ref(), at), page_of(theirs.as_ref(), at)) {
                    found.push(n * LEAF as u32 + at as u32);
                }
            }
        }
        found
    }

    /// Bytes of the pages that are not in `seen`; adds them to it. Those of `before` are in it, so what is shared with that is
    /// passed over by comparing pointers.
    pub fn bytes_beyond(&self, before: Option<&PageTable>, seen: &mut HashSet<usize>) -> u64 {
        let none = Vec::new();
        let others = before.map_or(&none, |before| &before.leaves).iter().map(Option::as_ref);
        let mut new = 0;
        for (leaf, other) in self.leaves.iter().zip(others.chain(std::iter::repeat(None))) {
            let Some(leaf) = leaf.as_ref().filter(|leaf| !same(Some(leaf), other)) else { continue };
            for (at, page) in leaf.0.iter().enumerate() {
                let Some(page) = page else { continue };
                let shared = same(Some(page), other.and_then(|other| other.0[at].as_ref()));
                new += u64::from(!shared && seen.insert(Arc::as_ptr(page) as usize));
            }
        }
        new * PAGE
    }

    /// The number of stored pages that are shared with neither of two others.
    pub fn pages_beyond_both(&self, one: &PageTable, other: &PageTable) -> u64 {
        let mut beyond = 0;
        for (ours, (one, other)) in self.leaves.iter().zip(one.leaves.iter().zip(other.leaves.iter())) {
            let Some(leaf) = ours
                .as_ref()
                .filter(|_| !same(ours.as_ref(), one.as_ref()) && !same(ours.as_ref(), other.as_ref()))
            else {
                continue;
            };
            let shared = |theirs: &Option<Arc<Leaf>>, at: usize| {
                same(leaf.0[at].as_ref(), theirs.as_ref().and_then(|theirs| theirs.0[at].as_ref()))
            };
            beyond += (0..LEAF)
                .filter(|at| leaf.0[*at].is_some() && !shared(one, *at) && !shared(other, *at))
                .count() as u64;
        }
        beyond
    }

    /// The number of stored pages that are not shared with `other`.
    pub fn pages_beyond(&self, other: &PageTable) -> u64 {
        self.differing(other).into_iter().filter(|&page| self.get(page).is_some()).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: u8) -> Vec<u8> {
        vec![byte; PAGE as usize]
    }

    #[test]
    fn a_copy_shares_all_pages_but_those_that_are_set() {
        let mut first = PageTable::zeroed(100);
        for n in 0..100 {
            first.set(n, &page(n as u8 + 1));
        }
        let mut second = first.clone();
        second.set(7, &page(200));
        second.set(99, &page(0));
        assert_eq!(second.differing(&first), [7, 99]);
        assert_eq!((first.get(7).unwrap()[0], second.get(7).unwrap()[0]), (8, 200));
        assert!(second.get(99).is_none());
        assert_eq!((second.pages_beyond(&first), first.pages_beyond(&second)), (1, 2));
        let mut third = second.clone();
        third.set(8, &page(201));
        third.set(50, &page(202));
        assert_eq!(third.pages_beyond_both(&first, &second), 2);
        assert_eq!(
            (second.pages_beyond_both(&first, &third), second.pages_beyond_both(&first, &first)),
            (0, 1)
        );
        let mut seen = HashSet::new();
        assert_eq!(first.bytes_beyond(None, &mut seen), 100 * PAGE);
        assert_eq!(second.bytes_beyond(Some(&first), &mut seen.clone()), PAGE);
        assert_eq!(second.bytes_beyond(None, &mut seen), PAGE);
        assert_eq!(first.bytes_beyond(Some(&second), &mut seen), 0);
    }

    #[test]
    fn zeros_are_not_stored_and_pages_beyond_the_last_are_ignored() {
        let mut table = PageTable::zeroed(3);
        table.set(1, &page(0));
        table.set(500, &page(1));
        assert_eq!(table.stored().count(), 0);
        assert!(table.get(500).is_none());
        table.set(2, &page(9));
        assert_eq!(table.stored().map(|(n, _)| n).collect::<Vec<_>>(), [2]);
    }
}
