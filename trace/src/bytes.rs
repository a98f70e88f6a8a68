//! Reads little-endian fields from untrusted bytes.
//!
//! Every read is checked against the length; the meaning of fields is not known here.

use thiserror::Error;

/// Why bytes could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes end before the record does.
    #[error("the record ends early: {needed} bytes are needed, {have} are there")]
    Truncated {
        /// Bytes needed.
        needed: usize,
        /// Bytes there.
        have: usize,
    },
    /// A field has an invalid value.
    #[error("the record's {field} is {value}, which is not a valid value")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
}

/// Reads little-endian fields; every read is checked.
pub(crate) struct Reader<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let end = self.at + N;
        let short = DecodeError::Truncated { needed: end, have: self.bytes.len() };
        let raw = self.bytes.get(self.at..end).and_then(|b| b.try_into().ok()).ok_or(short)?;
        self.at = end;
        Ok(raw)
    }

    pub fn bytes(&mut self, count: usize) -> Result<&[u8], DecodeError> {
        let end = self.at + count;
        let short = DecodeError::Truncated { needed: end, have: self.bytes.len() };
        let raw = self.bytes.get(self.at..end).ok_or(short)?;
        self.at = end;
        Ok(raw)
    }

    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.take::<1>().map(|[b]| b)
    }

    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.take().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_le_bytes)
    }

    pub fn word(&mut self, width: u8) -> Result<u64, DecodeError> {
        if width == 64 { self.u64() } else { self.u32().map(u64::from) }
    }

    pub fn string(&mut self) -> Result<Vec<u8>, DecodeError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let short = DecodeError::Truncated { needed: self.bytes.len() + 1, have: self.bytes.len() };
        let length = rest.iter().position(|&b| b == 0).ok_or(short)?;
        self.at += length + 1;
        Ok(rest[..length].to_vec())
    }
}
