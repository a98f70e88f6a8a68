//! The report of an access to a watched range, for the interposer.

use crate::ram::PAGE;

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
    /// The vector, if no instruction has made the access, but the delivery of an exception or interrupt; `ip` is then
    /// where that is to return to.
    pub delivery: Option<u8>,
}

impl WatchHit {
    /// Sets `old` and `new` to what was moved from byte `first` of a device's page on.
    pub(super) fn set_moved(&mut self, read: Option<Moved>, written: Option<Moved>, first: u64) {
        let part = |moved: Option<Moved>| moved.map_or([0; WATCH_VALUE], |m| m.part(first, self.len));
        (self.old, self.new) = (part(read.or(written)), part(written.or(read)));
    }
}

/// The bytes that an instruction has read from a device, or written to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved {
    /// Where they begin in the device's page.
    first: u64,
    bytes: [u8; WATCH_VALUE],
    len: usize,
}

impl Moved {
    /// Nothing yet, at a physical address.
    pub fn at(paddr: u64) -> Self {
        Self { first: paddr % PAGE, bytes: [0; WATCH_VALUE], len: 0 }
    }

    /// Appends what was moved at `paddr`, if it follows.
    pub fn append(&mut self, paddr: u64, value: u32, size: u8) {
        if paddr % PAGE != self.first + self.len as u64 {
            return;
        }
        for byte in value.to_le_bytes().into_iter().take(size.into()) {
            if let Some(to) = self.bytes.get_mut(self.len) {
                (*to, self.len) = (byte, self.len + 1);
            }
        }
    }

    /// `len` bytes from byte `first` of the page on.
    fn part(self, first: u64, len: u8) -> [u8; WATCH_VALUE] {
        let mut part = [0; WATCH_VALUE];
        let skipped = first.saturating_sub(self.first) as usize;
        for (to, byte) in part.iter_mut().take(len.into()).zip(self.bytes.iter().skip(skipped)) {
            *to = *byte;
        }
        part
    }
}
