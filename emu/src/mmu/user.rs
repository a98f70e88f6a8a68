//! The pages of a process: those that ring 3 could read through the guest's current tables.
//!
//! It reads without changing anything. The guest may put anything into its tables, so the number of tables read and of
//! pages returned is bounded.

use super::walk::{Access, Paging, Translation, look};
use crate::ram::{PAGE, Ram};

/// Entries and pages looked at, at most: a guest whose tables point at each other has no end.
const MAX_WORK: usize = 1 << 24;

const P: u64 = 1;
const US: u64 = 4;
const PS: u64 = 0x80;

/// Pages of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserPages {
    /// Linear address and translation of each 4 KiB page, ascending.
    pub pages: Vec<(u64, Translation)>,
    /// The list is cut off: there are, or may be, more pages.
    pub cut: bool,
}

/// One level of the tables: where its index begins in a linear address, and how many bits it has.
#[derive(Debug, Clone, Copy)]
struct Level {
    shift: u32,
    bits: u32,
    /// An entry may map memory itself, with PS.
    large: bool,
    /// Entries have R/W and U/S; those of PAE's first level do not.
    rights: bool,
}

const fn level(shift: u32, bits: u32, large: bool, rights: bool) -> Level {
    Level { shift, bits, large, rights }
}

const TWO: &[Level] = &[level(22, 10, true, true), level(12, 10, false, true)];
const PAE: &[Level] = &[level(30, 2, false, false), level(21, 9, true, true), level(12, 9, false, true)];
const FOUR: &[Level] = &[
    level(39, 9, false, true),
    level(30, 9, true, true),
    level(21, 9, true, true),
    level(12, 9, false, true),
];

/// Walks the tables.
struct Search<'a> {
    ram: &'a Ram,
    paging: Paging,
    levels: &'static [Level],
    most: usize,
    work: usize,
    found: UserPages,
}

/// The pages that ring 3 can read, `most` at most. Without paging a process has no pages of its own: none.
pub fn user_pages(ram: &Ram, paging: Paging, most: usize) -> UserPages {
    if !paging.enabled() {
        return UserPages::default();
    }
    let (levels, root) = if paging.long() {
        (FOUR, paging.cr3 & 0x000f_ffff_ffff_f000)
    } else if paging.pae() {
        (PAE, paging.cr3 & 0xffff_ffe0)
    } else {
        (TWO, paging.cr3 & 0xffff_f000)
    };
    let mut search = Search { ram, paging, levels, most, work: 0, found: UserPages::default() };
    search.table(root, 0, 0);
    search.found
}

impl Search<'_> {
    /// Whether there is work left to spend.
    fn go_on(&mut self) -> bool {
        self.work += 1;
        self.found.cut |= self.work > MAX_WORK;
        !self.found.cut
    }

    /// Everything below the table at `at`, which maps linear addresses from `base` on.
    fn table(&mut self, at: u64, depth: usize, base: u64) {
        let Some(&level) = self.levels.get(depth) else { return };
        let size = if self.paging.pae() { 8 } else { 4 };
        for n in 0..1u64 << level.bits {
            if !self.go_on() {
                return;
            }
            let entry = self.ram.read_int(at + n * size, size as usize);
            if entry & P == 0 || level.rights && entry & US == 0 {
                continue;
            }
            let mut va = base | n << level.shift;
            if level.shift == 39 && n >= 256 {
                va |= 0xffff_0000_0000_0000;
            }
            let leaf = depth + 1 == self.levels.len() || level.large && entry & PS != 0;
            if leaf {
                self.leaf(va, 1 << (level.shift - 12));
            } else {
                self.table(entry & 0x000f_ffff_ffff_f000, depth + 1, va);
            }
        }
    }

    /// The 4 KiB pages of one leaf, as far as the walker lets ring 3 read them.
    fn leaf(&mut self, va: u64, pages: u64) {
        for page in (0..pages).map(|n| va + n * PAGE) {
            if !self.go_on() {
                return;
            }
            let Ok(t) = look(self.ram, self.paging, page, Access::Read, true) else { continue };
            if self.found.pages.len() >= self.most {
                self.found.cut = true;
                return;
            }
            self.found.pages.push((page, t));
        }
    }
}
