//! Errors of trace files. Every message gives the offset and the value.

use std::io;

use super::MAX_RECORD;
use crate::bytes::DecodeError;

/// Why a trace file cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum TraceFileError {
    /// Reading failed.
    #[error("{}", plain(.0))]
    Io(#[from] io::Error),
    /// The file has another format.
    #[error("this is not a trace file: it begins with {found} instead of 89 54 52 43 0d 0a 1a 0a")]
    Magic {
        /// Its first bytes.
        found: String,
    },
    /// A field of the head has an invalid value.
    #[error("the {field} in the file's head, at byte {at}, is {value}; it must be {right}")]
    Head {
        /// The field.
        field: &'static str,
        /// Its offset.
        at: u64,
        /// Its value.
        value: u32,
        /// The valid values.
        right: &'static str,
    },
    /// The file ends inside the head or a record.
    #[error("the file ends early: the {what} at byte {at} needs {needed} bytes, and {have} are left")]
    Truncated {
        /// What is cut.
        what: &'static str,
        /// Its offset.
        at: u64,
        /// Its size.
        needed: u64,
        /// The bytes of it that are there.
        have: u64,
    },
    /// The file ends between two records, without an end record.
    #[error("the file ends early: its end record is missing at byte {at}")]
    NoEnd {
        /// The file's size.
        at: u64,
    },
    /// The length of a record is out of range.
    #[error("the record at byte {at} has the length {length}; it must be 24 to {MAX_RECORD}")]
    Length {
        /// The record's offset.
        at: u64,
        /// Its length.
        length: u32,
    },
    /// The bytes of a record, or of the head, have changed since they were written.
    #[error(
        "the record at byte {at} is damaged: its checksum is {found:08x}, and the file says {right:08x}; use an undamaged copy"
    )]
    Checksum {
        /// The record's offset.
        at: u64,
        /// The checksum of the bytes.
        found: u32,
        /// The checksum in the file.
        right: u32,
    },
    /// A record cannot be decoded.
    #[error("the record at byte {at} is damaged: {error}")]
    Record {
        /// Its offset.
        at: u64,
        /// The damage.
        error: DecodeError,
    },
    /// A record and the head disagree on the width of the guest's word.
    #[error("the record at byte {at} has the width {width}, but the file's width is {right}")]
    Width {
        /// Its offset.
        at: u64,
        /// Its width in bits.
        width: u8,
        /// The file's.
        right: u8,
    },
    /// A control record is unknown, malformed or out of order.
    #[error("the control record at byte {at} is damaged: {why}")]
    Control {
        /// Its offset.
        at: u64,
        /// The damage.
        why: String,
    },
    /// The end record's count of records is wrong.
    #[error("the end record at byte {at} counts {said} records, but {read} precede it")]
    Count {
        /// The end record's offset.
        at: u64,
        /// Its count.
        said: u64,
        /// The records in the file.
        read: u64,
    },
    /// The hash at the end does not match the bytes of the file.
    #[error(
        "the file is damaged somewhere before byte {at}: the hash of its bytes is {found:016x}, and the file says {right:016x}"
    )]
    Hash {
        /// The offset of the hash.
        at: u64,
        /// The hash of the bytes.
        found: u64,
        /// The hash in the file.
        right: u64,
    },
    /// Bytes follow the end record.
    #[error("bytes follow the end record, from byte {at} on")]
    Trailing {
        /// The offset of the first of them.
        at: u64,
    },
}

/// The operating system's sentence without its error number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
