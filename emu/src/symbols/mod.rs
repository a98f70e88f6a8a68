//! Symbols: names of addresses, from ELF symbol tables, System.map files and a Linux kernel's kallsyms, merged.
//!
//! An address may have several names. A symbol without a size ends at the next symbol, or where its section ends.
//! Addresses are the guest's virtual ones, as the kernel was linked. Beside the names: types ([`Btf`]) and source lines
//! ([`Dwarf`]). Not here: demangling, globbing.

use std::fmt;
use std::sync::Arc;

mod btf;
mod ctype;
mod dwarf;
mod frames;
mod kallsyms;
mod kmod;
mod read;
mod user;

pub use btf::{Btf, BtfError, Member, Parameter};
pub use ctype::{CMember, CName, CType, TypeInfo};
pub use dwarf::{Dwarf, DwarfError, DwarfTypes, LinePlaces, SourceLine};
pub use kallsyms::KallsymsError;
pub use kmod::KernelModule;
pub use user::{ModuleSegment, PAGE_SIZE, UserModule};

/// What Linux puts before the name of a function for the padding in front of it.
const PADDING: &str = "__pfx_";

/// Why symbols or a module cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SymbolError {
    /// The ELF file is bad.
    #[error(transparent)]
    Elf(#[from] crate::load::ElfError),
    /// A kernel's own tables are bad.
    #[error(transparent)]
    Kallsyms(#[from] KallsymsError),
    /// The debugging information is bad.
    #[error(transparent)]
    Dwarf(#[from] DwarfError),
    /// A kernel's types are bad.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// A symbol table with entries of the wrong size.
    #[error("the symbol table {section} has entries of {size} bytes; it must be {wanted}")]
    EntrySize {
        /// Its section.
        section: String,
        /// sh_entsize.
        size: u64,
        /// The size of this class.
        wanted: u64,
    },
    /// A line of System.map that cannot be read.
    #[error("line {line} of the System.map is {text:?}; it must be ADDRESS TYPE NAME")]
    MapLine {
        /// Its number from 1.
        line: usize,
        /// Its text, shortened.
        text: String,
    },
    /// An address in a System.map that no machine has.
    #[error("the address in line {line} of the System.map, {text}, has more than 64 bits")]
    MapAddress {
        /// The line's number from 1.
        line: usize,
        /// The address.
        text: String,
    },
    /// A file that is not text.
    #[error("byte {at} of the System.map is not UTF-8 text")]
    NotText {
        /// Where.
        at: usize,
    },
}

/// The kind of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SymbolKind {
    /// Code.
    Function,
    /// Code that chooses, when the program starts, which function its name means (STT_GNU_IFUNC).
    Resolver,
    /// Data.
    Object,
    /// A label without a type.
    Label,
    /// A number that is not an address (SHN_ABS); found by name only.
    Absolute,
}

/// How far a name reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Binding {
    /// Everywhere.
    Global,
    /// Everywhere, unless there is a global one.
    Weak,
    /// Within its file.
    Local,
}

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The name.
    pub name: Arc<str>,
    /// Virtual address of its first byte.
    pub addr: u64,
    /// Size in bytes; for a symbol without one, up to the next symbol or the end of its section. 0 if unknown.
    pub size: u64,
    /// Its kind.
    pub kind: SymbolKind,
    /// How far it reaches.
    pub binding: Binding,
    /// True if the file gave the size.
    pub sized: bool,
}

impl Symbol {
    /// First address after it; a symbol of unknown size covers its first byte.
    pub fn end(&self) -> u64 {
        self.addr.saturating_add(self.size.max(1))
    }

    /// True if it names code.
    pub fn is_function(&self) -> bool {
        matches!(self.kind, SymbolKind::Function | SymbolKind::Resolver)
    }

    /// Among names of one address, the one that sorts first is shown: functions, then global names, then plain ones.
    fn preference(&self) -> (SymbolKind, Binding, usize, &str) {
        let underscores = self.name.bytes().take_while(|byte| *byte == b'_').count();
        (self.kind, self.binding, underscores, &self.name)
    }
}

/// A line of a symbol table as `nm` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// The name.
    pub name: String,
    /// Virtual address.
    pub addr: u64,
    /// Size in bytes, 0 if unknown.
    pub size: u64,
    /// The type letter.
    pub letter: char,
}

/// What a name means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named<'a> {
    /// No symbol has it.
    Nothing,
    /// One has it.
    One(&'a Symbol),
    /// These have it, by address. Where a view can mean all of them, it does; else the name is [`Ambiguous`].
    Several(Vec<&'a Symbol>),
}

impl<'a> Named<'a> {
    /// These symbols, by address.
    pub fn of(found: Vec<&'a Symbol>) -> Self {
        match found.as_slice() {
            [] => Self::Nothing,
            [one] => Self::One(one),
            _ => Self::Several(found),
        }
    }

    /// All symbols with the name.
    pub fn all(self) -> Vec<&'a Symbol> {
        match self {
            Self::Nothing => Vec::new(),
            Self::One(symbol) => vec![symbol],
            Self::Several(symbols) => symbols,
        }
    }

    /// The symbol, where only one can be meant.
    ///
    /// # Errors
    /// Several symbols have the name.
    pub fn one(self) -> Result<Option<&'a Symbol>, Ambiguous> {
        match self {
            Self::Nothing => Ok(None),
            Self::One(symbol) => Ok(Some(symbol)),
            Self::Several(symbols) => {
                let name = symbols.first().map_or("", |symbol| &*symbol.name).to_owned();
                Err(Ambiguous { name, addresses: symbols.iter().map(|symbol| symbol.addr).collect() })
            }
        }
    }
}

/// A name that means several symbols where one is asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is ambiguous: {} symbols have this name, at {}", addresses.len(), listed(addresses))]
pub struct Ambiguous {
    /// The name.
    pub name: String,
    /// The addresses of the symbols, ascending.
    pub addresses: Vec<u64>,
}

/// Most addresses of an ambiguous name that are listed.
const MOST_LISTED: usize = 8;

fn listed(addresses: &[u64]) -> String {
    let shown = addresses.iter().take(MOST_LISTED).map(|address| format!("{address:#x}"));
    let more = if addresses.len() > MOST_LISTED { ", .." } else { "" };
    format!("{}{more}", shown.collect::<Vec<_>>().join(", "))
}

/// A symbol and the distance from its start, printed as `symbol+0x10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolAt<'a> {
    /// The symbol that covers the address.
    pub symbol: &'a Symbol,
    /// Bytes from its start.
    pub offset: u64,
}

impl fmt::Display for SymbolAt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.symbol.name)?;
        if self.offset != 0 {
            write!(f, "+{:#x}", self.offset)?;
        }
        Ok(())
    }
}

/// The symbols of one module.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    module: String,
    /// By address, then by preference.
    list: Vec<Symbol>,
    /// Places in `list` by name, then in its order.
    by_name: Vec<u32>,
    /// The index for [`Symbols::at`].
    cover: Vec<Cover>,
}

/// The range of one address's preferred symbol.
#[derive(Clone, Copy, Debug)]
struct Cover {
    start: u64,
    end: u64,
    /// The highest end of this and all lower ranges.
    reach: u64,
    index: usize,
}

impl Symbols {
    /// No symbols, for the module `module`.
    pub fn new(module: &str) -> Self {
        Self { module: module.to_owned(), ..Self::default() }
    }

    /// The symbols of an ELF file: `.symtab`, and `.dynsym` for names that only that has.
    ///
    /// # Errors
    /// The file is not an ELF file for x86, or a table lies outside it. A file without tables gives no symbols.
    pub fn from_elf(bytes: &[u8], module: &str) -> Result<Self, SymbolError> {
        let view = crate::load::ElfView::parse(bytes)?;
        Ok(Self::build(module, read::elf(&view)?))
    }

    /// The symbols of a System.map: lines of address, type letter and name.
    ///
    /// # Errors
    /// A line that is not of this form.
    pub fn from_system_map(text: &[u8], module: &str) -> Result<Self, SymbolError> {
        Ok(Self::build(module, read::system_map(text)?))
    }

    /// The symbols that the Linux kernel `bytes`, the ELF file inside a bzImage, carries for itself: kallsyms, and the
    /// symbols it exports.
    ///
    /// # Errors
    /// The file is not an ELF file for x86, holds no kallsyms, or they are damaged.
    pub fn from_kallsyms(bytes: &[u8], module: &str) -> Result<Self, SymbolError> {
        let view = crate::load::ElfView::parse(bytes)?;
        Ok(Self::build(module, kallsyms::read(&view)?))
    }

    /// Address and name of every symbol of the Linux kernel `bytes` as the guest's `/proc/kallsyms` lists them.
    ///
    /// # Errors
    /// As [`Symbols::from_kallsyms`].
    pub fn kallsyms_listing(bytes: &[u8]) -> Result<Vec<(u64, Arc<str>)>, SymbolError> {
        let listed = kallsyms::kallsyms(&crate::load::ElfView::parse(bytes)?)?;
        Ok(listed.into_iter().map(|symbol| (symbol.addr, symbol.name)).collect())
    }

    /// The symbols `entries` of the module `module`.
    pub fn from_table(module: &str, entries: Vec<TableEntry>) -> Self {
        let symbol = |entry: TableEntry| {
            let (kind, binding) = read::kind_and_binding(entry.letter);
            let TableEntry { name, addr, size, .. } = entry;
            Symbol { name: name.into(), addr, size, kind, binding, sized: size > 0 }
        };
        Self::build(module, entries.into_iter().map(symbol).collect())
    }

    /// One label of the module `module`.
    fn label(module: &str, name: &str, addr: u64) -> Self {
        let (kind, binding) = (SymbolKind::Label, Binding::Local);
        Self::build(module, vec![Symbol { name: name.into(), addr, size: 0, kind, binding, sized: false }])
    }

    /// Adds the symbols of `other`. Where both have a name at an address, the one with a size is kept.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        let found = self.list.into_iter().chain(other.list).collect();
        Self::build(&self.module, found)
    }

    /// The same symbols where those from the address `from` on lie `by` bytes higher: of a kernel that was moved.
    #[must_use]
    pub fn moved(&self, from: u64, by: u64) -> Self {
        let moved = |symbol: &Symbol| {
            let is_moved = symbol.addr >= from && symbol.kind != SymbolKind::Absolute;
            let addr = if is_moved { symbol.addr.wrapping_add(by) } else { symbol.addr };
            Symbol { addr, ..symbol.clone() }
        };
        Self::build(&self.module, self.list.iter().map(moved).collect())
    }

    /// The module's name.
    pub fn module(&self) -> &str {
        &self.module
    }

    /// Number of symbols.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All symbols by address; of one address the preferred first.
    pub fn iter(&self) -> impl Iterator<Item = &Symbol> {
        self.list.iter()
    }

    /// All functions by address; of one address the preferred first.
    pub fn functions(&self) -> impl Iterator<Item = &Symbol> {
        self.list.iter().filter(|symbol| symbol.is_function())
    }

    /// What a name means, upper and lower case distinguished. Several files may each have a static symbol of one name.
    pub fn named(&self, name: &str) -> Named<'_> {
        let mut found: Vec<&Symbol> = self.all(name).collect();
        found.dedup_by_key(|symbol| symbol.addr);
        Named::of(found)
    }

    /// The symbol of a name that can mean one thing only: the only one, or the only global one. For the names in tables of
    /// ours. What a user has written goes to [`Symbols::named`], and a name without a clear meaning has none here.
    pub fn sole(&self, name: &str) -> Option<&Symbol> {
        let reach = self.all(name).map(|symbol| symbol.binding).min()?;
        let mut found = self.all(name).filter(|symbol| symbol.binding == reach);
        let first = found.next()?;
        found.all(|other| other.addr == first.addr).then_some(first)
    }

    /// Every symbol `name` by address.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &Symbol> {
        let first = self.by_name.partition_point(|index| self.name_of(*index) < name);
        let end = self.by_name.partition_point(|index| self.name_of(*index) <= name);
        let places = self.by_name.get(first..end).unwrap_or(&[]);
        places.iter().filter_map(|index| self.list.get(*index as usize))
    }

    fn name_of(&self, index: u32) -> &str {
        self.list.get(index as usize).map_or("", |symbol| &symbol.name)
    }

    /// Every name of exactly the address `addr`, the preferred first.
    pub fn names_at(&self, addr: u64) -> impl Iterator<Item = &Symbol> {
        let first = self.list.partition_point(|symbol| symbol.addr < addr);
        self.list.get(first..).unwrap_or(&[]).iter().take_while(move |symbol| symbol.addr == addr)
    }

    /// The symbol that covers `addr`: the one that begins last.
    pub fn at(&self, addr: u64) -> Option<SymbolAt<'_>> {
        let next = self.cover.partition_point(|cover| cover.start <= addr);
        let below = self.cover.get(..next)?;
        let cover =
            below.iter().rev().take_while(|cover| cover.reach > addr).find(|cover| cover.end > addr)?;
        let symbol = self.list.get(cover.index)?;
        Some(SymbolAt { symbol, offset: addr - symbol.addr })
    }

    /// Up to `n` names that resemble `name`, the nearest first: differing in case only, by few edits, or containing
    /// it.
    pub fn near_misses(&self, name: &str, n: usize) -> Vec<&str> {
        let wanted = name.to_lowercase();
        let allowed = (wanted.chars().count() / 3).clamp(1, 4);
        let mut near: Vec<(usize, &str)> = self
            .by_name
            .iter()
            .map(|index| self.name_of(*index))
            .filter_map(|candidate| Some((distance(&wanted, candidate, allowed)?, candidate)))
            .collect();
        near.sort_unstable();
        near.dedup();
        near.into_iter().take(n).map(|(_, candidate)| candidate).collect()
    }

    /// Sorts, drops duplicates, gives sizes to symbols without one and builds the indexes.
    fn build(module: &str, mut list: Vec<Symbol>) -> Self {
        // A later entry for the same name and address is dropped: sized ones come first.
        list.sort_by(|a, b| {
            (a.addr, &a.name, !a.sized, a.kind, a.binding)
                .cmp(&(b.addr, &b.name, !b.sized, b.kind, b.binding))
        });
        list.dedup_by(|later, first| later.addr == first.addr && later.name == first.name);
        label_padding(&mut list);
        list.sort_by(|a, b| a.addr.cmp(&b.addr).then_with(|| a.preference().cmp(&b.preference())));
        end_at_next(&mut list);
        let mut named: Vec<(&str, u32)> =
            list.iter().zip(0..).map(|(symbol, index)| (symbol.name.as_ref(), index)).collect();
        named.sort_unstable();
        let by_name = named.into_iter().map(|(_, index)| index).collect();
        let cover = cover(&list);
        Self { module: module.to_owned(), list, by_name, cover }
    }
}

/// Makes a label of `__pfx_NAME` where the function NAME comes next: Linux with CONFIG_CALL_PADDING (from 6.2 on) names the
/// padding before each function so, and lists it as code, which never runs. `list` is sorted by address.
fn label_padding(list: &mut [Symbol]) {
    let is_padding = |n: usize| {
        let Some(name) = list[n].name.strip_prefix(PADDING) else { return false };
        let mut after = list[n..].iter().skip_while(|symbol| symbol.addr == list[n].addr).peekable();
        let next = after.peek().map(|symbol| symbol.addr);
        let mut following = after.take_while(|symbol| Some(symbol.addr) == next);
        list[n].is_function() && following.any(|symbol| symbol.is_function() && *symbol.name == *name)
    };
    let padding: Vec<usize> = (0..list.len()).filter(|n| is_padding(*n)).collect();
    for n in padding {
        list[n].kind = SymbolKind::Label;
    }
}

/// Ends symbols without a size at the next address; readers have set its size to the rest of its section.
fn end_at_next(list: &mut [Symbol]) {
    let mut next: Option<u64> = None;
    let mut current: Option<u64> = None;
    for symbol in list.iter_mut().rev().filter(|symbol| symbol.kind != SymbolKind::Absolute) {
        if current != Some(symbol.addr) {
            next = current;
            current = Some(symbol.addr);
        }
        if !symbol.sized {
            let gap = next.map(|next| next - symbol.addr);
            symbol.size = match (gap, symbol.size) {
                (Some(gap), 0) => gap,
                (Some(gap), rest) => gap.min(rest),
                (None, rest) => rest,
            };
        }
    }
}

/// One range an address. A label without a size inside a sized symbol names a place in that symbol and gets no range.
fn cover(list: &[Symbol]) -> Vec<Cover> {
    let mut ranges: Vec<Cover> = Vec::new();
    let (mut reach, mut sized_reach) = (0, 0);
    for (index, symbol) in list.iter().enumerate().filter(|(_, symbol)| symbol.kind != SymbolKind::Absolute) {
        let inside = !symbol.sized && !symbol.is_function() && symbol.addr < sized_reach;
        if symbol.sized {
            sized_reach = sized_reach.max(symbol.end());
        }
        if inside {
            continue;
        }
        if let Some(last) = ranges.last_mut().filter(|last| last.start == symbol.addr) {
            last.end = last.end.max(symbol.end());
            reach = reach.max(last.end);
            last.reach = reach;
            continue;
        }
        reach = reach.max(symbol.end());
        ranges.push(Cover { start: symbol.addr, end: symbol.end(), reach, index });
    }
    ranges
}

/// How far `candidate` is from `wanted` (in lower case), if at most `allowed` edits or containing it.
fn distance(wanted: &str, candidate: &str, allowed: usize) -> Option<usize> {
    let candidate = candidate.to_lowercase();
    if candidate.len().abs_diff(wanted.len()) <= allowed {
        let edits = strsim::damerau_levenshtein(wanted, &candidate);
        if edits <= allowed {
            return Some(edits);
        }
    }
    (wanted.len() >= 4 && candidate.contains(wanted)).then(|| allowed + candidate.len() - wanted.len())
}

#[cfg(test)]
mod tests;
