//! What to load where: segments, entry point and mode, and the image's own map between virtual and physical.
//!
//! Invariants of every plan: segments are sorted by physical address, do not overlap one another or reserved low
//! memory, wrap nowhere, lie in the file, and the entry point lies in one of them.

use std::ops::Range;
use std::sync::Arc;

use bitflags::bitflags;
use goblin::elf::program_header::{PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD};

use crate::firmware::CONVENTIONAL_END;

use super::LoadError;
use super::elf::{ElfView, Width};
use super::linux::LinuxPlan;
use super::multiboot::{KludgeAddresses, MultibootError, MultibootHeader};

bitflags! {
    /// What a segment may be used for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Perms: u8 {
        /// Loads.
        const READ = 1;
        /// Stores.
        const WRITE = 2;
        /// Instruction fetches.
        const EXECUTE = 4;
    }
}

/// One contiguous piece of the image in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Physical address of its first byte.
    pub paddr: u64,
    /// Virtual address that the kernel gives it.
    pub vaddr: u64,
    /// Its bytes in [`LoadPlan::image`]; the rest up to `mem_size` is zero.
    pub file: Range<usize>,
    /// Bytes that it takes in memory, at least 1.
    pub mem_size: u64,
    /// What the file says it is for.
    pub perms: Perms,
}

impl Segment {
    /// First physical address after it.
    pub fn end(&self) -> u64 {
        self.paddr.saturating_add(self.mem_size)
    }

    fn offset_of(&self, va: u64) -> Option<u64> {
        va.checked_sub(self.vaddr).filter(|offset| *offset < self.mem_size)
    }
}

/// A section that occupies memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionRange {
    /// Its name.
    pub name: String,
    /// Virtual address of its first byte.
    pub vaddr: u64,
    /// Size in bytes.
    pub size: u64,
    /// True if it holds instructions.
    pub executable: bool,
}

/// How the machine enters the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryMode {
    /// 32-bit protected mode as Multiboot 1 section 3.2 says, with EAX and EBX.
    Multiboot,
    /// 32-bit protected mode with flat segments and paging off.
    Flat32,
    /// 64-bit mode with identity-mapped memory.
    Long64,
}

/// What to load and how to enter it.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The image's name, first word of a Multiboot command line.
    pub name: String,
    /// The unpacked file.
    pub image: Arc<[u8]>,
    /// The segments, by physical address.
    pub segments: Vec<Segment>,
    /// Physical address of the first instruction.
    pub entry: u64,
    /// The mode at entry.
    pub mode: EntryMode,
    /// Width of the file.
    pub width: Width,
    /// The Multiboot header, where there is one.
    pub multiboot: Option<MultibootHeader>,
    /// What the Linux boot protocol adds, where it is spoken.
    pub linux: Option<LinuxPlan>,
    /// The allocated sections by virtual address; empty if the file has none.
    pub sections: Vec<SectionRange>,
}

impl LoadPlan {
    /// True if the image is entered by Multiboot.
    pub fn is_multiboot(&self) -> bool {
        self.multiboot.is_some()
    }

    /// The bytes of `segment` that come from the file.
    pub fn segment_bytes(&self, segment: &Segment) -> &[u8] {
        self.image.get(segment.file.clone()).unwrap_or(&[])
    }

    /// First physical address after the highest segment.
    pub fn end(&self) -> u64 {
        self.segments.iter().map(Segment::end).max().unwrap_or(0)
    }

    /// Checks that `mem_size` bytes of RAM hold every segment.
    ///
    /// # Errors
    /// [`LoadError::DoesNotFit`] with both sizes.
    pub fn check_fits(&self, mem_size: u64) -> Result<(), LoadError> {
        let end = self.end();
        if end <= mem_size { Ok(()) } else { Err(LoadError::DoesNotFit { end, mem_size }) }
    }

    /// Physical address at which the virtual address `va` of the image is loaded.
    pub fn vaddr_to_paddr(&self, va: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| Some(segment.paddr + segment.offset_of(va)?))
    }

    /// Virtual address of what is loaded at the physical address `pa`.
    pub fn paddr_to_vaddr(&self, pa: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| (segment.paddr..segment.end()).contains(&pa))?;
        segment.vaddr.checked_add(pa - segment.paddr)
    }

    /// Whether `va` holds instructions, by its section's flags or, in a file without sections, its segment's.
    /// What a segment has between sections is not executable. `None` outside the image.
    pub fn is_executable(&self, va: u64) -> Option<bool> {
        let segment = self.segments.iter().find(|segment| segment.offset_of(va).is_some())?;
        if self.sections.is_empty() {
            return Some(segment.perms.contains(Perms::EXECUTE));
        }
        Some(self.section_at(va).is_some_and(|section| section.executable))
    }

    /// The section that holds `va`.
    pub fn section_at(&self, va: u64) -> Option<&SectionRange> {
        let next = self.sections.partition_point(|section| section.vaddr <= va);
        let section = self.sections.get(next.checked_sub(1)?)?;
        (va - section.vaddr < section.size).then_some(section)
    }

    /// `len` bytes as loaded at the virtual address `va`, zeros included, if they lie in one segment.
    pub fn bytes_at(&self, va: u64, len: usize) -> Option<Vec<u8>> {
        self.segments.iter().find_map(|segment| {
            let offset = segment.offset_of(va)?;
            let end = offset.checked_add(len as u64).filter(|end| *end <= segment.mem_size)?;
            let data = self.segment_bytes(segment);
            let clip = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(data.len());
            let mut bytes = data.get(clip(offset)..clip(end))?.to_vec();
            bytes.resize(len, 0);
            Some(bytes)
        })
    }
}

/// Memory below 1 MB that a PC uses otherwise.
const RESERVED: [(u64, u64, &str); 2] = [
    (0, 0x500, "the interrupt vectors and BIOS data"),
    (CONVENTIONAL_END, 0x10_0000, "the extended BIOS data, video memory and ROM"),
];

/// A plan by the program headers; with `header` it is entered by Multiboot.
pub(super) fn from_elf(
    image: &Arc<[u8]>,
    header: Option<MultibootHeader>,
    linux: Option<LinuxPlan>,
    name: &str,
) -> Result<LoadPlan, LoadError> {
    let view = ElfView::parse(image)?;
    view.check_type(false)?;
    view.check_complete()?;
    if view.programs().iter().any(|program| program.p_type == PT_INTERP) {
        return Err(LoadError::Interpreter);
    }
    let mut segments = Vec::new();
    for (index, program) in view.programs().iter().enumerate() {
        if program.p_type != PT_LOAD {
            continue;
        }
        if program.p_filesz > program.p_memsz {
            let (file_size, mem_size) = (program.p_filesz, program.p_memsz);
            return Err(LoadError::FileBeyondMemory { index, file_size, mem_size });
        }
        if program.p_memsz == 0 {
            continue;
        }
        let highest = if header.is_some() { Width::Bits32.max_addr() } else { view.width().max_addr() };
        check_wrap(index, "physical", program.p_paddr, program.p_memsz, highest)?;
        check_wrap(index, "virtual", program.p_vaddr, program.p_memsz, view.width().max_addr())?;
        segments.push(Segment {
            paddr: program.p_paddr,
            vaddr: program.p_vaddr,
            file: view.segment_range(index, program)?,
            mem_size: program.p_memsz,
            perms: perms(program.p_flags),
        });
    }
    let mode = match (header, view.width()) {
        (Some(_), _) => EntryMode::Multiboot,
        (None, Width::Bits32) => EntryMode::Flat32,
        (None, Width::Bits64) => EntryMode::Long64,
    };
    let (width, multiboot) = (view.width(), header);
    let sections = sections(&view);
    let entry = view.entry();
    finish(LoadPlan {
        name: name.to_owned(),
        image: Arc::clone(image),
        segments,
        entry,
        mode,
        width,
        multiboot,
        linux,
        sections,
    })
}

/// A plan by the addresses in the Multiboot header (Multiboot 1 section 3.1.3).
pub(super) fn from_kludge(
    image: &Arc<[u8]>,
    header: MultibootHeader,
    name: &str,
) -> Result<LoadPlan, LoadError> {
    let Some(addresses) = header.addresses else {
        return Err(MultibootError::NoAddresses { flags: header.flags }.into());
    };
    let segment = kludge_segment(image.len(), header.offset, addresses)?;
    finish(LoadPlan {
        name: name.to_owned(),
        image: Arc::clone(image),
        segments: vec![segment],
        entry: u64::from(addresses.entry),
        mode: EntryMode::Multiboot,
        width: Width::Bits32,
        multiboot: Some(header),
        linux: None,
        sections: Vec::new(),
    })
}

fn kludge_segment(len: usize, header_offset: usize, a: KludgeAddresses) -> Result<Segment, LoadError> {
    let before = a
        .header
        .checked_sub(a.load)
        .ok_or(MultibootError::HeaderBelowLoad { header: a.header, load: a.load })?;
    let start = usize::try_from(before).ok().and_then(|before| header_offset.checked_sub(before));
    let start = start.ok_or(MultibootError::LoadBeforeFile { before, offset: header_offset })?;
    let size = if a.load_end == 0 {
        (len - start.min(len)) as u64
    } else {
        let size = a.load_end.checked_sub(a.load).filter(|size| *size > 0);
        u64::from(size.ok_or(MultibootError::LoadEnd { load_end: a.load_end, load: a.load })?)
    };
    let end = start as u64 + size;
    let file_end = usize::try_from(end).ok().filter(|end| *end <= len);
    let file_end = file_end.ok_or(MultibootError::Truncated { end, len: len as u64 })?;
    let mem_size = if a.bss_end == 0 {
        size
    } else {
        let with_bss = u64::from(a.bss_end).checked_sub(u64::from(a.load)).filter(|bytes| *bytes >= size);
        with_bss.ok_or(MultibootError::BssEnd { bss_end: a.bss_end, loaded: u64::from(a.load) + size })?
    };
    check_wrap(0, "physical", u64::from(a.load), mem_size, Width::Bits32.max_addr())?;
    Ok(Segment {
        paddr: u64::from(a.load),
        vaddr: u64::from(a.load),
        file: start..file_end,
        mem_size,
        perms: Perms::all(),
    })
}

/// Sorts and checks the segments, and turns the entry point into a physical address.
pub(super) fn finish(mut plan: LoadPlan) -> Result<LoadPlan, LoadError> {
    if plan.segments.is_empty() {
        return Err(LoadError::NoSegments);
    }
    plan.segments.sort_by_key(|segment| segment.paddr);
    for (one, other) in plan.segments.iter().zip(plan.segments.iter().skip(1)) {
        if one.end() > other.paddr {
            let (first, first_end, second, second_end) = (one.paddr, one.end(), other.paddr, other.end());
            return Err(LoadError::Overlap { first, first_end, second, second_end });
        }
    }
    for segment in &plan.segments {
        let (start, end) = (segment.paddr, segment.end());
        for (low, high, what) in RESERVED {
            if start < high && end > low {
                return Err(LoadError::Reserved { start, end, what, low, high });
            }
        }
    }
    plan.entry = physical_entry(&plan)?;
    Ok(plan)
}

/// An entry point may be virtual, as the ABI says, or already physical, as kernels often have it.
fn physical_entry(plan: &LoadPlan) -> Result<u64, LoadError> {
    let entry = plan.entry;
    if let Some(physical) = plan.vaddr_to_paddr(entry) {
        return Ok(physical);
    }
    let loaded = plan.paddr_to_vaddr(entry).is_some();
    if loaded { Ok(entry) } else { Err(LoadError::EntryOutside { entry }) }
}

fn sections(view: &ElfView<'_>) -> Vec<SectionRange> {
    let mut sections: Vec<SectionRange> = view
        .sections()
        .iter()
        .filter(|section| section.is_alloc() && section.size > 0)
        .map(|section| SectionRange {
            name: section.name.clone(),
            vaddr: section.addr,
            size: section.size,
            executable: section.is_executable(),
        })
        .collect();
    sections.sort_by_key(|section| section.vaddr);
    sections
}

fn check_wrap(
    index: usize,
    which: &'static str,
    addr: u64,
    size: u64,
    highest: u64,
) -> Result<(), LoadError> {
    let last = addr.checked_add(size.saturating_sub(1)).filter(|last| *last <= highest);
    // The end itself must be an address too, so that no later sum overflows.
    match last.and_then(|last| last.checked_add(1)) {
        Some(_) => Ok(()),
        None => Err(LoadError::Wraps { index, which, addr, size }),
    }
}

fn perms(flags: u32) -> Perms {
    let mut perms = Perms::empty();
    perms.set(Perms::READ, flags & PF_R != 0);
    perms.set(Perms::WRITE, flags & PF_W != 0);
    perms.set(Perms::EXECUTE, flags & PF_X != 0);
    perms
}
