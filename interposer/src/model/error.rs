//! Why a program cannot be inserted.

use trapline_emu::PatchError;

/// Why a program cannot be inserted. No part of it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct InsertError {
    /// Index of the probe point in the program.
    pub probe: usize,
    /// The reason.
    pub kind: InsertErrorKind,
}

/// Why a probe point cannot be armed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InsertErrorKind {
    /// The byte differs from the program's `opcode`.
    #[error("the byte at {at} is {found:#04x}, but the probe says opcode = {expected:#04x}")]
    OpcodeMismatch {
        /// Where.
        at: String,
        /// The probe's `opcode`.
        expected: u8,
        /// The bytes there.
        found: u8,
    },
    /// A `lock nop` site needs five one-byte NOPs, or four and a return.
    #[error(
        "the bytes at {at} are {found:02x?}, but a lock nop site has five one-byte NOPs (90), the last of which may be c3"
    )]
    NotFiveNops {
        /// Where.
        at: String,
        /// The bytes there.
        found: [u8; 5],
    },
    /// The place is outside guest memory.
    #[error("{0} is not in guest memory")]
    NotMapped(String),
    /// The machine refused the patch.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// A pointer that is not aligned to its size.
    #[error("the pointer at {linear:#x} is not aligned to its {bytes} bytes")]
    PointerAlignment {
        /// Where.
        linear: u64,
        /// Its size.
        bytes: u64,
    },
    /// The pointer is in use.
    #[error(
        "the pointer at {linear:#x} is {found:#x}, so it is in use; the pointer of a disabled probe is 0"
    )]
    PointerTaken {
        /// Where.
        linear: u64,
        /// Its value.
        found: u64,
    },
    /// A semaphore crosses a page boundary.
    #[error("the semaphore at {0:#x} crosses a page boundary")]
    SemaphoreCrosses(u64),
    /// A semaphore and a pointer in one place.
    #[error("{0:#x} is the place of both a semaphore and the pointer of a macro-declared probe")]
    WordTaken(u64),
    /// All stubs are in use.
    #[error("all {0} stubs of macro-declared probes are in use")]
    NoStub(usize),
    /// The guest OS is unknown, so the current process is unknown.
    #[error(
        "the current process is unknown, because the tasks of this guest's system cannot be read; use pid* for all processes"
    )]
    NoProcesses,
    /// All debug registers are in use.
    #[error(
        "the watch of {low:#x}:{high:#x} would be one more than the hardware has debug registers for, which are {limit}; \
         --watch-unlimited takes any number"
    )]
    WatchLimit {
        /// Lowest address.
        low: u64,
        /// Highest address.
        high: u64,
        /// Debug registers.
        limit: usize,
    },
    /// No debug register can hold the range.
    #[error(
        "the hardware cannot watch the range {low:#x}:{high:#x}: it takes {allowed}; --watch-unlimited takes any range"
    )]
    WatchRange {
        /// Lowest address.
        low: u64,
        /// Highest address.
        high: u64,
        /// The ranges that the hardware supports.
        allowed: &'static str,
    },
    /// The range ends before it begins.
    #[error("the range {low:#x}:{high:#x} ends before it begins; write the lower address first")]
    WatchReversed {
        /// First address.
        low: u64,
        /// Second address.
        high: u64,
    },
    /// The range exceeds the ports.
    #[error("the range ends at {0:#x}, which is not a port; the highest port is 0xffff")]
    WatchPort(u64),
    /// The number of places differs from that of the probe points.
    #[error("{probes} probe points were given {places} places")]
    Places {
        /// Probe points of the program.
        probes: usize,
        /// Places given.
        places: usize,
    },
}
