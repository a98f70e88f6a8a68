//! What can be wrong with a PPDF file, and with a program that is to become one. Offsets count from the start of the
//! file.

use thiserror::Error;

use super::sign::VerifyingKey;

/// Why a file is no PPDF file that can be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PpdfError {
    /// Something else.
    #[error("it is no PPDF file: its first 8 bytes are not 89 50 50 44 46 0d 0a 1a")]
    Magic,
    /// Less than a header.
    #[error("the file ends at byte {0}, inside its header of 16 bytes")]
    NoHeader(usize),
    /// Of a version that this reader does not know.
    #[error("the file has PPDF version {major}.{minor}, and this Trapline reads version 1: {}", if *.major > 1 {
        "a newer Trapline would be right"
    } else {
        "building it again from source would be right"
    })]
    Version {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// More than is read.
    #[error("the file has {0} bytes; at most 67108864 would be right")]
    TooLarge(usize),
    /// Cut short, or with something behind it.
    #[error("byte 12 says that the file has {stated} bytes, but it has {actual}")]
    Length {
        /// By its header.
        stated: u32,
        /// Really.
        actual: usize,
    },
    /// Damaged.
    #[error(
        "the checksum at byte {offset} is {stated:#010x}, but {actual:#010x} would be right: the file is damaged"
    )]
    Checksum {
        /// Where it stands.
        offset: usize,
        /// By the file.
        stated: u32,
        /// Of the bytes before it.
        actual: u32,
    },
    /// A section is missing, or comes where another should.
    #[error("byte {offset} holds {found}; section `{wanted}` would be right")]
    Section {
        /// Where.
        offset: usize,
        /// The bytes there.
        found: String,
        /// The section that belongs there.
        wanted: &'static str,
    },
    /// A section is longer than the file.
    #[error("byte {offset}: section `{section}` has {length} bytes, but only {left} are left")]
    SectionLength {
        /// Where the length stands.
        offset: usize,
        /// The section.
        section: &'static str,
        /// By the file.
        length: u32,
        /// What there is.
        left: usize,
    },
    /// A section is shorter than what it holds.
    #[error("byte {offset}: section `{section}` ends inside {what}")]
    Ends {
        /// Where what does not fit begins.
        offset: usize,
        /// The section.
        section: &'static str,
        /// What does not fit.
        what: String,
    },
    /// A section is longer than what it holds.
    #[error("byte {offset}: section `{section}` goes on for {left} bytes behind its end")]
    Behind {
        /// Where it should end.
        offset: usize,
        /// The section.
        section: &'static str,
        /// Bytes too many.
        left: usize,
    },
    /// Something has a value that it cannot have.
    #[error("byte {offset}: {what} is {value}; {right}")]
    Value {
        /// Where.
        offset: usize,
        /// What.
        what: String,
        /// The value.
        value: String,
        /// What would be right.
        right: String,
    },
    /// It means something, but the writer does not write it so.
    #[error(
        "byte {offset} is {found:#04x}; {wanted:#04x} would be right, the one form in which this program is written"
    )]
    Form {
        /// Where.
        offset: usize,
        /// The byte there.
        found: u8,
        /// The byte that is written there.
        wanted: u8,
    },
    /// The signature is not that of the content.
    #[error(
        "byte {offset}: the signature by {key} is not that of this file: it was changed after it was signed"
    )]
    Signature {
        /// Where it stands.
        offset: usize,
        /// The key that the file names.
        key: VerifyingKey,
    },
}

/// Why a program cannot be written as a PPDF file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnwritableError {
    /// A name that could not be printed.
    #[error("{place}the name {name:?} cannot be in a PPDF file: {why}")]
    Name {
        /// Where it is used, with `: ` behind it.
        place: String,
        /// The name.
        name: String,
        /// Why not.
        why: String,
    },
    /// More than the format takes.
    #[error("{place}{what} is {value}; a PPDF file takes at most {limit}")]
    Limit {
        /// Where, with `: ` behind it.
        place: String,
        /// Of what.
        what: &'static str,
        /// How many.
        value: usize,
        /// The most.
        limit: usize,
    },
    /// A program that was not made by the parser.
    #[error("{place}there is no label or procedure `{name}`")]
    Undefined {
        /// Where, with `: ` behind it.
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
