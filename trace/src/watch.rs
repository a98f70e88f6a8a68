//! The extra item in the record of a watch hit: the accessed range, and its values before and after.
//!
//! It is in every such record, whatever items were chosen. Bit 0x0800 of the header's flags, after the name: access
//! (u8), length of the values (u8), bytes accessed (u16), address (of the guest's word), old value, new value.

use crate::bytes::DecodeError;
use serde::{Deserialize, Serialize};

/// The flag of the item; the paper's header has eleven items, up to 0x0400.
pub(crate) const WATCH_FLAG: u32 = 0x0800;

/// Longest value that the item holds, bytes.
pub const WATCH_VALUE: usize = 16;

/// How a watched range was accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum Accessed {
    /// An instruction there is about to be executed.
    Execute = 0,
    /// Memory was read.
    #[default]
    Read = 1,
    /// Memory was written.
    Write = 2,
    /// Memory was read and written back.
    ReadWrite = 3,
    /// A port was read.
    In = 4,
    /// A port was written.
    Out = 5,
}

/// Each access and its word in text and JSON, by its byte.
const WORDS: [(Accessed, &str); 6] = [
    (Accessed::Execute, "x"),
    (Accessed::Read, "r"),
    (Accessed::Write, "w"),
    (Accessed::ReadWrite, "rw"),
    (Accessed::In, "in"),
    (Accessed::Out, "out"),
];

impl Accessed {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        WORDS.get(self as usize).map_or("?", |(_, word)| word)
    }

    /// Whether a port was accessed.
    #[must_use]
    pub const fn is_port(self) -> bool {
        matches!(self, Self::In | Self::Out)
    }
}

/// The access of a watch hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WatchItem {
    /// The kind of access.
    pub access: Accessed,
    /// Linear address of the first byte accessed, or port.
    pub address: u64,
    /// Bytes accessed.
    pub size: u16,
    /// The watched range before the instruction, little-endian; for a port, the value that was moved.
    pub old: [u8; WATCH_VALUE],
    /// The same after it.
    pub new: [u8; WATCH_VALUE],
    /// Bytes of `old` and `new`, at most [`WATCH_VALUE`]; 0 for an execution.
    pub len: u8,
}

impl WatchItem {
    fn length(&self) -> usize {
        usize::from(self.len).min(WATCH_VALUE)
    }

    /// The old and the new value as hexadecimal numbers of their full width; `None` for an execution.
    #[must_use]
    pub fn values(&self) -> Option<(String, String)> {
        let number = |bytes: &[u8; WATCH_VALUE]| -> String {
            bytes.iter().take(self.length()).rev().map(|b| format!("{b:02x}")).collect()
        };
        (self.len > 0).then(|| (number(&self.old), number(&self.new)))
    }

    /// Bytes of the encoded item at most.
    pub(crate) const MAX: usize = 4 + 8 + 2 * WATCH_VALUE;

    /// Appends the encoded item; `word` is the bytes of the guest's word.
    pub(crate) fn encode(&self, word: usize, out: &mut Vec<u8>) {
        out.push(self.access as u8);
        out.push(self.length() as u8);
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend(self.address.to_le_bytes().iter().take(word));
        out.extend(self.old.iter().take(self.length()));
        out.extend(self.new.iter().take(self.length()));
    }

    /// Decodes the item at the start of `bytes`; returns it and its size.
    pub(crate) fn decode(bytes: &[u8], word: usize) -> Result<(Self, usize), DecodeError> {
        let fixed = 4 + word;
        let short = |needed| DecodeError::Truncated { needed, have: bytes.len() };
        let [access, len, size0, size1, rest @ ..] = bytes else { return Err(short(fixed)) };
        let known = WORDS.get(usize::from(*access));
        let access = known.ok_or(DecodeError::Field { field: "watched access", value: (*access).into() })?.0;
        let length = usize::from(*len);
        if length > WATCH_VALUE {
            return Err(DecodeError::Field { field: "watched length", value: (*len).into() });
        }
        let end = fixed + 2 * length;
        let body = rest.get(..end - 4).ok_or_else(|| short(end))?;
        let mut item =
            Self { access, len: *len, size: u16::from_le_bytes([*size0, *size1]), ..Self::default() };
        let mut address = [0; 8];
        let (low, values) = body.split_at(word);
        address.iter_mut().zip(low).for_each(|(to, from)| *to = *from);
        item.address = u64::from_le_bytes(address);
        let (old, new) = values.split_at(length);
        item.old.iter_mut().zip(old).for_each(|(to, from)| *to = *from);
        item.new.iter_mut().zip(new).for_each(|(to, from)| *to = *from);
        Ok((item, end))
    }
}
