//! What to load where: segments, entry point and mode, and the image's own map between virtual and physical.
//!
//! Invariants of every plan: segments are sorted by physical address, do not overlap one another or reserved low
//! memory, do not wrap, lie in the file, and the entry point lies in one of them.

use std::ops::Range;
use std::sync::Arc;

use super::LoadError;
use super::elf::{ElfView, Width};
use super::linux::LinuxPlan;
use super::multiboot::MultibootHeader;
use super::multiboot2::{Multiboot2Header, Relocation};
use crate::layout::RamLayout;
use bitflags::bitflags;
use iced_x86::{Decoder, DecoderOptions, OpKind};

bitflags! {
    /// The access rights of a segment.
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
    /// Its access rights in the file.
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

/// The mode in which the machine enters the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryMode {
    /// 32-bit protected mode with flat segments and paging off.
    Flat32,
    /// 64-bit mode with identity-mapped memory.
    Long64,
}

/// The protocol by which an image other than Linux is told of its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Multiboot 1: EAX is a magic number, EBX points to the information.
    Multiboot(MultibootHeader),
    /// Multiboot 2: the same, with another number and other information.
    Multiboot2(Multiboot2Header),
    /// PVH: EBX points to the information.
    Pvh {
        /// Physical address of the entry point.
        entry: u64,
    },
}

impl Protocol {
    /// The physical address of the entry point, if it is not that of the ELF header.
    pub(super) fn entry(&self) -> Option<u64> {
        match self {
            Self::Multiboot(header) => header.addresses.map(|addresses| addresses.entry.into()),
            Self::Multiboot2(header) => header.entry.map(u64::from),
            Self::Pvh { entry } => Some(*entry),
        }
    }

    /// Where the kernel may be loaded, if that is not where it was linked.
    pub(super) fn relocation(&self) -> Option<Relocation> {
        match self {
            Self::Multiboot2(header) => header.relocation,
            Self::Multiboot(_) | Self::Pvh { .. } => None,
        }
    }
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
    /// Width of the kernel's code: that of the file, or 64 bits if a file of 32 bits enables long mode.
    pub width: Width,
    /// The protocol by which it is told of the machine; none for Linux and for plain ELF files.
    pub protocol: Option<Protocol>,
    /// What the Linux boot protocol adds, for images that use it.
    pub linux: Option<LinuxPlan>,
    /// The allocated sections by virtual address; empty if the file has none.
    pub sections: Vec<SectionRange>,
}

/// `mov ecx, 0xc0000080`: the number of IA32_EFER.
const LOADS_EFER: &[u8] = b"\xb9\x80\x00\x00\xc0";
/// Instructions between that one and WRMSR, at most.
const UP_TO_WRMSR: usize = 16;

/// Whether this code sets bit 8 of EAX before WRMSR.
fn sets_lme(code: &[u8]) -> bool {
    use iced_x86::{Mnemonic as M, Register as R};
    let mut is_set = false;
    for i in Decoder::new(32, code, DecoderOptions::NONE).iter().take(UP_TO_WRMSR) {
        let value = || i.immediate(1);
        match (i.mnemonic(), i.op0_register()) {
            (M::Wrmsr, _) => return is_set,
            (M::Mov | M::Or | M::Bts, _) if !is_immediate(i.op1_kind()) => {}
            (M::Mov, R::EAX) => is_set = value() & 0x100 != 0,
            (M::Or, R::EAX | R::AX) => is_set |= value() & 0x100 != 0,
            (M::Or, R::AH) => is_set |= value() & 1 != 0,
            (M::Bts, R::EAX) => is_set |= value() == 8,
            _ => {}
        }
    }
    false
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
    )
}

impl LoadPlan {
    /// True if the image can be given modules.
    pub fn takes_modules(&self) -> bool {
        self.protocol.is_some()
    }

    /// True if the kernel may need a CPU that has long mode: it is a 64-bit file, or its code loads the number of the MSR
    /// that enables that mode, IA32_EFER, into ECX or pushes it. Linux for 32 bits asks CPUID first and stays where it is.
    pub fn may_enter_long_mode(&self) -> bool {
        const NAMES_EFER: [&[u8]; 2] = [LOADS_EFER, b"\x68\x80\x00\x00\xc0"];
        if self.width == Width::Bits64 || self.linux.is_some() {
            return self.width == Width::Bits64;
        }
        let code = self.segments.iter().filter(|segment| segment.perms.contains(Perms::EXECUTE));
        code.map(|segment| self.segment_bytes(segment))
            .any(|bytes| NAMES_EFER.iter().any(|name| memchr::memmem::find(bytes, name).is_some()))
    }

    /// True if the code enables long mode: it loads the number of IA32_EFER into ECX, and sets LME before WRMSR. A kernel for 64 bits may
    /// come in a file of 32 bits, because Multiboot loads no other.
    pub(super) fn enables_long_mode(&self) -> bool {
        self.segments.iter().map(|segment| self.segment_bytes(segment)).any(|bytes| {
            let mut places = memchr::memmem::find_iter(bytes, LOADS_EFER);
            places.any(|at| sets_lme(bytes.get(at..).unwrap_or_default()))
        })
    }

    /// True if the file is of 32 bits, and the kernel's code is taken for one of 64.
    pub fn is_wide_in_narrow_file(&self) -> bool {
        let narrow = |view: ElfView<'_>| view.width() == Width::Bits32;
        self.width == Width::Bits64 && self.linux.is_none() && ElfView::parse(&self.image).is_ok_and(narrow)
    }

    /// The bytes of `segment` that come from the file.
    pub fn segment_bytes(&self, segment: &Segment) -> &[u8] {
        self.image.get(segment.file.clone()).unwrap_or(&[])
    }

    /// Physical address of the lowest segment.
    pub fn start(&self) -> u64 {
        self.segments.iter().map(|segment| segment.paddr).min().unwrap_or(0)
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
        let layout = RamLayout::of(mem_size);
        let outside = |segment: &&Segment| !layout.contains(segment.paddr, segment.mem_size);
        match self.segments.iter().filter(outside).map(Segment::end).max() {
            Some(end) => Err(LoadError::DoesNotFit { end, mem_size }),
            None => Ok(()),
        }
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

    /// Whether `va` holds instructions, by its section's flags or, in a file without sections, its segment's. The gaps
    /// between sections are not executable. `None` outside the image.
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
