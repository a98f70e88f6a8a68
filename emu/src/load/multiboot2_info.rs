//! The information that a Multiboot 2 kernel is given at entry (section 3.6): a list of tags.

use super::elf::{ElfView, Width};
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
    let Places { modules, mut writes, mut next, limit } = place(plan, modules, facts.mem_size)?;
    let sections = load_sections(plan, &mut next, limit, &mut writes)?;
    let bytes = information(plan, facts, &modules, sections.as_deref());
    room("the Multiboot information", next, bytes.len() as u64, limit)?;
    writes.push((next, bytes));
    Ok(BootImage { writes, eax: BOOT_MAGIC, ebx: addr32(next) })
}

fn information(
    plan: &LoadPlan,
    facts: &BootFacts<'_>,
    modules: &[Placed<'_>],
    sections: Option<&[u8]>,
) -> Vec<u8> {
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
    if let Some(sections) = sections {
        tags.add(9, sections);
    }
    if plan.protocol.as_ref().is_some_and(|protocol| protocol.relocation().is_some()) {
        tags.words(21, &[addr32(plan.start())]);
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

/// Tag 9: the file's section headers. Sections that no segment loads, such as the symbols, are loaded from `next` on, and
/// their headers say where (section 3.6.7).
fn load_sections(
    plan: &LoadPlan,
    next: &mut u64,
    limit: u64,
    writes: &mut Vec<(u64, Vec<u8>)>,
) -> Result<Option<Vec<u8>>, LoadError> {
    const ALIGN: u64 = 16;
    let Ok(view) = ElfView::parse(&plan.image) else { return Ok(None) };
    let Some(table) = view.section_table() else { return Ok(None) };
    // sh_addr of a header.
    let field = match view.width() {
        Width::Bits32 => 12..16,
        Width::Bits64 => 16..24,
    };
    let mut headers = table.bytes.to_vec();
    for (section, header) in view.sections().iter().zip(headers.chunks_exact_mut(table.entry_size as usize)) {
        let bytes = view.section_bytes(section)?;
        if section.addr != 0 || bytes.is_empty() {
            continue;
        }
        let end = room(&format!("section {}", section.name), *next, bytes.len() as u64, limit)?;
        writes.push((*next, bytes.to_vec()));
        if let Some(address) = header.get_mut(field.clone()) {
            let size = address.len();
            address.copy_from_slice(&next.to_le_bytes()[..size]);
        }
        *next = end.next_multiple_of(ALIGN);
    }
    let mut body = [table.count, table.entry_size, table.names].map(u32::to_le_bytes).concat();
    body.extend(headers);
    Ok(Some(body))
}
