//! Symbols from a Linux kernel's own tables: kallsyms and the exported symbols.
//!
//! The kernel inside a bzImage has no ELF symbol table, but it carries kallsyms: compressed names with their addresses,
//! which `scripts/kallsyms.c` of Linux puts into `.rodata` in one of two orders. The addresses are offsets (u32 each) and
//! relative_base, or words, or (in 7.2) distances from their own places; `seqs_of_names`, an index by name, came in 6.2 and in
//! 6.1's updates. num_syms is a u32, which some releases pad to a word.
//!
//! ```text
//! up to 6.3:  addresses   num_syms   names   markers   [seqs_of_names]   token_table   token_index
//! from 6.4:   num_syms   names   markers   token_table   token_index   addresses   seqs_of_names
//! ```
//!
//! The form is found by what agrees, never by the release.
//!
//! No symbol gives their place, so they are found by their structure, from the end: 256 ascending offsets after the 256
//! strings that they point to; before these the ascending markers, one for each 256 names; before these the names,
//! which must end exactly where the markers begin. Nothing is run and no address is known beforehand. The last check is
//! that `_text` is where the image has its text.
//!
//! A kernel without `CONFIG_KALLSYMS_ALL` names functions only; the exported symbols (`__ksymtab`) add its data.

use super::read::kind_and_binding;
use super::{Symbol, SymbolError, SymbolKind};
use crate::load::elf::{Section, string_at};
use crate::load::{ElfView, Width};

/// Tokens that names are made of.
const TOKENS: usize = 256;
/// Names between two markers.
const STRIDE: usize = 256;
/// Longest token and longest name: KSYM_NAME_LEN is 512 in 6.1.
const MAX_NAME: usize = 512;
/// More symbols than any kernel has.
const MAX_SYMBOLS: usize = 1 << 22;
/// The most names that the search reads in a damaged image.
const BUDGET: usize = 1 << 24;

/// Why a kernel's own tables cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KallsymsError {
    /// Nothing looks like the token table.
    #[error(
        "the image holds no kallsyms: no table of {TOKENS} tokens with its index was found; \
         use a Linux kernel with CONFIG_KALLSYMS, or give its symbols with --sym"
    )]
    NoTokens,
    /// Tokens, but nothing before them that fits.
    #[error(
        "kallsyms is damaged, or has a layout that is not known: before its token table at file offset {at:#x} no list of \
         names agrees with markers after it; give the kernel's symbols with --sym"
    )]
    NoNames {
        /// File offset of the token table.
        at: usize,
    },
    /// Names, but no addresses.
    #[error(
        "kallsyms is damaged, or has a layout that is not known: the addresses of its {count} symbols are not there, or do \
         not place _text at {text:#x}, where the image has its text; give the kernel's symbols with --sym"
    )]
    NoAddresses {
        /// num_syms.
        count: usize,
        /// Where the text is.
        text: u64,
    },
    /// A name that cannot be.
    #[error("kallsyms is damaged: name {index} of {count} is {what}")]
    Name {
        /// Its number from 0.
        index: usize,
        /// num_syms.
        count: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Every symbol of the kernel `view`: kallsyms, and exported symbols that it lacks.
pub(super) fn read(view: &ElfView<'_>) -> Result<Vec<Symbol>, SymbolError> {
    let mut found = kallsyms(view)?;
    found.extend(exports(view)?);
    Ok(found)
}

/// The symbols that kallsyms names, in its order.
pub(super) fn kallsyms(view: &ElfView<'_>) -> Result<Vec<Symbol>, SymbolError> {
    let data = view.sections().iter().filter(|section| section.is_alloc() && !section.is_linux_code());
    let mut failed = KallsymsError::NoTokens;
    for section in data {
        let bytes = view.section_bytes(section)?;
        let start = usize::try_from(section.offset).unwrap_or(usize::MAX);
        match Tables::find(bytes, (start, section.addr), view) {
            Ok(tables) => return Ok(tables.symbols(view)?),
            Err(KallsymsError::NoTokens) => {}
            Err(error) => failed = error,
        }
    }
    Err(failed.into())
}

/// Where the parts lie in one section.
struct Tables<'a> {
    bytes: &'a [u8],
    tokens: Vec<&'a [u8]>,
    /// The end of the index of the tokens.
    index_end: usize,
    names: usize,
    count: usize,
    addresses: Addresses,
}

/// How addresses are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Addresses {
    /// One word each.
    Absolute { at: usize },
    /// u32 each, added to the base.
    Relative { at: usize, base: u64 },
    /// i32 each: from 0 on a number of its own (a per-CPU offset), below it `base - 1 - offset`.
    PerCpu { at: usize, base: u64 },
    /// i32 each: the distance from its own place, the first of which has the address `first`.
    Distance { at: usize, first: u64 },
}

impl<'a> Tables<'a> {
    /// `start` is the section's file offset, for messages, and `addr` its address.
    fn find(bytes: &'a [u8], (start, addr): (usize, u64), view: &ElfView<'_>) -> Result<Self, KallsymsError> {
        let word = match view.width() {
            Width::Bits32 => 4,
            Width::Bits64 => 8,
        };
        let (table, index, tokens) = find_tokens(bytes).ok_or(KallsymsError::NoTokens)?;
        let index_end = index + TOKENS * 2;
        let (names, count) =
            find_names(bytes, table, word).ok_or(KallsymsError::NoNames { at: start + table })?;
        let addresses = Addresses::Absolute { at: 0 };
        let mut tables = Self { bytes, tokens, index_end, names, count, addresses };
        tables.addresses = tables.find_addresses((word, addr), view)?;
        Ok(tables)
    }

    /// The form of addresses under which `_text` lies where the image's text begins; the section is at `addr`.
    fn find_addresses(
        &self,
        (word, addr): (usize, u64),
        view: &ElfView<'_>,
    ) -> Result<Addresses, KallsymsError> {
        let text = text_start(view);
        let failed = KallsymsError::NoAddresses { count: self.count, text };
        let mut index = None;
        for (number, name) in self.names().enumerate() {
            let name = name?;
            if name.get(1..) == Some(b"_text") {
                index = Some(number);
                break;
            }
        }
        let index = index.ok_or(failed.clone())?;
        let end = self.names.saturating_sub(word);
        let mut forms = Vec::new();
        if let Some(base_at) = end.checked_sub(word)
            && let Some(at) = base_at.checked_sub((self.count * 4).next_multiple_of(word))
        {
            let base = word_at(self.bytes, base_at, word).unwrap_or(0);
            forms.push(Addresses::Relative { at, base });
            forms.push(Addresses::PerCpu { at, base });
        }
        forms.extend(end.checked_sub(self.count * word).map(|at| Addresses::Absolute { at }));
        let at = self.index_end.next_multiple_of(word);
        if let Some(base) = word_at(self.bytes, at + (self.count * 4).next_multiple_of(word), word) {
            forms.extend([Addresses::Relative { at, base }, Addresses::PerCpu { at, base }]);
        }
        forms.push(Addresses::Absolute { at });
        let at = self.index_end.next_multiple_of(4);
        forms.push(Addresses::Distance { at, first: addr.wrapping_add(at as u64) });
        let places_text = |form: &Addresses| match *form {
            // A value not below 0 is a per-CPU offset, which `_text` cannot be.
            Addresses::PerCpu { at, .. } if self.is_per_cpu_offset(at, index) => false,
            form => self.address(form, index, word) == Some(text),
        };
        forms.into_iter().find(places_text).ok_or(failed)
    }

    /// Whether a symbol in the form with per-CPU offsets is such an offset.
    fn is_per_cpu_offset(&self, at: usize, index: usize) -> bool {
        word_at(self.bytes, at + index * 4, 4).is_some_and(|offset| (offset as u32).cast_signed() >= 0)
    }

    fn address(&self, form: Addresses, index: usize, word: usize) -> Option<u64> {
        let mask = if word == 4 { u64::from(u32::MAX) } else { u64::MAX };
        Some(match form {
            Addresses::Absolute { at } => word_at(self.bytes, at + index * word, word)?,
            Addresses::Relative { at, base } => {
                base.wrapping_add(word_at(self.bytes, at + index * 4, 4)?) & mask
            }
            Addresses::Distance { at, first } => {
                let distance = word_at(self.bytes, at + index * 4, 4)? as u32 as i32;
                first.wrapping_add(index as u64 * 4).wrapping_add_signed(distance.into()) & mask
            }
            Addresses::PerCpu { at, base } => match word_at(self.bytes, at + index * 4, 4)? as u32 as i32 {
                offset if offset >= 0 => offset as u64,
                offset => base.wrapping_sub(1).wrapping_sub(i64::from(offset) as u64) & mask,
            },
        })
    }

    /// Expanded names in order, type letter first.
    fn names(&self) -> impl Iterator<Item = Result<Vec<u8>, KallsymsError>> {
        let mut at = self.names;
        (0..self.count).map(move |index| {
            let wrong = |what| KallsymsError::Name { index, count: self.count, what };
            let (first, end) = entry(self.bytes, at).ok_or_else(|| wrong("cut off"))?;
            at = end;
            let mut name = Vec::with_capacity(32);
            for token in self.bytes.get(first..end).unwrap_or_default() {
                name.extend_from_slice(self.tokens.get(usize::from(*token)).copied().unwrap_or_default());
                if name.len() > MAX_NAME {
                    return Err(wrong("longer than 512 bytes"));
                }
            }
            if name.len() < 2 { Err(wrong("empty")) } else { Ok(name) }
        })
    }

    fn symbols(&self, view: &ElfView<'_>) -> Result<Vec<Symbol>, KallsymsError> {
        let word = if view.width() == Width::Bits32 { 4 } else { 8 };
        let homes = Homes::new(view);
        let mut found = Vec::with_capacity(self.count);
        for (index, name) in self.names().enumerate() {
            let name = name?;
            let wrong = |what| KallsymsError::Name { index, count: self.count, what };
            let addr =
                self.address(self.addresses, index, word).ok_or_else(|| wrong("without an address"))?;
            let (letter, name) = name.split_first().ok_or_else(|| wrong("empty"))?;
            let name = std::str::from_utf8(name).map_err(|_| wrong("not UTF-8"))?;
            let (mut kind, binding) = kind_and_binding(char::from(*letter));
            // The letter is that of the section.
            if kind == SymbolKind::Function && homes.is_data(addr) {
                kind = SymbolKind::Object;
            }
            let size = if kind == SymbolKind::Absolute { 0 } else { homes.rest(addr) };
            found.push(Symbol { name: name.into(), addr, size, kind, binding, sized: false });
        }
        Ok(found)
    }
}

/// The section that holds an address: where it begins and ends, and whether its code is executed there.
struct Homes(Vec<(u64, u64, bool)>);

impl Homes {
    fn new(view: &ElfView<'_>) -> Self {
        let mut ranges: Vec<_> = view
            .sections()
            .iter()
            .filter(|section| section.is_alloc() && section.addr != 0)
            .map(|section| (section.addr, section.addr.saturating_add(section.size), section.is_linux_code()))
            .collect();
        ranges.sort_unstable();
        Self(ranges)
    }

    /// Bytes from `addr` to the end of its section; 0 outside of all.
    fn rest(&self, addr: u64) -> u64 {
        self.before(addr).map_or(0, |(_, end, _)| end.saturating_sub(addr))
    }

    /// Whether `addr` is in a section of data.
    fn is_data(&self, addr: u64) -> bool {
        self.before(addr).is_some_and(|(_, end, is_code)| addr < *end && !is_code)
    }

    /// The last section that begins at `addr` or before.
    fn before(&self, addr: u64) -> Option<&(u64, u64, bool)> {
        let next = self.0.partition_point(|(start, ..)| *start <= addr);
        self.0.get(next.checked_sub(1)?)
    }
}

/// Where the image's text begins: `.text`, else the lowest executable segment.
fn text_start(view: &ElfView<'_>) -> u64 {
    let section = view.sections().iter().find(|section| section.name == ".text").map(|section| section.addr);
    let segment = || view.programs().iter().filter(|p| p.is_executable()).map(|p| p.p_vaddr).min();
    section.or_else(segment).unwrap_or(0)
}

/// The little-endian integer of `size` bytes at `at`.
fn word_at(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let mut word = [0; 8];
    word.get_mut(..size)?.copy_from_slice(bytes.get(at..at.checked_add(size)?)?);
    Some(u64::from_le_bytes(word))
}

/// The offsets of the token table and of its index, and the tokens.
fn find_tokens(bytes: &[u8]) -> Option<(usize, usize, Vec<&[u8]>)> {
    (0..bytes.len().saturating_sub(TOKENS * 2)).step_by(4).find_map(|at| {
        // Almost every place fails here: the first token begins at 0, the second follows it.
        let first = bytes.get(at..at + 4)?;
        if first.get(..2)? != [0, 0] || first.get(3)? != &0 || first.get(2)? == &0 {
            return None;
        }
        let index = bytes.get(at..at + TOKENS * 2)?;
        let index: Vec<usize> =
            index.chunks_exact(2).map(|pair| word_at(pair, 0, 2).unwrap_or(0) as usize).collect();
        let ascending = index.windows(2).all(|pair| match pair {
            [a, b] => a < b && b - a <= MAX_NAME,
            _ => false,
        });
        if !ascending {
            return None;
        }
        let last = *index.last()?;
        // The length of the last token is unknown, and up to 7 bytes of padding follow it.
        let highest = at.checked_sub(last + 2)?;
        (0..=highest.min(MAX_NAME)).find_map(|back| {
            let table = highest - back;
            (table % 4 == 0)
                .then(|| tokens_at(bytes.get(table..at)?, &index))
                .flatten()
                .map(|t| (table, at, t))
        })
    })
}

/// The strings of `table`, if it holds exactly those that `index` points to.
fn tokens_at<'a>(table: &'a [u8], index: &[usize]) -> Option<Vec<&'a [u8]>> {
    let end = table.get(*index.last()?..)?;
    let padding = end.iter().skip_while(|byte| **byte != 0);
    if padding.clone().count() > 8 || padding.clone().any(|byte| *byte != 0) {
        return None;
    }
    let mut tokens = Vec::with_capacity(TOKENS);
    for (number, start) in index.iter().enumerate() {
        let rest = table.get(*start..)?;
        let len = rest.iter().position(|byte| *byte == 0)?;
        if len == 0 || index.get(number + 1).is_some_and(|next| start + len + 1 != *next) {
            return None;
        }
        tokens.push(rest.get(..len)?);
    }
    Some(tokens)
}

/// Where the names begin, and their number: matching markers must follow them.
fn find_names(bytes: &[u8], table: usize, word: usize) -> Option<(usize, usize)> {
    let mut budget = BUDGET;
    let plain = markers_before(bytes, table, word, None);
    plain.and_then(|found| names_before(bytes, &found, word, &mut budget)).or_else(|| {
        // The number of names is not known yet, but as many indexes of three bytes lie before the tokens.
        (1..=MAX_SYMBOLS.min(table / 3)).find_map(|count| {
            let end = table.checked_sub((count * 3).next_multiple_of(word))?;
            let found = markers_before(bytes, end, word, Some(count))?;
            names_before(bytes, &found, word, &mut budget).filter(|names| names.1 == count)
        })
    })
}

/// Markers of names that lie before them.
struct Markers {
    at: usize,
    list: Vec<usize>,
}

/// The markers that end at `end`: those of `count` names, if that is known.
fn markers_before(bytes: &[u8], end: usize, word: usize, count: Option<usize>) -> Option<Markers> {
    let read = |at: usize| usize::try_from(word_at(bytes, at, 4)?).ok();
    let mut at = end.checked_sub(4)?;
    if let Some(count) = count {
        // Where the first marker must be: almost every count fails here.
        let first = end.checked_sub((count.div_ceil(STRIDE) * 4).next_multiple_of(word))?;
        if read(first)? != 0 {
            return None;
        }
        at = first + count.div_ceil(STRIDE).checked_sub(1)? * 4;
    } else if word == 8 && read(at)? == 0 {
        at = at.checked_sub(4)?;
    }
    let mut list = vec![read(at)?];
    while *list.last()? != 0 {
        at = at.checked_sub(4)?;
        let marker = read(at)?;
        if marker >= *list.last()? || list.len() > MAX_SYMBOLS / STRIDE {
            return None;
        }
        list.push(marker);
    }
    list.reverse();
    count.is_none_or(|count| count.div_ceil(STRIDE) == list.len()).then_some(Markers { at, list })
}

/// Where the token bytes of the name entry at `at` begin and end. From 128 bytes on its length takes two bytes.
fn entry(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let first = usize::from(*bytes.get(at)?);
    let (start, len) = if first & 0x80 == 0 {
        (at + 1, first)
    } else {
        (at + 2, first & 0x7f | usize::from(*bytes.get(at + 1)?) << 7)
    };
    (start + len <= bytes.len()).then_some((start, start + len))
}

/// Where the names that end at the markers begin, and their number.
fn names_before(bytes: &[u8], markers: &Markers, word: usize, budget: &mut usize) -> Option<(usize, usize)> {
    let highest = markers.at.checked_sub(*markers.list.last()?)?;
    (0..=highest.min(STRIDE * MAX_NAME)).map(|back| highest - back).find_map(|start| {
        if start % 4 != 0 {
            return None;
        }
        // Padded to a word, or not.
        [word, 4].into_iter().filter(|size| start % size == 0).find_map(|size| {
            let count = word_at(bytes, start.checked_sub(size)?, size)?;
            let count = usize::try_from(count).ok().filter(|count| (1..=MAX_SYMBOLS).contains(count))?;
            (count.div_ceil(STRIDE) == markers.list.len()
                && names_agree(bytes, start, count, markers, budget))
            .then_some((start, count))
        })
    })
}

fn names_agree(bytes: &[u8], start: usize, count: usize, markers: &Markers, budget: &mut usize) -> bool {
    let mut at = start;
    for number in 0..count {
        let Some(left) = budget.checked_sub(1) else { return false };
        *budget = left;
        if number % STRIDE == 0 && markers.list.get(number / STRIDE) != Some(&(at - start)) {
            return false;
        }
        match entry(bytes, at) {
            Some((first, next)) if next <= markers.at && first < next => at = next,
            _ => return false,
        }
    }
    markers.at - at < 8 && bytes.get(at..markers.at).is_some_and(|rest| rest.iter().all(|byte| *byte == 0))
}

/// The exported symbols that are not functions: `__ksymtab` and `__ksymtab_gpl`, entries of three i32, each a distance
/// from its own place: value, name, namespace (include/linux/export.h, CONFIG_HAVE_ARCH_PREL32_RELOCATIONS).
pub(super) fn exports(view: &ElfView<'_>) -> Result<Vec<Symbol>, SymbolError> {
    let named = |name: &str| view.sections().iter().find(|section| section.name == name);
    let Some(strings) = named("__ksymtab_strings") else { return Ok(Vec::new()) };
    let texts = view.section_bytes(strings)?;
    let homes = Homes::new(view);
    let mut found = Vec::new();
    for section in ["__ksymtab", "__ksymtab_gpl"].into_iter().filter_map(named) {
        let bytes = view.section_bytes(section)?;
        for (number, entry) in bytes.chunks_exact(12).enumerate() {
            let place = section.addr.wrapping_add(number as u64 * 12);
            let target = |at: usize| {
                let distance = word_at(entry, at, 4).unwrap_or(0) as u32 as i32;
                place.wrapping_add(at as u64).wrapping_add_signed(distance.into()) & view.width().max_addr()
            };
            let name = target(4).checked_sub(strings.addr).and_then(|at| usize::try_from(at).ok());
            let Some(name) = name.and_then(|at| string_at(texts, at)).filter(|name| !name.is_empty()) else {
                continue;
            };
            found.extend(export(view, &homes, &name, target(0)));
        }
    }
    Ok(found)
}

/// The symbol of an export; functions are in kallsyms, with the letter that says how far they reach.
fn export(view: &ElfView<'_>, homes: &Homes, name: &str, addr: u64) -> Option<Symbol> {
    let holds = |section: &&Section| {
        section.is_alloc() && addr.checked_sub(section.addr).is_some_and(|into| into < section.size)
    };
    let home = view.sections().iter().find(holds)?;
    if home.is_linux_code() {
        return None;
    }
    // A 64-bit kernel links its per-CPU variables at 0: what it exports there is a distance, not an address.
    let kind = if home.addr == 0 { SymbolKind::Absolute } else { SymbolKind::Object };
    let size = if home.addr == 0 { 0 } else { homes.rest(addr) };
    Some(Symbol { name: name.into(), addr, size, kind, binding: super::Binding::Global, sized: false })
}

#[cfg(test)]
#[path = "kallsyms_tests.rs"]
mod tests;
