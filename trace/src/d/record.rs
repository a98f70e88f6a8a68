//! The bytes of a D program's records: parts, each with its number and its fields.

use super::code::Code;
use super::field::Field;
use serde::{Deserialize, Serialize};

/// The number of the part that describes a fault: its kind, the address, the number of the clause, that of the probe, and the
/// line of the program, 0 if it is not known.
pub const ERROR_PART: u32 = u32::MAX;

/// Writes parts of records, and keys.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Begins the part of this number.
    pub fn part(&mut self, number: u32) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// An integer or an address.
    pub fn int(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A string or bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(bytes);
    }

    /// Addresses of code.
    pub fn code(&mut self, code: &Code) {
        self.bytes(&code.encode());
    }

    fn ints(&mut self, values: &[u64]) {
        self.bytes.extend_from_slice(&(values.len() as u32).to_le_bytes());
        values.iter().for_each(|value| self.int(*value));
    }

    /// The snapshot of an aggregation.
    pub fn snapshot(&mut self, snapshot: &Snapshot) {
        self.int(snapshot.normal);
        self.bytes.extend_from_slice(&(snapshot.entries.len() as u32).to_le_bytes());
        for entry in &snapshot.entries {
            self.bytes(&entry.key);
            self.ints(&entry.value);
        }
    }

    /// The bytes written.
    #[must_use]
    pub fn written(&self) -> &[u8] {
        &self.bytes
    }

    /// Drops what was written from this length on.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }
}

/// An aggregation at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The divisor of values when they are shown.
    pub normal: u64,
    /// Its entries, in the order in which their keys were first added.
    pub entries: Vec<SnapshotEntry>,
}

/// A key of an aggregation and its value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotEntry {
    /// The fields of the key, as [`Writer`] has written them.
    pub key: Vec<u8>,
    /// The value: sums or buckets.
    pub value: Vec<u64>,
}

/// A value that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Int(u64),
    Bytes(Vec<u8>),
    Code(Code),
}

/// Reads the output of [`Writer`].
#[derive(Clone)]
pub(crate) struct Reader<'b> {
    bytes: &'b [u8],
}

impl<'b> Reader<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (head, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(head)
    }

    pub fn part(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub fn int(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub fn bytes(&mut self) -> Option<&'b [u8]> {
        let length = self.part()?;
        self.take(length as usize)
    }

    fn ints(&mut self) -> Option<Vec<u64>> {
        let count = self.part()?;
        let bytes = self.take((count as usize).checked_mul(8)?)?;
        Some(bytes.chunks_exact(8).map(|b| b.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))).collect())
    }

    pub fn value(&mut self, field: Field) -> Option<Value> {
        Some(match field {
            Field::Int { .. } | Field::Float(_) => Value::Int(self.int()?),
            Field::Str | Field::Bytes(_) => Value::Bytes(self.bytes()?.to_vec()),
            Field::Stack | Field::Symbol(_) | Field::Return(_) => Value::Code(Code::decode(self.bytes()?)?),
        })
    }

    pub fn values(&mut self, fields: &[Field]) -> Option<Vec<Value>> {
        fields.iter().map(|field| self.value(*field)).collect()
    }

    pub fn snapshot(&mut self) -> Option<Snapshot> {
        let normal = self.int()?;
        let count = self.part()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(SnapshotEntry { key: self.bytes()?.to_vec(), value: self.ints()? });
        }
        Some(Snapshot { normal, entries })
    }
}
