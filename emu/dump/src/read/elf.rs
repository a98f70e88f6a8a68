//! ELF cores of whole machines.

use std::ops::Range;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{EI_CLASS, ELFCLASS64, EM_386, EM_X86_64, ET_CORE};
use goblin::elf::program_header::{PT_LOAD, PT_NOTE, ProgramHeader};
use scroll::Pread;
use trapline_emu::PAGE;

use super::{MOST_NOTES, Source, number};
use crate::error::DumpError;
use crate::mapped::Mapped;

/// The number of program headers that says that section 0 has it (`PN_XNUM`).
const IN_SECTION: u64 = 0xffff;
/// Most program headers.
const MOST_HEADERS: u64 = 1 << 20;

/// An ELF core.
pub struct ElfCore {
    source: Source,
    /// Whether its kernel has 64 bits.
    pub wide: bool,
    /// Pieces of memory, by physical address.
    loads: Vec<Load>,
    /// Its notes, one after the other.
    pub notes: Vec<u8>,
}

/// A piece of memory in the file.
#[derive(Debug, Clone, Copy)]
struct Load {
    paddr: u64,
    vaddr: u64,
    /// Where it is in the file.
    at: u64,
    /// Bytes in the file. What follows them was left out, as makedumpfile does with the pages that it excludes.
    stored: u64,
    /// Bytes that should be there, but lie beyond the end of the file.
    missing: u64,
    size: u64,
}

impl ElfCore {
    pub fn open(source: Source) -> Result<Self, DumpError> {
        let head = source.first(64)?;
        let wide_file = number(&head, EI_CLASS, 1) == u64::from(ELFCLASS64);
        let (word, headers_at, sections_at, count_at) =
            if wide_file { (8, 32, 40, 56) } else { (4, 28, 32, 44) };
        if head.len() < count_at + 4 {
            return Err(DumpError::Cut { part: "the ELF header", end: 64, len: source.len });
        }
        if number(&head, 16, 2) != u64::from(ET_CORE) {
            return Err(DumpError::NotCore("not a core"));
        }
        let machine = number(&head, 18, 2);
        if machine != u64::from(EM_386) && machine != u64::from(EM_X86_64) {
            return Err(DumpError::NotCore("not for x86"));
        }
        let at = number(&head, headers_at, word);
        let mut count = number(&head, count_at, 2);
        if count == IN_SECTION {
            // Section 0 has the number in `sh_info`.
            let section = source.part(
                "section 0",
                number(&head, sections_at, word),
                if wide_file { 64 } else { 40 },
            )?;
            count = number(&section, if wide_file { 44 } else { 28 }, 4);
        }
        if count > MOST_HEADERS {
            return Err(DumpError::Field {
                field: "the number of program headers",
                value: count,
                valid: "a dump has at most 1048576",
            });
        }
        let ctx = Ctx::new(if wide_file { Container::Big } else { Container::Little }, Endian::Little);
        let table = source.part("the program headers", at, count * ProgramHeader::size(ctx) as u64)?;
        let mut core =
            Self { source, wide: machine == u64::from(EM_X86_64), loads: Vec::new(), notes: Vec::new() };
        for n in 0..count as usize {
            let header: ProgramHeader = table
                .pread_with(n * ProgramHeader::size(ctx), ctx)
                .map_err(|_| DumpError::NotCore("a program header cannot be read"))?;
            core.add(&header)?;
        }
        core.loads.sort_by_key(|load| load.paddr);
        // Pieces may share bytes of the file, but only those of the same memory do.
        let value = core.stored().iter().map(|range| range.end - range.start).fold(0, u64::saturating_add);
        if value > core.source.stored() {
            let valid = "the file has fewer bytes";
            return Err(DumpError::Field { field: "the memory in the program headers", value, valid });
        }
        Ok(core)
    }

    fn add(&mut self, header: &ProgramHeader) -> Result<(), DumpError> {
        match header.p_type {
            PT_NOTE => {
                let size = header.p_filesz.min(MOST_NOTES.saturating_sub(self.notes.len() as u64));
                let notes = self.source.part("the notes", header.p_offset, size)?;
                self.notes.extend(notes);
                self.notes.resize(self.notes.len().next_multiple_of(4), 0);
            }
            PT_LOAD => {
                let wanted = header.p_filesz.min(header.p_memsz);
                // Of a dump that was cut short, what is there.
                let stored = wanted.min(self.source.len.saturating_sub(header.p_offset));
                self.loads.push(Load {
                    paddr: header.p_paddr,
                    vaddr: header.p_vaddr,
                    at: header.p_offset,
                    stored,
                    missing: wanted - stored,
                    size: header.p_memsz,
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// The pieces, with the addresses at which the kernel maps them.
    pub fn memory(&self) -> Vec<Mapped> {
        let unmapped = if self.wide { u64::MAX } else { u32::MAX.into() };
        let mapped = |load: &Load| Mapped {
            paddr: load.paddr,
            size: load.size,
            vaddr: Some(load.vaddr).filter(|vaddr| *vaddr != unmapped),
        };
        self.loads.iter().map(mapped).collect()
    }

    /// The memory that is in the file.
    pub fn stored(&self) -> Vec<Range<u64>> {
        Mapped::merged(self.loads.iter().map(|load| load.paddr..load.paddr.saturating_add(load.stored)))
    }

    /// Pages that lie beyond the end of the file.
    pub fn missing(&self) -> u64 {
        self.loads.iter().map(|load| load.missing.div_ceil(PAGE)).fold(0, u64::saturating_add)
    }

    /// Pages of memory, and pages that are stored. A page that several pieces have counts once.
    pub fn pages(&self) -> (u64, u64) {
        let count = |size: fn(&Load) -> u64| {
            let mut covered = 0;
            let mut total = 0;
            for load in &self.loads {
                let (from, to) = (load.paddr / PAGE, load.paddr.saturating_add(size(load)).div_ceil(PAGE));
                let from = from.max(covered);
                total += to.saturating_sub(from);
                covered = covered.max(to);
            }
            total
        };
        (count(|load| load.size), count(|load| load.stored))
    }

    /// Fills `to` from a physical address.
    pub fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        let (mut at, mut rest) = (paddr, to);
        while !rest.is_empty() {
            let Some(load) = self.holding(at) else { return false };
            let offset = at - load.paddr;
            let size = (load.stored - offset).min(rest.len() as u64) as usize;
            let (part, after) = rest.split_at_mut(size);
            if load.at.checked_add(offset).is_none_or(|from| !self.source.read(from, part)) {
                return false;
            }
            let Some(next) = at.checked_add(size as u64) else { return after.is_empty() };
            (at, rest) = (next, after);
        }
        true
    }

    /// The piece that holds a byte. Pieces may overlap, so the nearest ones that begin before it are tried.
    fn holding(&self, paddr: u64) -> Option<&Load> {
        let before = self.loads.partition_point(|load| load.paddr <= paddr);
        let mut nearest = self.loads[..before].iter().rev().take(MOST_OVERLAPS);
        nearest.find(|load| paddr - load.paddr < load.stored)
    }
}

/// Pieces that are tried for a byte: a kernel's image lies within another piece.
const MOST_OVERLAPS: usize = 8;
