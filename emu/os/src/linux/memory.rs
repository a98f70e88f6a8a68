//! NOFAULT reads of kernel memory, whatever address space the CPU is in.
//!
//! The kernel's image has a fixed place in RAM; all else goes through the kernel's own page tables (those of
//! `init_mm`), since a process's tables lack most of the kernel while kernel page-table isolation runs user code, and
//! on 32 bits may lack modules that were loaded since.

use trapline_emu::load::{LoadPlan, Width};
use trapline_emu::{Access, Core, PAGE, Paging, look};

/// A piece of the image that stays where it was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fixed {
    vaddr: u64,
    paddr: u64,
    size: u64,
}

/// The addresses of the kernel's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Map {
    pub(super) width: Width,
    fixed: Vec<Fixed>,
    /// Physical address of the kernel's top page table.
    root: u64,
}

impl Map {
    /// The memory of the kernel that `plan` loads, whose top page table is at virtual `root`.
    pub(super) fn new(plan: &LoadPlan, root: u64) -> Option<Self> {
        // A 64-bit kernel links the template of its per-CPU variables at 0, where it is never mapped.
        let kernel = |vaddr: u64| vaddr >> (plan.width.bits() - 1) != 0;
        let fixed = plan
            .segments
            .iter()
            .filter(|segment| kernel(segment.vaddr))
            .map(|segment| Fixed { vaddr: segment.vaddr, paddr: segment.paddr, size: segment.mem_size })
            .collect();
        Some(Self { width: plan.width, fixed, root: plan.vaddr_to_paddr(root)? })
    }

    /// The memory as `core` holds it now.
    pub(super) fn of<'a>(&'a self, core: &'a Core) -> Memory<'a> {
        Memory { map: self, core, paging: Paging { cr3: self.root, ..core.paging() } }
    }
}

/// Kernel memory at one moment.
pub(super) struct Memory<'a> {
    map: &'a Map,
    core: &'a Core,
    paging: Paging,
}

impl Memory<'_> {
    /// Bytes of a word: of a pointer and a long.
    pub(super) fn word_size(&self) -> u64 {
        u64::from(self.map.width.bits() / 8)
    }

    /// `base + offset`, wrapped as the guest's addresses are.
    pub(super) fn add(&self, base: u64, offset: u64) -> u64 {
        base.wrapping_add(offset) & self.map.width.max_addr()
    }

    /// Fills `to` from `va`; `None` when not all of it can be read.
    pub(super) fn read(&self, va: u64, to: &mut [u8]) -> Option<()> {
        let len = to.len() as u64;
        for fixed in &self.map.fixed {
            if let Some(offset) = va.checked_sub(fixed.vaddr)
                && offset.checked_add(len).is_some_and(|end| end <= fixed.size)
            {
                return self.core.ram().read(fixed.paddr + offset, to).then_some(());
            }
        }
        if !self.paging.enabled() {
            return None;
        }
        let mut done = 0;
        while done < to.len() {
            let at = self.add(va, done as u64);
            let n = ((PAGE - at % PAGE) as usize).min(to.len() - done);
            let part = to.get_mut(done..done + n)?;
            self.core.ram().read(self.mapped(at)?, part).then_some(())?;
            done += n;
        }
        Some(())
    }

    /// Where the kernel's page tables put `va`.
    fn mapped(&self, va: u64) -> Option<u64> {
        let sign = va >> 47;
        if self.paging.long() && sign != 0 && sign != 0x1_ffff {
            return None;
        }
        let page = look(self.core.ram(), self.paging, va & !(PAGE - 1), Access::Read, false).ok()?;
        Some(page.paddr | (va % PAGE))
    }

    /// The physical address of `va`; `None` when nothing is mapped there, or no RAM.
    pub(super) fn paddr(&self, va: u64) -> Option<u64> {
        let fixed = self.map.fixed.iter().find_map(|fixed| {
            let offset = va.checked_sub(fixed.vaddr).filter(|offset| *offset < fixed.size)?;
            Some(fixed.paddr + offset)
        });
        let paddr = match fixed {
            Some(paddr) => paddr,
            None if self.paging.enabled() => self.mapped(va)?,
            None => return None,
        };
        self.core.ram().contains(paddr, 1).then_some(paddr)
    }

    /// `len` bytes at `va`.
    pub(super) fn bytes(&self, va: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read(va, &mut bytes)?;
        Some(bytes)
    }

    /// The u32 at `va`.
    pub(super) fn u32(&self, va: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(va, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    /// The u64 at `va`.
    pub(super) fn u64(&self, va: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(va, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// The word at `va`.
    pub(super) fn word(&self, va: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(va, bytes.get_mut(..self.word_size() as usize)?)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// The pointer at `va`; `None` also if it is null.
    pub(super) fn pointer(&self, va: u64) -> Option<u64> {
        self.word(va).filter(|pointer| *pointer != 0)
    }

    /// The text at `va` up to a NUL, or `most` bytes; unreadable memory ends it.
    pub(super) fn text(&self, va: u64, most: usize) -> Vec<u8> {
        let mut text = Vec::new();
        while text.len() < most {
            let at = self.add(va, text.len() as u64);
            let n = ((PAGE - at % PAGE) as usize).min(64).min(most - text.len());
            let Some(part) = self.bytes(at, n) else { break };
            match part.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    text.extend_from_slice(part.get(..end).unwrap_or_default());
                    break;
                }
                None => text.extend_from_slice(&part),
            }
        }
        text
    }
}
