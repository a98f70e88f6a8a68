//! The report of an access to a watched range, for the interposer.

/// Longest value of a watched range that a hit carries, bytes.
pub const WATCH_VALUE: usize = 16;
/// What an instruction did to a watched range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchAccess {
    /// Read memory.
    Read,
    /// Wrote memory.
    Write,
    /// Read memory and wrote it back: `inc`, `xchg`, `cmpxchg`.
    ReadWrite,
    /// Read a port.
    In,
    /// Wrote a port.
    Out,
}

/// An instruction has accessed a watched range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchHit {
    /// The identifier given to [`Core::watch`](crate::Core::watch).
    pub id: u32,
    /// What it did. Of several accesses to one range the first write counts, else the first read.
    pub access: WatchAccess,
    /// Offset in CS of the instruction.
    pub ip: u64,
    /// Linear address of the access, or port.
    pub address: u64,
    /// Bytes of the operand.
    pub size: u16,
    /// The watched range before the instruction, little-endian; of a range longer than [`WATCH_VALUE`], the part from
    /// the first watched byte of the access on. For a port, the value that was moved.
    pub old: [u8; WATCH_VALUE],
    /// The same after it.
    pub new: [u8; WATCH_VALUE],
    /// Bytes of `old` and `new`.
    pub len: u8,
}
