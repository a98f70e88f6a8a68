//! Loaders: from the bytes of a file to a plan of what lies where in guest memory and how it is entered.
//!
//! Understood: Multiboot 1 and 2 kernels (ELF and the a.out kludge), PVH kernels, Linux's bzImage and vmlinux, plain ELF32 and
//! ELF64 executables, each also inside gzip. A plan copies nothing: the machine does, after [`LoadPlan::check_fits`]. No file can cause a panic; each bad
//! one is refused with one sentence that names the value. Not here: dynamic linking.

use std::io::Read;
use std::sync::Arc;

pub mod elf;
mod initramfs;
pub mod linux;
pub(crate) mod linux_params;
mod moved;
pub mod multiboot;
pub mod multiboot2;
mod multiboot2_info;
mod multiboot_info;
mod placing;
mod plan;
mod planning;
mod pvh;

pub use elf::{ElfError, ElfView, Width};
pub use initramfs::{Files, InitramfsError};
pub use linux::{LinuxEntry, LinuxError, LinuxPlan};
pub use moved::{Moved, ReadPhysical};
pub use multiboot::{MultibootError, MultibootHeader};
pub use multiboot_info::{BootImage, build_multiboot};
pub use multiboot2::{Multiboot2Error, Multiboot2Header, Relocation};
pub use plan::{EntryMode, LoadPlan, Perms, Protocol, SectionRange, Segment};

/// Largest image after decompression, in bytes (1 GiB).
pub const MAX_IMAGE: u64 = 1 << 30;

/// Why an image cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file has no bytes.
    #[error("the image is empty (0 bytes)")]
    Empty,
    /// The gzip stream is damaged or ends early.
    #[error("the gzip stream cannot be unpacked after {unpacked} bytes: {reason}")]
    Gzip {
        /// Bytes that were unpacked before the error.
        unpacked: usize,
        /// The decompressor's message.
        reason: String,
    },
    /// The unpacked image is larger than [`MAX_IMAGE`].
    #[error("the gzip stream unpacks to more than {MAX_IMAGE} bytes, the most that is accepted")]
    TooLarge,
    /// The format is unknown.
    #[error("this is no ELF, Multiboot, bzImage or gzip file: it begins with {first}")]
    UnknownFormat {
        /// The first bytes in hexadecimal.
        first: String,
    },
    /// A format that is recognised but not loaded.
    #[error("this is {what}, which cannot be loaded; an ELF or Multiboot kernel or a bzImage can")]
    Unsupported {
        /// The format.
        what: &'static str,
    },
    /// The ELF structure is bad.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The Multiboot header is bad.
    #[error(transparent)]
    Multiboot(#[from] MultibootError),
    /// The Multiboot 2 header is bad.
    #[error(transparent)]
    Multiboot2(#[from] Multiboot2Error),
    /// The image of the Linux boot protocol is bad, or its files do not fit into memory.
    #[error(transparent)]
    Linux(#[from] LinuxError),
    /// The file holds more of a segment than its memory size.
    #[error("segment {index} holds {file_size:#x} bytes in the file but only {mem_size:#x} in memory")]
    FileBeyondMemory {
        /// Number of the program header.
        index: usize,
        /// p_filesz.
        file_size: u64,
        /// p_memsz.
        mem_size: u64,
    },
    /// A segment's addresses run past the end of the address space.
    #[error("segment {index} wraps around: {size:#x} bytes at {which} address {addr:#x}")]
    Wraps {
        /// Number of the program header.
        index: usize,
        /// "physical" or "virtual".
        which: &'static str,
        /// Its address.
        addr: u64,
        /// Its size in memory.
        size: u64,
    },
    /// Two segments share physical memory.
    #[error(
        "segments overlap in physical memory: {first:#x}..{first_end:#x} and {second:#x}..{second_end:#x}"
    )]
    Overlap {
        /// Start of the lower one.
        first: u64,
        /// End of the lower one.
        first_end: u64,
        /// Start of the upper one.
        second: u64,
        /// End of the upper one.
        second_end: u64,
    },
    /// A segment lies in memory that a PC reserves.
    #[error("the segment at physical {start:#x}..{end:#x} overlaps {what} at {low:#x}..{high:#x}")]
    Reserved {
        /// Its start.
        start: u64,
        /// Its end.
        end: u64,
        /// The use of the reserved range.
        what: &'static str,
        /// Start of the reserved range.
        low: u64,
        /// End of the reserved range.
        high: u64,
    },
    /// Nothing to load.
    #[error("the ELF file has no loadable segment")]
    NoSegments,
    /// A user program.
    #[error("the ELF file asks for an interpreter (PT_INTERP): it is a user program, not a kernel")]
    Interpreter,
    /// The entry point lies in no segment.
    #[error("the entry point {entry:#x} lies in no loadable segment")]
    EntryOutside {
        /// The entry point.
        entry: u64,
    },
    /// The machine is too small.
    #[error("the image needs physical memory up to {end:#x}, but the machine has {mem_size:#x} bytes of RAM")]
    DoesNotFit {
        /// First address after the highest segment.
        end: u64,
        /// Size of RAM in bytes.
        mem_size: u64,
    },
}

/// A file that can be loaded: its unpacked bytes and the plan for them.
#[derive(Clone, Debug)]
pub struct Image {
    bytes: Arc<[u8]>,
    is_elf: bool,
    plan: LoadPlan,
}

impl Image {
    /// Recognises and checks the file `bytes`; `name` becomes the kernel's name on its command line.
    ///
    /// # Errors
    /// What is wrong with the file, in one sentence.
    pub fn parse(bytes: &[u8], name: &str) -> Result<Self, LoadError> {
        let bytes: Arc<[u8]> = unpack(bytes)?.into();
        let plan = plan_of(&bytes, name)?;
        Ok(Self { is_elf: ElfView::recognises(&plan.image), bytes: Arc::clone(&plan.image), plan })
    }

    /// The file after unpacking; of a bzImage, the kernel inside.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// True if the file is ELF, so that symbols can be read from it.
    pub fn is_elf(&self) -> bool {
        self.is_elf
    }

    /// What to load where.
    pub fn plan(&self) -> &LoadPlan {
        &self.plan
    }
}

fn plan_of(bytes: &Arc<[u8]>, name: &str) -> Result<LoadPlan, LoadError> {
    if linux::recognises(bytes) {
        return planning::from_bzimage(bytes, name);
    }
    match protocol_of(bytes) {
        Ok(Some((protocol, Some(kludge)))) => planning::from_kludge(bytes, protocol, kludge, name),
        Ok(Some((protocol, None))) => planning::from_elf(bytes, Some(protocol), None, name),
        Ok(None) if !ElfView::recognises(bytes) => Err(unknown(bytes)),
        Ok(None) if linux::is_vmlinux(bytes) => planning::from_vmlinux(bytes),
        Ok(None) => {
            let protocol = pvh::entry(&ElfView::parse(bytes)?).map(|entry| Protocol::Pvh { entry });
            planning::from_elf(bytes, protocol, None, name)
        }
        Err(error) => {
            // A truncated or foreign ELF file is reported as such first.
            if ElfView::recognises(bytes) {
                ElfView::parse(bytes)?.check_complete()?;
            }
            Err(error)
        }
    }
}

/// Where the header of a file lies, and the addresses by which the file is loaded.
type Kludge = (usize, multiboot::KludgeAddresses);

/// The protocol that a header in the file names, the older one first, and the addresses by which the file is loaded if it is
/// not ELF or the header says so.
fn protocol_of(bytes: &[u8]) -> Result<Option<(Protocol, Option<Kludge>)>, LoadError> {
    let is_elf = ElfView::recognises(bytes);
    let first = multiboot::find_header(bytes);
    if let Ok(Some(header)) = first {
        let kludge = header.addresses.map(|addresses| (header.offset, addresses));
        if kludge.is_none() && !is_elf {
            return Err(MultibootError::NoAddresses { flags: header.flags }.into());
        }
        return Ok(Some((Protocol::Multiboot(header), kludge)));
    }
    if let Some(header) = multiboot2::find_header(bytes)? {
        let kludge = header.addresses.map(|addresses| (header.offset, addresses));
        if kludge.is_none() && !is_elf {
            return Err(Multiboot2Error::NoAddresses.into());
        }
        return Ok(Some((Protocol::Multiboot2(header), kludge)));
    }
    first?;
    Ok(None)
}

/// What the loader tells a kernel of its machine.
pub(crate) struct BootFacts<'a> {
    /// The kernel's command line, without its name.
    pub cmdline: &'a str,
    /// Bytes of RAM.
    pub mem_size: u64,
    /// Physical address of ACPI's root pointer, 0 for none.
    pub rsdp_at: u64,
    /// ACPI's root pointer.
    pub rsdp: Option<&'a [u8]>,
}

/// Lays out the modules and the boot information of `plan`'s protocol; `None` if it has none.
///
/// # Errors
/// The kernel or a module does not fit, or a string holds a NUL.
pub(crate) fn boot_image(
    plan: &LoadPlan,
    facts: &BootFacts<'_>,
    modules: &[(&str, &[u8])],
) -> Result<Option<BootImage>, LoadError> {
    Ok(match &plan.protocol {
        None => None,
        Some(Protocol::Multiboot(_)) => Some(build_multiboot(plan, facts.cmdline, modules, facts.mem_size)?),
        Some(Protocol::Multiboot2(_)) => Some(multiboot2_info::build(plan, facts, modules)?),
        Some(Protocol::Pvh { .. }) => Some(pvh::build(plan, facts, modules)?),
    })
}

/// Unpacks `bytes` if they are gzip.
///
/// # Errors
/// The stream is damaged, truncated or too large, or there are no bytes at all.
pub fn unpack(bytes: &[u8]) -> Result<Vec<u8>, LoadError> {
    if bytes.is_empty() {
        return Err(LoadError::Empty);
    }
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes.to_vec());
    }
    let mut unpacked = Vec::new();
    let result = flate2::read::GzDecoder::new(bytes).take(MAX_IMAGE + 1).read_to_end(&mut unpacked);
    match result {
        Err(error) => Err(LoadError::Gzip { unpacked: unpacked.len(), reason: error.to_string() }),
        Ok(_) if unpacked.len() as u64 > MAX_IMAGE => Err(LoadError::TooLarge),
        Ok(_) if unpacked.is_empty() => Err(LoadError::Empty),
        Ok(_) => Ok(unpacked),
    }
}

fn unknown(bytes: &[u8]) -> LoadError {
    let unsupported = |what| LoadError::Unsupported { what };
    if bytes.get(0x38..0x3c) == Some(b"ARM\x64") {
        return unsupported("an ARM64 Linux kernel");
    }
    if bytes.starts_with(b"MZ") {
        return unsupported("a PE executable");
    }
    LoadError::UnknownFormat { first: first_bytes(bytes) }
}

/// The first four bytes in hexadecimal.
fn first_bytes(bytes: &[u8]) -> String {
    let first: Vec<String> = bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    first.join(" ")
}

#[cfg(test)]
mod protocol_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
