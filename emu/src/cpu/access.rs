//! Memory access from Rust: with the guest's own rights and side effects, or NOFAULT.
//!
//! `load` and `store` are what an instruction executed by the machine does: they walk with the current
//! privilege, set accessed and dirty bits, fill the architectural TLB, and can fault. `peek` and `poke`
//! are what a probe handler does: no side effect on the guest but the bytes `poke` writes, never MMIO.

use super::Cpu;
use super::fault::Fault;
use super::outcome::Accesses;
use crate::engine::in_slots;
use crate::mmu::{self, Access, Translation, UserPages};
use crate::ram::{PAGE, PageState};

/// Whether `va` is canonical for 48-bit linear addresses.
#[inline]
pub(crate) fn canonical(va: u64) -> bool {
    ((va << 16) as i64 >> 16) as u64 == va
}

impl Cpu {
    /// Translates with side effects, as the access of an instruction.
    ///
    /// # Errors
    /// #PF with CR2's value, or #GP(0) for a non-canonical address.
    #[inline]
    pub fn translate(&mut self, va: u64, access: Access, user: bool) -> Result<u64, Fault> {
        match self.cached(va & !(PAGE - 1), access, user) {
            Some(t) => Ok(t.paddr | (va & (PAGE - 1))),
            None => self.translate_walk(va, access, user),
        }
    }

    /// The cached translation of a page, if it permits the access, and the access would not change the tables.
    #[inline]
    pub(super) fn cached(&self, page: u64, access: Access, user: bool) -> Option<Translation> {
        let t = self.tlb.lookup(page)?;
        let fresh = access != Access::Write || t.dirty;
        (fresh && mmu::denied(&t, &self.paging(), access, user).is_none()).then_some(t)
    }

    #[cold]
    fn translate_walk(&mut self, va: u64, access: Access, user: bool) -> Result<u64, Fault> {
        let paging = self.paging();
        if paging.long() && !canonical(va) {
            return Err(Fault::gp(0));
        }
        let page = va & !(PAGE - 1);
        match mmu::walk(&mut self.ram, paging, page, access, user) {
            Ok(t) => {
                self.cache_translation(page, t);
                self.drain_touched_code();
                Ok(t.paddr | (va & (PAGE - 1)))
            }
            Err(code) => {
                self.forget_translation(page);
                Err(Fault::page(code, va))
            }
        }
    }

    /// Reads `to.len()` (at most 16) bytes at linear `va` as an instruction would.
    ///
    /// # Errors
    /// The fault to deliver to the guest.
    pub fn load_bytes(&mut self, va: u64, to: &mut [u8], user: bool) -> Result<(), Fault> {
        let first = ((PAGE - (va & (PAGE - 1))) as usize).min(to.len());
        let p = self.translate(va, Access::Read, user)?;
        let second = if first < to.len() {
            Some(self.translate(self.wrap_linear(va.wrapping_add(first as u64)), Access::Read, user)?)
        } else {
            None
        };
        self.read_phys(p, &mut to[..first]);
        if let Some(p) = second {
            self.read_phys(p, &mut to[first..]);
        }
        Ok(())
    }

    /// Writes bytes at linear `va` as an instruction would: both pages are checked before either is written.
    ///
    /// # Errors
    /// The fault to deliver to the guest.
    pub fn store_bytes(&mut self, va: u64, from: &[u8], user: bool) -> Result<(), Fault> {
        let first = ((PAGE - (va & (PAGE - 1))) as usize).min(from.len());
        let p = self.translate(va, Access::Write, user)?;
        let second = if first < from.len() {
            Some(self.translate(self.wrap_linear(va.wrapping_add(first as u64)), Access::Write, user)?)
        } else {
            None
        };
        self.write_phys(p, &from[..first]);
        if let Some(p) = second {
            self.write_phys(p, &from[first..]);
        }
        Ok(())
    }

    /// Wraps a linear address to the address width of the mode.
    #[inline]
    pub fn wrap_linear(&self, va: u64) -> u64 {
        if self.env.long_mode() { va } else { va & 0xffff_ffff }
    }

    fn read_phys(&mut self, paddr: u64, to: &mut [u8]) {
        if !self.ram.read(paddr, to) {
            to.fill(0xff);
            self.void_accesses += 1;
        }
    }

    /// Writes physical memory, dropping translations of code that it overwrites.
    pub(crate) fn write_phys(&mut self, paddr: u64, from: &[u8]) {
        if !self.ram.write(paddr, from) {
            self.void_accesses += 1;
        }
        self.drain_touched_code();
    }

    /// Code pages that Rust has written hold data again, until the next fetch from them.
    #[inline]
    pub(crate) fn drain_touched_code(&mut self) {
        if !self.ram.touched_code.is_empty() {
            self.drop_touched();
        }
    }

    #[cold]
    fn drop_touched(&mut self) {
        while let Some(page) = self.ram.touched_code.pop() {
            self.drop_page_blocks(page);
            // As after a store of the guest's own, the next fetch is the first of what was written, and is announced.
            self.forget_mappings(page);
            self.ram.pages[page as usize].flags &= !PageState::BOTH;
            self.ram.set_code(page, false);
        }
    }

    /// The pages that the current process can read, at most `most` of 4 KiB each.
    pub fn user_pages(&self, most: usize) -> UserPages {
        mmu::user_pages(&self.ram, self.paging(), most)
    }

    /// Translates without side effects, with supervisor rights to reads. `None`: not mapped.
    #[inline]
    pub fn peek_translate(&self, va: u64, access: Access, user: bool) -> Option<Translation> {
        let cached = self.tlb.lookup(va & !(PAGE - 1));
        cached
            .filter(|t| mmu::denied(t, &self.paging(), access, user).is_none())
            .or_else(|| self.peek_walk(va, access, user))
    }

    #[cold]
    fn peek_walk(&self, va: u64, access: Access, user: bool) -> Option<Translation> {
        let paging = self.paging();
        if paging.long() && !canonical(va) {
            return None;
        }
        mmu::look(&self.ram, paging, va & !(PAGE - 1), access, user).ok()
    }

    /// NOFAULT read of linear memory in data view.
    ///
    /// # Errors
    /// The first address that cannot be read.
    pub fn peek(&self, va: u64, to: &mut [u8]) -> Result<(), u64> {
        let mut done = 0;
        while done < to.len() {
            let at = self.wrap_linear(va.wrapping_add(done as u64));
            let n = ((PAGE - (at & (PAGE - 1))) as usize).min(to.len() - done);
            let t = self.peek_translate(at, Access::Read, false).ok_or(at)?;
            if !self.ram.read(t.paddr | (at & (PAGE - 1)), &mut to[done..done + n]) {
                return Err(at);
            }
            done += n;
        }
        Ok(())
    }

    /// NOFAULT read of a word in data view: 8 bytes if `wide`, else 4.
    ///
    /// # Errors
    /// The first address that cannot be read.
    #[inline]
    pub fn peek_word(&self, va: u64, wide: bool) -> Result<u64, u64> {
        if wide {
            self.peek_array(va).map(u64::from_le_bytes)
        } else {
            self.peek_array(va).map(|bytes| u32::from_le_bytes(bytes).into())
        }
    }

    /// As [`Cpu::peek`]. A cached page is enough for it: a supervisor can read each page that is present.
    #[inline]
    fn peek_array<const N: usize>(&self, va: u64) -> Result<[u8; N], u64> {
        let offset = va % PAGE;
        if offset + N as u64 <= PAGE
            && let Some(cached) = self.tlb.lookup(va - offset)
            && let Some(bytes) = self.ram.array(cached.paddr | offset)
        {
            return Ok(bytes);
        }
        let mut bytes = [0; N];
        self.peek(va, &mut bytes)?;
        Ok(bytes)
    }

    /// NOFAULT write of linear memory: page permissions as for a supervisor with CR0.WP.
    ///
    /// # Errors
    /// The first address that cannot be written; nothing is written then.
    pub fn poke(&mut self, va: u64, from: &[u8]) -> Result<(), u64> {
        for pass in 0..2 {
            let mut done = 0;
            while done < from.len() {
                let at = self.wrap_linear(va.wrapping_add(done as u64));
                let n = ((PAGE - (at & (PAGE - 1))) as usize).min(from.len() - done);
                let t = self.peek_translate(at, Access::Write, false).filter(|t| t.writable).ok_or(at)?;
                let paddr = t.paddr | (at & (PAGE - 1));
                if !self.ram.contains(paddr, n as u64) {
                    return Err(at);
                }
                if pass == 1 {
                    self.write_phys(paddr, &from[done..done + n]);
                }
                done += n;
            }
        }
        Ok(())
    }

    /// Reads as much of linear memory as is mapped, up to the buffer's size; the number of bytes read.
    #[inline]
    pub fn peek_prefix(&self, va: u64, to: &mut [u8]) -> usize {
        let offset = va % PAGE;
        // As in `peek_array`.
        if offset + to.len() as u64 <= PAGE
            && va == self.wrap_linear(va)
            && !in_slots(va)
            && let Some(cached) = self.tlb.lookup(va - offset)
            && self.ram.read(cached.paddr | offset, to)
        {
            return to.len();
        }
        self.prefix(va, to, |ram, paddr, part| ram.read(paddr, part))
    }

    /// As [`Cpu::peek_prefix`], with `read` in place of RAM.
    pub(crate) fn prefix(
        &self,
        va: u64,
        to: &mut [u8],
        read: impl Fn(&crate::ram::Ram, u64, &mut [u8]) -> bool,
    ) -> usize {
        let mut done = 0;
        if in_slots(va) {
            return done;
        }
        while done < to.len() {
            let at = self.wrap_linear(va.wrapping_add(done as u64));
            let n = ((PAGE - (at & (PAGE - 1))) as usize).min(to.len() - done);
            let Some(t) = self.peek_translate(at, Access::Read, false) else { break };
            if !read(&self.ram, t.paddr | (at & (PAGE - 1)), &mut to[done..done + n]) {
                break;
            }
            done += n;
        }
        done
    }

    /// Physical address that a fetch at linear `va` sees, without side effects. `None` in a slot: a slot is not guest
    /// memory, even where its address truncated to 32 bits is.
    #[inline]
    pub fn code_paddr(&self, va: u64) -> Option<u64> {
        if in_slots(va) {
            return None;
        }
        let t = self.peek_translate(va, Access::Fetch, self.env.cpl() == 3)?;
        Some(t.paddr | (va & (PAGE - 1)))
    }

    /// Loads an integer of `size` bytes (1, 2, 4, 8) with the current privilege, as an operand of the instruction at
    /// EIP.
    ///
    /// # Errors
    /// The fault to deliver to the guest.
    #[inline]
    pub(crate) fn load(&mut self, va: u64, size: usize, told: &mut dyn Accesses) -> Result<u64, Fault> {
        told.memory(self, va, size, false);
        self.load_unreported(va, size)
    }

    /// As [`Cpu::load`], without reporting the access.
    #[inline]
    pub(crate) fn load_unreported(&mut self, va: u64, size: usize) -> Result<u64, Fault> {
        let mut bytes = [0u8; 8];
        let user = self.env.cpl() == 3;
        self.load_bytes(va, &mut bytes[..size.min(8)], user)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Stores the low `size` bytes of `value` with the current privilege, as an operand of the instruction at EIP.
    ///
    /// # Errors
    /// The fault to deliver to the guest.
    #[inline]
    pub(crate) fn store(
        &mut self,
        va: u64,
        value: u64,
        size: usize,
        told: &mut dyn Accesses,
    ) -> Result<(), Fault> {
        told.memory(self, va, size, true);
        self.store_unreported(va, value, size)
    }

    /// As [`Cpu::store`], without reporting the access.
    #[inline]
    pub(crate) fn store_unreported(&mut self, va: u64, value: u64, size: usize) -> Result<(), Fault> {
        let user = self.env.cpl() == 3;
        self.store_bytes(va, &value.to_le_bytes()[..size.min(8)], user)
    }
}
