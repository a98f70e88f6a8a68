//! The information that a Multiboot 2 kernel is given at entry (section 3.6): a list of tags.

use super::elf::ElfView;
use super::multiboot_info::BootImage;
use super::multiboot2::BOOT_MAGIC;
use super::placing::{Placed, Places, addr32, check_string, place, room};
use super::plan::LoadPlan;
use super::{BootFacts, LoadError};
use crate::devices::vga::TEXT_BASE;
use crate::firmware::memory_map::memory_map;
use crate::firmware::{CONVENTIONAL_END, LOADER_NAME};
use crate::layout::RamLayout;

const MIB: u64 = 1 << 20;

/// Lays out the modules and the boot information, as [`super::build_multiboot`] does for the first version. The command line
/// has no name of the kernel before it, as GRUB's has none.
pub(super) fn build(
    plan: &LoadPlan,
    facts: &BootFacts<'_>,
    modules: &[(&str, &[u8])],
) -> Result<BootImage, LoadError> {
    check_string("command line", facts.cmdline)?;
    let Places { modules, mut writes, next, limit } = place(plan, modules, facts.mem_size)?;
    let bytes = information(plan, facts, &modules);
    room("the Multiboot information", next, bytes.len() as u64, limit)?;
    writes.push((next, bytes));
    Ok(BootImage { writes, eax: BOOT_MAGIC, ebx: addr32(next) })
}

fn information(plan: &LoadPlan, facts: &BootFacts<'_>, modules: &[Placed<'_>]) -> Vec<u8> {
    let mut tags = Tags(vec![0; 8]);
    tags.string(1, &[], facts.cmdline);
    tags.string(2, &[], LOADER_NAME);
    for module in modules {
        tags.string(3, &[addr32(module.start), addr32(module.end)], module.name);
    }
    let upper = RamLayout::of(facts.mem_size).low_end().saturating_sub(MIB) / 1024;
    tags.words(4, &[addr32(CONVENTIONAL_END / 1024), addr32(upper)]);
    tags.add(6, &map(facts.mem_size));
    tags.add(8, &screen());
    if let Some(sections) = sections(plan) {
        tags.add(9, &sections);
    }
    if let Some(rsdp) = facts.rsdp {
        // The first version is the second's first 20 bytes.
        tags.add(14, rsdp.get(..20).unwrap_or_default());
        tags.add(15, rsdp);
    }
    tags.words(0, &[]);
    let size = tags.0.len() as u32;
    tags.0.splice(..4, size.to_le_bytes());
    tags.0
}

/// Tags one after the other, each aligned to 8 bytes.
struct Tags(Vec<u8>);

impl Tags {
    fn add(&mut self, kind: u32, body: &[u8]) {
        let aligned = self.0.len().next_multiple_of(8);
        self.0.resize(aligned, 0);
        self.0.extend(kind.to_le_bytes());
        self.0.extend((8 + body.len() as u32).to_le_bytes());
        self.0.extend(body);
    }

    fn words(&mut self, kind: u32, words: &[u32]) {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.add(kind, &body);
    }

    fn string(&mut self, kind: u32, words: &[u32], text: &str) {
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        body.extend(text.as_bytes());
        body.push(0);
        self.add(kind, &body);
    }
}

/// Tag 6: entries of 24 bytes, version 0.
fn map(mem_size: u64) -> Vec<u8> {
    let mut map = [24u32, 0].map(u32::to_le_bytes).concat();
    for range in memory_map(mem_size) {
        map.extend(range.start.to_le_bytes());
        map.extend(range.size().to_le_bytes());
        map.extend(range.kind.to_le_bytes());
        map.extend([0; 4]);
    }
    map
}

/// Tag 8: text of 80 by 25 characters, two bytes each.
fn screen() -> Vec<u8> {
    const TEXT: u8 = 2;
    let mut body = TEXT_BASE.to_le_bytes().to_vec();
    for word in [160u32, 80, 25] {
        body.extend(word.to_le_bytes());
    }
    body.extend([16, TEXT, 0, 0]);
    body
}

/// Tag 9: the file's section headers. Sections that are not loaded are not in memory, so their addresses stay 0.
fn sections(plan: &LoadPlan) -> Option<Vec<u8>> {
    let table = ElfView::parse(&plan.image).ok()?.section_table()?;
    let mut body = [table.count, table.entry_size, table.names].map(u32::to_le_bytes).concat();
    body.extend(table.bytes);
    Some(body)
}
