//! The trace file: records in binary, with everything that the printed forms of a run show.
//!
//! A head of 16 bytes, then only record envelopes, each with its checksum. Control records (kind 2) hold the rest: the
//! image, names of addresses and probes, answers to a script, the end with its counts. [`RawSink`] writes a file and
//! [`TraceReader`] reads it back; every sink then prints what it would have printed of the run. docs/records.md has the
//! layout.

mod control;
mod error;
mod names;
mod read;
mod show;
mod write;

pub use error::TraceFileError;
pub use names::{FileNames, Name};
pub use read::{Piece, TraceReader};
pub use show::ShowError;
pub use write::RawSink;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::record::HeaderItems;

/// The first bytes of a trace file. The first one is not ASCII, and a transfer that converts line ends damages the others.
const MAGIC: [u8; 8] = *b"\x89TRC\r\n\x1a\n";
/// Version of the layout that is written: it may hold what the records of probes contain. Version 4 may hold the output
/// of D programs.
const VERSION: u16 = 5;
/// The first version whose records are each followed by a checksum. Version 2 already has the numbers of probe and process, and the names of probes.
const CHECKED: u16 = 3;
/// The oldest version that can be read. In it, records do not name their probe.
const OLDEST: u16 = 1;
/// Bytes of the head: magic, version (2), width (1), zero (1), items (4).
const HEAD: usize = 16;
/// Bytes of the hash at the file's end: XXH3-64 of all bytes before it.
const HASH: usize = 8;
/// Bytes of a checksum.
const CHECKSUM: usize = 4;
/// Largest size of a record, without its length field.
const MAX_RECORD: u32 = 1 << 30;

/// The checksum of the head or of a record: the low half of XXH3-64, whose seed is the checksum before it. Thus a
/// missing or reordered record is noticed too.
fn checksum(bytes: &[u8], before: u32) -> u32 {
    xxh3_64_with_seed(bytes, before.into()) as u32
}

/// The head of a trace file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHead {
    /// Version of the file's layout.
    pub version: u16,
    /// The guest's word in bits, 32 or 64.
    pub width: u8,
    /// The items that `--header` chose, which printed forms show. The records may hold more.
    pub items: HeaderItems,
}

impl FileHead {
    fn encode(self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&MAGIC);
        head[8..10].copy_from_slice(&self.version.to_le_bytes());
        head[10] = self.width;
        head[12..].copy_from_slice(&self.items.bits().to_le_bytes());
        head
    }
}
