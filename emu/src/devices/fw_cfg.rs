//! QEMU's firmware configuration (QEMU's specification "fw_cfg"): a selector and a stream of bytes, by which a kernel reads
//! facts about its machine and files that the user gives. There is no DMA interface, and nothing can be written.
//!
//! The items are fixed when the machine is loaded. They are no part of the stored state: selector and offset are.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

const SIGNATURE: u16 = 0;
const ID: u16 = 1;
const RAM_SIZE: u16 = 3;
const CPUS: u16 = 5;
const CMDLINE: u16 = 0x15;
const CMDLINE_SIZE: u16 = 0x14;
const INITRD_SIZE: u16 = 0x0b;
const MOST_CPUS: u16 = 0x0f;
const DIRECTORY: u16 = 0x19;
const FIRST_FILE: u16 = 0x20;
/// The e820 table of older versions, an item of the architecture.
const E820: u16 = 0x8003;
/// Bytes of a file's name in the directory, its NUL included.
pub const NAME_BYTES: usize = 56;

/// The facts that it tells.
#[derive(Clone, Debug, Default)]
pub struct Facts<'a> {
    /// Bytes of RAM.
    pub mem_size: u64,
    /// The kernel's command line.
    pub cmdline: &'a str,
    /// Bytes of the initial RAM disk.
    pub initrd_len: u32,
    /// The memory map: start, size and type.
    pub map: Vec<(u64, u64, u32)>,
    /// Files by their names, such as `opt/NAME`.
    pub files: &'a [(String, Vec<u8>)],
}

/// The device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FwCfg {
    selected: u16,
    offset: u32,
    #[serde(skip)]
    items: Arc<BTreeMap<u16, Vec<u8>>>,
}

impl std::hash::Hash for FwCfg {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.selected, self.offset).hash(state);
    }
}

impl super::Stored for FwCfg {
    const NAME: &str = "fw_cfg";
    const VERSION: u16 = 1;
}

impl FwCfg {
    /// Fills in what a kernel can read.
    pub fn fill(&mut self, facts: &Facts<'_>) {
        let mut map = Vec::new();
        for (start, size, kind) in &facts.map {
            map.extend(start.to_le_bytes());
            map.extend(size.to_le_bytes());
            map.extend(kind.to_le_bytes());
        }
        let mut cmdline = facts.cmdline.as_bytes().to_vec();
        cmdline.push(0);
        // A count before the same entries.
        let old_map = [&(facts.map.len() as u32).to_le_bytes(), map.as_slice()].concat();
        let mut items = BTreeMap::from([
            (SIGNATURE, b"QEMU".to_vec()),
            // Bit 0: the interface by ports.
            (ID, 1u32.to_le_bytes().to_vec()),
            (RAM_SIZE, facts.mem_size.to_le_bytes().to_vec()),
            (CPUS, 1u16.to_le_bytes().to_vec()),
            (MOST_CPUS, 1u16.to_le_bytes().to_vec()),
            (INITRD_SIZE, facts.initrd_len.to_le_bytes().to_vec()),
            (CMDLINE_SIZE, (cmdline.len() as u32).to_le_bytes().to_vec()),
            (CMDLINE, cmdline),
            (E820, old_map),
        ]);
        let mut files: Vec<(&str, &[u8])> = vec![("etc/e820", &map)];
        files.extend(facts.files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())));
        files.sort_by_key(|(name, _)| *name);
        let mut directory = (files.len() as u32).to_be_bytes().to_vec();
        for (key, (name, bytes)) in (FIRST_FILE..).zip(files) {
            directory.extend((bytes.len() as u32).to_be_bytes());
            directory.extend(key.to_be_bytes());
            directory.extend([0; 2]);
            let mut field = name.as_bytes().to_vec();
            field.resize(NAME_BYTES, 0);
            directory.extend(field);
            items.insert(key, bytes.to_vec());
        }
        items.insert(DIRECTORY, directory);
        self.items = Arc::new(items);
    }

    /// Whether no guest has asked it for anything yet.
    pub(crate) fn is_untouched(&self) -> bool {
        (self.selected, self.offset) == (0, 0)
    }

    /// Takes over the items of another, as those are no part of a stored state.
    pub(crate) fn attach_as(&mut self, other: &Self) {
        self.items = Arc::clone(&other.items);
    }

    /// Selects an item, from its first byte on.
    pub fn select(&mut self, key: u16) {
        (self.selected, self.offset) = (key, 0);
    }

    /// The next byte of the selected item; 0 after its end.
    pub fn read(&mut self) -> u8 {
        let item = self.items.get(&self.selected);
        let byte = item.and_then(|item| item.get(self.offset as usize)).copied();
        // The offset stays at the end, so that reading on changes nothing.
        self.offset += u32::from(byte.is_some());
        byte.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(f: &mut FwCfg, key: u16, n: usize) -> Vec<u8> {
        f.select(key);
        (0..n).map(|_| f.read()).collect()
    }

    #[test]
    fn items_and_files_are_read_byte_by_byte() {
        let files = [("opt/a".to_owned(), b"hello".to_vec())];
        let map = vec![(0, 0x9_fc00, 1)];
        let facts = Facts { mem_size: 64 << 20, cmdline: "x y", initrd_len: 0, map, files: &files };
        let mut f = FwCfg::default();
        assert_eq!(f.read(), 0, "nothing is there before the machine is loaded");
        f.fill(&facts);
        assert_eq!(read(&mut f, 0, 5), b"QEMU\0");
        assert_eq!(read(&mut f, 3, 8), (64u64 << 20).to_le_bytes());
        assert_eq!(read(&mut f, 0x15, 5), b"x y\0\0");
        let directory = read(&mut f, 0x19, 4 + 2 * 64);
        assert_eq!(directory[..12], [0, 0, 0, 2, 0, 0, 0, 20, 0, 0x20, 0, 0]);
        assert_eq!(&directory[12..21], b"etc/e820\0");
        assert_eq!(directory[68..76], [0, 0, 0, 5, 0, 0x21, 0, 0]);
        assert_eq!(read(&mut f, 0x21, 6), b"hello\0");
        assert_eq!(read(&mut f, 0x1234, 1), [0]);
    }
}
