//! The information that a Multiboot 1 kernel is given at entry (section 3.3): modules, memory map, command line.
//!
//! Nothing is written to guest memory here: [`build_multiboot`] says what to write where.

use super::LoadError;
use super::multiboot::BOOT_MAGIC;
use super::placing::{Placed, Places, addr32, command_line, place, room};
use super::plan::LoadPlan;
use crate::firmware::memory_map::{MemoryRange, memory_map};
use crate::firmware::{CONVENTIONAL_END, LOADER_NAME};
use crate::layout::RamLayout;

const MIB: u64 = 1 << 20;
/// Room for the fixed part of the information.
const INFO_SIZE: u64 = 128;

/// What the machine writes beside the segments, and the registers at entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootImage {
    /// Physical addresses and the bytes that go there; they overlap neither one another nor a segment.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// EAX at entry: [`BOOT_MAGIC`].
    pub eax: u32,
    /// EBX at entry: physical address of the information.
    pub ebx: u32,
}

/// Lays out modules (page-aligned after the kernel) and after them the boot information (section 3.3) for `mem_size`
/// bytes of RAM. Each module is its command line and its bytes; the kernel's command line is its name and `cmdline`.
///
/// # Errors
/// The kernel or a module does not fit, or a string holds a NUL.
pub fn build_multiboot(
    plan: &LoadPlan,
    cmdline: &str,
    modules: &[(&str, &[u8])],
    mem_size: u64,
) -> Result<BootImage, LoadError> {
    let line = command_line(plan, cmdline)?;
    let Places { modules, mut writes, next, limit } = place(plan, modules, mem_size)?;
    // After everything else, where QEMU puts the strings too: a kernel that avoids its boot data then allocates the
    // same pages under both.
    let info = Info { base: next, line: &line, modules: &modules, mem_size, map: memory_map(mem_size) };
    room("the Multiboot information", next, info.size(), limit)?;
    writes.push((next, info.bytes()));
    Ok(BootImage { writes, eax: BOOT_MAGIC, ebx: addr32(next) })
}

/// The information, its lists and strings, as one block at `base`.
struct Info<'a> {
    base: u64,
    line: &'a str,
    modules: &'a [Placed<'a>],
    mem_size: u64,
    map: Vec<MemoryRange>,
}

impl Info<'_> {
    /// Memory size, command line, modules, memory map, loader name (section 3.3, flags).
    const FLAGS: u32 = 1 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 9;
    /// Bytes of an entry of the memory map, with the size that precedes it.
    const ENTRY: usize = 24;

    fn size(&self) -> u64 {
        let Info { line, modules, .. } = self;
        let strings: usize = modules.iter().map(|module| module.name.len() + 1).sum();
        let lists = INFO_SIZE + self.map_size() + 16 * modules.len() as u64;
        lists + (strings + line.len() + 1 + LOADER_NAME.len() + 1) as u64
    }

    fn map_size(&self) -> u64 {
        (self.map.len() * Self::ENTRY) as u64
    }

    fn bytes(&self) -> Vec<u8> {
        let map_at = self.base + INFO_SIZE;
        let list_at = map_at + self.map_size();
        let strings_at = list_at + 16 * self.modules.len() as u64;
        let mut strings = Vec::new();
        let mut string = |text: &str| {
            let at = strings_at + strings.len() as u64;
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            addr32(at)
        };
        let line_at = string(self.line);
        let loader_at = string(LOADER_NAME);
        let mut list = Vec::new();
        for module in self.modules {
            for word in [addr32(module.start), addr32(module.end), string(module.name), 0] {
                list.extend_from_slice(&word.to_le_bytes());
            }
        }
        let upper_kb = addr32(RamLayout::of(self.mem_size).low_end().saturating_sub(MIB) / 1024);
        let mut words = [0u32; (INFO_SIZE / 4) as usize];
        words[0] = Self::FLAGS;
        words[1] = addr32(CONVENTIONAL_END / 1024);
        words[2] = upper_kb;
        words[4] = line_at;
        words[5] = addr32(self.modules.len() as u64);
        words[6] = addr32(list_at);
        words[11] = addr32(self.map_size());
        words[12] = addr32(map_at);
        words[16] = loader_at;
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(self.memory_map());
        bytes.extend(list);
        bytes.extend(strings);
        bytes
    }

    /// Entries as of INT 15h E820: usable RAM is type 1, reserved type 2.
    fn memory_map(&self) -> Vec<u8> {
        let mut map = Vec::new();
        for range in &self.map {
            map.extend_from_slice(&20u32.to_le_bytes());
            map.extend_from_slice(&range.start.to_le_bytes());
            map.extend_from_slice(&range.size().to_le_bytes());
            map.extend_from_slice(&range.kind.to_le_bytes());
        }
        map
    }
}
