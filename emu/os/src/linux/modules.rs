//! Loaded kernel modules: `struct module`, its sections and its symbols, as the guest holds them.

use std::ops::Range;

use trapline_emu::load::Width;
use trapline_emu::symbols::{Btf, Symbols, TableEntry};

use super::memory::Memory;
use super::{ListEnd, listed, walked};
use crate::profile::{Module, ModuleKind};

/// Most modules, sections of one, and symbols of all.
pub(super) const MAX_MODULES: usize = 4096;
const MAX_SECTIONS: u64 = 512;
pub(super) const MAX_SYMBOLS: u64 = 1 << 18;
/// Most pieces of memory of one module.
const MAX_MEMORIES: u64 = 16;
/// Words of a section's attribute and its address: `struct bin_attribute` has got members since 5.10.
const SECTION_WORDS: std::ops::RangeInclusive<u64> = 8..=11;
/// Words of a piece of memory (`struct module_memory`): base, size, and the node of a tree, whose first is the module.
const MEMORY_WORDS: u64 = 9;
/// Longest name of a section or a symbol.
const MAX_NAME: usize = 512;
/// Largest module, bytes.
const MAX_SIZE: u64 = 256 << 20;
/// `state` of a module that is starting (MODULE_STATE_COMING); it is the first member.
const COMING: u32 = 1;
/// Most bytes searched of a `struct module`.
const MODULE_SIZE: u64 = 0x600;

/// A section of a loaded module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleSection {
    /// Its name.
    pub name: String,
    /// Virtual address of its first byte.
    pub address: u64,
}

/// The guest's data about one loaded module.
#[derive(Debug, Clone)]
pub struct ModuleDetails {
    /// Its name and where it lies.
    pub module: Module,
    /// Its sections by address, those that were freed after loading included.
    pub sections: Vec<ModuleSection>,
    /// Its symbols, at the addresses they were loaded to.
    pub symbols: Symbols,
}

/// A module that was found.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// The address of its `struct module`.
    pub(super) at: u64,
    pub(super) module: Module,
    /// Its memory, code first; what it needs only to start may be left out.
    pub(super) ranges: Vec<Range<u64>>,
}

/// `mem` of `struct module`, from 6.4 on: memory by its purpose, code first, that of the start last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memories {
    /// Offset of the first.
    first: u64,
    /// Bytes of one, and how many.
    each: u64,
    count: u64,
    /// Where it has its base and its size.
    base: u64,
    size: u64,
}

/// Where `struct module_sect_attrs` and its parts lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SectionLayout {
    /// How many there are, the offset of the first one, and bytes of each.
    count: Count,
    first: u64,
    each: u64,
    /// Where each has its name and its address.
    name: u64,
    address: u64,
}

/// Where the number of sections is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    /// It has this offset.
    At(u64),
    /// By a list of pointers to the attributes that ends with 0, as 7.2 has it; the list's address has this offset.
    Listed(u64),
}

/// Where the list link and the name lie in `struct module`, and what BTF says of the rest; without BTF that is found in
/// each module by its expected values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ModuleLayout {
    width: Width,
    list: u64,
    name: u64,
    name_size: usize,
    memories: Option<Memories>,
    sections: Option<SectionLayout>,
}

impl Memories {
    /// `None` for a kernel that divides modules in another way.
    pub(super) fn from_btf(btf: &Btf) -> Option<Self> {
        let memory = |path: &str| Some(btf.member("module_memory", path)?.offset());
        let all = btf.member("module", "mem")?;
        let each = btf.size_of("module_memory").filter(|each| *each > 0)?;
        let count = (all.size? / each).min(MAX_MEMORIES);
        Some(Self { first: all.offset(), each, count, base: memory("base")?, size: memory("size")? })
    }

    /// Where bases and sizes lie in `struct module`.
    pub(super) fn places(self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.count).map(move |n| {
            let at = self.first + n * self.each;
            (at + self.base, at + self.size)
        })
    }
}

impl SectionLayout {
    fn from_btf(btf: &Btf) -> Option<Self> {
        let at = |name: &str, path: &str| Some(btf.member(name, path)?.offset());
        let listed = || {
            Some(Self {
                count: Count::Listed(at("module_sect_attrs", "grp.bin_attrs")?),
                first: at("module_sect_attrs", "attrs")?,
                each: btf.size_of("bin_attribute")?,
                name: at("bin_attribute", "attr.name")?,
                address: at("bin_attribute", "private")?,
            })
        };
        let Some(count) = at("module_sect_attrs", "nsections") else { return listed() };
        Some(Self {
            count: Count::At(count),
            first: at("module_sect_attrs", "attrs")?,
            each: btf.size_of("module_sect_attr")?,
            name: at("module_sect_attr", "battr.attr.name")?,
            address: at("module_sect_attr", "address")?,
        })
    }

    /// A group of five words, the number of sections, and for each an attribute that begins with its name, and the
    /// address: `words` in all.
    fn of_words(words: u64, w: u64) -> Self {
        Self { count: Count::At(5 * w), first: 6 * w, each: words * w, name: 0, address: (words - 1) * w }
    }

    /// A group of six words, the last of which has the list, and attributes of nine: the name, mode and size, the address, and
    /// functions.
    fn with_list(w: u64) -> Self {
        Self { count: Count::Listed(5 * w), first: 6 * w, each: 9 * w, name: 0, address: 3 * w }
    }
}

impl ModuleLayout {
    /// From BTF, else as Linux orders them: the state, the list, the name (include/linux/module.h).
    pub(super) fn new(width: Width, btf: Option<&Btf>) -> Self {
        let w = u64::from(width.bits() / 8);
        let member = |path: &str| btf.and_then(|btf| btf.member("module", path));
        let list = member("list").map_or(w, |member| member.offset());
        let name = member("name").map_or(3 * w, |member| member.offset());
        Self {
            width,
            list,
            name,
            name_size: (64 - w) as usize,
            memories: btf.and_then(Memories::from_btf),
            sections: btf.and_then(SectionLayout::from_btf),
        }
    }

    /// The same without what BTF says.
    pub(super) fn as_inferred(self) -> Self {
        Self { memories: None, sections: None, ..self }
    }

    /// The modules of the list at `head`, the newest first as the guest has them.
    pub(super) fn list(&self, memory: &Memory<'_>, head: u64) -> Vec<Found> {
        let all = listed(memory, head, self.list, MAX_MODULES);
        all.into_iter().filter_map(|at| self.module(memory, at)).collect()
    }

    /// The damage of the list at `head`, in a sentence; `None` when each of its entries is a module.
    pub(super) fn damage(&self, memory: &Memory<'_>, head: u64) -> Option<String> {
        let (all, end) = walked(memory, head, self.list, MAX_MODULES);
        let entries = all.len();
        let what = match end {
            ListEnd::Head => {
                let bad = all.into_iter().position(|at| self.module(memory, at).is_none())?;
                format!("entry {} of {entries} is not a module", bad + 1)
            }
            ListEnd::Nowhere(at) => format!("after {entries} entries the link at {at:#x} leads nowhere"),
            ListEnd::Inside(at) => {
                format!(
                    "after {entries} entries the link at {at:#x} leads back into the list, not to its head"
                )
            }
            ListEnd::Most => format!("it has more than {MAX_MODULES} entries"),
        };
        Some(format!("the guest's list of kernel modules at {head:#x} is damaged: {what}"))
    }

    fn module(&self, memory: &Memory<'_>, at: u64) -> Option<Found> {
        let name = memory.text(memory.add(at, self.name), self.name_size);
        if name.is_empty() {
            return None;
        }
        let ranges = match self.memories {
            Some(memories) => self.by_memories(memory, at, memories),
            None => self.by_layout(memory, at).or_else(|| {
                self.memories_of(memory, at).and_then(|memories| self.by_memories(memory, at, memories))
            }),
        }?;
        let base = ranges.first()?.start;
        let size = ranges.iter().map(|range| range.end - range.start).sum();
        let name = String::from_utf8_lossy(&name).into_owned();
        Some(Found { at, module: Module { name, base, size, kind: ModuleKind::Kernel }, ranges })
    }

    /// A module lies in its own memory, so its base and size are the words that enclose it: a page, then
    /// sizes of the whole, the text, and what is read-only, which do not exceed it.
    fn by_layout(&self, memory: &Memory<'_>, at: u64) -> Option<Vec<Range<u64>>> {
        let w = memory.word_size();
        let range = |offset: u64| {
            let base = memory.word(memory.add(at, offset))?;
            let size = |n: u64| Some(u64::from(memory.u32(memory.add(at, offset + w + 4 * n))?));
            let (whole, text, fixed) = (size(0)?, size(1)?, size(2)?);
            let encloses = at.checked_sub(base).is_some_and(|into| into < whole);
            let fits = base.is_multiple_of(0x1000) && whole <= MAX_SIZE && text <= fixed && fixed <= whole;
            (base != 0 && encloses && fits).then(|| base..base + whole)
        };
        let first = self.name + self.name_size as u64;
        (first / w..MODULE_SIZE / w).find_map(|word| range(word * w)).map(|range| vec![range])
    }

    /// The pieces of memory of the module at `at`; one of them, never the code, has to hold it.
    fn by_memories(&self, memory: &Memory<'_>, at: u64, memories: Memories) -> Option<Vec<Range<u64>>> {
        let mut found = Vec::new();
        for (base, size) in memories.places() {
            let base = memory.word(memory.add(at, base))?;
            let size = u64::from(memory.u32(memory.add(at, size))?);
            if base == 0 || size == 0 {
                continue;
            }
            if !base.is_multiple_of(0x1000) || size > MAX_SIZE {
                return None;
            }
            found.push(base..base.checked_add(size)?);
        }
        found.iter().any(|range| range.contains(&at)).then_some(found)
    }

    /// Where a kernel without BTF has the pieces of memory: the one with data, which holds the module and names it, is the
    /// second.
    fn memories_of(&self, memory: &Memory<'_>, at: u64) -> Option<Memories> {
        let w = memory.word_size();
        let word = |offset: u64| memory.word(memory.add(at, offset));
        // A flag may precede the size.
        let size_at =
            |offset: u64, size: u64| memory.u32(memory.add(at, offset + size)).filter(|size| *size > 1);
        let holds = |offset: u64| {
            let base = word(offset)?;
            let size = [w, w + 4].into_iter().find(|size| size_at(offset, *size).is_some())?;
            let encloses = at
                .checked_sub(base)
                .is_some_and(|into| size_at(offset, size).is_some_and(|size| into < size.into()));
            (base != 0 && encloses && word(offset + 2 * w)? == at).then_some((offset, size))
        };
        let first = self.name + self.name_size as u64;
        let (data, size) = (first / w..MODULE_SIZE / w).find_map(|n| holds(n * w))?;
        let each = MEMORY_WORDS * w;
        let first = data.checked_sub(each)?;
        // Code comes first, and names the module too.
        (word(first + 2 * w)? == at).then_some(Memories { first, each, count: 7, base: 0, size })
    }

    /// The module with its sections and symbols; none where they cannot be read. `budget` is what is left of
    /// [`MAX_SYMBOLS`].
    pub(super) fn details(&self, memory: &Memory<'_>, found: &Found, budget: &mut u64) -> ModuleDetails {
        let module = found.module.clone();
        let core = self.core_kallsyms(memory, found);
        let symbols = core.and_then(|core| self.symbols(memory, &module, core, budget));
        let sections = core.and_then(|core| self.sections(memory, found, core)).unwrap_or_default();
        ModuleDetails { symbols: symbols.unwrap_or_else(|| Symbols::new(&module.name)), module, sections }
    }

    /// The sections where they are now: the init sections (`.init*`) are freed when it has started.
    pub(super) fn placed(&self, memory: &Memory<'_>, found: &Found) -> Vec<(String, u64)> {
        let starting = memory.u32(found.at) == Some(COMING);
        let core = self.core_kallsyms(memory, found);
        let sections = core.and_then(|core| self.sections(memory, found, core)).unwrap_or_default();
        let here = |section: &ModuleSection| {
            let resident = found.ranges.iter().any(|range| range.contains(&section.address));
            resident || (starting && section.name.starts_with(".init"))
        };
        sections.into_iter().filter(here).map(|section| (section.name, section.address)).collect()
    }

    /// `core_kallsyms`: once a module has started, the pointer `kallsyms` before it points to it. Until then it is
    /// recognised by its content.
    fn core_kallsyms(&self, memory: &Memory<'_>, found: &Found) -> Option<u64> {
        let w = memory.word_size();
        let places = || (0..MODULE_SIZE / w).map(|word| memory.add(found.at, word * w));
        let started = places().find_map(|place| {
            let next = memory.add(place, w);
            (memory.word(place)? == next).then_some(next)
        });
        started.or_else(|| places().find(|place| self.is_core_kallsyms(memory, found, *place)))
    }

    /// Whether a `struct mod_kallsyms` of the module's own memory is at `place`: a symbol table that begins with the
    /// empty symbol, the names and the letters, one after the other.
    fn is_core_kallsyms(&self, memory: &Memory<'_>, found: &Found, place: u64) -> bool {
        let w = memory.word_size();
        let word = |n: u64| memory.word(memory.add(place, n * w));
        let (Some(table), Some(strings), Some(letters)) = (word(0), word(2), word(3)) else { return false };
        let Some(count) = memory.u32(memory.add(place, w)).map(u64::from) else { return false };
        let entry = if self.width == Width::Bits32 { 16 } else { 24 };
        let home = found.ranges.iter().find(|range| range.contains(&table));
        let ordered = table.checked_add(count * entry).is_some_and(|end_of_it| end_of_it <= strings)
            && strings < letters
            && letters
                .checked_add(count)
                .is_some_and(|end_of_it| home.is_some_and(|home| end_of_it <= home.end));
        let ours = count > 0 && ordered;
        ours && memory.bytes(table, entry as usize).is_some_and(|first| first.iter().all(|byte| *byte == 0))
    }

    /// `struct mod_kallsyms`: symbol table, number, names, and type letters.
    pub(super) fn symbols(
        &self,
        memory: &Memory<'_>,
        module: &Module,
        core: u64,
        budget: &mut u64,
    ) -> Option<Symbols> {
        let w = memory.word_size();
        let [table, strings, letters] = [0, 2, 3].map(|word| memory.pointer(memory.add(core, word * w)));
        let (table, strings, letters) = (table?, strings?, letters?);
        let count = u64::from(memory.u32(memory.add(core, w))?).min(*budget);
        *budget -= count;
        let entry = if self.width == Width::Bits32 { 16 } else { 24 };
        let size = if self.width == Width::Bits32 { 8 } else { 16 };
        let value = if self.width == Width::Bits32 { 4 } else { 8 };
        let mut found = Vec::new();
        for index in 0..count {
            let at = memory.add(table, index * entry);
            let name = memory.u32(at)?;
            let letter = *memory.bytes(memory.add(letters, index), 1)?.first()?;
            let address = memory.word(memory.add(at, value))?;
            if name == 0 || address == 0 || matches!(letter, b'U' | b'u' | 0) {
                continue;
            }
            let name = memory.text(memory.add(strings, name.into()), MAX_NAME);
            found.push(TableEntry {
                name: String::from_utf8_lossy(&name).into_owned(),
                addr: address,
                size: memory.word(memory.add(at, size))?,
                letter: char::from(letter),
            });
        }
        Some(Symbols::from_table(&module.name, found))
    }

    /// The sections by `struct module_sect_attrs`, which the word after `core_kallsyms` points to.
    fn sections(&self, memory: &Memory<'_>, found: &Found, core: u64) -> Option<Vec<ModuleSection>> {
        let w = memory.word_size();
        let attributes = memory.pointer(memory.add(core, 4 * w))?;
        let by = |layout| self.sections_by(memory, found, attributes, layout);
        match self.sections {
            Some(layout) => by(layout),
            // With a wrong number of words, a name or an address of the second section is something else.
            None => {
                let all = SECTION_WORDS.map(|words| SectionLayout::of_words(words, w));
                all.chain([SectionLayout::with_list(w)]).find_map(by)
            }
        }
    }

    /// The sections, if each has a name as sections have, and the first ones are in the module.
    fn sections_by(
        &self,
        memory: &Memory<'_>,
        found: &Found,
        attributes: u64,
        layout: SectionLayout,
    ) -> Option<Vec<ModuleSection>> {
        let w = memory.word_size();
        let count = match layout.count {
            Count::At(at) => u64::from(memory.u32(memory.add(attributes, at))?).min(MAX_SECTIONS),
            Count::Listed(at) => {
                let list = memory.pointer(memory.add(attributes, at))?;
                let is_there = |n: &u64| memory.word(memory.add(list, n * w)).is_some_and(|one| one != 0);
                (0..MAX_SECTIONS).take_while(is_there).count() as u64
            }
        };
        let mut sections = Vec::new();
        for index in 0..count {
            let at = memory.add(attributes, layout.first + index * layout.each);
            let name = memory.text(memory.pointer(memory.add(at, layout.name))?, MAX_NAME);
            let name = String::from_utf8(name).ok().filter(|name| is_section_name(name))?;
            let address = memory.word(memory.add(at, layout.address))?;
            sections.push(ModuleSection { name, address });
        }
        let inside =
            |section: &ModuleSection| found.ranges.iter().any(|range| range.contains(&section.address));
        if !sections.is_empty() && !sections.iter().any(inside) {
            return None;
        }
        sections.sort_by_key(|section| section.address);
        Some(sections)
    }
}

/// Whether this may be the name of a section of a module.
fn is_section_name(name: &str) -> bool {
    name.starts_with(['.', '_']) && name.bytes().all(|byte| byte.is_ascii_graphic())
}
