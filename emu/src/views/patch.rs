//! Patches: bytes that instruction fetches see and nothing else does, and slots for the instructions that they
//! displace.
//!
//! An armed physical page has a shadow; a fetch fill maps the shadow, every other access RAM. RAM never
//! holds our bytes. Invariant: the shadow of an armed page is RAM with the page's patches applied, unless
//! the page is `STALE`, in which case the next fetch fill resynchronises it.

use crate::cpu::Cpu;
use crate::engine::SLOT_VA;
use crate::isa::decode::decode;
use crate::isa::mended::is_x87;
use crate::ram::{PAGE, PageState, Ram, SLOT_PAGES};
use std::collections::BTreeMap;

/// Longest patch, in bytes.
const MAX_PATCH: usize = 8;
/// Bytes of one slot. The engine's jump cache has 64 entries for each page, one per slot, so that slots of a page do
/// not conflict.
pub const SLOT_BYTES: usize = 64;

/// Why a patch cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// Not RAM.
    #[error("physical address {0:#x} is not in guest memory")]
    OutsideRam(u64),
    /// It would cross a page boundary, or is empty.
    #[error("a patch of {len} bytes at physical address {paddr:#x} must have 1 to 8 bytes inside one page")]
    Shape {
        /// Physical address.
        paddr: u64,
        /// Length in bytes.
        len: usize,
    },
    /// Another patch is there.
    #[error("physical address {0:#x} is already patched")]
    Taken(u64),
    /// No slot is free.
    #[error("all {0} out-of-line slots are in use")]
    NoSlot(usize),
}

/// One patch of an armed page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patch {
    /// Offset in the page.
    offset: u16,
    len: u8,
    bytes: [u8; MAX_PATCH],
    id: u32,
    /// Whether hits in line have failed with the current bytes of the page.
    traps_only: bool,
    /// Whether fetches see a jump to itself in place of the INT3: blocks that reach the site continue in the one that
    /// begins there, without a trap.
    jumps: bool,
    /// Times that a block has begun on the second byte of that jump.
    clobbered: u8,
}

/// The patches of a page, lifted while one of its instructions is stepped.
#[derive(Debug)]
pub(crate) struct Lifted {
    page: u32,
    list: Vec<Patch>,
    /// Whether one was armed or disarmed during the step.
    changed: bool,
}

/// `jmp $`.
const JUMP_TO_ITSELF: [u8; 2] = [0xeb, 0xfe];
/// Blocks that may begin on the second byte of such a jump before it becomes an INT3 again.
const CLOBBERED_OFTEN: u8 = 16;

impl Patch {
    /// The bytes that fetches see.
    fn view(&self) -> &[u8] {
        if self.jumps { &JUMP_TO_ITSELF } else { &self.bytes[..usize::from(self.len)] }
    }

    /// Resets the state that depends on the page's bytes.
    fn reset(&mut self) {
        (self.traps_only, self.jumps, self.clobbered) = (false, false, 0);
    }
}

/// A slot that holds one displaced instruction and a jump back to the instruction after its site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Index among the slots.
    pub index: u32,
    /// Length of the copy, bytes.
    pub len: u8,
    /// Length of the instruction at the site, bytes.
    pub site_len: u8,
}

/// The displaced instruction that is running out of line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ActiveSlot {
    /// EIP of the slot's first byte.
    pub ip: u64,
    len: u8,
    /// EIP of the site.
    pub site: u64,
    pub next: u64,
}

impl ActiveSlot {
    /// Whether `ip` is in the slot.
    pub fn contains(&self, ip: u64) -> bool {
        (self.ip..self.ip + SLOT_BYTES as u64).contains(&ip)
    }

    /// Where the guest continues when the displaced instruction has completed but the jump has not run.
    pub fn guest_ip_after(&self, ip: u64) -> Option<u64> {
        (ip == self.ip + u64::from(self.len)).then_some(self.next)
    }
}

/// Free list of slots.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    used: u32,
    free: Vec<u32>,
}

/// The patches of all armed pages, and the slots.
#[derive(Default)]
pub(crate) struct Views {
    patches: BTreeMap<u32, Vec<Patch>>,
    /// The lifted patches of the pages of the instruction that is being stepped.
    lifted: Vec<Lifted>,
    slots: Slots,
    /// The displaced instruction that is running out of line.
    pub active: Option<ActiveSlot>,
}

impl Views {
    /// Whether no page is armed.
    pub fn is_empty(&self) -> bool {
        self.patches.is_empty()
    }

    /// How many pages have their patches lifted.
    pub fn lifted(&self) -> usize {
        self.lifted.len()
    }

    /// Puts back the patches of all lifted pages but the first `already`.
    pub fn put_back(&mut self, cpu: &mut Cpu, already: usize) {
        for lifted in self.lifted.split_off(already) {
            self.put_patches(cpu, lifted);
        }
    }

    /// Patches the fetch view at `paddr`. Its traps carry `id`.
    ///
    /// # Errors
    /// See [`PatchError`].
    pub fn arm(&mut self, cpu: &mut Cpu, paddr: u64, bytes: &[u8], id: u32) -> Result<(), PatchError> {
        let offset = paddr % PAGE;
        if bytes.is_empty() || bytes.len() > MAX_PATCH || offset + bytes.len() as u64 > PAGE {
            return Err(PatchError::Shape { paddr, len: bytes.len() });
        }
        if !cpu.ram.contains(paddr, 1) {
            return Err(PatchError::OutsideRam(paddr));
        }
        let page = (paddr / PAGE) as u32;
        let end = offset + bytes.len() as u64;
        let list = match self.lifted.iter_mut().find(|lifted| lifted.page == page) {
            Some(lifted) => &mut lifted.list,
            None => self.patches.entry(page).or_default(),
        };
        let at = list.partition_point(|p| u64::from(p.offset) < offset);
        let clash_before = at > 0 && u64::from(list[at - 1].offset) + u64::from(list[at - 1].len) > offset;
        let clash_after = list.get(at).is_some_and(|p| u64::from(p.offset) < end);
        if clash_before || clash_after {
            return Err(PatchError::Taken(paddr));
        }
        let mut patch = Patch {
            offset: offset as u16,
            len: bytes.len() as u8,
            bytes: [0; MAX_PATCH],
            id,
            traps_only: false,
            jumps: false,
            clobbered: 0,
        };
        patch.bytes[..bytes.len()].copy_from_slice(bytes);
        list.insert(at, patch);
        self.patches_changed(cpu, page);
        Ok(())
    }

    /// Removes the patch at `paddr`; false when there is none.
    pub fn disarm(&mut self, cpu: &mut Cpu, paddr: u64) -> bool {
        let page = (paddr / PAGE) as u32;
        let lifted = self.lifted.iter_mut().find(|lifted| lifted.page == page).map(|lifted| &mut lifted.list);
        let Some(list) = lifted.or_else(|| self.patches.get_mut(&page)) else { return false };
        let Ok(at) = list.binary_search_by_key(&(paddr % PAGE), |p| p.offset.into()) else { return false };
        list.remove(at);
        if list.is_empty() {
            self.patches.remove(&page);
        }
        self.patches_changed(cpu, page);
        true
    }

    /// Updates the view after a patch of `page` was armed or disarmed. While the page's patches are lifted for a step,
    /// fetches continue to see RAM, and the view changes when the step is over.
    fn patches_changed(&mut self, cpu: &mut Cpu, page: u32) {
        match self.lifted.iter_mut().find(|lifted| lifted.page == page) {
            Some(lifted) => lifted.changed = true,
            None => self.view_changed(cpu, page),
        }
    }

    /// Invalidates the fetch view of `page`: it is rebuilt at the next fetch.
    fn view_changed(&mut self, cpu: &mut Cpu, page: u32) {
        cpu.drop_page_blocks(page);
        cpu.forget_mappings(page);
        let list = self.patches.get_mut(&page);
        let armed = list.is_some();
        list.into_iter().flatten().for_each(Patch::reset);
        let state = &mut cpu.ram.pages[page as usize];
        state.flags &= !(PageState::BOTH | PageState::WRITABLE | PageState::STALE | PageState::ARMED);
        if armed {
            state.flags |= PageState::ARMED | PageState::STALE;
        }
    }

    /// Lifts all patches of a page for one step: fetches see RAM, and its translations are kept for the next step.
    pub(crate) fn lift_patches(&mut self, cpu: &mut Cpu, page: u32) {
        let Some(list) = self.patches.remove(&page) else { return };
        self.lifted.push(Lifted { page, list, changed: false });
        cpu.forget_mappings(page);
        let state = &mut cpu.ram.pages[page as usize];
        state.flags &= !PageState::ARMED;
        state.flags |= PageState::UNPATCHED;
    }

    /// Puts lifted patches back. Both views change if the step wrote to the page, or if a patch was armed or disarmed
    /// during the step.
    fn put_patches(&mut self, cpu: &mut Cpu, lifted: Lifted) {
        let Lifted { page, list, changed } = lifted;
        if !list.is_empty() {
            self.patches.insert(page, list);
        }
        let state = &mut cpu.ram.pages[page as usize];
        state.flags |= PageState::ARMED;
        if changed || state.is(PageState::STALE | PageState::WRITABLE | PageState::BOTH) {
            self.view_changed(cpu, page);
        } else {
            cpu.forget_mappings(page);
        }
    }

    pub(crate) fn apply_patches(&mut self, cpu: &mut Cpu, page: u32) {
        cpu.ram.refresh_shadow(page);
        let paddr = u64::from(page) * PAGE;
        if let Some(list) = self.patches.get_mut(&page) {
            for p in list {
                p.reset();
                cpu.ram.write_shadow(paddr + u64::from(p.offset), p.view());
            }
        }
    }

    /// Reads the fetch view at physical addresses: RAM with the patches over it. False, and nothing copied, when any
    /// byte lies outside RAM.
    pub fn read_code(&self, ram: &Ram, paddr: u64, to: &mut [u8]) -> bool {
        if !ram.read(paddr, to) {
            return false;
        }
        let pages = (paddr / PAGE) as u32..(paddr + to.len() as u64).div_ceil(PAGE) as u32;
        for (page, list) in pages.filter_map(|page| Some((page, self.patches.get(&page)?))) {
            for patch in list {
                let at = u64::from(page) * PAGE + u64::from(patch.offset);
                for (n, byte) in (0..).zip(&patch.bytes[..usize::from(patch.len)]) {
                    let to = (at + n).checked_sub(paddr).and_then(|into| to.get_mut(into as usize));
                    to.into_iter().for_each(|to| *to = *byte);
                }
            }
        }
        true
    }

    /// Whether a patch begins on one of `length` bytes at `paddr`, all of one page.
    pub(crate) fn has_patch(&self, paddr: u64, length: u64) -> bool {
        let Some(list) = self.patches.get(&((paddr / PAGE) as u32)) else { return false };
        let offset = paddr % PAGE;
        let at = list.partition_point(|p| u64::from(p.offset) < offset);
        list.get(at).is_some_and(|p| u64::from(p.offset) < offset + length)
    }

    /// Whether the patch at `paddr` is an INT3 whose site may be hit in line.
    pub(crate) fn may_be_in_line(&self, paddr: u64) -> bool {
        self.patch(paddr).is_some_and(|p| p.bytes[..usize::from(p.len)] == [0xcc] && !p.traps_only)
    }

    /// Makes the patch at `paddr` trap at each hit until the page is rewritten.
    pub(crate) fn keep_trapping(&mut self, cpu: &mut Cpu, paddr: u64) {
        if let Some(patch) = self.patch_mut(paddr) {
            patch.traps_only = true;
        }
        self.set_jumps(cpu, paddr, false);
    }

    /// Makes fetches see a jump to itself at the patch at `paddr`, or an INT3 again. Changing back to INT3 drops the
    /// blocks that end with the jump or begin on its second byte; blocks that end with the INT3 may stay.
    pub(crate) fn set_jumps(&mut self, cpu: &mut Cpu, paddr: u64, jumps: bool) {
        let Some(patch) = self.patch_mut(paddr) else { return };
        let before = std::mem::replace(&mut patch.jumps, jumps);
        if before != jumps {
            self.show_original(cpu, paddr, JUMP_TO_ITSELF.len());
            self.hide_original(cpu, paddr);
        }
        if before && !jumps {
            cpu.drop_view_blocks(paddr);
            cpu.drop_view_blocks(paddr + 1);
        }
    }

    /// Replaces jumps to themselves in a part of the fetch view at `paddr`, all of one page, by an INT3 and the guest's
    /// byte after it.
    pub(crate) fn as_traps(&self, ram: &Ram, paddr: u64, part: &mut [u8]) {
        let Some(list) = self.patches.get(&((paddr / PAGE) as u32)) else { return };
        let end = paddr % PAGE + part.len() as u64;
        let from = list.partition_point(|p| u64::from(p.offset) + 1 < paddr % PAGE);
        let inside = list[from..].iter().take_while(|p| u64::from(p.offset) < end);
        for patch in inside.filter(|p| p.jumps) {
            let at = paddr / PAGE * PAGE + u64::from(patch.offset);
            let mut bytes = [patch.bytes[0], 0];
            ram.read(at + 1, &mut bytes[1..]);
            for (n, byte) in (0..).zip(bytes) {
                let to = (at + n).checked_sub(paddr).and_then(|into| part.get_mut(into as usize));
                to.into_iter().for_each(|to| *to = byte);
            }
        }
    }

    /// Whether there is room for a jump to itself at `paddr`, and blocks seldom begin on its second byte.
    pub(crate) fn may_jump(&self, paddr: u64) -> bool {
        let room = paddr % PAGE + 1 < PAGE && self.patch(paddr + 1).is_none();
        room && self.patch(paddr).is_some_and(|p| p.clobbered < CLOBBERED_OFTEN)
    }

    /// Whether fetches see a jump to itself at `paddr`.
    pub(crate) fn jumps_at(&self, paddr: u64) -> bool {
        self.patch(paddr).is_some_and(|p| p.jumps)
    }

    /// A block has begun on the second byte of the jump at `paddr`.
    pub(crate) fn count_clobbered(&mut self, cpu: &mut Cpu, paddr: u64) {
        let Some(patch) = self.patch_mut(paddr) else { return };
        patch.clobbered = patch.clobbered.saturating_add(1);
        if patch.clobbered == CLOBBERED_OFTEN {
            self.set_jumps(cpu, paddr, false);
        }
    }

    /// Makes fetches see `length` of the guest's bytes at `paddr`, at most the length of the patch there.
    pub(crate) fn show_original(&mut self, cpu: &mut Cpu, paddr: u64, length: usize) {
        let mut bytes = [0; MAX_PATCH];
        let Some(length) = self.patch(paddr).map(|p| p.view().len().max(length)) else { return };
        // A patch does not cross the end of its page.
        let length = length.min((PAGE - paddr % PAGE) as usize);
        if cpu.ram.read(paddr, &mut bytes[..length]) {
            cpu.ram.write_shadow(paddr, &bytes[..length]);
        }
    }

    /// Makes fetches see the patch at `paddr` again. Returns its identifier if it was hidden.
    pub(crate) fn hide_original(&mut self, cpu: &mut Cpu, paddr: u64) -> Option<u32> {
        let patch = self.patch(paddr).copied()?;
        let hidden = cpu.ram.shadow_is(paddr, patch.view());
        cpu.ram.write_shadow(paddr, patch.view());
        (!hidden).then_some(patch.id)
    }

    fn patch_mut(&mut self, paddr: u64) -> Option<&mut Patch> {
        let list = self.patches.get_mut(&((paddr / PAGE) as u32))?;
        let at = list.binary_search_by_key(&(paddr % PAGE), |p| p.offset.into()).ok()?;
        list.get_mut(at)
    }

    /// The patch at exactly `paddr`.
    pub(crate) fn patch_at(&self, paddr: u64) -> Option<u32> {
        self.patch(paddr).map(|p| p.id)
    }

    fn patch(&self, paddr: u64) -> Option<&Patch> {
        let list = self.patches.get(&((paddr / PAGE) as u32))?;
        let at = list.binary_search_by_key(&(paddr % PAGE), |p| p.offset.into()).ok()?;
        list.get(at)
    }

    /// Puts a displaced instruction into a free slot, followed by a jump to the instruction after its site.
    ///
    /// `site` is the EIP of the site in the current code segment: the slot serves that EIP and that segment base. The
    /// copy must not depend on its own address; it does what the `site_len` bytes at the site do.
    ///
    /// # Errors
    /// [`PatchError::NoSlot`].
    pub fn take_slot(
        &mut self,
        cpu: &mut Cpu,
        copy: &[u8],
        site_len: u8,
        site: u64,
        bits: u32,
    ) -> Result<Slot, PatchError> {
        let total = (SLOT_PAGES * PAGE) as usize / SLOT_BYTES;
        let index = match self.slots.free.pop() {
            Some(i) => i,
            None if (self.slots.used as usize) < total => {
                self.slots.used += 1;
                self.slots.used - 1
            }
            None => return Err(PatchError::NoSlot(total)),
        };
        let offset = index as usize * SLOT_BYTES;
        let len = copy.len().min(15);
        let mut code = [0xcc; SLOT_BYTES];
        code[..len].copy_from_slice(&copy[..len]);
        let next = site.wrapping_add(site_len.into());
        let mut at = len;
        if decode(bits, copy, 0).is_some_and(|i| is_x87(&i)) {
            // jmp $+2: ends the block, so that the machine sees the FPU's instruction pointer before the guest does.
            code[at..at + 2].copy_from_slice(&[0xeb, 0]);
            at += 2;
        }
        if bits == 64 {
            // jmp [rip+0]; dq next
            code[at..at + 6].copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
            code[at + 6..at + 14].copy_from_slice(&next.to_le_bytes());
        } else {
            let from = (SLOT_VA + offset as u64 + at as u64 + 5).wrapping_sub(cpu.env.cs_base()) as u32;
            code[at] = 0xe9;
            code[at + 1..at + 5].copy_from_slice(&(next as u32).wrapping_sub(from).to_le_bytes());
        }
        cpu.ram.write_slot(offset, &code);
        cpu.drop_slot_blocks(offset as u64);
        Ok(Slot { index, len: len as u8, site_len })
    }

    /// The FPU remembers where its last instruction was: at the site, not in the slot.
    pub(crate) fn hide_slot_from_fpu(&self, cpu: &Cpu) {
        if let Some(slot) = self.active
            && slot.contains(cpu.env.fpip())
        {
            cpu.env.set_fpip(slot.site);
        }
    }

    /// Gives a slot back.
    pub fn free_slot(&mut self, slot: Slot) {
        self.slots.free.push(slot.index);
    }

    /// Directs execution into a slot.
    #[inline]
    pub(crate) fn enter_slot(&mut self, cpu: &mut Cpu, slot: Slot, site: u64) {
        let linear = SLOT_VA + u64::from(slot.index) * SLOT_BYTES as u64;
        let ip = if cpu.env.code64() { linear } else { linear.wrapping_sub(cpu.env.cs_base()) };
        let next = cpu.wrap_ip(site.wrapping_add(slot.site_len.into()));
        self.active = Some(ActiveSlot { ip, len: slot.len, site, next });
        cpu.env.set_eip(ip);
    }
}
