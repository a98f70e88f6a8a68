//! Multiboot 1 (GNU Multiboot Specification 0.6.96): the kernel's header and the information given to the kernel.
//!
//! Nothing is written to guest memory here: [`build_multiboot`] says what to write where.

use crate::firmware::CONVENTIONAL_END;

use super::LoadError;
use super::plan::LoadPlan;

/// Magic number of the header (section 3.1.2).
pub const HEADER_MAGIC: u32 = 0x1bad_b002;
/// What EAX holds at entry (section 3.2).
pub const BOOT_MAGIC: u32 = 0x2bad_b002;
/// Bytes of the file in which the header must lie (section 3.1).
const SEARCH: usize = 8192;
/// Required features that are understood: page-aligned modules, memory information, video mode.
const UNDERSTOOD: u32 = 0x0007;
const FLAG_ADDRESSES: u32 = 1 << 16;
const MULTIBOOT2_MAGIC: u32 = 0xe852_50d6;

const LOADER_NAME: &str = "trapline";
const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
/// Entries of the memory map.
const MAP_ENTRIES: usize = 5;
/// Room for the fixed part of the information.
const INFO_SIZE: u64 = 128;

/// Why a Multiboot kernel cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultibootError {
    /// Bad checksum, and no other header.
    #[error("the Multiboot header at {offset:#x} has checksum {checksum:#x}; {wanted:#x} would be right")]
    Checksum {
        /// Its place in the file.
        offset: usize,
        /// What it holds.
        checksum: u32,
        /// What it should hold.
        wanted: u32,
    },
    /// The header is cut off.
    #[error("the Multiboot header at {offset:#x} does not lie within the first {limit:#x} bytes of the file")]
    HeaderCut {
        /// Its place in the file.
        offset: usize,
        /// Where the searched part ends.
        limit: usize,
    },
    /// A required feature is unknown.
    #[error("the Multiboot header requires features {flags:#x}, of which {unknown:#x} are not supported")]
    Required {
        /// Its flags.
        flags: u32,
        /// The unknown ones among bits 0 to 15.
        unknown: u32,
    },
    /// No ELF and no addresses.
    #[error("the Multiboot kernel is no ELF file and its flags {flags:#x} give no load addresses (bit 16)")]
    NoAddresses {
        /// Its flags.
        flags: u32,
    },
    /// header_addr < load_addr.
    #[error("the Multiboot header says it is at {header:#x}, below the load address {load:#x}")]
    HeaderBelowLoad {
        /// header_addr.
        header: u32,
        /// load_addr.
        load: u32,
    },
    /// The load address lies before the file's first byte.
    #[error(
        "the Multiboot load address is {before:#x} bytes before the header, which is at {offset:#x} of the file"
    )]
    LoadBeforeFile {
        /// header_addr - load_addr.
        before: u32,
        /// The header's place in the file.
        offset: usize,
    },
    /// load_end_addr <= load_addr.
    #[error("the Multiboot load end {load_end:#x} is not above the load address {load:#x}")]
    LoadEnd {
        /// load_end_addr.
        load_end: u32,
        /// load_addr.
        load: u32,
    },
    /// The file ends before the data.
    #[error(
        "the Multiboot image is truncated: its data ends at {end:#x} of the file, which has {len:#x} bytes"
    )]
    Truncated {
        /// Where the data should end.
        end: u64,
        /// Length of the file.
        len: u64,
    },
    /// bss_end_addr below the end of what is loaded.
    #[error("the Multiboot bss end {bss_end:#x} is below the end of the loaded data {loaded:#x}")]
    BssEnd {
        /// bss_end_addr.
        bss_end: u32,
        /// End of the data.
        loaded: u64,
    },
    /// A command line that C cannot hold.
    #[error("the {what} holds a NUL character at byte {at}")]
    Nul {
        /// Which string.
        what: String,
        /// Where.
        at: usize,
    },
    /// A module or the information does not fit into RAM.
    #[error(
        "{what} needs {size:#x} bytes at {start:#x}, but RAM that a 32-bit kernel can use ends at {limit:#x}"
    )]
    NoRoom {
        /// What does not fit.
        what: String,
        /// Its size.
        size: u64,
        /// Where it would begin.
        start: u64,
        /// End of usable RAM.
        limit: u64,
    },
}

/// The addresses of the a.out kludge (section 3.1.3), all physical.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KludgeAddresses {
    /// Where the header itself is loaded.
    pub header: u32,
    /// Where loading begins.
    pub load: u32,
    /// End of the data, 0 for the end of the file.
    pub load_end: u32,
    /// End of bss, 0 for none.
    pub bss_end: u32,
    /// The entry point.
    pub entry: u32,
}

/// A valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MultibootHeader {
    /// Its place in the file.
    pub offset: usize,
    /// Its flags.
    pub flags: u32,
    /// Load addresses, given when flag bit 16 is set.
    pub addresses: Option<KludgeAddresses>,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

/// True if a Multiboot 2 header lies in the first 32 KB.
pub(super) fn is_multiboot2(bytes: &[u8]) -> bool {
    (0..32_768).step_by(8).any(|at| word(bytes, at) == Some(MULTIBOOT2_MAGIC))
}

/// True if the file means to be a Multiboot kernel, well or badly.
pub(crate) fn has_multiboot_header(bytes: &[u8]) -> bool {
    !matches!(find_header(bytes), Ok(None)) || is_multiboot2(bytes)
}

/// The first header with a right checksum in the first 8192 bytes; `None` if nothing there looks like one.
///
/// # Errors
/// Only headers with a wrong checksum, one that is cut off, or one that requires what is unknown.
pub(super) fn find_header(bytes: &[u8]) -> Result<Option<MultibootHeader>, MultibootError> {
    let searched = bytes.get(..SEARCH).unwrap_or(bytes);
    let mut wrong = None;
    for offset in (0..searched.len()).step_by(4).filter(|at| word(searched, *at) == Some(HEADER_MAGIC)) {
        let cut = MultibootError::HeaderCut { offset, limit: searched.len() };
        let field = |index: usize| word(searched, offset + 4 * index);
        let (Some(flags), Some(checksum)) = (field(1), field(2)) else {
            wrong.get_or_insert(cut);
            continue;
        };
        let wanted = 0u32.wrapping_sub(HEADER_MAGIC).wrapping_sub(flags);
        if checksum != wanted {
            wrong.get_or_insert(MultibootError::Checksum { offset, checksum, wanted });
            continue;
        }
        let unknown = flags & 0xffff & !UNDERSTOOD;
        if unknown != 0 {
            return Err(MultibootError::Required { flags, unknown });
        }
        let addresses = if flags & FLAG_ADDRESSES != 0 {
            let [header, load, load_end, bss_end, entry] = [3, 4, 5, 6, 7].map(field);
            let all = || {
                Some(KludgeAddresses {
                    header: header?,
                    load: load?,
                    load_end: load_end?,
                    bss_end: bss_end?,
                    entry: entry?,
                })
            };
            Some(all().ok_or(cut)?)
        } else {
            None
        };
        return Ok(Some(MultibootHeader { offset, flags, addresses }));
    }
    wrong.map_or(Ok(None), Err)
}

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

/// Lays out modules (page-aligned after the kernel) and behind them the boot information (section 3.3) for `mem_size` bytes of
/// RAM. Each module is its command line and its bytes; the kernel's command line is its name and `cmdline`.
///
/// # Errors
/// The kernel or a module does not fit, or a string holds a NUL.
pub fn build_multiboot(
    plan: &LoadPlan,
    cmdline: &str,
    modules: &[(&str, &[u8])],
    mem_size: u64,
) -> Result<BootImage, LoadError> {
    plan.check_fits(mem_size)?;
    let line = if cmdline.is_empty() { plan.name.clone() } else { format!("{} {cmdline}", plan.name) };
    check_string("command line", &line)?;
    let limit = mem_size.min(1 << 32);
    let mut writes = Vec::new();
    let mut placed = Vec::new();
    let mut cursor = plan.end().max(MIB).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
    for (index, (name, bytes)) in modules.iter().enumerate() {
        let what = format!("module {index} ({name})");
        check_string(&what, name)?;
        let end = room(&what, cursor, bytes.len() as u64, limit)?;
        placed.push((cursor, end, *name));
        writes.push((cursor, bytes.to_vec()));
        cursor = end.next_multiple_of(PAGE);
    }
    let size = Info::size(&line, &placed);
    // Behind everything else, where QEMU puts the strings too: a kernel that keeps clear of its boot data then
    // allocates the same pages under both.
    room("the Multiboot information", cursor, size, limit)?;
    let info = Info { base: cursor, line: &line, modules: &placed, mem_size };
    writes.push((cursor, info.bytes()));
    Ok(BootImage { writes, eax: BOOT_MAGIC, ebx: addr32(cursor) })
}

fn check_string(what: &str, text: &str) -> Result<(), MultibootError> {
    match text.find('\0') {
        Some(at) => Err(MultibootError::Nul { what: what.to_owned(), at }),
        None => Ok(()),
    }
}

/// The end of `size` bytes at `start`, if that is within `limit`.
fn room(what: &str, start: u64, size: u64, limit: u64) -> Result<u64, MultibootError> {
    start.checked_add(size).filter(|end| *end <= limit).ok_or_else(|| MultibootError::NoRoom {
        what: what.to_owned(),
        size,
        start,
        limit,
    })
}

/// Addresses here are below 4 GiB by the checks of [`build_multiboot`].
fn addr32(addr: u64) -> u32 {
    u32::try_from(addr).unwrap_or(u32::MAX)
}

/// The information, its lists and strings, as one block at `base`.
struct Info<'a> {
    base: u64,
    line: &'a str,
    modules: &'a [(u64, u64, &'a str)],
    mem_size: u64,
}

impl Info<'_> {
    /// Memory size, command line, modules, memory map, loader name (section 3.3, flags).
    const FLAGS: u32 = 1 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 9;
    const MAP_SIZE: u64 = MAP_ENTRIES as u64 * 24;

    fn size(line: &str, modules: &[(u64, u64, &str)]) -> u64 {
        let strings: usize = modules.iter().map(|(_, _, name)| name.len() + 1).sum();
        let lists = INFO_SIZE + Self::MAP_SIZE + 16 * modules.len() as u64;
        lists + (strings + line.len() + 1 + LOADER_NAME.len() + 1) as u64
    }

    fn bytes(&self) -> Vec<u8> {
        let map_at = self.base + INFO_SIZE;
        let list_at = map_at + Self::MAP_SIZE;
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
        for (start, end, name) in self.modules {
            for word in [addr32(*start), addr32(*end), string(name), 0] {
                list.extend_from_slice(&word.to_le_bytes());
            }
        }
        let upper_kb = addr32((self.mem_size.saturating_sub(MIB)) / 1024);
        let mut words = [0u32; (INFO_SIZE / 4) as usize];
        words[0] = Self::FLAGS;
        words[1] = addr32(CONVENTIONAL_END / 1024);
        words[2] = upper_kb;
        words[4] = line_at;
        words[5] = addr32(self.modules.len() as u64);
        words[6] = addr32(list_at);
        words[11] = addr32(Self::MAP_SIZE);
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
        let entries: [(u64, u64, u32); MAP_ENTRIES] = [
            (0, CONVENTIONAL_END.min(self.mem_size), 1),
            (CONVENTIONAL_END, 0xa_0000, 2),
            (0xf_0000, MIB, 2),
            (MIB, self.mem_size.max(MIB), 1),
            // Where a PC's flash is: reserved, as firmware reports it.
            (0xfffc_0000, 1 << 32, 2),
        ];
        let mut map = Vec::new();
        for (start, end, kind) in entries {
            map.extend_from_slice(&20u32.to_le_bytes());
            map.extend_from_slice(&start.to_le_bytes());
            map.extend_from_slice(&(end - start).to_le_bytes());
            map.extend_from_slice(&kind.to_le_bytes());
        }
        map
    }
}
