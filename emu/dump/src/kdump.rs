//! The layout of makedumpfile's compressed dumps (its IMPLEMENTATION file and diskdump_mod.h, header version 6).
//!
//! Block 0 has the header, the next blocks a second header and the notes. Two bitmaps follow, with a bit for each page: the
//! pages of memory, and those that are stored. Then a descriptor for each stored page, and the pages. The headers contain
//! the kernel's `long`, so their layout depends on its width.

/// The first bytes of the file.
pub const SIGNATURE: [u8; 8] = *b"KDUMP   ";
/// The version of the headers that is written.
pub const VERSION: u32 = 6;
/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Bytes of a page's descriptor.
pub const DESCRIPTOR: u64 = 24;
/// Flags of a page's descriptor, and of the header's status.
pub mod flag {
    /// Compressed by zlib.
    pub const ZLIB: u32 = 1;
    /// By LZO.
    pub const LZO: u32 = 2;
    /// By snappy.
    pub const SNAPPY: u32 = 4;
    /// By Zstandard.
    pub const ZSTD: u32 = 0x20;
}

/// Where the fields of the headers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Whether the kernel has 64 bits.
    pub wide: bool,
    /// The field `status` of the header; the further ones follow it, 4 bytes each.
    pub status: usize,
    /// Bytes of the second header.
    pub second: usize,
    /// Its fields `offset_vmcoreinfo`, `size_vmcoreinfo`, `offset_note`, `size_note`.
    pub vmcoreinfo: (usize, usize),
    /// See above.
    pub note: (usize, usize),
    /// Its fields `start_pfn_64`, `end_pfn_64`, `max_mapnr_64`, 8 bytes each.
    pub frames: usize,
}

/// The layout of a 64-bit kernel's dump.
pub const WIDE: Layout =
    Layout { wide: true, status: 424, second: 104, vmcoreinfo: (32, 40), note: (48, 56), frames: 80 };
/// That of a 32-bit kernel's.
pub const NARROW: Layout =
    Layout { wide: false, status: 412, second: 80, vmcoreinfo: (20, 28), note: (32, 40), frames: 56 };

/// The fields that follow `status`, by their distance from it in words of 4 bytes.
pub mod field {
    /// `block_size`.
    pub const BLOCK_SIZE: usize = 1;
    /// `sub_hdr_size`, in blocks.
    pub const SECOND_BLOCKS: usize = 2;
    /// `bitmap_blocks`, of both bitmaps.
    pub const BITMAP_BLOCKS: usize = 3;
    /// `max_mapnr`.
    pub const MAX_MAPNR: usize = 4;
    /// `total_ram_blocks`.
    pub const RAM_BLOCKS: usize = 5;
    /// `nr_cpus`.
    pub const CPUS: usize = 9;
}

/// Where the texts of `struct new_utsname` are in the header, and the bytes of each.
pub const UTSNAME: (usize, usize) = (12, 65);
