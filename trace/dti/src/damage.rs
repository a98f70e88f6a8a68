//! What can be wrong with a channel.

/// Why a channel, or a part of one, cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The layout has another version.
    #[error("its layout has version {0}, and only version 1 is known")]
    Version(u8),
    /// The level is not one.
    #[error("its level is {0}, which is not from -1 to 7")]
    Level(i32),
    /// The number of CPUs is impossible.
    #[error("it has {0} CPUs, which is not from 1 to 256")]
    Cpus(u16),
    /// The size of sub-buffers is impossible.
    #[error("its sub-buffers have {0} bytes, which is not from 16 to 16777216")]
    SubbufSize(u32),
    /// The number of sub-buffers is impossible.
    #[error("it has {0} sub-buffers, which is none or more than 64 MiB of memory")]
    Subbufs(u32),
    /// The mark of a channel is not where heads have it.
    #[error("its head begins at {0:#x}, which is not the start of a page")]
    Unaligned(u64),
    /// The number of pages is not that of the geometry.
    #[error("it has {found} pages, but a channel of its geometry has {needed}")]
    Pages {
        /// What the head says.
        found: u64,
        /// What the geometry needs.
        needed: u64,
    },
    /// The list of pages does not begin with the page of the head.
    #[error("its list of pages begins with {found:#x}, but its head is at {head:#x}")]
    Moved {
        /// The first page of the list.
        found: u64,
        /// Where the head was found.
        head: u64,
    },
    /// A page of the list cannot be one of the channel.
    #[error("page {index} of its list is {page:#x}, which is not a page of the memory")]
    Page {
        /// Number of the page in the list.
        index: u64,
        /// Its address.
        page: u64,
    },
    /// A page of the list belongs to a channel already.
    #[error("page {index} of its list, {page:#x}, is in the list twice or in that of another channel")]
    Shared {
        /// Number of the page in the list.
        index: u64,
        /// Its address.
        page: u64,
    },
    /// A pointer does not lead where the layout has it.
    #[error("its pointer to {part} is {found:#x} instead of {needed:#x}")]
    Pointer {
        /// What it points to.
        part: &'static str,
        /// The pointer.
        found: u64,
        /// What it must be.
        needed: u64,
    },
    /// The description of the rings has another geometry than the mark.
    #[error("its description has {subbufs} sub-buffers of {size} bytes, its mark has other numbers")]
    Geometry {
        /// Sub-buffers.
        subbufs: u32,
        /// Bytes of each.
        size: u32,
    },
    /// The end of an early buffer is not behind its beginning in physical memory.
    #[error("its buffer is not in one piece in physical memory")]
    Divided,
    /// A part of it is not in the memory.
    #[error("its {0} cannot be read")]
    Missing(&'static str),
    /// Channels beyond what memory can contain.
    #[error("the lists of all channels together have more pages than the memory")]
    TooMany,
    /// The current sub-buffer does not exist.
    #[error("CPU {cpu} writes to sub-buffer {current}, and there are {subbufs}")]
    Current {
        /// The CPU.
        cpu: u16,
        /// Number of the sub-buffer.
        current: u32,
        /// How many there are.
        subbufs: u32,
    },
    /// More bytes of a sub-buffer are used than it has.
    #[error("sub-buffer {index} of CPU {cpu} has {used} used bytes, which is more than its size")]
    Used {
        /// The CPU.
        cpu: u16,
        /// Number of the sub-buffer.
        index: u32,
        /// Its used bytes.
        used: u32,
    },
    /// More bytes of a sub-buffer are unused than it has.
    #[error("sub-buffer {index} of CPU {cpu} has {unused} unused bytes, which is more than its size")]
    Unused {
        /// The CPU.
        cpu: u16,
        /// Number of the sub-buffer.
        index: u32,
        /// Its unused bytes.
        unused: u64,
    },
    /// The current sub-buffer is not the one that the number of entered ones gives.
    #[error("CPU {cpu} writes to sub-buffer {current}, but it has entered {entered} sub-buffers")]
    Entered {
        /// The CPU.
        cpu: u16,
        /// Number of the sub-buffer.
        current: u64,
        /// Sub-buffers that were entered.
        entered: u64,
    },
    /// A sub-buffer does not continue the one before.
    #[error("sub-buffer {index} of CPU {cpu} has number {found} in the sequence instead of {needed}")]
    Sequence {
        /// The CPU.
        cpu: u16,
        /// Number of the sub-buffer.
        index: u32,
        /// Its number in the sequence.
        found: u32,
        /// What it must be.
        needed: u32,
    },
    /// A record does not end in its sub-buffer.
    #[error("the record at byte {offset} of sub-buffer {index} of CPU {cpu} goes beyond the used bytes")]
    Record {
        /// The CPU.
        cpu: u16,
        /// Number of the sub-buffer.
        index: u32,
        /// Where the record begins.
        offset: u32,
    },
}
