//! Multiboot 1 (GNU Multiboot Specification 0.6.96): the header in the kernel's file. The information that the kernel is given at
//! entry is laid out in `multiboot_info.rs`.

/// Magic number of the header (section 3.1.2).
pub const HEADER_MAGIC: u32 = 0x1bad_b002;
/// What EAX holds at entry (section 3.2).
pub const BOOT_MAGIC: u32 = 0x2bad_b002;
/// Bytes of the file in which the header must lie (section 3.1).
const SEARCH: usize = 8192;
/// Required features that are understood: page-aligned modules, memory information, video mode.
const UNDERSTOOD: u32 = 0x0007;
const FLAG_ADDRESSES: u32 = 1 << 16;

/// Why a Multiboot kernel cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultibootError {
    /// Bad checksum, and there is no other header.
    #[error("the Multiboot header at {offset:#x} has checksum {checksum:#x}; it must be {wanted:#x}")]
    Checksum {
        /// Its place in the file.
        offset: usize,
        /// Its value.
        checksum: u32,
        /// The correct value.
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

/// The first header with a valid checksum in the first 8192 bytes; `None` if nothing there looks like one.
///
/// # Errors
/// Only headers with a wrong checksum, one that is cut off, or one that requires an unknown feature.
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
