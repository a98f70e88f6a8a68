//! Why a program cannot be inserted.

use trapline_emu::PatchError;

/// A program cannot be inserted; nothing of it has been.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct InsertError {
    /// Index of the probe point in the program.
    pub probe: usize,
    /// What is wrong.
    pub kind: InsertErrorKind,
}

/// What is wrong with a probe point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InsertErrorKind {
    /// The program says another byte is there.
    #[error("the byte at {at} is {found:#04x}, but the probe says opcode = {expected:#04x}")]
    OpcodeMismatch {
        /// Where.
        at: String,
        /// The probe's `opcode`.
        expected: u8,
        /// What is there.
        found: u8,
    },
    /// A `lock nop` site needs five one-byte NOPs, or four and a return.
    #[error(
        "at {at} is {found:02x?}, but a lock nop site is five one-byte NOPs, 90 each, the last of which may be c3"
    )]
    NotFiveNops {
        /// Where.
        at: String,
        /// What is there.
        found: [u8; 5],
    },
    /// No memory there.
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
    /// A pointer that the guest, or someone else, uses already.
    #[error("the pointer at {linear:#x} holds {found:#x}; a dormant probe's is 0")]
    PointerTaken {
        /// Where.
        linear: u64,
        /// What it holds.
        found: u64,
    },
    /// A semaphore on two pages.
    #[error("the semaphore at {0:#x} lies across the end of a page")]
    SemaphoreCrosses(u64),
    /// A semaphore and a pointer in one place.
    #[error("{0:#x} is the place of both a semaphore and the pointer of a macro-declared probe")]
    WordTaken(u64),
    /// All stubs are in use.
    #[error("all {0} stubs of macro-declared probes are in use")]
    NoStub(usize),
    /// Nobody can tell whose process is running.
    #[error(
        "whose process runs is not known: this guest's system is none whose tasks can be read; pid* takes every process"
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
        "the range {low:#x}:{high:#x} is none that the hardware can watch, which is {allowed}; --watch-unlimited \
         takes any range"
    )]
    WatchRange {
        /// Lowest address.
        low: u64,
        /// Highest address.
        high: u64,
        /// What the hardware can.
        allowed: &'static str,
    },
    /// The range ends before it begins.
    #[error("the range {low:#x}:{high:#x} ends before it begins; its higher address comes second")]
    WatchReversed {
        /// First address.
        low: u64,
        /// Second address.
        high: u64,
    },
    /// No port.
    #[error("the range ends at {0:#x}, which is no port; the highest is 0xffff")]
    WatchPort(u64),
    /// Programs and places do not go together.
    #[error("{probes} probe points were given {places} places")]
    Places {
        /// Probe points of the program.
        probes: usize,
        /// Places given.
        places: usize,
    },
}
