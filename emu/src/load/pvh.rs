//! PVH: the entry into an ELF kernel that Xen and QEMU use (Xen's document "PVH" and its header `start_info.h`).
//!
//! A note in the file names the entry point. The kernel is entered in 32-bit protected mode with flat segments, and EBX points
//! to `struct hvm_start_info`.

use super::elf::ElfView;
use super::placing::{Places, addr32, check_string, place, room};
use super::plan::LoadPlan;
use super::{BootFacts, BootImage, LoadError};
use crate::firmware::memory_map::memory_map;
use goblin::elf::program_header::PT_NOTE;

/// XEN_ELFNOTE_PHYS32_ENTRY: the physical address of the entry point.
const PHYS32_ENTRY: u32 = 18;
const START_MAGIC: u32 = 0x336e_c578;
const VERSION: u32 = 1;
/// `struct hvm_start_info` of version 1.
const INFO_SIZE: u64 = 56;
/// `struct hvm_modlist_entry`.
const MODULE_SIZE: u64 = 32;
/// `struct hvm_memmap_table_entry`.
const RANGE_SIZE: u64 = 24;

/// The entry point that the file's notes name, if they do.
pub(super) fn entry(view: &ElfView<'_>) -> Option<u64> {
    let programs = view.programs().iter().enumerate().filter(|(_, program)| program.p_type == PT_NOTE);
    programs
        .filter_map(|(index, program)| view.bytes().get(view.segment_range(index, program).ok()?))
        .find_map(entry_in)
}

/// Looks through one segment of notes: sizes of name and description, type, then both, padded to 4 bytes.
fn entry_in(mut notes: &[u8]) -> Option<u64> {
    while let Some((head, rest)) = notes.split_at_checked(12) {
        let mut words = head
            .chunks_exact(4)
            .map(|word| word.iter().rev().fold(0usize, |value, byte| value << 8 | usize::from(*byte)));
        let (names, descriptions, kind) = (words.next()?, words.next()?, words.next()?);
        let name = rest.get(..names)?;
        let rest = rest.get(names.next_multiple_of(4)..)?;
        let description = rest.get(..descriptions)?;
        if name == b"Xen\0" && kind == PHYS32_ENTRY as usize && matches!(descriptions, 4 | 8) {
            return Some(description.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)));
        }
        notes = rest.get(descriptions.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

/// Lays out the modules and the start information; the address of the latter is [`BootImage::ebx`].
pub(super) fn build(
    plan: &LoadPlan,
    facts: &BootFacts<'_>,
    modules: &[(&str, &[u8])],
) -> Result<BootImage, LoadError> {
    check_string("command line", facts.cmdline)?;
    let Places { modules, mut writes, next, limit } = place(plan, modules, facts.mem_size)?;
    let list_at = next + INFO_SIZE.next_multiple_of(8);
    let map = memory_map(facts.mem_size);
    let map_at = list_at + MODULE_SIZE * modules.len() as u64;
    let strings_at = map_at + RANGE_SIZE * map.len() as u64;
    let mut strings = Vec::new();
    let mut string = |text: &str| {
        let at = strings_at + strings.len() as u64;
        strings.extend(text.as_bytes());
        strings.push(0);
        at
    };
    let line_at = string(facts.cmdline);
    let mut bytes = Vec::new();
    for word in [START_MAGIC, VERSION, 0, modules.len() as u32] {
        bytes.extend(word.to_le_bytes());
    }
    let list = if modules.is_empty() { 0 } else { list_at };
    for address in [list, line_at, facts.rsdp_at, map_at] {
        bytes.extend(address.to_le_bytes());
    }
    bytes.extend((map.len() as u32).to_le_bytes());
    bytes.extend([0; 4]);
    for module in &modules {
        for value in [module.start, module.end - module.start, string(module.name), 0] {
            bytes.extend(value.to_le_bytes());
        }
    }
    for range in map {
        bytes.extend(range.start.to_le_bytes());
        bytes.extend(range.size().to_le_bytes());
        bytes.extend(range.kind.to_le_bytes());
        bytes.extend([0; 4]);
    }
    bytes.extend(strings);
    room("the start information", next, bytes.len() as u64, limit)?;
    writes.push((next, bytes));
    Ok(BootImage { writes, eax: 0, ebx: addr32(next) })
}
