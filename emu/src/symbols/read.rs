//! Readers of symbol tables: ELF `.symtab` and `.dynsym`, and System.map text.

use goblin::elf::section_header::{SHN_ABS, SHN_COMMON, SHN_UNDEF, SHT_DYNSYM, SHT_NOBITS, SHT_SYMTAB};
use goblin::elf::sym::{
    STB_GLOBAL, STB_GNU_UNIQUE, STB_LOCAL, STT_COMMON, STT_FILE, STT_FUNC, STT_GNU_IFUNC, STT_OBJECT,
    STT_SECTION, STT_TLS, Sym,
};

use super::{Binding, Symbol, SymbolError, SymbolKind};
use crate::load::elf::{Section, string_at};
use crate::load::{ElfView, Width};

/// The symbols of every symbol table of `view`. Building the list drops names of the dynamic table that the full one
/// has too.
pub(super) fn elf(view: &ElfView<'_>) -> Result<Vec<Symbol>, SymbolError> {
    let mut found = Vec::new();
    for section in view.sections().iter().filter(|section| matches!(section.kind, SHT_SYMTAB | SHT_DYNSYM)) {
        table(view, section, &mut found)?;
    }
    Ok(found)
}

/// The symbols of a relocatable object, each at the file offset of what it names; those without bytes in the file are
/// left out.
pub(super) fn relocatable(view: &ElfView<'_>) -> Result<Vec<Symbol>, SymbolError> {
    let mut found = Vec::new();
    for section in view.sections().iter().filter(|section| section.kind == SHT_SYMTAB) {
        for (entry, symbol) in entries(view, section)? {
            let home = view.sections().get(entry.st_shndx).filter(|home| home.kind != SHT_NOBITS);
            let addr = home.and_then(|home| home.offset.checked_add(entry.st_value));
            found.extend(addr.map(|addr| Symbol { addr, ..symbol }));
        }
    }
    Ok(found)
}

fn table(view: &ElfView<'_>, section: &Section, found: &mut Vec<Symbol>) -> Result<(), SymbolError> {
    found.extend(entries(view, section)?.into_iter().map(|(_, symbol)| symbol));
    Ok(())
}

/// The entries of a symbol table that name something.
fn entries(view: &ElfView<'_>, section: &Section) -> Result<Vec<(Sym, Symbol)>, SymbolError> {
    let wanted: usize = match view.width() {
        Width::Bits32 => 16,
        Width::Bits64 => 24,
    };
    if section.entry_size != wanted as u64 {
        let (section, size, wanted) = (section.name.clone(), section.entry_size, wanted as u64);
        return Err(SymbolError::EntrySize { section, size, wanted });
    }
    let bytes = view.section_bytes(section)?;
    let strings = match view.sections().get(section.link as usize) {
        Some(strings) => view.section_bytes(strings)?,
        None => &[],
    };
    let entries = Sym::parse(bytes, 0, bytes.len() / wanted, view.ctx()).unwrap_or_default();
    Ok(entries.into_iter().filter_map(|entry| Some((entry, symbol(view, &entry, strings)?))).collect())
}

fn symbol(view: &ElfView<'_>, entry: &Sym, strings: &[u8]) -> Option<Symbol> {
    if entry.st_shndx as u32 == SHN_UNDEF || matches!(entry.st_type(), STT_FILE | STT_SECTION | STT_TLS) {
        return None;
    }
    let name = string_at(strings, entry.st_name).filter(|name| !name.is_empty())?;
    let home = view.sections().get(entry.st_shndx);
    let typed = match entry.st_type() {
        STT_FUNC => SymbolKind::Function,
        STT_GNU_IFUNC => SymbolKind::Resolver,
        STT_OBJECT | STT_COMMON => SymbolKind::Object,
        _ => SymbolKind::Label,
    };
    let reserved = entry.st_shndx as u32;
    let kind = match (reserved, typed) {
        (SHN_ABS, SymbolKind::Label) => SymbolKind::Absolute,
        (SHN_COMMON, _) => return None,
        (_, typed) => typed,
    };
    let binding = match entry.st_bind() {
        STB_GLOBAL | STB_GNU_UNIQUE => Binding::Global,
        STB_LOCAL => Binding::Local,
        _ => Binding::Weak,
    };
    let rest =
        home.and_then(|home| home.addr.checked_add(home.size)?.checked_sub(entry.st_value)).unwrap_or(0);
    let sized = entry.st_size > 0;
    let size = if sized { entry.st_size } else { rest };
    Some(Symbol { name: name.into(), addr: entry.st_value, size, kind, binding, sized })
}

/// The symbols of a System.map as `nm` writes it; a fourth column (a module, in kallsyms) is ignored.
pub(super) fn system_map(text: &[u8]) -> Result<Vec<Symbol>, SymbolError> {
    let text = std::str::from_utf8(text).map_err(|error| SymbolError::NotText { at: error.valid_up_to() })?;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match map_line(line) {
            Some(symbol) => found.extend(symbol),
            None => {
                let first = line.split_whitespace().next().unwrap_or_default();
                if first.len() > 16 && first.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    let text = first.chars().take(60).collect();
                    return Err(SymbolError::MapAddress { line: index + 1, text });
                }
                let text = line.chars().take(60).collect();
                return Err(SymbolError::MapLine { line: index + 1, text });
            }
        }
    }
    Ok(found)
}

/// `Some(None)` is a line that names nothing here, an undefined symbol; `None` is not a line of a System.map.
fn map_line(line: &str) -> Option<Option<Symbol>> {
    let mut words = line.split_whitespace();
    let (first, second) = (words.next()?, words.next()?);
    if matches!(first, "U" | "w" | "v") {
        return Some(None);
    }
    let addr = u64::from_str_radix(first, 16).ok()?;
    let mut letters = second.chars();
    let letter =
        letters.next().filter(|letter| letter.is_ascii_alphabetic() || matches!(letter, '?' | '-'))?;
    if letters.next().is_some() {
        return None;
    }
    let name = words.next()?;
    let (kind, binding) = kind_and_binding(letter);
    Some(Some(Symbol { name: name.into(), addr, size: 0, kind, binding, sized: false }))
}

/// The kind and binding that a type letter of `nm` means.
pub(super) fn kind_and_binding(letter: char) -> (SymbolKind, Binding) {
    let kind = match letter.to_ascii_lowercase() {
        't' | 'w' => SymbolKind::Function,
        'i' => SymbolKind::Resolver,
        'a' => SymbolKind::Absolute,
        'b' | 'd' | 'r' | 'g' | 's' | 'v' | 'c' | 'u' => SymbolKind::Object,
        _ => SymbolKind::Label,
    };
    let binding = match letter {
        'w' | 'W' | 'v' | 'V' => Binding::Weak,
        letter if letter.is_ascii_uppercase() => Binding::Global,
        _ => Binding::Local,
    };
    (kind, binding)
}
