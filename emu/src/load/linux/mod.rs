//! Files that speak the Linux x86 boot protocol: bzImage, and a bare `vmlinux`. Their plans are made in `planning.rs`, and what
//! the kernel is given at entry in `linux_params.rs`.
//!
//! A bzImage's own decompressor is not run, unless that is asked for ([`LinuxEntry`]). The kernel inside is unpacked here and
//! loaded where it was linked to run, as the decompressor would do with KASLR off; this saves a few hundred million instructions. An image without such a
//! payload (memtest86+) is entered at its protected-mode code. Section numbers below refer to the kernel's
//! Documentation/x86/boot.rst.

use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

mod checksum;
mod header;
mod payload;

pub(super) use checksum::check;
pub(super) use header::HEADER_AT;
pub use header::SetupHeader;
pub(super) use payload::unpack;

/// Why an image of the boot protocol cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinuxError {
    /// A part lies outside the file.
    #[error("the bzImage is truncated: its {what} ends at {end:#x}, but the file has {len:#x} bytes")]
    Truncated {
        /// The part.
        what: &'static str,
        /// Where it ends.
        end: u64,
        /// Length of the file.
        len: u64,
    },
    /// Too old to be entered in protected mode.
    #[error("the bzImage speaks boot protocol {}.{:02}; it must be 2.00 or newer", .version >> 8, .version & 0xff)]
    Protocol {
        /// The header's version.
        version: u16,
    },
    /// A zImage.
    #[error("this is a zImage, which loads below 1 MiB; use a bzImage (LOADED_HIGH in loadflags)")]
    NotHigh,
    /// The payload's compression is not known.
    #[error(
        "the bzImage's payload begins with {first}, which is neither a gzip, xz, lz4 or zstd stream nor an ELF file"
    )]
    PayloadFormat {
        /// The first bytes in hexadecimal.
        first: String,
    },
    /// The payload does not unpack.
    #[error("the bzImage's {format} payload cannot be unpacked after {unpacked} bytes: {reason}")]
    Payload {
        /// Its compression.
        format: &'static str,
        /// Bytes that came out before the error.
        unpacked: usize,
        /// The decompressor's message.
        reason: String,
    },
    /// Its unpacked size differs from the size in the image.
    #[error(
        "the bzImage's {format} payload unpacks to {found:#x} bytes, but its last four bytes say {said:#x}"
    )]
    PayloadSize {
        /// Its compression.
        format: &'static str,
        /// Bytes that came out.
        found: u64,
        /// Bytes that the image says.
        said: u32,
    },
    /// The unpacked payload is larger than any image that is loaded.
    #[error(
        "the bzImage's {format} payload unpacks to more than {} bytes, the most that is accepted",
        super::MAX_IMAGE
    )]
    PayloadTooLarge {
        /// Its compression.
        format: &'static str,
    },
    /// The unpacked payload is not an ELF file.
    #[error("the bzImage's payload unpacks to something that is no ELF kernel: it begins with {first}")]
    PayloadNotElf {
        /// The first bytes in hexadecimal.
        first: String,
    },
    /// The file's checksum does not match.
    #[error(
        "the bzImage is damaged: the CRC-32 of its {end:#x} bytes with the checksum at their end is {found:#010x}; \
         it must be 0xffffffff (an extracted vmlinux is loaded without this check)"
    )]
    Checksum {
        /// Bytes that the checksum covers, its own included.
        end: u64,
        /// Their CRC-32.
        found: u32,
    },
    /// The command line does not fit.
    #[error("the kernel command line has {len} bytes, but this kernel takes at most {most}")]
    CommandLine {
        /// Its length.
        len: usize,
        /// cmdline_size.
        most: u32,
    },
    /// The command line holds a NUL.
    #[error("the kernel command line has a NUL at byte {at}")]
    CommandLineNul {
        /// Where.
        at: usize,
    },
    /// No room for the initial RAM disk.
    #[error(
        "the initrd has {len:#x} bytes, but between the kernel, which takes memory up to {low:#x}, and {high:#x} \
         there are {}; more memory (--mem) or a smaller initrd would do",
        .high.saturating_sub(*.low)
    )]
    InitrdTooLarge {
        /// Its length.
        len: u64,
        /// First free address.
        low: u64,
        /// End of RAM or of what the kernel accepts.
        high: u64,
    },
    /// There is no such entry point.
    #[error("the image has no {what} entry point of its own; only a bzImage can have one")]
    NoEntry {
        /// "32-bit" or "64-bit".
        what: &'static str,
    },
    /// The memory below 1 MiB is needed for the boot parameters.
    #[error("the kernel's memory at {start:#x} overlaps the boot parameters below {end:#x}")]
    LowMemory {
        /// Where the kernel's lowest segment begins.
        start: u64,
        /// End of the boot parameters.
        end: u64,
    },
}

/// What the boot protocol adds to a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinuxPlan {
    /// The image's setup header, or one made up for a bare `vmlinux`.
    pub header: SetupHeader,
    /// Compression of the payload that the kernel came from: "xz", ...; `None` for a bare kernel or none inside.
    pub payload: Option<&'static str>,
    /// The image's own protected-mode code, which unpacks the kernel, where there is some.
    pub unpacker: Option<Unpacker>,
    /// Whether the plan loads that code itself, because no kernel is packed into the image.
    pub is_own_code: bool,
}

/// The protected-mode code of a bzImage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacker {
    /// The whole file.
    pub file: Arc<[u8]>,
    /// Its bytes in the file.
    pub code: Range<usize>,
}

/// How a bzImage is entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinuxEntry {
    /// The kernel inside, unpacked by the loader.
    #[default]
    Kernel,
    /// The image's own code at its 32-bit entry point.
    Bits32,
    /// The same at its 64-bit entry point.
    Bits64,
}

impl LinuxPlan {
    /// Where the image's own code begins.
    pub fn start(&self) -> u64 {
        self.header.code32_start().into()
    }

    /// First address after the memory in which the image's own code unpacks the kernel.
    pub fn unpacking_end(&self) -> u64 {
        let lowest = self.header.pref_address().max(self.start());
        lowest.saturating_add(self.header.init_size().into())
    }
}

/// The default command line: the console on COM1 from the first line on, the text where it was linked, so that symbols
/// are valid, and no mitigations of defects that this CPU does not have.
pub const DEFAULT_CMDLINE: &str =
    "console=ttyS0 earlyprintk=serial,ttyS0 nokaslr tsc=reliable no_timer_check mitigations=off";
/// Added on a platform that has neither APIC nor ACPI nor PCI.
pub const CMDLINE_ON_MINIMAL: &str = "nolapic noapic acpi=off nosmp pci=off";

/// True if the file has a setup header.
pub(super) fn recognises(bytes: &[u8]) -> bool {
    bytes.get(0x202..0x206) == Some(b"HdrS")
}

/// True if an ELF file without a Multiboot header is a Linux kernel: it holds the kernel's banner.
pub(super) fn is_vmlinux(bytes: &[u8]) -> bool {
    const BANNER: &[u8] = b"Linux version ";
    memchr::memmem::find_iter(bytes, BANNER)
        .any(|at| bytes.get(at + BANNER.len()).is_some_and(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests;
