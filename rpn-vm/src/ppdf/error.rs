//! Errors of PPDF files, and of programs that cannot be written as one. Offsets count from the start of the file.

use thiserror::Error;

use super::sign::VerifyingKey;

/// Why a PPDF file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PpdfError {
    /// The magic bytes are missing.
    #[error("this is not a PPDF file: its first 8 bytes are not 89 50 50 44 46 0d 0a 1a")]
    Magic,
    /// The file is shorter than its header.
    #[error("the file ends at byte {0}, inside its header of 16 bytes")]
    NoHeader(usize),
    /// The file's version is unknown to this reader.
    #[error("the file has PPDF version {major}.{minor}, but this Trapline reads version 1: {}", if *.major > 1 {
        "use a newer Trapline"
    } else {
        "build it again from source"
    })]
    Version {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// The file is too large.
    #[error("the file has {0} bytes; a PPDF file has at most 67108864")]
    TooLarge(usize),
    /// The file is cut short, or bytes follow it.
    #[error("byte 12 says that the file has {stated} bytes, but it has {actual}")]
    Length {
        /// The length in the header.
        stated: u32,
        /// The length of the file.
        actual: usize,
    },
    /// The checksum is wrong.
    #[error(
        "the checksum at byte {offset} is {stated:#010x}, but that of the content is {actual:#010x}: the file is damaged"
    )]
    Checksum {
        /// Offset of the checksum.
        offset: usize,
        /// The checksum in the file.
        stated: u32,
        /// The checksum of the bytes before it.
        actual: u32,
    },
    /// A section is missing or out of order.
    #[error("section `{wanted}` must begin at byte {offset}, but the bytes there are {found}")]
    Section {
        /// Where.
        offset: usize,
        /// The bytes there.
        found: String,
        /// The section that must begin there.
        wanted: &'static str,
    },
    /// A section is longer than the file.
    #[error("byte {offset}: section `{section}` has {length} bytes, but only {left} are left")]
    SectionLength {
        /// Offset of the length.
        offset: usize,
        /// The section.
        section: &'static str,
        /// The length in the file.
        length: u32,
        /// The bytes left in the file.
        left: usize,
    },
    /// A section is too short for its content.
    #[error("byte {offset}: section `{section}` ends inside {what}")]
    Ends {
        /// Where the incomplete item begins.
        offset: usize,
        /// The section.
        section: &'static str,
        /// The incomplete item.
        what: String,
    },
    /// A section is longer than its content.
    #[error("byte {offset}: section `{section}` has {left} bytes more than its content")]
    Trailing {
        /// Where it should end.
        offset: usize,
        /// The section.
        section: &'static str,
        /// Number of the extra bytes.
        left: usize,
    },
    /// A field has an invalid value.
    #[error("byte {offset}: {what} is {value}; {right}")]
    Value {
        /// Where.
        offset: usize,
        /// The field.
        what: String,
        /// The value.
        value: String,
        /// The valid values, or why this one is invalid.
        right: String,
    },
    /// The encoding is valid, but not the one that the writer produces.
    #[error(
        "byte {offset} is {found:#04x}; it must be {wanted:#04x}, because each program has only one encoding"
    )]
    Form {
        /// Where.
        offset: usize,
        /// The byte there.
        found: u8,
        /// The byte that is written there.
        wanted: u8,
    },
    /// The signature does not match the content.
    #[error(
        "byte {offset}: the signature by {key} does not match the file: the file was changed after it was signed"
    )]
    Signature {
        /// Offset of the signature.
        offset: usize,
        /// The key that the file names.
        key: VerifyingKey,
    },
}

/// Why a program cannot be written as a PPDF file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnwritableError {
    /// A name cannot be printed as source.
    #[error("{place}the name {name:?} cannot be in a PPDF file: {why}")]
    Name {
        /// Where it is used, followed by `: `.
        place: String,
        /// The name.
        name: String,
        /// Why not.
        why: String,
    },
    /// A limit of the format is exceeded.
    #[error("{place}{what} is {value}; the limit of a PPDF file is {limit}")]
    Limit {
        /// Where, followed by `: `.
        place: String,
        /// What is limited.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The limit.
        limit: usize,
    },
    /// A name is undefined. The parser never makes such a program.
    #[error("{place}there is no label or procedure `{name}`")]
    Undefined {
        /// Where, followed by `: `.
        place: String,
        /// The name.
        name: String,
    },
}

impl UnwritableError {
    /// Whether the sentence begins with the place.
    #[must_use]
    pub fn has_place(&self) -> bool {
        let (Self::Name { place, .. } | Self::Limit { place, .. } | Self::Undefined { place, .. }) = self;
        !place.is_empty()
    }
}
