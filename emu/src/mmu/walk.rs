//! The page walker: linear to physical by the guest's own tables.
//!
//! No paging, 32-bit paging with PSE and PSE-36, PAE, and 4-level paging; NX, WP, U/S, accessed and dirty
//! bits, reserved-bit checks. Source: Intel SDM volume 3, chapter 4. It reads and writes host-owned RAM
//! only; tables that lie outside RAM read as all ones, as open bus does.

use crate::ram::Ram;
use serde::{Deserialize, Serialize};

/// The kind of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Data read.
    Read,
    /// Data write.
    Write,
    /// Instruction fetch.
    Fetch,
}

/// The registers that paging depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Paging {
    /// CR0.
    pub cr0: u64,
    /// CR3.
    pub cr3: u64,
    /// CR4.
    pub cr4: u64,
    /// IA32_EFER.
    pub efer: u64,
    /// Physical address width of the CPU model, bits.
    pub phys_bits: u32,
}

/// The widest physical address that there is: that of the CPU of a dump, whose model is not known.
pub(crate) const WIDEST: u32 = 52;

/// Page-fault error code bits (SDM volume 3, 4.7).
pub mod error_code {
    #![allow(missing_docs)]
    pub const PRESENT: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const USER: u32 = 4;
    pub const RESERVED: u32 = 8;
    pub const FETCH: u32 = 16;
}

/// The translation of one 4 KiB linear page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Translation {
    /// Physical address of the 4 KiB page.
    pub paddr: u64,
    /// R/W of all levels.
    pub writable: bool,
    /// U/S of all levels.
    pub user: bool,
    /// Execution not disabled.
    pub executable: bool,
    /// Dirty bit is set (or there is no paging).
    pub dirty: bool,
    /// G of the leaf, with CR4.PGE.
    pub global: bool,
    /// The leaf maps more than 4 KiB.
    pub large: bool,
}

impl Translation {
    /// Whether it leads to the same page with at least the rights of `other`. Without the dirty bit a write must walk
    /// the tables.
    #[must_use]
    pub fn allows_all_of(&self, other: &Self) -> bool {
        self.paddr == other.paddr
            && self.writable >= other.writable
            && self.user >= other.user
            && self.executable >= other.executable
            && self.dirty >= other.dirty
    }
}

const P: u64 = 1;
const RW: u64 = 2;
const US: u64 = 4;
const A: u64 = 0x20;
const D: u64 = 0x40;
const PS: u64 = 0x80;
const G: u64 = 0x100;
const NX: u64 = 1 << 63;

impl Paging {
    /// Paging enabled.
    pub fn enabled(&self) -> bool {
        self.cr0 & 0x8000_0000 != 0
    }
    /// PAE or 4-level.
    pub fn pae(&self) -> bool {
        self.cr4 & 0x20 != 0
    }
    /// IA-32e mode active.
    pub fn long(&self) -> bool {
        self.efer & 0x400 != 0
    }
    /// EFER.NXE, effective with PAE only.
    pub fn nx(&self) -> bool {
        self.pae() && self.efer & 0x800 != 0
    }
    /// CR4.PGE.
    pub fn global(&self) -> bool {
        self.cr4 & 0x80 != 0
    }
    /// 1 GiB pages: they are in neither CPU model, but a dump may have them.
    fn gigabytes(&self) -> bool {
        self.phys_bits == WIDEST
    }
    /// CR0.WP.
    pub fn write_protect(&self) -> bool {
        self.cr0 & 0x10000 != 0
    }
}

/// Whether a cached translation permits an access; `None` when it does, else the error code.
#[inline]
pub fn denied(t: &Translation, paging: &Paging, access: Access, user: bool) -> Option<u32> {
    let ok = match access {
        Access::Fetch => t.executable && (t.user || !user),
        Access::Read => t.user || !user,
        Access::Write => {
            if user {
                t.user && t.writable
            } else {
                t.writable || !paging.write_protect()
            }
        }
    };
    if ok { None } else { Some(code(paging, access, user) | error_code::PRESENT) }
}

/// Error code of a fault, without P and RSVD.
pub fn code(paging: &Paging, access: Access, user: bool) -> u32 {
    let mut c = if user { error_code::USER } else { 0 };
    match access {
        Access::Write => c |= error_code::WRITE,
        Access::Fetch if paging.nx() => c |= error_code::FETCH,
        _ => {}
    }
    c
}

/// One level's entry.
struct Entry {
    value: u64,
}

/// Collects what the levels of a walk have in common.
struct Levels<'a> {
    ram: &'a Ram,
    paging: Paging,
    wide: bool,
    entries: [(u64, u64); 4],
    used: usize,
    writable: bool,
    user: bool,
    executable: bool,
}

impl Levels<'_> {
    /// Reads an entry; faults when absent or when a reserved bit is set.
    fn step(&mut self, at: u64, reserved: u64, pdpte: bool) -> Result<Entry, u32> {
        let value = self.ram.read_int(at, if self.wide { 8 } else { 4 });
        if value & P == 0 {
            return Err(0);
        }
        let mut bad = reserved;
        if self.wide {
            bad |= ((1u64 << 52) - 1) & !((1u64 << self.paging.phys_bits) - 1);
            if !self.paging.nx() {
                bad |= NX;
            }
        }
        if value & bad != 0 {
            return Err(error_code::PRESENT | error_code::RESERVED);
        }
        if !pdpte {
            self.writable &= value & RW != 0;
            self.user &= value & US != 0;
            self.executable &= !(self.wide && value & NX != 0);
            self.entries[self.used] = (at, value);
            self.used += 1;
        }
        Ok(Entry { value })
    }

    fn leaf(&self, paddr: u64, leaf: &Entry, large: bool) -> Translation {
        Translation {
            paddr,
            writable: self.writable,
            user: self.user,
            executable: self.executable,
            dirty: leaf.value & D != 0,
            global: leaf.value & G != 0 && self.paging.global(),
            large,
        }
    }
}

/// Sets accessed bits on every level and, for a write, the dirty bit on the leaf.
fn mark(ram: &mut Ram, entries: &[(u64, u64)], write: bool) {
    for (n, &(at, value)) in entries.iter().enumerate() {
        let mut new = value | A;
        if write && n + 1 == entries.len() {
            new |= D;
        }
        if new != value {
            // The bits that change all lie in the entry's first byte (A and D are bits 5 and 6).
            ram.write(at, &[new as u8]);
        }
    }
}

/// Entries that a walk read, with their addresses: what `mark` needs.
type Path = ([(u64, u64); 4], usize);

/// Walks the guest's tables for one page, setting accessed and dirty bits as the CPU would.
///
/// # Errors
/// The error code of the #PF that the access would raise.
pub fn walk(ram: &mut Ram, paging: Paging, va: u64, access: Access, user: bool) -> Result<Translation, u32> {
    let (mut translation, (entries, used)) = trace(ram, paging, va, access, user)?;
    mark(ram, &entries[..used], access == Access::Write);
    translation.dirty |= access == Access::Write;
    Ok(translation)
}

/// Walks without writing anything: for a NOFAULT access, or a fetch that may not happen after all.
///
/// # Errors
/// The error code of the #PF that the access would raise.
pub fn look(ram: &Ram, paging: Paging, va: u64, access: Access, user: bool) -> Result<Translation, u32> {
    trace(ram, paging, va, access, user).map(|(t, _)| t)
}

fn trace(ram: &Ram, paging: Paging, va: u64, access: Access, user: bool) -> Result<(Translation, Path), u32> {
    if !paging.enabled() {
        let t = Translation {
            paddr: va & 0xffff_f000,
            writable: true,
            user: true,
            executable: true,
            dirty: true,
            global: false,
            large: false,
        };
        return Ok((t, ([(0, 0); 4], 0)));
    }
    let wide = paging.pae();
    let mut levels = Levels {
        ram,
        paging,
        wide,
        entries: [(0, 0); 4],
        used: 0,
        writable: true,
        user: true,
        executable: true,
    };
    let found = if wide { walk_wide(&mut levels, va) } else { walk_32(&mut levels, va) };
    let translation = found.map_err(|c| c | code(&paging, access, user))?;
    match denied(&translation, &paging, access, user) {
        Some(error) => Err(error),
        None => Ok((translation, (levels.entries, levels.used))),
    }
}

/// 32-bit paging: two levels, 4 MiB pages with CR4.PSE (SDM volume 3, 4.3).
fn walk_32(l: &mut Levels<'_>, va: u64) -> Result<Translation, u32> {
    let pse = l.paging.cr4 & 0x10 != 0;
    let at = (l.paging.cr3 & 0xffff_f000) + ((va >> 22) & 0x3ff) * 4;
    let pde = l.step(at, 0, false)?;
    if pse && pde.value & PS != 0 {
        if pde.value & (1 << 21) != 0 {
            return Err(error_code::PRESENT | error_code::RESERVED);
        }
        // PSE-36: bits 13..=20 are address bits 32..=39.
        let high = (pde.value >> 13 & 0xff) << 32;
        let base = (pde.value & 0xffc0_0000) | (high & ((1u64 << l.paging.phys_bits) - 1));
        return Ok(l.leaf(base | (va & 0x3f_f000), &pde, true));
    }
    let at = (pde.value & 0xffff_f000) + ((va >> 12) & 0x3ff) * 4;
    let pte = l.step(at, 0, false)?;
    Ok(l.leaf(pte.value & 0xffff_f000, &pte, false))
}

/// PAE and 4-level paging (SDM volume 3, 4.4 and 4.5).
fn walk_wide(l: &mut Levels<'_>, va: u64) -> Result<Translation, u32> {
    const ADDR: u64 = 0x000f_ffff_ffff_f000;
    const RESERVED_LARGE: u64 = 0x1f_e000;
    let table = if l.paging.long() {
        let at = (l.paging.cr3 & ADDR) + ((va >> 39) & 0x1ff) * 8;
        let pml4e = l.step(at, PS, false)?;
        let at = (pml4e.value & ADDR) + ((va >> 30) & 0x1ff) * 8;
        let pdpte = l.step(at, if l.paging.gigabytes() { 0 } else { PS }, false)?;
        if pdpte.value & PS != 0 {
            let base = pdpte.value & ADDR & !0x3fff_ffff;
            return Ok(l.leaf(base | (va & 0x3fff_f000), &pdpte, true));
        }
        pdpte.value & ADDR
    } else {
        // A PAE PDPTE has neither R/W nor U/S nor A; bits 1, 2, 5..=8 are reserved.
        let at = (l.paging.cr3 & 0xffff_ffe0) + ((va >> 30) & 3) * 8;
        l.step(at, 0x1e6 | NX, true)?.value & ADDR
    };
    let pde = l.step(table + ((va >> 21) & 0x1ff) * 8, 0, false)?;
    if pde.value & PS != 0 {
        if pde.value & RESERVED_LARGE != 0 {
            return Err(error_code::PRESENT | error_code::RESERVED);
        }
        let base = pde.value & ADDR & !0x1f_ffff;
        return Ok(l.leaf(base | (va & 0x1f_f000), &pde, true));
    }
    let pte = l.step((pde.value & ADDR) + ((va >> 12) & 0x1ff) * 8, 0, false)?;
    Ok(l.leaf(pte.value & ADDR, &pte, false))
}
