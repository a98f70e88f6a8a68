//! A file of symbols: an ELF file without contents, whose symbols gdb reads when the guest has none of its own, as a
//! compressed Linux kernel, whose symbols are in its kallsyms.
//!
//! The sections say where code and data are; gdb reads their bytes from the guest's memory.

use trapline_emu::symbols::{Binding, Symbol, SymbolKind, Symbols};

/// A section without contents.
#[derive(Debug, Clone)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Whether it holds code.
    pub code: bool,
}

/// sh_type.
const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const NOBITS: u32 = 8;
/// sh_flags.
const ALLOC: u64 = 2;
const WRITE: u64 = 1;
const CODE: u64 = 4;
/// st_shndx of a number.
const ABS: u16 = 0xfff1;
/// Most sections; st_shndx has 16 bits.
const MOST: usize = 4096;

/// Words of a class.
struct Out {
    wide: bool,
    bytes: Vec<u8>,
}

impl Out {
    fn half(&mut self, value: u16) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn word(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    /// An address, an offset or a size.
    fn long(&mut self, value: u64) {
        if self.wide { self.bytes.extend(value.to_le_bytes()) } else { self.word(value as u32) }
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn header(&mut self, entry_point: u64, sections: u64, count: u16) {
        let (class, header, entry) = if self.wide { (2, 64, 64) } else { (1, 52, 40) };
        self.bytes.extend([0x7f, b'E', b'L', b'F', class, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        self.half(2);
        self.half(if self.wide { 62 } else { 3 });
        self.word(1);
        self.long(entry_point);
        self.long(0);
        self.long(sections);
        self.word(0);
        [header, 0, 0, entry, count, count - 1].into_iter().for_each(|value| self.half(value));
    }

    fn section(
        &mut self,
        name: u32,
        kind: u32,
        flags: u64,
        [address, at, size]: [u64; 3],
        [link, info]: [u32; 2],
    ) {
        let entry = if kind == SYMTAB { self.symbol_size() } else { 0 };
        self.word(name);
        self.word(kind);
        [flags, address, at, size].into_iter().for_each(|value| self.long(value));
        self.word(link);
        self.word(info);
        self.long(1);
        self.long(entry);
    }

    fn symbol_size(&self) -> u64 {
        if self.wide { 24 } else { 16 }
    }

    fn symbol(&mut self, name: u32, symbol: &Symbol, address: u64, section: u16) {
        let kind = match symbol.kind {
            SymbolKind::Function => 2,
            SymbolKind::Resolver => 10,
            SymbolKind::Object => 1,
            SymbolKind::Label | SymbolKind::Absolute => 0,
        };
        let binding = match symbol.binding {
            Binding::Local => 0,
            Binding::Global => 1,
            Binding::Weak => 2,
        };
        self.word(name);
        if self.wide {
            self.bytes.extend([binding << 4 | kind, 0]);
            self.half(section);
        }
        self.long(address);
        self.long(symbol.size);
        if !self.wide {
            self.bytes.extend([binding << 4 | kind, 0]);
            self.half(section);
        }
    }
}

/// Strings, each ended by a NUL.
struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, text: &str) -> u32 {
        let at = self.0.len() as u32;
        self.0.extend(text.bytes().filter(|byte| *byte != 0));
        self.0.push(0);
        at
    }
}

/// The first function in code. gdb takes the function of a file's entry point for the last frame of a stack; an entry point
/// outside of all functions would be that of every frame without one, as in programs of which it has no file.
fn entry_point(sections: &[&Section], symbols: &Symbols) -> u64 {
    let is_code = |address: u64| {
        let into = |section: &Section| address.checked_sub(section.address);
        sections.iter().any(|section| section.code && into(section).is_some_and(|into| into < section.size))
    };
    let functions = symbols.iter().filter(|symbol| symbol.kind == SymbolKind::Function);
    functions.map(|symbol| symbol.addr).filter(|address| is_code(*address)).min().unwrap_or(0)
}

/// The file. Its addresses count from `base`; if that is not 0, only symbols in its sections have one.
pub fn with_symbols(wide: bool, base: u64, sections: &[Section], symbols: &Symbols) -> Vec<u8> {
    let mut sections: Vec<&Section> = sections.iter().take(MOST).collect();
    sections.sort_by_key(|section| section.address);
    let of = |address: u64| {
        let next = sections.partition_point(|section| section.address <= address);
        let within = next
            .checked_sub(1)
            .filter(|at| sections.get(*at).is_some_and(|section| address - section.address <= section.size));
        within.map_or(ABS, |at| at as u16 + 1)
    };
    let mut names = Strings(vec![0]);
    let mut table = Out { wide, bytes: Vec::new() };
    table.bytes.resize(table.symbol_size() as usize, 0);
    // Local symbols come first.
    let placed = |symbol: &&Symbol| base == 0 || of(symbol.addr) != ABS;
    let (local, other): (Vec<&Symbol>, Vec<&Symbol>) =
        symbols.iter().filter(placed).partition(|symbol| symbol.binding == Binding::Local);
    let first_other = local.len() as u32 + 1;
    for symbol in local.into_iter().chain(other) {
        let section = if symbol.kind == SymbolKind::Absolute { ABS } else { of(symbol.addr) };
        let name = names.add(&symbol.name);
        table.symbol(name, symbol, symbol.addr.wrapping_sub(base), section);
    }
    let mut out = Out { wide, bytes: Vec::new() };
    let header = if wide { 64 } else { 52 };
    let mut titles = Strings(vec![0]);
    let entries: Vec<(u32, &Section)> =
        sections.iter().map(|section| (titles.add(&section.name), *section)).collect();
    let [symtab, strtab, shstrtab] = [".symtab", ".strtab", ".shstrtab"].map(|name| titles.add(name));
    let at_table = header;
    let at_names = at_table + table.len();
    let at_titles = at_names + names.0.len() as u64;
    let at_sections = at_titles + titles.0.len() as u64;
    out.header(entry_point(&sections, symbols).wrapping_sub(base), at_sections, entries.len() as u16 + 4);
    out.bytes.extend(&table.bytes);
    out.bytes.extend(&names.0);
    out.bytes.extend(&titles.0);
    out.section(0, 0, 0, [0; 3], [0; 2]);
    for (name, section) in &entries {
        let flags = ALLOC | if section.code { CODE } else { WRITE };
        out.section(*name, NOBITS, flags, [section.address.wrapping_sub(base), header, section.size], [0; 2]);
    }
    let of_names = entries.len() as u32 + 2;
    out.section(symtab, SYMTAB, 0, [0, at_table, table.len()], [of_names, first_other]);
    out.section(strtab, STRTAB, 0, [0, at_names, names.0.len() as u64], [0; 2]);
    out.section(shstrtab, STRTAB, 0, [0, at_titles, titles.0.len() as u64], [0; 2]);
    out.bytes
}

/// A file with nothing but call frame information. Its code has no bytes; gdb wants a section that can be somewhere.
pub fn with_frames(wide: bool, frames: &[u8]) -> Vec<u8> {
    let mut titles = Strings(vec![0]);
    let [text, debug_frame, shstrtab] = [".text", ".debug_frame", ".shstrtab"].map(|name| titles.add(name));
    let mut out = Out { wide, bytes: Vec::new() };
    let at = if wide { 64 } else { 52 };
    let [size, at_titles] = [frames.len() as u64, at + frames.len() as u64];
    out.header(0, at_titles + titles.0.len() as u64, 4);
    out.bytes.extend(frames);
    out.bytes.extend(&titles.0);
    out.section(0, 0, 0, [0; 3], [0; 2]);
    out.section(text, NOBITS, ALLOC | CODE, [0, at, 0], [0; 2]);
    out.section(debug_frame, PROGBITS, 0, [0, at, size], [0; 2]);
    out.section(shstrtab, STRTAB, 0, [0, at_titles, titles.0.len() as u64], [0; 2]);
    out.bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_session::GuestBuilder;

    #[test]
    fn the_symbols_of_such_a_file_are_those_that_it_was_made_of() {
        for name in ["ia32", "x86_64"] {
            let guest = GuestBuilder::embedded(name).open().unwrap();
            let (plan, symbols) = (guest.target().image().plan(), guest.target().symbols());
            let section = |range: &trapline_emu::load::SectionRange| Section {
                name: range.name.clone(),
                address: range.vaddr,
                size: range.size,
                code: range.executable,
            };
            let sections: Vec<Section> = plan.sections.iter().map(section).collect();
            let file = with_symbols(name == "x86_64", 0, &sections, symbols);
            let read = Symbols::from_elf(&file, "vmlinux").unwrap();
            assert_eq!(read.len(), symbols.len());
            for (read, symbol) in read.iter().zip(symbols.iter()) {
                assert_eq!((&read.name, read.addr, read.kind), (&symbol.name, symbol.addr, symbol.kind));
            }
        }
    }
}
