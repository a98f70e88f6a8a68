//! Parts of an ELF file that the sdt scanners need besides sections: memory by linked address, relocations, symbols.
//!
//! Goblin defines the layouts; [`ElfView`] checks every range before it is read. A damaged table
//! is refused here; a reference from a table to an invalid place is refused by the caller.

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::program_header::{PF_W, PF_X, PT_LOAD};
use goblin::elf::reloc::Reloc;
use goblin::elf::section_header::{
    SHN_ABS, SHN_UNDEF, SHT_DYNSYM, SHT_NOBITS, SHT_NULL, SHT_REL, SHT_RELA, SHT_SYMTAB,
};
use goblin::elf::sym::{STT_FUNC, STT_NOTYPE, STT_OBJECT, Sym};
use scroll::Pread;
use scroll::ctx::SizeWith;
use std::cmp::Reverse;
use trapline_emu::load::elf::Section;
use trapline_emu::load::{ElfError, ElfView, Width};

/// Most labels below an address that are searched for the function around it.
const LABELS: usize = 1000;

/// Most loadable segments that are considered; a file has few.
const MOST_SEGMENTS: usize = 256;

/// Refuses a file whose sections overlap so much that reading them takes far longer than reading the file.
///
/// # Errors
/// The sections have more than twice the file's bytes.
pub(crate) fn check_sections(view: &ElfView<'_>) -> Result<(), ElfError> {
    let sizes = view.sections().iter().filter(|s| !matches!(s.kind, SHT_NULL | SHT_NOBITS)).map(|s| s.size);
    let total = sizes.fold(0, u64::saturating_add);
    let most = (view.bytes().len() as u64).saturating_mul(2);
    if total <= most {
        return Ok(());
    }
    let reason =
        format!("its sections overlap: together they have {total:#x} bytes, the file {:#x}", most / 2);
    Err(ElfError::Malformed { what: "section header table", reason })
}

/// Sections in memory, by address.
pub(crate) struct Homes {
    /// Start, end, index.
    list: Vec<(u64, u64, usize)>,
}

impl Homes {
    /// The sections of a linked file.
    pub fn of(view: &ElfView<'_>) -> Self {
        let sections = view.sections().iter().enumerate().filter(|(_, s)| s.is_alloc() && s.size > 0);
        let mut list: Vec<_> = sections.map(|(n, s)| (s.addr, s.addr.saturating_add(s.size), n)).collect();
        list.sort_unstable();
        Self { list }
    }

    /// The index of the section that an address lies in.
    pub fn at(&self, address: u64) -> Option<usize> {
        let next = self.list.partition_point(|(start, ..)| *start <= address);
        let (_, end, index) = *self.list.get(next.checked_sub(1)?)?;
        (address < end).then_some(index)
    }
}

/// The number of `width` at the start of `bytes`.
pub(crate) fn word(bytes: &[u8], width: Width) -> Option<u64> {
    match width {
        Width::Bits32 => bytes.first_chunk().map(|b| u32::from_le_bytes(*b).into()),
        Width::Bits64 => bytes.first_chunk().map(|b| u64::from_le_bytes(*b)),
    }
}

/// The loadable segments of a file, by linked address.
pub(crate) struct Segments<'a> {
    list: Vec<Segment<'a>>,
}

struct Segment<'a> {
    address: u64,
    offset: u64,
    memory: u64,
    bytes: &'a [u8],
    flags: u32,
}

impl<'a> Segments<'a> {
    /// The segments of `view` that lie in the file.
    pub fn of(view: &ElfView<'a>) -> Self {
        let loaded = view.programs().iter().enumerate().filter(|(_, program)| program.p_type == PT_LOAD);
        let list = loaded
            .filter_map(|(index, program)| {
                let range = view.segment_range(index, program).ok()?;
                Some(Segment {
                    address: program.p_vaddr,
                    offset: program.p_offset,
                    memory: program.p_memsz,
                    bytes: view.bytes().get(range)?,
                    flags: program.p_flags,
                })
            })
            .take(MOST_SEGMENTS)
            .collect();
        Self { list }
    }

    /// File offset and bytes up to the segment's end of an address in code.
    pub fn code(&self, address: u64) -> Option<(u64, &'a [u8])> {
        self.list.iter().filter(|segment| segment.flags & PF_X != 0).find_map(|s| s.at(address))
    }

    /// Whether `len` bytes at an address are in one writable segment.
    pub fn writable(&self, address: u64, len: u64) -> bool {
        self.list.iter().filter(|segment| segment.flags & PF_W != 0).any(|segment| {
            let into = address.checked_sub(segment.address);
            into.and_then(|into| into.checked_add(len)).is_some_and(|end| end <= segment.memory)
        })
    }
}

impl<'a> Segment<'a> {
    fn at(&self, address: u64) -> Option<(u64, &'a [u8])> {
        let into = address.checked_sub(self.address)?;
        let bytes = self.bytes.get(usize::try_from(into).ok()?..).filter(|bytes| !bytes.is_empty())?;
        Some((self.offset.checked_add(into)?, bytes))
    }
}

/// One relocation and the symbol that it is against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relocation {
    /// r_offset: an offset in the section of a relocatable file, else an address.
    pub offset: u64,
    /// r_type.
    pub kind: u32,
    /// r_addend; `None` if the file stores it at the relocated place.
    pub addend: Option<i64>,
    /// The symbol's name, empty for a section's.
    pub symbol: String,
    /// st_value.
    pub value: u64,
    /// st_shndx of the symbol.
    pub section: usize,
    /// File offset of the relocation.
    pub at: u64,
    /// File offset of the symbol's entry.
    pub symbol_at: u64,
}

impl Relocation {
    /// Whether the file does not define the symbol: it is undefined, or an absolute 0 by a linker option.
    pub fn is_undefined(&self) -> bool {
        self.section == SHN_UNDEF as usize || (self.section == SHN_ABS as usize && self.value == 0)
    }
}

/// The relocations of a section of `view` (SHT_REL or SHT_RELA), except those without an entry in the symbol table.
///
/// # Errors
/// A table outside the file.
pub(crate) fn relocations(view: &ElfView<'_>, section: &Section) -> Result<Vec<Relocation>, ElfError> {
    let addends = section.kind == SHT_RELA;
    if !addends && section.kind != SHT_REL {
        return Ok(Vec::new());
    }
    let ctx = context(view.width());
    let entry = (addends, ctx);
    let size = Reloc::size_with(&entry);
    let Some(table) = view.sections().get(section.link as usize) else { return Ok(Vec::new()) };
    let symbols = view.section_bytes(table)?;
    let strings = match view.sections().get(table.link as usize) {
        Some(strings) => view.section_bytes(strings)?,
        None => &[],
    };
    let bytes = view.section_bytes(section)?;
    let read = |at: usize| {
        let reloc: Reloc = bytes.pread_with(at, entry).ok()?;
        let symbol_at = reloc.r_sym.checked_mul(Sym::size_with(&ctx))?;
        let symbol: Sym = symbols.pread_with(symbol_at, ctx).ok()?;
        Some(Relocation {
            offset: reloc.r_offset,
            kind: reloc.r_type,
            addend: reloc.r_addend,
            symbol: text(strings, symbol.st_name),
            value: symbol.st_value,
            section: symbol.st_shndx,
            at: section.offset.checked_add(at as u64)?,
            symbol_at: table.offset.checked_add(symbol_at as u64)?,
        })
    };
    Ok((0..bytes.len() / size).filter_map(|n| read(n * size)).collect())
}

/// The symbol table by section. Unlike `Symbols` it keeps sections apart: in a relocatable
/// file, addresses in each section begin at 0.
pub(crate) struct Definitions {
    /// By section and address.
    list: Vec<Definition>,
}

/// One name of an address.
pub(crate) struct Definition {
    pub section: usize,
    pub address: u64,
    pub size: u64,
    pub name: String,
    /// Whether it is typed as a function.
    pub function: bool,
}

impl Definitions {
    /// The symbols of `view` that lie in a section and have a name. The dynamic table is used only if there is no
    /// other.
    ///
    /// # Errors
    /// A table outside the file.
    pub fn of(view: &ElfView<'_>) -> Result<Self, ElfError> {
        let of_kind = |kind: u32| view.sections().iter().find(|section| section.kind == kind);
        let Some(table) = of_kind(SHT_SYMTAB).or_else(|| of_kind(SHT_DYNSYM)) else {
            return Ok(Self { list: Vec::new() });
        };
        let ctx = context(view.width());
        let bytes = view.section_bytes(table)?;
        let strings = match view.sections().get(table.link as usize) {
            Some(strings) => view.section_bytes(strings)?,
            None => &[],
        };
        let entries = (0..bytes.len() / Sym::size_with(&ctx)).filter_map(|n| {
            let symbol: Sym = bytes.pread_with(n * Sym::size_with(&ctx), ctx).ok()?;
            let plain = matches!(symbol.st_type(), STT_NOTYPE | STT_FUNC | STT_OBJECT);
            (plain && symbol.st_shndx != SHN_UNDEF as usize && symbol.st_shndx < view.sections().len()).then(
                || Definition {
                    section: symbol.st_shndx,
                    address: symbol.st_value,
                    size: symbol.st_size,
                    name: text(strings, symbol.st_name),
                    function: symbol.st_type() == STT_FUNC,
                },
            )
        });
        let mut list: Vec<Definition> = entries.filter(|definition| !definition.name.is_empty()).collect();
        // For each address the preferred symbol comes last: a function, then the shortest name.
        list.sort_by(|a, b| {
            let key = |d: &Definition| (d.section, d.address, d.function, Reverse(d.name.len()));
            key(a).cmp(&key(b)).then_with(|| b.name.cmp(&a.name))
        });
        Ok(Self { list })
    }

    /// The function of an address in a section, or the label if there is no function.
    pub fn function(&self, section: usize, address: u64) -> Option<&str> {
        let below = self.list.partition_point(|d| (d.section, d.address) <= (section, address));
        let below = self.list.get(..below)?.iter().rev().take_while(|d| d.section == section);
        // A label inside a function does not end it.
        let mut label = None;
        for definition in below.take(LABELS) {
            let inside = definition.size == 0 || address - definition.address < definition.size;
            if inside && definition.function {
                return Some(&definition.name);
            }
            if inside && label.is_none() {
                label = Some(&*definition.name);
            }
        }
        label
    }

    /// All of them, by section and address.
    pub fn iter(&self) -> impl Iterator<Item = &Definition> {
        self.list.iter()
    }
}

fn text(strings: &[u8], at: usize) -> String {
    let bytes = strings.get(at..).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

fn context(width: Width) -> Ctx {
    let container = match width {
        Width::Bits32 => Container::Little,
        Width::Bits64 => Container::Big,
    };
    Ctx::new(container, Endian::Little)
}
