//! Patching the fetch view of a machine, and stepping instructions past their patches.

use super::Core;
use super::step::Permit;
use crate::ram::{PAGE, PageState};
use crate::views::{PatchError, Slot};

impl Core {
    /// Patches the fetch view at `paddr`. Its traps carry `id`.
    ///
    /// # Errors
    /// See [`PatchError`].
    pub fn arm(&mut self, paddr: u64, bytes: &[u8], id: u32) -> Result<(), PatchError> {
        self.views.arm(&mut self.cpu, paddr, bytes, id)
    }

    /// Removes the patch at `paddr`; false when there is none.
    pub fn disarm(&mut self, paddr: u64) -> bool {
        self.views.disarm(&mut self.cpu, paddr)
    }

    /// Puts a displaced instruction into a free slot, followed by a jump to the instruction after its site.
    ///
    /// `site` is the EIP of the site in the current code segment: the slot serves that EIP and that segment base. The
    /// copy must not depend on its own address; it does what the `site_len` bytes at the site do.
    ///
    /// # Errors
    /// [`PatchError::NoSlot`].
    pub fn take_slot(&mut self, copy: &[u8], site_len: u8, site: u64, bits: u32) -> Result<Slot, PatchError> {
        self.views.take_slot(&mut self.cpu, copy, site_len, site, bits)
    }

    /// Gives a slot back.
    pub fn free_slot(&mut self, slot: Slot) {
        self.views.free_slot(slot);
    }

    /// Reads the fetch view at physical addresses: RAM with the patches over it. False, and nothing copied, when any
    /// byte lies outside RAM.
    pub fn read_code(&self, paddr: u64, to: &mut [u8]) -> bool {
        self.views.read_code(&self.cpu.ram, paddr, to)
    }

    /// Lets the engine step the instruction at EIP, `length` bytes long, with the patches of its pages lifted. The
    /// engine's jump cache finds blocks by linear address alone, so these blocks are kept apart from those of the
    /// patched view.
    pub(crate) fn step_unpatched(&mut self, length: usize) {
        let at = self.cpu.linear_ip();
        let last = at.wrapping_add(length as u64 - 1);
        let mut pages = [at, last].map(|va| self.cpu.code_paddr(va).map(|p| (p / PAGE) as u32));
        if pages[0] == pages[1] {
            pages[1] = None;
        }
        // A step may cause another, whose patches go back first.
        let already = self.views.lifted();
        pages.into_iter().flatten().for_each(|page| self.views.lift_patches(&mut self.cpu, page));
        if self.views.lifted() > 0 {
            self.permitting(Permit::Unpatched, |core| core.step(1));
        } else {
            self.step(1);
        }
        self.views.put_back(&mut self.cpu, already);
    }

    /// Rebuilds the shadow of an armed page from RAM, and tells the interposer when the guest changed bytes
    /// since it was last built.
    pub(crate) fn resync(&mut self, page: u32) {
        let paddr = u64::from(page) * PAGE;
        self.views.apply_patches(&mut self.cpu, page);
        if self.with_interposer(|i, core| i.page_rewritten(core, paddr)).is_some()
            && self.cpu.ram.pages[page as usize].is(PageState::STALE)
        {
            self.views.apply_patches(&mut self.cpu, page);
        }
    }

    /// Announces a page to the interposer before code is fetched from it.
    pub(crate) fn announce_code_page(&mut self, paddr: u64) {
        self.with_interposer(|i, core| i.code_page(core, paddr));
    }

    /// Physical pages that code has been fetched from since they were last written, ascending.
    pub fn code_pages(&self) -> Vec<u64> {
        let words = (0..).zip(self.cpu.ram.code().iter()).filter(|(_, bits)| **bits != 0);
        let pages = words.flat_map(|(n, bits): (u64, _)| {
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| 64 * n + bit)
        });
        pages.map(|page| page * PAGE).collect()
    }
}
