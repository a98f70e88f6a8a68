//! Plans of what to load where, by the kind of file: ELF, the a.out kludge of Multiboot, bzImage and `vmlinux`.

use std::sync::Arc;

use goblin::elf::program_header::{PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD};

use super::LoadError;
use super::elf::{ElfView, Width};
use super::linux::{self, LinuxError, LinuxPlan, SetupHeader, Unpacker};
use super::multiboot::{KludgeAddresses, MultibootError};
use super::plan::{EntryMode, LoadPlan, Perms, Protocol, SectionRange, Segment};
use crate::firmware::CONVENTIONAL_END;

/// The module name of Linux's kernel, whatever its file is called.
const KERNEL: &str = "vmlinux";

/// Memory below 1 MB that a PC reserves.
const RESERVED: [(u64, u64, &str); 2] = [
    (0, 0x500, "the interrupt vectors and BIOS data"),
    (CONVENTIONAL_END, 0x10_0000, "the extended BIOS data, video memory and ROM"),
];

/// A plan by the program headers.
pub(super) fn from_elf(
    image: &Arc<[u8]>,
    protocol: Option<Protocol>,
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
        let highest = if protocol.is_some() { Width::Bits32.max_addr() } else { view.width().max_addr() };
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
    let width = view.width();
    let mode =
        if protocol.is_none() && width == Width::Bits64 { EntryMode::Long64 } else { EntryMode::Flat32 };
    let sections = sections(&view, linux.is_some());
    let entry = view.entry();
    finish(LoadPlan {
        name: name.to_owned(),
        image: Arc::clone(image),
        segments,
        entry,
        mode,
        width,
        protocol,
        linux,
        sections,
    })
}

/// A plan by the addresses in the Multiboot header, which is at `offset` of the file (Multiboot 1 section 3.1.3, Multiboot 2
/// section 3.1.5).
pub(super) fn from_kludge(
    image: &Arc<[u8]>,
    protocol: Protocol,
    (offset, addresses): (usize, KludgeAddresses),
    name: &str,
) -> Result<LoadPlan, LoadError> {
    let segment = kludge_segment(image.len(), offset, addresses)?;
    finish(LoadPlan {
        name: name.to_owned(),
        image: Arc::clone(image),
        segments: vec![segment],
        entry: u64::from(addresses.entry),
        mode: EntryMode::Flat32,
        width: Width::Bits32,
        protocol: Some(protocol),
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

/// Sorts and checks the segments, turns the entry point into a physical address, and moves a kernel that asks for it.
fn finish(mut plan: LoadPlan) -> Result<LoadPlan, LoadError> {
    if plan.segments.is_empty() {
        return Err(LoadError::NoSegments);
    }
    plan.segments.sort_by_key(|segment| segment.paddr);
    if plan.linux.is_none() && plan.enables_long_mode() {
        plan.width = Width::Bits64;
    }
    plan.entry = physical_entry(&plan)?;
    relocate(&mut plan)?;
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
    Ok(plan)
}

/// Moves the segments and the entry point to where the header wants them.
fn relocate(plan: &mut LoadPlan) -> Result<(), LoadError> {
    let Some(relocation) = plan.protocol.as_ref().and_then(Protocol::relocation) else { return Ok(()) };
    let linked = plan.start();
    let base = relocation.place(plan.end().saturating_sub(linked))?;
    let moved = |at: u64| at.wrapping_sub(linked).wrapping_add(base);
    plan.segments.iter_mut().for_each(|segment| segment.paddr = moved(segment.paddr));
    plan.entry = moved(plan.entry);
    Ok(())
}

/// An entry point may be virtual, as the ABI says, or already physical, as kernels often have it. That of a boot protocol is
/// physical.
fn physical_entry(plan: &LoadPlan) -> Result<u64, LoadError> {
    let named = plan.protocol.as_ref().and_then(Protocol::entry);
    let entry = named.unwrap_or(plan.entry);
    if let (None, Some(physical)) = (named, plan.vaddr_to_paddr(entry)) {
        return Ok(physical);
    }
    let loaded = plan.paddr_to_vaddr(entry).is_some();
    if loaded { Ok(entry) } else { Err(LoadError::EntryOutside { entry }) }
}

fn sections(view: &ElfView<'_>, is_linux: bool) -> Vec<SectionRange> {
    let mut sections: Vec<SectionRange> = view
        .sections()
        .iter()
        .filter(|section| section.is_alloc() && section.size > 0)
        .map(|section| SectionRange {
            name: section.name.clone(),
            vaddr: section.addr,
            size: section.size,
            executable: if is_linux { section.is_linux_code() } else { section.is_executable() },
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

/// A plan for a bzImage: that of the kernel inside, or the protected-mode code itself.
pub(super) fn from_bzimage(bytes: &Arc<[u8]>, name: &str) -> Result<LoadPlan, LoadError> {
    let header = SetupHeader::parse(bytes)?;
    match header.payload(bytes)? {
        Some(packed) => {
            let (format, kernel) = linux::unpack(packed)?;
            if !ElfView::recognises(&kernel) {
                return Err(LinuxError::PayloadNotElf { first: super::first_bytes(&kernel) }.into());
            }
            let unpacker = Some(Unpacker { file: Arc::clone(bytes), code: header.protected_mode(bytes)? });
            let linux =
                LinuxPlan { header: header.clone(), payload: Some(format), unpacker, is_own_code: false };
            let plan = from_elf(&kernel.into(), None, Some(linux), KERNEL)?;
            // Checked last, since every other check gives a more precise error.
            linux::check(bytes, &header)?;
            Ok(plan)
        }
        None => protected_mode(bytes, header, name),
    }
}

/// A plan for a bare `vmlinux`.
pub(super) fn from_vmlinux(bytes: &Arc<[u8]>) -> Result<LoadPlan, LoadError> {
    let wide = ElfView::parse(bytes)?.width() == Width::Bits64;
    let header = SetupHeader::for_vmlinux(wide);
    let linux = LinuxPlan { header, payload: None, unpacker: None, is_own_code: false };
    from_elf(bytes, None, Some(linux), KERNEL)
}

/// The image's own protected-mode code at `code32_start` (1.1.4), with its 64-bit entry at 0x200 where it has one.
fn protected_mode(bytes: &Arc<[u8]>, header: SetupHeader, name: &str) -> Result<LoadPlan, LoadError> {
    const ENTRY_64: u64 = 0x200;
    let file = header.protected_mode(bytes)?;
    let start = u64::from(header.code32_start());
    let (width, mode, entry) = if header.has_64_bit_entry() {
        (Width::Bits64, EntryMode::Long64, start + ENTRY_64)
    } else {
        (Width::Bits32, EntryMode::Flat32, start)
    };
    let mem_size = (file.len() as u64).max(header.init_size().into());
    let segment = Segment { paddr: start, vaddr: start, file, mem_size, perms: Perms::all() };
    finish(LoadPlan {
        name: name.to_owned(),
        image: Arc::clone(bytes),
        segments: vec![segment],
        entry,
        mode,
        width,
        protocol: None,
        linux: Some(LinuxPlan { header, payload: None, unpacker: None, is_own_code: true }),
        sections: Vec::new(),
    })
}
