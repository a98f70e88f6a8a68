//! Drops what is cached from the guest's page tables and code.

use super::Cpu;
use crate::engine::{DROP_VA, SHADOW_BASE, SLOT_PADDR};
use crate::mmu::Translation;
use crate::ram::{PAGE, PageState};

impl Cpu {
    /// Drops cached translations of `page` after a failed walk (SDM volume 3, 4.10.4.1), from the engine's TLB too,
    /// which would otherwise keep its entry.
    pub(crate) fn forget_translation(&mut self, page: u64) {
        let cached = self.tlb.lookup(page).is_some();
        if self.tlb.invalidate(page) {
            self.engine.flush_tlb();
        } else if cached {
            self.engine.drop_tlb(page);
        }
    }

    /// Caches what a walk has found. Where the tables have changed since the last walk, the new translation may allow
    /// less or lead elsewhere, so the engine's old entries are dropped in every MMU mode. The engine must not keep what a
    /// full TLB drops, or what the guest sees would depend on it.
    pub(crate) fn cache_translation(&mut self, page: u64, t: Translation) {
        match self.tlb.lookup(page) {
            Some(old) if !t.allows_all_of(&old) => self.engine.drop_tlb(page),
            None if self.tlb.is_full() => {
                self.tlb.flush_all();
                self.engine.flush_tlb();
            }
            _ => {}
        }
        self.tlb.insert(page, t);
    }

    /// Makes the engine forget every linear page that maps physical page `index`.
    pub(crate) fn forget_mappings(&mut self, index: u32) {
        match self.ram.pages[index as usize].forget() {
            Some((vas, n)) => {
                for va in &vas[..n] {
                    self.engine.drop_tlb(*va);
                }
            }
            None => self.engine.flush_tlb(),
        }
    }

    /// Drops the translations of a physical page: those of the fetch view and those of original bytes that were
    /// stepped.
    pub(crate) fn drop_page_blocks(&mut self, index: u32) {
        let paddr = u64::from(index) * PAGE;
        self.blocks_dropped = true;
        let state = &mut self.ram.pages[index as usize];
        let (armed, unpatched) = (state.is(PageState::ARMED), state.is(PageState::UNPATCHED));
        state.flags &= !PageState::UNPATCHED;
        if armed {
            self.drop_blocks_at(SHADOW_BASE + paddr, PAGE);
        }
        if !armed || unpatched {
            self.drop_blocks_at(paddr, PAGE);
        }
    }

    /// Drops the translations of the fetch view that hold the byte at `paddr`, on an armed page.
    pub(crate) fn drop_view_blocks(&mut self, paddr: u64) {
        self.drop_code_blocks(paddr, true);
    }

    /// Drops the translations that hold the byte at `paddr`, of the fetch view if its page is `armed`.
    pub(crate) fn drop_code_blocks(&mut self, paddr: u64, armed: bool) {
        self.drop_blocks_at(if armed { SHADOW_BASE } else { 0 } + paddr, 1);
    }

    /// Drops the translations of one page of slots.
    pub(crate) fn drop_slot_blocks(&mut self, offset: u64) {
        self.drop_blocks_at(SLOT_PADDR + (offset & !(PAGE - 1)), PAGE);
    }

    /// Drops the translations that hold any of `length` bytes of a page of the engine's physical memory, through a linear
    /// page of our own.
    fn drop_blocks_at(&mut self, paddr: u64, length: u64) {
        self.hot.dropping = Some(paddr & !(PAGE - 1));
        self.engine.drop_blocks(DROP_VA + paddr % PAGE, length);
        self.engine.drop_tlb(DROP_VA);
        self.hot.dropping = None;
    }
}
