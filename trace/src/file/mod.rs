//! The trace file: records in binary, with everything that the printed forms of a run show.
//!
//! A head of 16 bytes, then nothing but the record envelopes of rpn.md, section 6. Control records (kind 2) say the rest:
//! what runs, names of addresses, answers to a script, the end with its counts. What [`RawSink`] writes, [`TraceReader`]
//! reads back; the same sinks then print it as they would have printed the run. The layout is in docs/records.md.

mod read;
mod write;

pub use read::{Piece, TraceFileError, TraceReader};
pub use write::RawSink;

use crate::record::HeaderItems;

/// What a trace file begins with. The first byte is no text, and the line ends show a transfer that changed them.
const MAGIC: [u8; 8] = *b"\x89TRC\r\n\x1a\n";
/// Version of the layout.
const VERSION: u16 = 1;
/// Bytes of the head: magic, version (2), width (1), zero (1), items (4).
const HEAD: usize = 16;
/// Bytes of the hash at the file's end: XXH3-64 of all before it.
const HASH: usize = 8;
/// Most bytes of one record, its length not counted.
const MAX_RECORD: u32 = 1 << 30;

/// The head of a trace file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHead {
    /// The guest's word in bits, 32 or 64.
    pub width: u8,
    /// What `--header` chose: what printed forms show. The records may hold more.
    pub items: HeaderItems,
}

impl FileHead {
    fn encode(self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&MAGIC);
        head[8..10].copy_from_slice(&VERSION.to_le_bytes());
        head[10] = self.width;
        head[12..].copy_from_slice(&self.items.bits().to_le_bytes());
        head
    }
}

/// The first byte of a control record's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Control {
    /// What runs: a JSON object, `image` and what else the JSON header line has.
    Begin = 1,
    /// An address (8 bytes) and its symbol, before the first record that has it.
    Symbol = 2,
    /// The answer to a script: a JSON object of `lines` and `object`.
    Reply = 3,
    /// The end: seven counts, the exit code, a JSON object, the hash.
    End = 4,
    /// The kind of a stack record (1 byte), an address in a module (8 bytes), the length of the module's name (2 bytes),
    /// that, how far into its symbol it is (8 bytes), and that: before the first stack that has it.
    Frame = 5,
}

impl Control {
    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Begin),
            2 => Some(Self::Symbol),
            3 => Some(Self::Reply),
            4 => Some(Self::End),
            5 => Some(Self::Frame),
            _ => None,
        }
    }
}
