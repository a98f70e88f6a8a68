//! PPDF: a probe program in compiled form, with its symbols still symbolic (docs/ppdf.md has every byte).
//!
//! [`write()`] makes a file of a [`crate::Program`], [`Ppdf::read`] a program of a file; what is done with it then,
//! linking for a width and verifying, is what is done with a program from source. A file has one form only: the
//! reader refuses what the writer would have written otherwise, so what [`disassemble()`] prints builds to the same
//! bytes. Not here: files on disk, and whose key is to be trusted.

mod bodies;
mod cursor;
mod disassemble;
mod error;
mod lines;
mod read;
mod sections;
mod sign;
mod write;

pub use disassemble::disassemble;
pub use error::{PpdfError, UnwritableError};
pub use read::Ppdf;
pub use sign::{KeyError, SigningKey, VerifyingKey};
pub use write::write;

/// The first bytes of a PPDF file. The first is no text, the others show what a transfer as text has done.
pub const MAGIC: [u8; 8] = [0x89, b'P', b'P', b'D', b'F', b'\r', b'\n', 0x1a];

/// The version that is written. Another major version is refused. A higher minor one has new values in places that
/// there are, and is read as far as none of them is met.
pub const VERSION: (u16, u16) = (1, 0);

/// Whether these are the first bytes of a PPDF file.
#[must_use]
pub fn is_ppdf(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Bytes before the first section.
const HEADER: usize = 16;
/// Bytes of a section before its content.
const SECTION_HEAD: usize = 8;
/// The sections that every file has, in their order.
const SECTIONS: [&str; 6] = ["HEAD", "PROB", "PROC", "CODE", "RELO", "LINE"];
/// The section of the signature.
const SIGNATURE: &str = "SIGN";
/// The section of the checksum, the last.
const CHECKSUM: &str = "CRC ";

/// The kind of a probe point that is no watchpoint; 1 to 4 are `watchpoint = x`, `w`, `rw` and `io`.
const BREAKPOINT: u8 = 0;

// Limits. A program within them prints as fewer lines, and shorter ones, than the preprocessor takes.
/// Most bytes of a file.
pub const MAX_FILE: usize = 64 << 20;
/// Most probe points.
const MAX_PROBES: usize = 50_000;
/// Most procedures.
const MAX_PROCS: usize = 20_000;
/// Most instructions of all handlers and procedures.
const MAX_INSTRUCTIONS: usize = 500_000;
/// Most names of a `groupdef =` or `typedef =`, terms of an expression, and source files.
const MAX_LIST: usize = 32_768;
/// Most bytes of a name.
const MAX_NAME: usize = 32_768;
/// Most bytes of a source file's name.
const MAX_FILE_NAME: usize = 4096;
/// Most bytes of a statement or an instruction when it is printed.
const MAX_PRINTED: usize = 60_000;

/// Why a name cannot be in a file, if it cannot: it could not be printed as source.
fn unprintable(name: &str) -> Option<String> {
    let bad = name.chars().find(|c| c.is_control() || *c == '"')?;
    Some(format!("it has the character {:#04x}, which no name in quotes may have", u32::from(bad)))
}
