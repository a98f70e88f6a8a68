//! `.note.stapsdt`: the probe points that `<sys/sdt.h>` leaves in programs and libraries.
//!
//! Each is an ELF note, name `stapsdt`, type 3, aligned to 4 bytes in both classes: three addresses of the class's
//! width (site, base, semaphore), then provider, name and arguments, each ended by NUL. If a tool has moved the file
//! (prelink), its section `.stapsdt.base` moved with it and tells by how much. An invalid note is refused
//! alone; an error in an argument is kept with that argument.
//!
//! Only the file is read; addresses are as linked. Source: the SystemTap wiki's UserSpaceProbeImplementation.

use super::grammar::{ArgumentError, arguments};
use super::operand::Argument;
use crate::object::elf::{Segments, check_sections, word};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use trapline_emu::PAGE;
use trapline_emu::load::{ElfError, ElfView, Width};

/// The section of the notes, and the section whose address tells how far the file was moved.
const SECTION: &str = ".note.stapsdt";
const BASE: &str = ".stapsdt.base";
/// Owner and type of the notes.
const OWNER: &[u8] = b"stapsdt\0";
const TYPE: u32 = 3;
/// Bytes of a note's header: three words.
const HEADER: usize = 12;
/// Longest x86 instruction.
const LONGEST: usize = 15;

/// A probe point of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StapProbe {
    /// Its provider, as named by the program.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// Address of its NOP, as linked.
    pub address: u64,
    /// The same as an offset in the file.
    pub offset: u64,
    /// Linked address of its semaphore, a u16 that counts the tracers; `None` if it has none.
    pub semaphore: Option<u64>,
    /// Its arguments in order; those that cannot be read with the reason.
    pub arguments: Vec<Result<Argument, ArgumentError>>,
    /// The content of the note.
    pub note: RawNote,
}

/// A note of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawNote {
    /// Offset of the note in the file.
    pub at: u64,
    /// Bytes of its content.
    pub size: u32,
    /// Site.
    pub site: u64,
    /// Base at link time.
    pub base: u64,
    /// Semaphore, 0 for none.
    pub semaphore: u64,
    /// Arguments.
    pub arguments: String,
}

/// A refused note, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the probe note at file offset {at:#x}{}: {kind}", .name.as_ref().map(|n| format!(", {n}")).unwrap_or_default())]
pub struct NoteError {
    /// Offset of the note in the file.
    pub at: u64,
    /// `provider:name`, once that is known.
    pub name: Option<String>,
    /// Why it is refused.
    pub kind: NoteErrorKind,
}

/// What is wrong with a note.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteErrorKind {
    /// It does not fit its section. Later notes cannot be found.
    #[error("it needs {needs:#x} bytes, but its section has {has:#x} left; later notes are lost")]
    Framing {
        /// Its size according to its header.
        needs: u64,
        /// Bytes that are left.
        has: u64,
    },
    /// Its content ends too early.
    #[error("its {size} bytes end before {what}")]
    Short {
        /// Bytes of its content.
        size: usize,
        /// What is missing.
        what: &'static str,
    },
    /// An invalid provider or name.
    #[error("{what} {text:?} is not a name; use letters, digits and punctuation except `:`")]
    Name {
        /// Provider or name.
        what: &'static str,
        /// Its text.
        text: String,
    },
    /// The site is not in the file's code.
    #[error("its site {0:#x} is not in an executable segment of the file")]
    Site(u64),
    /// The instruction at the site is not a NOP.
    #[error("the byte at its site {at:#x} is {found:#04x}, not a NOP (90)")]
    NotNop {
        /// The site.
        at: u64,
        /// The byte there.
        found: u8,
    },
    /// The semaphore is not in writable memory.
    #[error("its semaphore {0:#x} is not in a writable segment")]
    Semaphore(u64),
    /// The semaphore crosses a page boundary: a process may have a private copy of only one of the pages.
    #[error("its semaphore {0:#x} crosses a page boundary")]
    SemaphoreCrosses(u64),
}

/// The notes of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StapNotes {
    /// The probe points, in the order of the file.
    pub probes: Vec<StapProbe>,
    /// The refused notes.
    pub refused: Vec<NoteError>,
}

impl StapNotes {
    /// Reads the notes of a program or library. A file without any has none.
    ///
    /// # Errors
    /// The file is not a program or library for x86, or the section lies outside it.
    pub fn read(view: &ElfView<'_>) -> Result<Self, ElfError> {
        view.check_type(true)?;
        check_sections(view)?;
        let mut found = Self::default();
        let moved_to = view.sections().iter().find(|section| section.name == BASE).map(|base| base.addr);
        let reader = Reader { width: view.width(), segments: Segments::of(view), moved_to };
        for section in view.sections().iter().filter(|section| section.name == SECTION) {
            reader.section(view.section_bytes(section)?, section.offset, &mut found);
        }
        Ok(found)
    }
}

struct Reader<'a> {
    width: Width,
    segments: Segments<'a>,
    moved_to: Option<u64>,
}

impl Reader<'_> {
    fn section(&self, mut bytes: &[u8], offset: u64, found: &mut StapNotes) {
        let mut at = offset;
        while !bytes.is_empty() {
            let Some(note) = Frame::of(bytes) else {
                let needs = Frame::needs(bytes);
                let kind = NoteErrorKind::Framing { needs, has: bytes.len() as u64 };
                found.refused.push(NoteError { at, name: None, kind });
                return;
            };
            if note.owner == OWNER && note.kind == TYPE {
                let mut name = None;
                match self.probe(note.content, at, &mut name) {
                    Ok(probe) => found.probes.push(probe),
                    Err(kind) => found.refused.push(NoteError { at, name, kind }),
                }
            }
            at += note.len as u64;
            bytes = bytes.get(note.len..).unwrap_or_default();
        }
    }

    fn probe(
        &self,
        content: &[u8],
        at: u64,
        known_as: &mut Option<String>,
    ) -> Result<StapProbe, NoteErrorKind> {
        let short = |what| NoteErrorKind::Short { size: content.len(), what };
        let bytes = (self.width.bits() / 8) as usize;
        let address = |n: usize| word(content.get(n * bytes..)?, self.width);
        let site = address(0).ok_or_else(|| short("the site"))?;
        let base = address(1).ok_or_else(|| short("the base"))?;
        let semaphore = address(2).ok_or_else(|| short("the semaphore"))?;
        let mut texts = content.get(3 * bytes..).unwrap_or_default();
        let mut text = |what| {
            let end = texts.iter().position(|byte| *byte == 0).ok_or_else(|| short(what))?;
            let text = String::from_utf8_lossy(texts.get(..end).unwrap_or_default()).into_owned();
            texts = texts.get(end + 1..).unwrap_or_default();
            Ok::<_, NoteErrorKind>(text)
        };
        let provider = named("the provider", text("the end of the provider")?)?;
        let name = named("the name", text("the end of the name")?)?;
        *known_as = Some(format!("{provider}:{name}"));
        let written = text("the end of the arguments")?;
        let moved = self.moved_to.filter(|_| base != 0).map_or(0, |to| to.wrapping_sub(base));
        let moved = |address: u64| address.wrapping_add(moved) & self.width.max_addr();
        let address = moved(site);
        let (offset, code) = self.segments.code(address).ok_or(NoteErrorKind::Site(address))?;
        let code = code.get(..LONGEST.min(code.len())).unwrap_or_default();
        if Decoder::new(self.width.bits(), code, DecoderOptions::NONE).decode().mnemonic() != Mnemonic::Nop {
            let found = code.first().copied().unwrap_or_default();
            return Err(NoteErrorKind::NotNop { at: address, found });
        }
        let semaphore_at = (semaphore != 0).then(|| moved(semaphore));
        if let Some(at) = semaphore_at.filter(|at| !self.segments.writable(*at, 2)) {
            return Err(NoteErrorKind::Semaphore(at));
        }
        if let Some(at) = semaphore_at.filter(|at| at % PAGE == PAGE - 1) {
            return Err(NoteErrorKind::SemaphoreCrosses(at));
        }
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        Ok(StapProbe {
            provider,
            name,
            address,
            offset,
            semaphore: semaphore_at,
            arguments: arguments(&written, self.width),
            note: RawNote { at, size, site, base, semaphore, arguments: written },
        })
    }
}

/// One note's header and parts.
pub(crate) struct Frame<'a> {
    pub owner: &'a [u8],
    pub kind: u32,
    pub content: &'a [u8],
    /// Bytes before its content.
    pub start: usize,
    /// Bytes up to the next note; the last one's padding may be missing.
    pub len: usize,
}

impl<'a> Frame<'a> {
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let field = |n: usize| word(bytes.get(4 * n..)?, Width::Bits32);
        let owner_size = usize::try_from(field(0)?).ok()?;
        let content_size = usize::try_from(field(1)?).ok()?;
        let content = HEADER.checked_add(owner_size)?.checked_next_multiple_of(4)?;
        let end = content.checked_add(content_size)?;
        Some(Self {
            owner: bytes.get(HEADER..HEADER + owner_size)?,
            kind: u32::try_from(field(2)?).ok()?,
            content: bytes.get(content..end)?,
            start: content,
            len: end.checked_next_multiple_of(4)?.min(bytes.len()),
        })
    }

    /// Size of the note according to its header.
    fn needs(bytes: &[u8]) -> u64 {
        let field = |n: usize| word(bytes.get(4 * n..)?, Width::Bits32);
        match (field(0), field(1)) {
            (Some(owner), Some(content)) => (HEADER as u64 + owner).next_multiple_of(4) + content,
            _ => HEADER as u64,
        }
    }
}

fn named(what: &'static str, text: String) -> Result<String, NoteErrorKind> {
    let plain = |c: char| c.is_ascii_graphic() && c != ':';
    if !text.is_empty() && text.chars().all(plain) {
        Ok(text)
    } else {
        Err(NoteErrorKind::Name { what, text })
    }
}
