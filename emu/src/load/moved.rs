//! A kernel that its own code has put elsewhere than where it was linked (KASLR).

use super::elf::Width;
use super::{Image, LoadPlan};

/// The distance from where a kernel was linked to where it is. Sums wrap at 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Of its virtual addresses.
    pub vaddr: u64,
    /// Of its physical ones.
    pub paddr: u64,
}

/// Reads physical memory; false if not all of it is there.
pub type ReadPhysical<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

/// Where an ELF file has the addresses of its parts: the places of the table's offset, of its entries' size and number, and
/// where an entry has its virtual and physical address.
struct Table {
    offset: usize,
    size: usize,
    vaddr: usize,
    paddr: Option<usize>,
}

impl Image {
    /// The image as it lies in memory: its addresses, and the bytes in which the move has changed addresses. `None` if
    /// the memory does not have it.
    pub fn moved(&self, by: Moved, read: ReadPhysical<'_>) -> Option<Self> {
        let plan = self.plan.moved(by, read)?;
        Some(Self { bytes: std::sync::Arc::clone(&plan.image), is_elf: self.is_elf, plan })
    }
}

impl LoadPlan {
    /// The lowest virtual address of the upper half, where a kernel is. What lies below does not move: per-CPU variables
    /// that are linked at 0.
    pub fn upper(&self) -> Option<u64> {
        let half = 1 << (self.width.bits() - 1);
        self.segments.iter().map(|segment| segment.vaddr).filter(|vaddr| *vaddr >= half).min()
    }

    fn moved(&self, by: Moved, read: ReadPhysical<'_>) -> Option<Self> {
        let upper = self.upper()?;
        let mask = self.width.max_addr();
        let virt = |vaddr: u64| if vaddr >= upper { vaddr.wrapping_add(by.vaddr) & mask } else { vaddr };
        let phys = |paddr: u64| paddr.wrapping_add(by.paddr) & mask;
        let mut image = self.image.to_vec();
        for segment in &self.segments {
            if !read(phys(segment.paddr), image.get_mut(segment.file.clone())?) {
                return None;
            }
        }
        move_headers(&mut image, self.width, &virt, &phys);
        let mut plan = Self { image: image.into(), entry: phys(self.entry), ..self.clone() };
        for segment in &mut plan.segments {
            (segment.vaddr, segment.paddr) = (virt(segment.vaddr), phys(segment.paddr));
        }
        plan.segments.sort_by_key(|segment| segment.paddr);
        plan.sections.iter_mut().for_each(|section| section.vaddr = virt(section.vaddr));
        plan.sections.sort_by_key(|section| section.vaddr);
        Some(plan)
    }
}

/// Moves the addresses in the tables of segments and sections. A table that lies outside the file is left alone.
fn move_headers(image: &mut [u8], width: Width, virt: &dyn Fn(u64) -> u64, phys: &dyn Fn(u64) -> u64) {
    let (word, tables) = match width {
        Width::Bits64 => (
            8,
            [
                Table { offset: 0x20, size: 0x36, vaddr: 0x10, paddr: Some(0x18) },
                Table { offset: 0x28, size: 0x3a, vaddr: 0x10, paddr: None },
            ],
        ),
        Width::Bits32 => (
            4,
            [
                Table { offset: 0x1c, size: 0x2a, vaddr: 0x08, paddr: Some(0x0c) },
                Table { offset: 0x20, size: 0x2e, vaddr: 0x0c, paddr: None },
            ],
        ),
    };
    for table in tables {
        let from = number(image, table.offset, word).and_then(|from| usize::try_from(from).ok());
        let (size, count) = (number(image, table.size, 2), number(image, table.size + 2, 2));
        let (Some(from), Some(size), Some(count)) = (from, size, count) else { continue };
        for n in 0..count as usize {
            let entry = from.saturating_add(n.saturating_mul(size as usize));
            change(image, entry.saturating_add(table.vaddr), word, virt);
            if let Some(paddr) = table.paddr {
                change(image, entry.saturating_add(paddr), word, phys);
            }
        }
    }
}

fn number(image: &[u8], at: usize, size: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes.get_mut(..size)?.copy_from_slice(image.get(at..at.checked_add(size)?)?);
    Some(u64::from_le_bytes(bytes))
}

fn change(image: &mut [u8], at: usize, size: usize, to: &dyn Fn(u64) -> u64) {
    let Some(old) = number(image, at, size) else { return };
    if let Some(place) = image.get_mut(at..at + size) {
        place.copy_from_slice(to(old).to_le_bytes().get(..size).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::load::ElfView;
    use crate::load::testing::TestElf;

    #[test]
    fn a_moved_image_has_the_bytes_of_memory_and_moved_addresses_in_all_its_tables() {
        let file = TestElf::kernel(true, 0xffff_ffff_8000_0000).build();
        let image = Image::parse(&file, "k").unwrap();
        let by = Moved { vaddr: 0x40_0000, paddr: 0x20_0000 };
        let memory = |at: u64, to: &mut [u8]| {
            to.iter_mut().zip(at..).for_each(|(byte, at)| *byte = (at >> 4) as u8);
            true
        };
        let moved = image.moved(by, &memory).unwrap();
        let (old, new) = (image.plan(), moved.plan());
        for (old, new) in old.segments.iter().zip(&new.segments) {
            assert_eq!((new.vaddr, new.paddr), (old.vaddr + by.vaddr, old.paddr + by.paddr));
        }
        let first = new.segments.first().unwrap();
        assert_eq!(new.segment_bytes(first).first(), Some(&((first.paddr >> 4) as u8)));
        let (before, after) =
            (ElfView::parse(image.bytes()).unwrap(), ElfView::parse(moved.bytes()).unwrap());
        for (old, new) in before.programs().iter().zip(after.programs()) {
            let virt = if old.p_vaddr >> 63 == 0 { old.p_vaddr } else { old.p_vaddr + by.vaddr };
            assert_eq!((new.p_vaddr, new.p_paddr), (virt, old.p_paddr + by.paddr));
        }
        for (old, new) in before.sections().iter().zip(after.sections()) {
            let virt = if old.addr >> 63 == 0 { old.addr } else { old.addr + by.vaddr };
            assert_eq!(new.addr, virt, "{}", old.name);
        }
        assert!(image.moved(by, &|_, _| false).is_none());
    }
}
