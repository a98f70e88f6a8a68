//! The translated blocks: a cell for each, with the machine's state of that block.
//!
//! It lies below the CPU in the layers, because the hot state that names the current block also holds the clock. How a
//! block is counted depends on patches, watches and steps, so blocks are analysed in `run`.

mod cell;

pub(crate) use cell::{BlockCell, CellRef, Cut, Hot, HotBox, Lead};

use crate::ram::PAGE;
use std::collections::BTreeMap;
use std::ptr::NonNull;

const CHUNK: usize = 2048;

/// The number of translations after which all are dropped; their cells take 64 MiB.
const MOST: usize = 1 << 21;

/// The cells of all translated blocks. They never move, and are not given to another block while the engine may still run a block
/// that names them.
pub(crate) struct Blocks {
    chunks: Vec<NonNull<[BlockCell; CHUNK]>>,
    /// Cells that were taken since the arena was last emptied.
    used: usize,
    hot: NonNull<Hot>,
    /// Numbers of the cells whose blocks begin on a linear page, for the first `indexed` cells; built on demand.
    by_page: BTreeMap<u64, Vec<u32>>,
    indexed: usize,
    /// The cell that the next translation takes.
    next: CellRef,
    /// Translations that are made before all are dropped.
    most: usize,
}

// SAFETY: the arena owns its cells, and `hot` is owned by the same core.
unsafe impl Send for Blocks {}

impl Blocks {
    pub fn new(hot: NonNull<Hot>) -> Self {
        let mut blocks = Blocks {
            chunks: Vec::new(),
            used: 0,
            hot,
            by_page: BTreeMap::new(),
            indexed: 0,
            next: CellRef(NonNull::dangling()),
            most: MOST,
        };
        blocks.next = blocks.take();
        blocks
    }

    /// The cell that the next translation takes.
    pub fn next(&self) -> CellRef {
        self.next
    }

    /// Assigns a cell to a block that the engine has translated.
    pub fn translated(&mut self, pc: u64, icount: u16, size: u16) -> CellRef {
        let cell = self.next;
        cell.set_pc(pc);
        cell.set_icount(icount);
        cell.set_size(size);
        self.next = self.take();
        cell
    }

    /// How many translations are made before all are dropped.
    pub fn set_most(&mut self, blocks: usize) {
        const LEAST: usize = 16;
        self.most = blocks.max(LEAST);
    }

    /// Whether all translations are to be dropped at the next boundary.
    #[inline]
    pub fn are_too_many(&self) -> bool {
        self.used >= self.most
    }

    /// Marks the blocks that overlap a range of linear addresses for a new analysis.
    pub fn forget_analysis(&mut self, low: u64, high: u64) {
        self.index();
        // A block is shorter than a page.
        let pages = (low / PAGE).saturating_sub(1)..=high / PAGE;
        for &n in self.by_page.range(pages).flat_map(|(_, cells)| cells) {
            let cell = self.cell(n as usize);
            let last = cell.pc().saturating_add(u64::from(cell.size().max(1)) - 1);
            if !cell.is(BlockCell::NEW | BlockCell::SLOT) && cell.pc() <= high && last >= low {
                cell.forget();
            }
        }
    }

    /// Brings the index by page up to date. The last cell has no block yet.
    fn index(&mut self) {
        let end = self.used.saturating_sub(1);
        for n in self.indexed..end {
            let page = self.cell(n).pc() / PAGE;
            self.by_page.entry(page).or_default().push(n as u32);
        }
        self.indexed = end;
    }

    /// Cell number `n`.
    fn cell(&self, n: usize) -> CellRef {
        let first = self.chunks[n / CHUNK].cast::<BlockCell>();
        // SAFETY: the chunk has `CHUNK` cells.
        CellRef(unsafe { first.add(n % CHUNK) })
    }

    /// A fresh cell.
    fn take(&mut self) -> CellRef {
        if self.used == self.chunks.len() * CHUNK {
            let hot = self.hot;
            let fresh = Box::new(std::array::from_fn(|_| BlockCell::new(hot)));
            self.chunks.push(NonNull::from(Box::leak(fresh)));
        }
        self.used += 1;
        let cell = self.cell(self.used - 1);
        cell.clean();
        cell
    }

    /// Cells that are taken.
    pub fn taken(&self) -> usize {
        self.used
    }

    /// Takes all cells back, to give them to other blocks.
    ///
    /// # Safety
    /// No block of the engine names one, and no [`CellRef`] to one is used from now on.
    pub unsafe fn empty(&mut self) {
        self.used = 0;
        self.indexed = 0;
        self.by_page.clear();
        self.next = self.take();
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: made by `Box::leak` in `take`; the engine and the core's names of cells are gone.
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
    }
}
