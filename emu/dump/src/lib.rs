//! Dumps: the memory and the registers of a whole machine, in the files that crash tools read.
//!
//! A [`Vmcore`] is what a dump contains, and [`Vmcore::write`] writes it: as an ELF core, as a kernel's kdump leaves it, or
//! in the compressed format of makedumpfile. A [`DumpFile`] reads both, the flattened format and raw images, as physical memory. The notes
//! and headers of core files are shared with those of single processes. Not here: where a kernel keeps its data.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod cpu;
pub mod elf;
mod error;
mod exports;
mod kdump;
pub mod kernel;
mod mapped;
pub mod notes;
mod pages;
mod read;
mod vmcore;
mod write;

pub use error::DumpError;
pub use mapped::Mapped;
pub use pages::OwnedPages;
pub use read::{DumpFile, DumpFormat, DumpInfo};
pub use vmcore::{CrashDump, MachineHead, Vmcore};
pub use write::Compression;

#[cfg(test)]
mod tests;
