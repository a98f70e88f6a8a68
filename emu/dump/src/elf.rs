//! ELF core files: what precedes the memory in them.

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{EM_386, EM_X86_64, ET_CORE, Header};
pub use goblin::elf::program_header::{PF_R, PF_W, PF_X};
use goblin::elf::program_header::{PT_LOAD, PT_NOTE, ProgramHeader};
use scroll::Pwrite;
use trapline_emu::PAGE;

/// Most segments of a core file, beside that of the notes.
pub const MAX_SEGMENTS: usize = 0xfffe;

/// A piece of memory in a core file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Virtual address of its first byte; all ones if it has none.
    pub vaddr: u64,
    /// Physical address of its first byte.
    pub paddr: u64,
    /// Bytes.
    pub size: u64,
    /// Access rights.
    pub flags: u32,
    /// For a piece that is part of another segment: how far from the beginning of the file's memory it lies.
    pub shares: Option<u64>,
}

/// What a core file is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// A process.
    Process,
    /// A whole machine. As in kdump's files, segments have no alignment: crash takes others for files of netdump, an older
    /// format.
    Machine,
}

/// The headers and the notes of a core file, up to the page boundary at which its memory begins: the segments that
/// share nothing, one after the other. At most [`MAX_SEGMENTS`] can be given.
pub fn head(of: Of, wide: bool, notes: &[u8], segments: &[Segment]) -> Vec<u8> {
    let container = if wide { Container::Big } else { Container::Little };
    let ctx = Ctx::new(container, Endian::Little);
    let (header_size, entry_size) = (Header::size(ctx), ProgramHeader::size(ctx));
    let segments = &segments[..segments.len().min(MAX_SEGMENTS)];
    let mut header = Header::new(ctx);
    header.e_type = ET_CORE;
    header.e_machine = if wide { EM_X86_64 } else { EM_386 };
    header.e_phoff = header_size as u64;
    header.e_phnum = (segments.len() + 1) as u16;
    // There are no sections.
    (header.e_shentsize, header.e_shnum, header.e_shstrndx) = (0, 0, 0);
    let notes_at = header_size + entry_size * usize::from(header.e_phnum);
    let memory_at = (notes_at + notes.len()).next_multiple_of(PAGE as usize);
    let mut headers = vec![ProgramHeader {
        p_type: PT_NOTE,
        p_offset: notes_at as u64,
        p_filesz: notes.len() as u64,
        p_align: 4,
        ..ProgramHeader::default()
    }];
    let mut next = 0;
    for segment in segments {
        let at = segment.shares.unwrap_or(next);
        next += if segment.shares.is_none() { segment.size } else { 0 };
        headers.push(ProgramHeader {
            p_type: PT_LOAD,
            p_flags: segment.flags,
            p_offset: memory_at as u64 + at,
            p_vaddr: if wide { segment.vaddr } else { segment.vaddr & u64::from(u32::MAX) },
            p_paddr: segment.paddr,
            p_filesz: segment.size,
            p_memsz: segment.size,
            p_align: if of == Of::Process { PAGE } else { 0 },
        });
    }
    let mut bytes = vec![0; memory_at];
    // The buffer has room for all of them: a failure would leave zeros, which readers refuse.
    let _ = bytes.pwrite_with(header, 0, ctx.le);
    for (n, one) in headers.into_iter().enumerate() {
        let _ = bytes.pwrite_with(one, header_size + n * entry_size, ctx);
    }
    bytes[notes_at..notes_at + notes.len()].copy_from_slice(notes);
    bytes
}
