//! Watched address ranges, with the kinds of access that a debug register can select.

use serde::{Deserialize, Serialize};

/// The kind of access that a watch reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchKind {
    /// Execution of an instruction that begins in the range.
    Execute,
    /// A write to memory.
    Write,
    /// A read or write of memory.
    ReadWrite,
    /// A read or write of a port.
    Io,
}

/// A range of linear addresses, or of ports; both ends belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The kind of access.
    pub kind: WatchKind,
    /// Lowest address.
    pub low: u64,
    /// Highest address.
    pub high: u64,
}

/// The first byte of `[address, address + size)`, which wraps at `mask`, that lies in the range.
pub(crate) fn first_watched(watch: &Watch, address: u64, size: u32, mask: u64) -> Option<u64> {
    let last = address.wrapping_add(u64::from(size) - 1) & mask;
    if last >= address {
        return (address <= watch.high && last >= watch.low).then_some(address.max(watch.low));
    }
    let top = watch.high >= address;
    if top { Some(address.max(watch.low)) } else { (watch.low <= last).then_some(watch.low) }
}
