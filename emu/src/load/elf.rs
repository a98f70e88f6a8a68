//! A checked view of a little-endian x86 ELF file (System V ABI, chapter 4): headers, segments and sections.
//!
//! The layouts are goblin's; every range is checked here before anything is read through it. No loading, no symbols.

use std::ops::Range;

use goblin::container::{Container, Ctx};
use goblin::elf::Elf;
use goblin::elf::header::{EM_386, EM_X86_64, ET_CORE, ET_DYN, ET_EXEC, ET_REL, machine_to_str};
use goblin::elf::program_header::ProgramHeader;
use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_NOBITS, SHT_NULL, SectionHeader};

/// Why an ELF file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// Not ELF at all.
    #[error("this is no ELF file: it does not begin with 7f 45 4c 46")]
    NotElf,
    /// Something extends past the end of the file.
    #[error(
        "the ELF file is truncated or damaged: its {what} ends at {end:#x}, but the file has {len:#x} bytes"
    )]
    Truncated {
        /// The part that does not fit.
        what: String,
        /// Where the part ends, `u64::MAX` if that overflows.
        end: u64,
        /// Length of the file.
        len: u64,
    },
    /// Class other than 32 or 64 bits.
    #[error("the ELF class is {class}; it must be 1 (32-bit) or 2 (64-bit)")]
    Class {
        /// e_ident\[EI_CLASS\].
        class: u8,
    },
    /// Byte order other than little-endian.
    #[error("the ELF byte order is {data}; it must be 1 (little-endian)")]
    ByteOrder {
        /// e_ident\[EI_DATA\].
        data: u8,
    },
    /// A machine other than x86, or one of the other width.
    #[error("the ELF machine is {machine} ({}) in a {bits}-bit file; it must be {wanted}", machine_to_str(*machine))]
    Machine {
        /// e_machine.
        machine: u16,
        /// Width of the class.
        bits: u32,
        /// The machine of that width.
        wanted: &'static str,
    },
    /// A type that cannot be used here.
    #[error("the ELF type is {kind}; it must be {wanted}")]
    Type {
        /// e_type in words.
        kind: String,
        /// What is accepted.
        wanted: &'static str,
    },
    /// A table with entries of the wrong size.
    #[error("the ELF {what} has entries of {size} bytes; it must be {wanted}")]
    EntrySize {
        /// The table.
        what: &'static str,
        /// Its entry size.
        size: u64,
        /// The entry size of this class.
        wanted: u64,
    },
    /// A part that goblin could not read.
    #[error("the ELF {what} cannot be read: {reason}")]
    Malformed {
        /// The part.
        what: &'static str,
        /// The message of goblin.
        reason: String,
    },
}

/// Width of an ELF file or of the code in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 32 bits (IA32).
    Bits32,
    /// 64 bits (x86-64).
    Bits64,
}

impl Width {
    /// 32 or 64.
    pub fn bits(self) -> u32 {
        match self {
            Self::Bits32 => 32,
            Self::Bits64 => 64,
        }
    }

    /// The highest address.
    pub fn max_addr(self) -> u64 {
        match self {
            Self::Bits32 => u64::from(u32::MAX),
            Self::Bits64 => u64::MAX,
        }
    }
}

/// One section header with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name, empty if that cannot be read.
    pub name: String,
    /// sh_type.
    pub kind: u32,
    /// sh_flags.
    pub flags: u64,
    /// sh_addr.
    pub addr: u64,
    /// sh_offset.
    pub offset: u64,
    /// sh_size in bytes.
    pub size: u64,
    /// sh_link.
    pub link: u32,
    /// sh_info.
    pub info: u32,
    /// sh_entsize in bytes.
    pub entry_size: u64,
}

impl Section {
    /// True if it occupies memory at run time.
    pub fn is_alloc(&self) -> bool {
        self.flags & u64::from(SHF_ALLOC) != 0
    }

    /// True if it can be written at run time.
    pub fn is_writable(&self) -> bool {
        self.flags & u64::from(SHF_WRITE) != 0
    }

    /// True if it holds instructions.
    pub fn is_executable(&self) -> bool {
        self.flags & u64::from(SHF_EXECINSTR) != 0
    }

    /// True if a Linux kernel executes it where it is. Its `.data` is flagged as executable too if it has code that is copied
    /// before it runs (`relocate_kernel`).
    pub fn is_linux_code(&self) -> bool {
        self.is_executable() && !self.is_writable()
    }
}

/// The section header table as it is in the file.
pub(crate) struct SectionTable<'a> {
    /// Entries.
    pub count: u32,
    /// Bytes of an entry.
    pub entry_size: u32,
    /// The entry of the section names.
    pub names: u32,
    /// The entries.
    pub bytes: &'a [u8],
}

/// A parsed ELF file over its bytes.
#[derive(Clone, Debug)]
pub struct ElfView<'a> {
    bytes: &'a [u8],
    width: Width,
    kind: u16,
    entry: u64,
    programs: Vec<ProgramHeader>,
    sections: Vec<Section>,
}

impl<'a> ElfView<'a> {
    /// True if `bytes` begin with ELF's magic number.
    pub fn recognises(bytes: &[u8]) -> bool {
        bytes.starts_with(b"\x7fELF")
    }

    /// Checks the identification and reads both header tables.
    ///
    /// # Errors
    /// Not ELF, not for x86, or a table outside the file.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ElfError> {
        if !Self::recognises(bytes) {
            return Err(ElfError::NotElf);
        }
        let width = identify(bytes)?;
        let header = Elf::parse_header(bytes).map_err(|error| malformed("header", &error))?;
        check_machine(header.e_machine, width)?;
        let ctx = context(width);
        let programs = if header.e_phnum == 0 {
            Vec::new()
        } else {
            let wanted = ProgramHeader::size(ctx) as u64;
            check_entry("program header table", u64::from(header.e_phentsize), wanted)?;
            let count = u64::from(header.e_phnum);
            let table = slice(bytes, "program header table", header.e_phoff, count.checked_mul(wanted))?;
            ProgramHeader::parse(table, 0, usize::from(header.e_phnum), ctx)
                .map_err(|error| malformed("program header table", &error))?
        };
        let mut view =
            Self { bytes, width, kind: header.e_type, entry: header.e_entry, programs, sections: Vec::new() };
        let (size, names) = (header.e_shentsize, header.e_shstrndx);
        view.sections = view.read_sections(header.e_shoff, header.e_shnum, size, names)?;
        Ok(view)
    }

    /// Width of the file.
    pub fn width(&self) -> Width {
        self.width
    }

    /// e_entry.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// The whole file.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The program headers in file order.
    pub fn programs(&self) -> &[ProgramHeader] {
        &self.programs
    }

    /// The section headers in file order, the null section included.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The section header table, if there is one.
    pub(crate) fn section_table(&self) -> Option<SectionTable<'a>> {
        let header = Elf::parse_header(self.bytes).ok().filter(|header| header.e_shoff != 0)?;
        let (count, entry_size) = (self.sections.len() as u32, u32::from(header.e_shentsize));
        let size = u64::from(count) * u64::from(entry_size);
        let bytes = slice(self.bytes, "section header table", header.e_shoff, Some(size)).ok()?;
        Some(SectionTable { count, entry_size, names: header.e_shstrndx.into(), bytes })
    }

    /// True for ET_DYN: position-independent.
    pub fn is_dynamic(&self) -> bool {
        self.kind == ET_DYN
    }

    /// True for ET_REL: an object that is yet to be linked, as a Linux kernel module is.
    pub fn is_relocatable(&self) -> bool {
        self.kind == ET_REL
    }

    /// Refuses types other than ET_EXEC, and other than ET_DYN if `or_dynamic`.
    ///
    /// # Errors
    /// The type is another; the message says which is accepted.
    pub fn check_type(&self, or_dynamic: bool) -> Result<(), ElfError> {
        if self.kind == ET_EXEC || (or_dynamic && self.kind == ET_DYN) {
            return Ok(());
        }
        let kind = match self.kind {
            ET_REL => "REL (relocatable object)".to_owned(),
            ET_DYN => "DYN (position-independent, as a program is)".to_owned(),
            ET_CORE => "CORE (core dump)".to_owned(),
            other => format!("{other}"),
        };
        Err(ElfError::Type {
            kind,
            wanted: if or_dynamic { "EXEC or DYN" } else { "EXEC (fixed addresses)" },
        })
    }

    /// Checks that every segment and section lies inside the file: a file cut anywhere is noticed here.
    ///
    /// # Errors
    /// The first part that ends outside.
    pub fn check_complete(&self) -> Result<(), ElfError> {
        for (index, program) in self.programs.iter().enumerate() {
            range(self.bytes.len(), || format!("segment {index}"), program.p_offset, Some(program.p_filesz))?;
        }
        for (index, section) in self.sections.iter().enumerate() {
            if section.kind != SHT_NOBITS && section.kind != SHT_NULL {
                let what = || format!("section {index} {}", section.name);
                range(self.bytes.len(), what, section.offset, Some(section.size))?;
            }
        }
        Ok(())
    }

    /// The bytes of a section in the file; empty for one without.
    ///
    /// # Errors
    /// The section lies outside the file.
    pub fn section_bytes(&self, section: &Section) -> Result<&'a [u8], ElfError> {
        if section.kind == SHT_NOBITS || section.kind == SHT_NULL {
            return Ok(&[]);
        }
        let range = range(
            self.bytes.len(),
            || format!("section {}", section.name),
            section.offset,
            Some(section.size),
        )?;
        Ok(self.bytes.get(range).unwrap_or(&[]))
    }

    /// The bytes of a segment as a range of the file.
    ///
    /// # Errors
    /// The segment lies outside the file.
    pub fn segment_range(&self, index: usize, program: &ProgramHeader) -> Result<Range<usize>, ElfError> {
        range(self.bytes.len(), || format!("segment {index}"), program.p_offset, Some(program.p_filesz))
    }

    /// The width and byte order of this file, for goblin.
    pub(crate) fn ctx(&self) -> Ctx {
        context(self.width)
    }

    fn read_sections(
        &self,
        offset: u64,
        count: u16,
        entry: u16,
        names: u16,
    ) -> Result<Vec<Section>, ElfError> {
        const WHAT: &str = "section header table";
        if offset == 0 {
            return Ok(Vec::new());
        }
        let ctx = context(self.width);
        let wanted = SectionHeader::size(ctx) as u64;
        check_entry(WHAT, u64::from(entry), wanted)?;
        let read = |count: u64| {
            let table = slice(self.bytes, WHAT, offset, count.checked_mul(wanted))?;
            SectionHeader::parse_from(table, 0, usize::try_from(count).unwrap_or(usize::MAX), ctx)
                .map_err(|error| malformed(WHAT, &error))
        };
        // A count or name index that does not fit is in the null section (System V ABI, "Sections").
        let first = read(1)?.into_iter().next().unwrap_or_else(SectionHeader::new);
        let headers = match count {
            0 => read(first.sh_size.max(1))?,
            count => read(u64::from(count))?,
        };
        let names = if u32::from(names) == 0xffff { first.sh_link as usize } else { usize::from(names) };
        let strings = headers
            .get(names)
            .filter(|header| header.sh_type != SHT_NOBITS && names != 0)
            .map(|header| slice(self.bytes, "section name table", header.sh_offset, Some(header.sh_size)))
            .transpose()?
            .unwrap_or(&[]);
        Ok(headers.iter().map(|header| section(header, strings)).collect())
    }
}

fn section(header: &SectionHeader, strings: &[u8]) -> Section {
    Section {
        name: string_at(strings, header.sh_name).unwrap_or_default(),
        kind: header.sh_type,
        flags: header.sh_flags,
        addr: header.sh_addr,
        offset: header.sh_offset,
        size: header.sh_size,
        link: header.sh_link,
        info: header.sh_info,
        entry_size: header.sh_entsize,
    }
}

/// The NUL-terminated string at `offset` of a string table; bytes that are not UTF-8 are replaced.
pub(crate) fn string_at(strings: &[u8], offset: usize) -> Option<String> {
    let rest = strings.get(offset..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(rest.get(..end)?).into_owned())
}

fn context(width: Width) -> Ctx {
    let container = match width {
        Width::Bits32 => Container::Little,
        Width::Bits64 => Container::Big,
    };
    Ctx::new(container, goblin::container::Endian::Little)
}

/// Class and byte order, and that the file header is complete.
fn identify(bytes: &[u8]) -> Result<Width, ElfError> {
    let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
    if bytes.len() < 16 {
        return Err(truncated("identification", 16, bytes.len()));
    }
    let (width, size) = match at(4) {
        1 => (Width::Bits32, 52),
        2 => (Width::Bits64, 64),
        class => return Err(ElfError::Class { class }),
    };
    if at(5) != 1 {
        return Err(ElfError::ByteOrder { data: at(5) });
    }
    if bytes.len() < size {
        return Err(truncated("header", size as u64, bytes.len()));
    }
    Ok(width)
}

fn check_machine(machine: u16, width: Width) -> Result<(), ElfError> {
    let (right, wanted) = match width {
        Width::Bits32 => (EM_386, "3 (i386)"),
        Width::Bits64 => (EM_X86_64, "62 (x86-64)"),
    };
    if machine == right { Ok(()) } else { Err(ElfError::Machine { machine, bits: width.bits(), wanted }) }
}

fn check_entry(what: &'static str, size: u64, wanted: u64) -> Result<(), ElfError> {
    if size == wanted { Ok(()) } else { Err(ElfError::EntrySize { what, size, wanted }) }
}

fn malformed(what: &'static str, error: &goblin::error::Error) -> ElfError {
    ElfError::Malformed { what, reason: error.to_string() }
}

fn truncated(what: &str, end: u64, len: usize) -> ElfError {
    ElfError::Truncated { what: what.to_owned(), end, len: len as u64 }
}

fn slice<'a>(bytes: &'a [u8], what: &str, offset: u64, size: Option<u64>) -> Result<&'a [u8], ElfError> {
    let range = range(bytes.len(), || what.to_owned(), offset, size)?;
    Ok(bytes.get(range).unwrap_or(&[]))
}

/// `offset..offset + size` if that lies in a file of `len` bytes. An empty range lies anywhere.
fn range(
    len: usize,
    what: impl Fn() -> String,
    offset: u64,
    size: Option<u64>,
) -> Result<Range<usize>, ElfError> {
    if size == Some(0) {
        return Ok(0..0);
    }
    let end = size.and_then(|size| offset.checked_add(size));
    let bounds = end
        .filter(|end| *end <= len as u64)
        .and_then(|end| Some(usize::try_from(offset).ok()?..usize::try_from(end).ok()?));
    bounds.ok_or_else(|| truncated(&what(), end.unwrap_or(u64::MAX), len))
}
