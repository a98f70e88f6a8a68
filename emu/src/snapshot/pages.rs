//! The content of RAM at one moment, as pages that snapshots share.
//!
//! A table has three levels: a root of branches, branches of leaves, and leaves of pages. All levels and the pages are
//! shared by pointer, so a table that differs from another in a few pages needs memory for those pages and what leads to
//! them only, and two tables are compared by comparing pointers. A page of zeros is not stored, so memory that nobody
//! touches has no part in the cost.

use super::store::StoredPage;
use crate::ram::PAGE;
use std::collections::HashSet;
use std::sync::Arc;

/// Pages of one leaf. Copying a leaf touches a counter in each of its pages, so a leaf is small.
const LEAF: usize = 32;
/// Leaves of one branch, which stands for 32 MiB.
const BRANCH: usize = 256;

/// One page; `None` is all zero.
pub(crate) type Page = Option<Arc<StoredPage>>;

#[derive(Debug, Clone, Default)]
struct Leaf([Page; LEAF]);

#[derive(Debug, Clone)]
struct Branch([Option<Arc<Leaf>>; BRANCH]);

impl Default for Branch {
    fn default() -> Self {
        Self([const { None }; BRANCH])
    }
}

/// The pages of RAM. A clone shares all of them.
#[derive(Debug, Clone)]
pub(crate) struct PageTable {
    root: Arc<Vec<Option<Arc<Branch>>>>,
    pages: u32,
}

/// A leaf's place among all leaves, and the leaf in each of two tables.
type Pair<'a> = (usize, Option<&'a Arc<Leaf>>, Option<&'a Arc<Leaf>>);

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
        PageTable { root: Arc::new(vec![None; (pages as usize).div_ceil(LEAF * BRANCH)]), pages }
    }

    /// How many pages there are.
    pub fn len(&self) -> u32 {
        self.pages
    }

    fn leaf(&self, number: usize) -> Option<&Arc<Leaf>> {
        self.root.get(number / BRANCH)?.as_ref()?.0[number % BRANCH].as_ref()
    }

    /// The content of a page; `None` is all zero.
    pub fn get(&self, page: u32) -> Option<&[u8]> {
        let leaf = self.leaf(page as usize / LEAF);
        page_of(leaf, page as usize % LEAF).map(|page| &***page)
    }

    /// Stores the content of a page. Nothing happens beyond the last page.
    pub fn set(&mut self, page: u32, bytes: &[u8]) {
        let content = (!is_zero(bytes)).then(|| Arc::new(StoredPage::of(bytes)));
        if page >= self.pages || self.get(page).is_none() && content.is_none() {
            return;
        }
        let number = page as usize / LEAF;
        if let Some(branch) = Arc::make_mut(&mut self.root).get_mut(number / BRANCH) {
            let leaf = &mut Arc::make_mut(branch.get_or_insert_default()).0[number % BRANCH];
            Arc::make_mut(leaf.get_or_insert_default()).0[page as usize % LEAF] = content;
        }
    }

    /// The leaves that are there, with their places.
    fn leaves(&self) -> impl Iterator<Item = (usize, &Arc<Leaf>)> {
        let branches = (0..).zip(self.root.iter()).filter_map(|(n, branch)| Some((n, branch.as_ref()?)));
        branches.flat_map(|(n, branch)| {
            let leaves = (n * BRANCH..).zip(&branch.0);
            leaves.filter_map(|(number, leaf)| Some((number, leaf.as_ref()?)))
        })
    }

    /// The leaves that this table does not share with another, with those of the other.
    fn unshared<'a>(&'a self, other: &'a PageTable) -> impl Iterator<Item = Pair<'a>> {
        let all = if Arc::ptr_eq(&self.root, &other.root) { 0 } else { self.root.len() };
        let branches = (0..all).map(|n| (n, self.branch(n), other.branch(n)));
        let differing = branches.filter(|(_, ours, theirs)| !same(*ours, *theirs));
        differing.flat_map(|(n, ours, theirs)| {
            let leaf = |branch: Option<&'a Arc<Branch>>, at: usize| branch.and_then(|b| b.0[at].as_ref());
            let pairs = (0..BRANCH).map(move |at| (n * BRANCH + at, leaf(ours, at), leaf(theirs, at)));
            pairs.filter(|(_, ours, theirs)| !same(*ours, *theirs))
        })
    }

    fn branch(&self, number: usize) -> Option<&Arc<Branch>> {
        self.root.get(number)?.as_ref()
    }

    /// The pages that are stored, in order.
    pub fn stored(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.leaves().flat_map(|(number, leaf)| {
            let pages = ((number * LEAF) as u32..).zip(&leaf.0);
            pages.filter_map(|(page, content)| Some((page, &***content.as_ref()?)))
        })
    }

    /// Pages whose content is not shared with `other`: all that differ, and perhaps more. Both tables have the same
    /// number of pages.
    pub fn differing(&self, other: &PageTable) -> Vec<u32> {
        let pages = self.unshared(other).flat_map(|(number, ours, theirs)| {
            let differing = (0..LEAF).filter(move |at| !same(page_of(ours, *at), page_of(theirs, *at)));
            differing.map(move |at| (number * LEAF + at) as u32)
        });
        pages.collect()
    }

    /// Bytes of the pages that are not in `seen`; adds them to it. Those of `before` are in it, so what is shared with that is
    /// passed over by comparing pointers.
    pub fn bytes_beyond(&self, before: Option<&PageTable>, seen: &mut HashSet<usize>) -> u64 {
        let nothing = Self::zeroed(self.pages);
        let mut new = 0;
        for (_, ours, theirs) in self.unshared(before.unwrap_or(&nothing)) {
            let Some(leaf) = ours else { continue };
            for (at, page) in leaf.0.iter().enumerate() {
                let Some(page) = page else { continue };
                let shared = same(Some(page), page_of(theirs, at));
                new += u64::from(!shared && seen.insert(Arc::as_ptr(page) as usize));
            }
        }
        new * PAGE
    }

    /// The number of stored pages that are shared with neither of two others.
    pub fn pages_beyond_both(&self, one: &PageTable, other: &PageTable) -> u64 {
        let mut beyond = 0;
        for (number, ours, theirs) in self.unshared(one) {
            let third = other.leaf(number);
            let Some(leaf) = ours.filter(|_| !same(ours, third)) else { continue };
            let shared =
                |theirs: Option<&Arc<Leaf>>, at: usize| same(leaf.0[at].as_ref(), page_of(theirs, at));
            let alone =
                (0..LEAF).filter(|at| leaf.0[*at].is_some() && !shared(theirs, *at) && !shared(third, *at));
            beyond += alone.count() as u64;
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

    #[test]
    fn pages_of_all_branches_are_found_in_order() {
        let last = 3 * (LEAF * BRANCH) as u32 + 5;
        let mut table = PageTable::zeroed(last + 1);
        let empty = table.clone();
        let pages = [0, 31, 32, 2047, 2048, 4500, last];
        pages.iter().rev().for_each(|n| table.set(*n, &page(*n as u8 | 1)));
        assert_eq!(table.stored().map(|(n, _)| n).collect::<Vec<_>>(), pages);
        assert_eq!((table.differing(&empty), empty.differing(&table)), (pages.to_vec(), pages.to_vec()));
        assert_eq!(table.get(last).unwrap()[0], last as u8 | 1);
        let mut other = table.clone();
        other.set(2048, &page(0));
        assert_eq!((other.differing(&table), other.pages_beyond_both(&table, &empty)), (vec![2048], 0));
    }
}
