//! PPDF: a probe program in compiled form, with its symbols still symbolic (docs/ppdf.md has every byte).
//!
//! [`write()`] turns a [`crate::Program`] into a file, and [`Ppdf::read`] turns a file into a program, which is then
//! linked and verified like a program from source. Each program has exactly one encoding: the
//! reader refuses any other, so the output of [`disassemble()`] builds to the same
//! bytes. The caller reads the files and decides which keys to trust.

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
pub use write::{write, write_as_read};

/// The first bytes of a PPDF file. The first is not ASCII, and a transfer that converts line ends damages the others.
pub const MAGIC: [u8; 8] = [0x89, b'P', b'P', b'D', b'F', b'\r', b'\n', 0x1a];

/// The version that is written. Another major version is refused. A higher minor version has new values in existing
/// fields; such a file is accepted if it contains none of them.
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

/// The kind of a breakpoint; 1 to 4 are `watchpoint = x`, `w`, `rw` and `io`.
const BREAKPOINT: u8 = 0;

// Limits. A program within them prints within the limits of the preprocessor on lines and their length.
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

/// Why a name cannot be in a file, if so: it cannot be printed as source.
fn unprintable(name: &str) -> Option<String> {
    let bad = name.chars().find(|c| c.is_control() || *c == '"')?;
    Some(format!("it contains the character {:#04x}, which a quoted name cannot contain", u32::from(bad)))
}
