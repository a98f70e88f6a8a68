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
    /// the first watched byte of the access on. For a port, the value that was moved. For a device, the watched bytes of
    /// the value that was read or, if none was, written.
    pub old: [u8; WATCH_VALUE],
    /// The same after it. For a device, those of the value that was written or, if none was, read.
    pub new: [u8; WATCH_VALUE],
    /// Bytes of `old` and `new`.
    pub len: u8,
}

impl WatchHit {
    /// Sets `old` to the bytes of `value` from byte `from` on.
    pub(super) fn set_old(&mut self, value: Option<u64>, from: u64) {
        self.old = part_of(value, from, self.len);
    }

    /// Sets `new` to the bytes of `value` from byte `from` on.
    pub(super) fn set_new(&mut self, value: Option<u64>, from: u64) {
        self.new = part_of(value, from, self.len);
    }
}

/// `len` bytes of a value from byte `from` on.
fn part_of(value: Option<u64>, from: u64, len: u8) -> [u8; WATCH_VALUE] {
    let mut part = [0; WATCH_VALUE];
    let bytes = value.unwrap_or(0).to_le_bytes();
    let bytes = bytes.get(from as usize..).unwrap_or_default();
    for (to, byte) in part.iter_mut().take(len.into()).zip(bytes) {
        *to = *byte;
    }
    part
}
