//! A user program or library as probes see it: pages of its file, and where file offsets lie when it is mapped.
//!
//! The probe offset of a user module is a file offset (docs/providers.md, "Kernel and user"). Virtual addresses here
//! are the linked ones; the guest decides where a position-independent file is mapped.

use std::sync::Arc;

use goblin::elf::dynamic::{DT_NULL, DT_SONAME};
use goblin::elf::program_header::{PF_X, PT_DYNAMIC, PT_GNU_RELRO, PT_INTERP, PT_LOAD, PT_TLS};

use super::{SymbolAt, SymbolError, Symbols, frames};
use crate::load::multiboot2::has_multiboot_header;
use crate::load::{ElfView, Width};

/// Bytes of a file page.
pub const PAGE_SIZE: usize = 4096;

/// The linkers' name of a program's entry point.
const START: &str = "_start";

/// One PT_LOAD header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleSegment {
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Its bytes in the file.
    pub file_size: u64,
    /// Its linked virtual address.
    pub vaddr: u64,
    /// Its bytes in memory.
    pub mem_size: u64,
    /// True if it may be executed.
    pub executable: bool,
}

/// A user ELF file, EXEC or DYN.
#[derive(Clone, Debug)]
pub struct UserModule {
    name: String,
    bytes: Arc<[u8]>,
    width: Width,
    dynamic: bool,
    entry: u64,
    program: bool,
    segments: Vec<ModuleSegment>,
    symbols: Symbols,
}

impl UserModule {
    /// True if `bytes` are a program or library rather than a kernel: a file that can be mapped anywhere, that asks for a
    /// dynamic linker, that has thread-local or relocated read-only data, or that lies where linkers put programs.
    pub fn recognises(bytes: &[u8]) -> bool {
        let Ok(view) = ElfView::parse(bytes) else { return false };
        if view.is_relocatable() || has_multiboot_header(bytes) {
            return false;
        }
        let base = match view.width() {
            Width::Bits32 => 0x0804_8000,
            Width::Bits64 => 0x0040_0000,
        };
        let lowest = view.programs().iter().filter(|p| p.p_type == PT_LOAD).map(|p| p.p_vaddr).min();
        let marks = |p_type| matches!(p_type, PT_INTERP | PT_TLS | PT_GNU_RELRO);
        view.is_dynamic() || lowest == Some(base) || view.programs().iter().any(|p| marks(p.p_type))
    }

    /// Reads the file `bytes` as the module `name`.
    ///
    /// # Errors
    /// Not an executable or library for x86, or a part of it lies outside the file.
    pub fn parse(bytes: &[u8], name: &str) -> Result<Self, SymbolError> {
        let view = ElfView::parse(bytes)?;
        view.check_type(true)?;
        view.check_complete()?;
        let mut symbols = Symbols::from_elf(bytes, name)?;
        if view.entry() != 0 && symbols.sole(START).is_none() {
            symbols = symbols.merged(Symbols::label(name, START, view.entry()));
        }
        let segments = view
            .programs()
            .iter()
            .filter(|program| program.p_type == PT_LOAD)
            .map(|program| ModuleSegment {
                offset: program.p_offset,
                file_size: program.p_filesz,
                vaddr: program.p_vaddr,
                mem_size: program.p_memsz,
                executable: program.p_flags & PF_X != 0,
            })
            .collect();
        let (width, dynamic, entry) = (view.width(), view.is_dynamic(), view.entry());
        let program = entry != 0 && !has_library_name(&view);
        Ok(Self {
            name: name.to_owned(),
            bytes: bytes.into(),
            width,
            dynamic,
            entry,
            program,
            segments,
            symbols,
        })
    }

    /// An object that is not linked, each of whose addresses is a file offset.
    pub(super) fn of_object(
        view: &ElfView<'_>,
        name: &str,
        segments: Vec<ModuleSegment>,
        symbols: Symbols,
    ) -> Self {
        let (bytes, width) = (view.bytes().into(), view.width());
        Self {
            name: name.to_owned(),
            bytes,
            width,
            dynamic: true,
            entry: 0,
            program: false,
            segments,
            symbols,
        }
    }

    /// The module's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, shared.
    pub fn shared_bytes(&self) -> Arc<[u8]> {
        Arc::clone(&self.bytes)
    }

    /// Width of its code.
    pub fn width(&self) -> Width {
        self.width
    }

    /// True if it may be mapped anywhere (ET_DYN).
    pub fn is_dynamic(&self) -> bool {
        self.dynamic
    }

    /// True of a program, which a process can run; false of a library, even of one that can be executed.
    pub fn is_program(&self) -> bool {
        self.program
    }

    /// Where functions begin and how many bytes they have, by address, as the file's unwind tables (`.eh_frame`) say:
    /// those without a symbol too. Empty without such tables; a damaged entry ends the list.
    pub fn frame_functions(&self) -> Vec<(u64, u64)> {
        ElfView::parse(&self.bytes).map(|view| frames::functions(&view)).unwrap_or_default()
    }

    /// Its linked entry point.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Its loadable segments in file order.
    pub fn segments(&self) -> &[ModuleSegment] {
        &self.segments
    }

    /// Its symbols, at linked virtual addresses; a program without the symbol `_start` has it as a label at its entry.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// The file's pages in order with their numbers; the last may be short.
    pub fn pages(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.bytes.chunks(PAGE_SIZE).enumerate()
    }

    /// The file's page `number`.
    pub fn page(&self, number: usize) -> Option<&[u8]> {
        let start = number.checked_mul(PAGE_SIZE)?;
        let end = start.checked_add(PAGE_SIZE)?.min(self.bytes.len());
        self.bytes.get(start..end).filter(|page| !page.is_empty())
    }

    /// `len` bytes of the file at `offset`.
    pub fn bytes_at(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        self.bytes.get(start..start.checked_add(len)?)
    }

    /// The linked virtual address of the file offset `offset`, by an executable segment where several hold it.
    pub fn offset_to_vaddr(&self, offset: u64) -> Option<u64> {
        let holds = |segment: &&ModuleSegment| {
            offset.checked_sub(segment.offset).is_some_and(|into| into < segment.file_size)
        };
        let executable = self.segments.iter().filter(|segment| segment.executable).find(holds);
        let segment = executable.or_else(|| self.segments.iter().find(holds))?;
        segment.vaddr.checked_add(offset - segment.offset)
    }

    /// The file offset of the linked virtual address `va`; `None` outside the segments and in bss.
    pub fn vaddr_to_offset(&self, va: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let into = va.checked_sub(segment.vaddr).filter(|into| *into < segment.file_size)?;
            segment.offset.checked_add(into)
        })
    }

    /// The file offset of the symbol `name`.
    pub fn symbol_offset(&self, name: &str) -> Option<u64> {
        self.vaddr_to_offset(self.symbols.sole(name)?.addr)
    }

    /// The symbol that covers the file offset `offset`.
    pub fn symbol_at_offset(&self, offset: u64) -> Option<SymbolAt<'_>> {
        self.symbols.at(self.offset_to_vaddr(offset)?)
    }

    /// Whether `offset` lies in an executable segment; `None` outside the segments.
    pub fn is_executable_offset(&self, offset: u64) -> Option<bool> {
        let mut holding = self
            .segments
            .iter()
            .filter(|segment| offset.checked_sub(segment.offset).is_some_and(|into| into < segment.file_size))
            .peekable();
        holding.peek()?;
        Some(holding.any(|segment| segment.executable))
    }
}

/// Whether a file has the name of a shared library (DT_SONAME).
fn has_library_name(view: &ElfView<'_>) -> bool {
    let word = view.width().bits() as usize / 8;
    let tables = view.programs().iter().enumerate().filter(|(_, program)| program.p_type == PT_DYNAMIC);
    tables.filter_map(|(index, program)| view.bytes().get(view.segment_range(index, program).ok()?)).any(
        |table| {
            let tags = table.chunks_exact(2 * word).filter_map(|entry| entry.get(..word));
            let mut tags = tags.map(|tag| tag.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)));
            tags.find(|tag| matches!(*tag, DT_NULL | DT_SONAME)) == Some(DT_SONAME)
        },
    )
}
