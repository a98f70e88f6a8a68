//! A Linux kernel or module for reading its tables: memory by address, and names of addresses.
//!
//! An image has addresses, and its symbols are given, since distributions strip them from the file. A
//! relocatable module is laid out here, section after section, from a fixed address, and its relocations are
//! applied, so that its tables read as in memory. Undefined names get addresses after its end.

use crate::object::elf::{Definitions, check_sections, relocations};
use goblin::elf::section_header::SHT_NOBITS;
use std::collections::BTreeMap;
use std::ops::Range;
use trapline_emu::load::{ElfError, ElfView, Width};
use trapline_emu::symbols::Symbols;

/// The address at which a module is laid out.
const MODULE: u64 = 0x10_0000;
/// Alignment of sections there, and distance of undefined symbols.
const ALIGN: u64 = 0x1000;
const UNDEFINED: u64 = 16;

/// A kernel or module.
#[derive(Debug, Clone)]
pub struct KernelFile {
    width: Width,
    /// By address.
    pieces: BTreeMap<u64, Piece>,
    names: BTreeMap<String, u64>,
    by_address: BTreeMap<u64, String>,
}

/// A section.
#[derive(Debug, Clone)]
struct Piece {
    name: String,
    bytes: Vec<u8>,
}

impl KernelFile {
    /// An image with `symbols` and the symbols of its file.
    ///
    /// # Errors
    /// A section lies outside the file.
    pub fn image(view: &ElfView<'_>, symbols: &Symbols) -> Result<Self, ElfError> {
        check_sections(view)?;
        let mut file = Self::new(view.width());
        for section in view.sections().iter().filter(|section| section.is_alloc() && section.addr != 0) {
            let bytes = view.section_bytes(section)?.to_vec();
            if !bytes.is_empty() {
                file.pieces.insert(section.addr, Piece { name: section.name.clone(), bytes });
            }
        }
        for definition in Definitions::of(view)?.iter() {
            file.name(&definition.name, definition.address);
        }
        for symbol in symbols.iter() {
            file.name(&symbol.name, symbol.addr);
        }
        Ok(file)
    }

    /// A relocatable module.
    ///
    /// # Errors
    /// A section or table lies outside the file.
    pub fn module(view: &ElfView<'_>) -> Result<Self, ElfError> {
        check_sections(view)?;
        let mut file = Self::new(view.width());
        let mut bases = vec![None; view.sections().len()];
        let mut next = MODULE;
        for (section, base) in view.sections().iter().zip(&mut bases).filter(|(s, _)| s.is_alloc()) {
            // Sections without bytes have no tables.
            let bytes =
                if section.kind == SHT_NOBITS { Vec::new() } else { view.section_bytes(section)?.to_vec() };
            *base = Some(next);
            file.pieces.insert(next, Piece { name: section.name.clone(), bytes });
            next = next.saturating_add(section.size).saturating_add(ALIGN) & !(ALIGN - 1);
        }
        let base_of = |section: usize| bases.get(section).copied().flatten();
        for definition in Definitions::of(view)?.iter() {
            if let Some(base) = base_of(definition.section) {
                file.name(&definition.name, base.wrapping_add(definition.address));
            }
        }
        for table in view.sections() {
            let Some(base) = base_of(table.info as usize) else { continue };
            for relocation in relocations(view, table)? {
                let value = match base_of(relocation.section) {
                    Some(home) => home.wrapping_add(relocation.value),
                    None => *file.names.entry(relocation.symbol.clone()).or_insert_with(|| {
                        next += UNDEFINED;
                        next - UNDEFINED
                    }),
                };
                if base_of(relocation.section).is_none() {
                    file.by_address.entry(value).or_insert_with(|| relocation.symbol.clone());
                }
                file.fill(base.wrapping_add(relocation.offset), relocation.kind, value, relocation.addend);
            }
        }
        Ok(file)
    }

    fn new(width: Width) -> Self {
        Self { width, pieces: BTreeMap::new(), names: BTreeMap::new(), by_address: BTreeMap::new() }
    }

    fn name(&mut self, name: &str, address: u64) {
        self.names.entry(name.to_owned()).or_insert(address);
        self.by_address.entry(address).or_insert_with(|| name.to_owned());
    }

    /// Applies one relocation; types that tables do not use are ignored.
    fn fill(&mut self, at: u64, kind: u32, value: u64, addend: Option<i64>) {
        // (bytes, relative): R_X86_64_64, PC32, PLT32, 32, 32S, PC64; R_386_32, PC32, PLT32.
        let (bytes, relative) = match (self.width, kind) {
            (Width::Bits64, 1) => (8, false),
            (Width::Bits64, 2 | 4) | (Width::Bits32, 2 | 4) => (4, true),
            (Width::Bits64, 10 | 11) | (Width::Bits32, 1) => (4, false),
            (Width::Bits64, 24) => (8, true),
            _ => return,
        };
        let Some(place) = self.place_mut(at, bytes) else { return };
        let mut held = [0; 8];
        if let Some(low) = held.get_mut(..bytes) {
            low.copy_from_slice(place);
        }
        let addend = addend.map_or(u64::from_le_bytes(held), i64::cast_unsigned);
        let filled = value.wrapping_add(addend).wrapping_sub(if relative { at } else { 0 });
        place.copy_from_slice(filled.to_le_bytes().get(..bytes).unwrap_or_default());
    }

    fn place_mut(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let (address, piece) = self.pieces.range_mut(..=at).next_back()?;
        let into = usize::try_from(at - address).ok()?;
        piece.bytes.get_mut(into..into.checked_add(len)?)
    }

    /// Width of addresses.
    pub fn width(&self) -> Width {
        self.width
    }

    /// `len` bytes at an address.
    pub fn bytes(&self, at: u64, len: usize) -> Option<&[u8]> {
        self.from(at).get(..len)
    }

    /// The bytes from an address to the end of its section, at most `most`.
    pub fn prefix(&self, at: u64, most: usize) -> &[u8] {
        let bytes = self.from(at);
        bytes.get(..most).unwrap_or(bytes)
    }

    fn from(&self, at: u64) -> &[u8] {
        let Some((address, piece)) = self.pieces.range(..=at).next_back() else { return &[] };
        usize::try_from(at - address).ok().and_then(|into| piece.bytes.get(into..)).unwrap_or_default()
    }

    /// The address of a name.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.names.get(name).copied()
    }

    /// A name of exactly this address.
    pub fn name_at(&self, address: u64) -> Option<&str> {
        self.by_address.get(&address).map(String::as_str)
    }

    /// Whether an address is that of an undefined name of a module.
    pub fn is_undefined(&self, address: u64) -> bool {
        self.name_at(address).is_some() && self.section_at(address).is_none()
    }

    /// The section of an address and the offset in it, which is how others refer to addresses of a module.
    pub fn section_at(&self, address: u64) -> Option<(&str, u64)> {
        let (base, piece) = self.pieces.range(..=address).next_back()?;
        let into = address - base;
        (into < piece.bytes.len() as u64).then_some((piece.name.as_str(), into))
    }

    /// The addresses of a table: between its `__start_` and `__stop_` symbols, or of the section of its name.
    pub fn table(&self, section: &str, start: &str, stop: &str) -> Option<Range<u64>> {
        if let (Some(start), Some(stop)) = (self.address(start), self.address(stop)) {
            return Some(start..stop);
        }
        let (address, piece) = self.pieces.iter().find(|(_, piece)| piece.name == section)?;
        Some(*address..address.saturating_add(piece.bytes.len() as u64))
    }

    /// The text at an address up to its NUL, of at most `most` bytes.
    pub fn text(&self, at: u64, most: usize) -> Option<&str> {
        let bytes = self.prefix(at, most);
        let end = bytes.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(bytes.get(..end)?).ok()
    }
}
