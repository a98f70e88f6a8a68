//! Reading dumps: their physical memory, and what they say of the machine.
//!
//! No value in a file is trusted: places outside the file are errors or absent pages, and memory grows only with the size of the
//! file.

mod elf;
mod flattened;
mod kdump;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use goblin::elf::header::ET_CORE;
use trapline_emu::{CpuState, PAGE, PhysMem};

use crate::cpu;
use crate::error::DumpError;
use crate::mapped::Mapped;
use crate::notes::{self, NT_PRSTATUS, Registers, VMCOREINFO};
use elf::ElfCore;
use flattened::Flattened;
use kdump::Compressed;

/// Most bytes of notes.
const MOST_NOTES: u64 = 1 << 20;

/// The format of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpFormat {
    /// An ELF core.
    Elf,
    /// makedumpfile's compressed dump.
    Compressed,
    /// An image of the memory, and nothing else.
    Raw,
}

/// What a dump says of its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpInfo {
    /// Its format.
    pub format: DumpFormat,
    /// Whether it is in makedumpfile's flattened form.
    pub flattened: bool,
    /// Whether its kernel has 64 bits.
    pub wide: bool,
    /// Ranges of memory as the file lists them.
    pub memory: Vec<Mapped>,
    /// Pages of memory, and pages that are stored.
    pub pages: (u64, u64),
    /// Each CPU's registers and current process.
    pub cpus: Vec<(Registers, u32)>,
    /// The state of the first CPU, if the file has it in full.
    pub state: Option<Box<CpuState>>,
    /// The kernel's description of itself.
    pub vmcoreinfo: Option<Vec<u8>>,
    /// How stored pages are compressed, with the number of pages of each way.
    pub compressed: Vec<(&'static str, u64)>,
}

/// A dump in a file.
pub struct DumpFile {
    body: Body,
    flattened: bool,
}

enum Body {
    Raw(Source),
    Elf(ElfCore),
    Compressed(Compressed),
}

impl DumpFile {
    /// Opens a dump of any format.
    ///
    /// # Errors
    /// The file cannot be read, or is not a dump.
    pub fn open(path: &Path) -> Result<Self, DumpError> {
        Self::read(Source::open(path)?)
    }

    /// Opens an image of the memory: its first byte is that of physical address 0.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn raw(path: &Path) -> Result<Self, DumpError> {
        Ok(Self { body: Body::Raw(Source::open(path)?), flattened: false })
    }

    /// Whether a file that begins with these bytes, at least 18, is meant to be a dump: other ELF files are not.
    pub fn begins(first: &[u8]) -> bool {
        let is_core = first.starts_with(b"\x7fELF") && first.get(16..18) == Some(&ET_CORE.to_le_bytes());
        let is_flattened = first.get(..16).is_some_and(Flattened::is);
        is_core || is_flattened || first.starts_with(&crate::kdump::SIGNATURE)
    }

    /// The dump that a file with these bytes is.
    ///
    /// # Errors
    /// As [`DumpFile::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, DumpError> {
        let len = bytes.len() as u64;
        Self::read(Source { bytes: Bytes::Memory(bytes), len })
    }

    fn read(mut source: Source) -> Result<Self, DumpError> {
        let flattened = Flattened::is(&source.first(16)?);
        if flattened {
            source = Flattened::open(source)?;
        }
        let first = source.first(8)?;
        let body = if first.starts_with(b"\x7fELF") {
            Body::Elf(ElfCore::open(source)?)
        } else if first == crate::kdump::SIGNATURE {
            Body::Compressed(Compressed::open(source)?)
        } else {
            let hex: Vec<String> = first.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
            return Err(DumpError::Foreign(hex.join(" ")));
        };
        Ok(Self { body, flattened })
    }

    /// The memory that is in the file: what a search looks through, which takes no longer than a file of this size allows.
    pub fn stored(&self) -> Vec<Range<u64>> {
        match &self.body {
            Body::Raw(image) => std::iter::once(0..image.len).collect(),
            Body::Elf(core) => core.stored(),
            Body::Compressed(dump) => dump.stored(),
        }
    }

    /// Pages that the file should have, but that lie beyond its end: it was cut off. They cannot be read.
    pub fn missing(&self) -> u64 {
        match &self.body {
            Body::Raw(_) => 0,
            Body::Elf(core) => core.missing(),
            Body::Compressed(dump) => dump.missing(),
        }
    }

    /// What it says of its machine.
    pub fn info(&self) -> DumpInfo {
        let (format, wide, memory, pages, notes) = match &self.body {
            Body::Raw(image) => {
                let range = Mapped { paddr: 0, size: image.len, vaddr: None };
                let pages = image.len.div_ceil(PAGE);
                (DumpFormat::Raw, false, vec![range], (pages, pages), &[][..])
            }
            Body::Elf(core) => {
                (DumpFormat::Elf, core.wide, core.memory(), core.pages(), core.notes.as_slice())
            }
            Body::Compressed(dump) => {
                (DumpFormat::Compressed, dump.wide(), dump.memory(), dump.pages(), dump.notes.as_slice())
            }
        };
        let notes = notes::read(notes);
        let cpus = notes.iter().filter(|note| note.kind == NT_PRSTATUS && note.owner == b"CORE");
        let vmcoreinfo = notes.iter().find(|note| note.owner == VMCOREINFO.as_bytes());
        let state = notes.iter().find(|note| note.owner == notes::QEMU.as_bytes() && note.kind == 0);
        DumpInfo {
            format,
            state: state.and_then(|note| cpu::read(note.content)).map(Box::new),
            flattened: self.flattened,
            wide,
            memory,
            pages,
            cpus: cpus.filter_map(|note| Registers::read(note.content)).collect(),
            vmcoreinfo: vmcoreinfo.map(|note| note.content.to_vec()),
            compressed: match &self.body {
                Body::Raw(_) | Body::Elf(_) => Vec::new(),
                Body::Compressed(dump) => dump.ways(),
            },
        }
    }
}

impl DumpInfo {
    /// The state of the first CPU: in full if the file has it, else made of its registers, with paging off.
    pub fn cpu(&self) -> CpuState {
        if let Some(state) = &self.state {
            return **state;
        }
        let registers = self.cpus.first().map(|(registers, _)| registers.clone());
        cpu::flat(&registers.unwrap_or_default(), self.wide)
    }

    /// First physical address after the memory.
    pub fn end(&self) -> u64 {
        self.memory.iter().map(Mapped::end).max().unwrap_or(0)
    }
}

impl PhysMem for DumpFile {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        match &self.body {
            Body::Raw(image) => image.read(paddr, to),
            Body::Elf(core) => core.read(paddr, to),
            Body::Compressed(dump) => dump.read(paddr, to),
        }
    }
}

/// The bytes of a dump.
struct Source {
    bytes: Bytes,
    len: u64,
}

enum Bytes {
    File(File),
    Memory(Vec<u8>),
    Flattened(Flattened),
}

impl Source {
    fn open(path: &Path) -> Result<Self, DumpError> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(DumpError::Read(io::ErrorKind::IsADirectory.into()));
        }
        if !metadata.is_file() {
            return Err(DumpError::NoFile);
        }
        match metadata.len() {
            0 => Err(DumpError::Empty),
            len => Ok(Self { bytes: Bytes::File(file), len }),
        }
    }

    /// Fills `to` from an offset; false when a byte is missing.
    fn read(&self, at: u64, to: &mut [u8]) -> bool {
        if at.checked_add(to.len() as u64).is_none_or(|end| end > self.len) {
            return false;
        }
        match &self.bytes {
            Bytes::File(file) => file.read_exact_at(to, at).is_ok(),
            // It is within the length.
            Bytes::Memory(bytes) => {
                to.copy_from_slice(&bytes[at as usize..at as usize + to.len()]);
                true
            }
            Bytes::Flattened(pieces) => pieces.read(at, to),
        }
    }

    /// The bytes that the file can have of it.
    fn stored(&self) -> u64 {
        match &self.bytes {
            Bytes::Flattened(pieces) => self.len.min(pieces.stored()),
            Bytes::File(_) | Bytes::Memory(_) => self.len,
        }
    }

    /// The first bytes, at most `most`.
    fn first(&self, most: u64) -> Result<Vec<u8>, DumpError> {
        self.part("its beginning", 0, most.min(self.len))
    }

    /// A part of the file.
    fn part(&self, part: &'static str, at: u64, size: u64) -> Result<Vec<u8>, DumpError> {
        let end = at.saturating_add(size);
        // A piece of a flattened dump may be far behind the others, but no part is longer than all of them.
        let most = self.stored();
        let cut = DumpError::Cut { part, end, len: if size > most { most } else { self.len } };
        if end > self.len || size > most {
            return Err(cut);
        }
        let mut bytes = vec![0; size as usize];
        if self.read(at, &mut bytes) { Ok(bytes) } else { Err(cut) }
    }
}

/// The number of `size` bytes at an offset, which lies in `bytes`; 0 outside.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let mut word = [0; 8];
    if let (Some(from), Some(to)) = (bytes.get(at..at.saturating_add(size)), word.get_mut(..size)) {
        to.copy_from_slice(from);
    }
    u64::from_le_bytes(word)
}
