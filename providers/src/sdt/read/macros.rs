//! Macro-declared probes: global function pointers whose symbols contain prefix, argument types and name.
//!
//! `systemtap_probe_ns__request` is the pointer of the probe `request` with an integer and a string; `dtrace_probe_` is
//! a prefix too. A pointer's points are found through the notes that `trapline/probe.h` leaves (owner `trapline`, type
//! 1: address of the point, address of the pointer, symbol, `file:line`, the source text of each argument); a pointer
//! that was declared otherwise has none. A point calls through its pointer if that is not 0, by the C calling
//! convention. Source: US patent 8,739,135; docs/providers.md, "Macro-declared probes".

use super::notes::Frame;
use super::operand::{Argument, Format, Memory, Operand};
use super::register::Register;
use crate::object::elf::{Definitions, Homes, Segments, check_sections, relocations, word};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use trapline_emu::load::{ElfError, ElfView, Width};

/// Prefixes of a pointer's symbol.
const PREFIXES: [&str; 2] = ["systemtap_probe_", "dtrace_probe_"];
/// Section, owner and type of the notes.
const SECTION: &str = ".note.trapline";
const OWNER: &[u8] = b"trapline\0";
const TYPE: u32 = 1;
/// Most arguments of a probe. The header allows six; a pointer that was declared otherwise may have more.
const MOST: usize = 16;
/// Arguments that a call in 64-bit code passes in registers; the others are on the stack.
const REGISTERS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];

/// The type of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letter {
    /// `n`: a signed integer of the machine's word.
    Integer,
    /// `s`: the address of a string that ends with NUL.
    Text,
    /// `l`: a signed integer of 64 bits.
    Long,
    /// `p`: an address.
    Pointer,
}

impl Letter {
    /// The type of a letter.
    pub fn of(letter: char) -> Option<Self> {
        Some(match letter {
            'n' => Self::Integer,
            's' => Self::Text,
            'l' => Self::Long,
            'p' => Self::Pointer,
            _ => return None,
        })
    }

    /// How its value is read in code of `width`.
    pub fn format(self, width: Width) -> Format {
        let word = (width.bits() / 8) as u8;
        match self {
            Self::Integer => Format { bytes: word, signed: true, float: false },
            Self::Long => Format { bytes: 8, signed: true, float: false },
            Self::Text | Self::Pointer => Format::unsigned(word),
        }
    }
}

impl fmt::Display for Letter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Integer => "n",
            Self::Text => "s",
            Self::Long => "l",
            Self::Pointer => "p",
        })
    }
}

/// A probe: a pointer and its points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacroProbe {
    /// Its name.
    pub name: String,
    /// Its arguments' types.
    pub types: Vec<Letter>,
    /// The pointer's symbol.
    pub symbol: String,
    /// Index of the pointer's section.
    pub section: usize,
    /// Address of the pointer as linked; in a relocatable file the offset in its section.
    pub pointer: u64,
    /// Width of pointer and code.
    pub width: Width,
    /// The points that call it, as far as notes tell.
    pub points: Vec<Point>,
}

/// A point that calls a probe.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Address of the test, as linked.
    pub address: u64,
    /// The function that it lies in, empty if no symbol covers it.
    pub function: String,
    /// Source file and line, empty if not known.
    pub source: String,
    /// The source text of the arguments.
    pub arguments: Vec<String>,
}

/// A refused symbol or note, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the macro-declared probe {symbol:?}: {kind}")]
pub struct MacroError {
    /// The symbol, or its text in a note.
    pub symbol: String,
    /// Why it is refused.
    pub kind: MacroErrorKind,
}

/// What is wrong with a symbol or note.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MacroErrorKind {
    /// An unknown type letter.
    #[error("the argument type {0:?} is unknown; use n, s, l or p")]
    Letter(char),
    /// A symbol that does not say what the arguments are.
    #[error(
        "its symbol does not say what its arguments are; their letters (n, s, l or p, or none) and `__` must stand before {0:?}"
    )]
    NoLetters(String),
    /// Too many.
    #[error("it has {0} arguments; at most {MOST} are allowed")]
    TooMany(usize),
    /// A name that no probe can have.
    #[error("{0:?} is not a name; use letters, digits and punctuation except `:`")]
    Name(String),
    /// The place cannot hold a pointer.
    #[error(
        "the {size} bytes at {address:#x} are not a pointer; it must have {wanted} aligned bytes of writable memory"
    )]
    NoPointer {
        /// The symbol's value.
        address: u64,
        /// Its size.
        size: u64,
        /// The size of a pointer.
        wanted: u64,
    },
    /// A note that is cut off.
    #[error("its note at file offset {0:#x} is cut off")]
    Note(u64),
    /// A note whose point is not in code.
    #[error("its point at {0:#x} is not in code")]
    Point(u64),
    /// A note for another pointer than the symbol's.
    #[error("its note says that the pointer is at {0:#x}, but there is no pointer of that name")]
    OtherPointer(u64),
}

/// The probes of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MacroProbes {
    /// The probes, by section and address of the pointer.
    pub probes: Vec<MacroProbe>,
    /// The refused entries.
    pub refused: Vec<MacroError>,
}

impl MacroProbes {
    /// Finds the probes of a program, kernel or module by its symbols, and their points by its notes. In a linked file
    /// whose symbols were stripped the notes suffice.
    ///
    /// # Errors
    /// A table of the file lies outside it.
    pub fn read(view: &ElfView<'_>) -> Result<Self, ElfError> {
        check_sections(view)?;
        let mut found = Self::default();
        let definitions = Definitions::of(view)?;
        let scanner = Scanner {
            view,
            segments: Segments::of(view),
            homes: Homes::of(view),
            definitions: &definitions,
            named: definitions.iter().map(|definition| definition.name.as_str()).collect(),
        };
        for definition in definitions.iter().filter(|definition| !definition.function) {
            let Some(rest) = suffix(&definition.name) else { continue };
            let (section, address, size) = (definition.section, definition.address, definition.size);
            match rest.and_then(|rest| scanner.probe(&definition.name, rest, section, address, size)) {
                Ok(probe) => found.probes.push(probe),
                Err(kind) => found.refused.push(MacroError { symbol: definition.name.clone(), kind }),
            }
        }
        let probes = found.probes.iter().enumerate();
        let mut known = probes.map(|(n, p)| ((p.pointer, p.symbol.clone()), n)).collect();
        for (index, section) in view.sections().iter().enumerate().filter(|(_, s)| s.name == SECTION) {
            let places = Places::of(view, index)?;
            let notes = Notes { bytes: view.section_bytes(section)?, offset: section.offset, places };
            scanner.notes(&notes, &mut found, &mut known);
        }
        found.probes.sort_by_key(|probe| (probe.section, probe.pointer));
        for probe in &mut found.probes {
            probe.points.sort();
            probe.points.dedup();
        }
        Ok(found)
    }
}

/// What follows the prefix of a probe: letters, two underscores, a name; `None` if a symbol has no such prefix.
fn suffix(symbol: &str) -> Option<Result<(&str, &str), MacroErrorKind>> {
    let rest = PREFIXES.iter().find_map(|prefix| symbol.strip_prefix(prefix))?;
    let Some((letters, name)) = rest.split_once("__") else {
        return Some(Err(MacroErrorKind::NoLetters(rest.to_owned())));
    };
    // A static variable of a function has a number after its name.
    Some(Ok((letters, name.split_once('.').map_or(name, |(base, _)| base))))
}

/// Numbers of the probes that are known, by pointer and symbol.
type Known = BTreeMap<(u64, String), usize>;

/// A section of notes: its bytes, its offset in the file, and what its words refer to.
struct Notes<'a> {
    bytes: &'a [u8],
    offset: u64,
    places: Places,
}

/// What words of a section refer to.
enum Places {
    /// The words are addresses.
    Linked,
    /// By the offset of a word: the section, the address there, and whether the word holds a number to add.
    Relocated(BTreeMap<u64, (usize, u64, bool)>),
}

impl Places {
    fn of(view: &ElfView<'_>, index: usize) -> Result<Self, ElfError> {
        if !view.programs().is_empty() {
            return Ok(Self::Linked);
        }
        let mut places = BTreeMap::new();
        for table in view.sections().iter().filter(|table| table.info as usize == index) {
            for to in relocations(view, table)? {
                let value = to.value.wrapping_add(to.addend.map_or(0, i64::cast_unsigned));
                places.insert(to.offset, (to.section, value, to.addend.is_none()));
            }
        }
        Ok(Self::Relocated(places))
    }

    /// The section and the address that word `n` at `from` refers to; it holds `held`.
    fn place(&self, scanner: &Scanner<'_>, from: usize, n: usize, held: u64) -> Option<(usize, u64)> {
        match self {
            Self::Linked => Some((scanner.homes.at(held).unwrap_or_default(), held)),
            Self::Relocated(places) => {
                let width = scanner.view.width();
                let at = from as u64 + n as u64 * u64::from(width.bits() / 8);
                let (section, value, adds) = *places.get(&at)?;
                Some((section, if adds { value.wrapping_add(held) & width.max_addr() } else { value }))
            }
        }
    }
}

struct Scanner<'a> {
    view: &'a ElfView<'a>,
    segments: Segments<'a>,
    homes: Homes,
    definitions: &'a Definitions,
    /// All names of the symbol table.
    named: BTreeSet<&'a str>,
}

impl Scanner<'_> {
    fn probe(
        &self,
        symbol: &str,
        (letters, name): (&str, &str),
        section: usize,
        address: u64,
        size: u64,
    ) -> Result<MacroProbe, MacroErrorKind> {
        let letter = |c| Letter::of(c).ok_or(MacroErrorKind::Letter(c));
        let types = letters.chars().map(letter).collect::<Result<Vec<_>, _>>()?;
        if types.len() > MOST {
            return Err(MacroErrorKind::TooMany(types.len()));
        }
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_graphic() && c != ':') {
            return Err(MacroErrorKind::Name(name.to_owned()));
        }
        let wanted = u64::from(self.view.width().bits() / 8);
        let right_size = size == 0 || size == wanted;
        if !right_size || !address.is_multiple_of(wanted) || !self.is_writable(section, address, wanted) {
            return Err(MacroErrorKind::NoPointer { address, size, wanted });
        }
        Ok(MacroProbe {
            name: name.to_owned(),
            types,
            symbol: symbol.to_owned(),
            section,
            pointer: address,
            width: self.view.width(),
            points: Vec::new(),
        })
    }

    fn is_writable(&self, section: usize, address: u64, len: u64) -> bool {
        if !self.view.programs().is_empty() {
            return self.segments.writable(address, len);
        }
        self.view.sections().get(section).is_some_and(|home| {
            let inside = address.checked_add(len).is_some_and(|end| end <= home.size);
            inside && home.is_writable() && !home.is_executable()
        })
    }

    fn notes(&self, notes: &Notes<'_>, found: &mut MacroProbes, known: &mut Known) {
        let mut into = 0;
        while let Some(bytes) = notes.bytes.get(into..).filter(|bytes| !bytes.is_empty()) {
            let at = notes.offset + into as u64;
            let Some(note) = Frame::of(bytes) else {
                let kind = MacroErrorKind::Note(at);
                found.refused.push(MacroError { symbol: String::new(), kind });
                return;
            };
            if note.owner == OWNER && note.kind == TYPE {
                let words = into + note.start;
                self.note(
                    note.content,
                    at,
                    &|n, held| notes.places.place(self, words, n, held),
                    found,
                    known,
                );
            }
            into += note.len;
        }
    }

    /// Reads a note; `place` gives the section and the address there of one of its words.
    fn note(
        &self,
        content: &[u8],
        at: u64,
        place: &dyn Fn(usize, u64) -> Option<(usize, u64)>,
        found: &mut MacroProbes,
        known: &mut Known,
    ) {
        let bytes = (self.view.width().bits() / 8) as usize;
        let address = |n: usize| place(n, word(content.get(n * bytes..)?, self.view.width())?);
        let mut texts: Vec<String> = content
            .get(2 * bytes..)
            .unwrap_or_default()
            .split(|byte| *byte == 0)
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .collect();
        // Nothing follows the last NUL; if something does, the NUL is missing.
        let whole = texts.pop().is_some_and(|rest| rest.is_empty()) && texts.len() >= 2;
        let mut texts = texts.into_iter();
        let (symbol, source) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        let mut refuse =
            |symbol: &str, kind| found.refused.push(MacroError { symbol: symbol.to_owned(), kind });
        let (true, Some((home, point)), Some((section, pointer))) = (whole, address(0), address(1)) else {
            return refuse(&symbol, MacroErrorKind::Note(at));
        };
        if !self.is_code(home, point) {
            return refuse(&symbol, MacroErrorKind::Point(point));
        }
        let key = (pointer, symbol);
        let index = match known.get(&key) {
            Some(index) => *index,
            None => match self.unnamed(&key.1, section, pointer) {
                Ok(probe) => {
                    found.probes.push(probe);
                    known.insert(key, found.probes.len() - 1);
                    found.probes.len() - 1
                }
                Err(kind) => return refuse(&key.1, kind),
            },
        };
        let function = self.definitions.function(home, point).unwrap_or_default();
        let point =
            Point { address: point, function: function.to_owned(), source, arguments: texts.collect() };
        if let Some(probe) = found.probes.get_mut(index) {
            probe.points.push(point);
        }
    }

    /// Whether an address in a section is one of code.
    fn is_code(&self, section: usize, address: u64) -> bool {
        if !self.view.programs().is_empty() {
            return self.segments.code(address).is_some();
        }
        let home = self.view.sections().get(section);
        home.is_some_and(|home| home.is_executable() && address < home.size)
    }

    /// The probe of a note whose symbol was stripped.
    fn unnamed(&self, symbol: &str, section: usize, pointer: u64) -> Result<MacroProbe, MacroErrorKind> {
        match suffix(symbol).filter(|_| !self.named.contains(symbol)) {
            Some(rest) => rest.and_then(|rest| self.probe(symbol, rest, section, pointer, 0)),
            None => Err(MacroErrorKind::OtherPointer(pointer)),
        }
    }
}

impl MacroProbe {
    /// The location and type of each argument at the start of the called function, with the return address on top of
    /// the stack.
    pub fn arguments(&self) -> Vec<(Letter, Argument)> {
        let (word, stack) = match self.width {
            Width::Bits32 => (4, Register::ESP),
            Width::Bits64 => (8, Register::RSP),
        };
        let mut slot = 1;
        let place = |(n, letter): (usize, &Letter)| {
            let format = letter.format(self.width);
            let register = REGISTERS.get(n).filter(|_| self.width == Width::Bits64);
            let operand = match register.and_then(|name| Register::named(name)) {
                Some(register) => Operand::Register(register),
                None => {
                    let displacement = word * slot;
                    slot += i64::from(format.bytes) / word;
                    Operand::Memory(Memory { displacement, base: Some(stack), ..Memory::default() })
                }
            };
            (*letter, Argument { format, operand })
        };
        self.types.iter().enumerate().map(place).collect()
    }
}
