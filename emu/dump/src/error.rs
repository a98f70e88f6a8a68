//! Why a file cannot be read as a dump.

use std::io;

/// Why a file cannot be read as a dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// It has no bytes.
    #[error("the file is empty (0 bytes)")]
    Empty,
    /// It is a pipe or a device.
    #[error("it is no regular file; a dump is read at many places, so write it to a file first")]
    NoFile,
    /// It has another format.
    #[error(
        "its first bytes are {0}: this is no ELF core, no compressed dump of kdump and no flattened dump of makedumpfile"
    )]
    Foreign(String),
    /// A part of it is missing.
    #[error("{part} ends at byte {end:#x}, but the file has {len:#x} bytes")]
    Cut {
        /// The part.
        part: &'static str,
        /// Where it would end.
        end: u64,
        /// Bytes of the file.
        len: u64,
    },
    /// A field has an impossible value.
    #[error("{field} is {value:#x}; {valid}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The valid values.
        valid: &'static str,
    },
    /// The ELF file is not a core of x86.
    #[error("it is an ELF file, but {0}")]
    NotCore(&'static str),
}
