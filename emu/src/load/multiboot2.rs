//! Multiboot 2 (GNU Multiboot2 Specification 2.0): the header in the kernel's file. The information that the kernel is given
//! at entry is laid out in `multiboot2_info.rs`.

use super::multiboot::{self, KludgeAddresses};

/// Magic number of the header (section 3.1.2).
const HEADER_MAGIC: u32 = 0xe852_50d6;
/// What EAX holds at entry (section 3.3).
pub(super) const BOOT_MAGIC: u32 = 0x36d7_6289;
/// Bytes of the file in which the header must lie (section 3.1).
const SEARCH: usize = 32_768;
/// The 32-bit protected mode of i386.
const I386: u32 = 0;
/// Bytes of the header before its tags.
const HEAD: usize = 16;
/// The types of information that the specification knows; what the machine does not have is left out.
const INFORMATION: std::ops::RangeInclusive<u32> = 0..=21;

/// Why a Multiboot 2 kernel cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Multiboot2Error {
    /// Bad checksum, and there is no other header.
    #[error("the Multiboot 2 header at {offset:#x} has checksum {checksum:#x}; it must be {wanted:#x}")]
    Checksum {
        /// Its place in the file.
        offset: usize,
        /// Its value.
        checksum: u32,
        /// The correct value.
        wanted: u32,
    },
    /// Another architecture.
    #[error("the Multiboot 2 header at {offset:#x} is for architecture {architecture}; it must be 0 (i386)")]
    Architecture {
        /// Its place in the file.
        offset: usize,
        /// Its value.
        architecture: u32,
    },
    /// The header, or a tag in it, is cut off.
    #[error(
        "{what} of the Multiboot 2 header at {offset:#x} ends at {end:#x}, after the header's or the search's end {limit:#x}"
    )]
    Cut {
        /// The part.
        what: String,
        /// The header's place in the file.
        offset: usize,
        /// Where the part ends.
        end: usize,
        /// Where it must have ended.
        limit: usize,
    },
    /// A required tag that is not known.
    #[error("the Multiboot 2 header requires {what}, which is not supported")]
    Required {
        /// The tag.
        what: String,
    },
    /// The kernel may be loaded nowhere.
    #[error(
        "the Multiboot 2 header wants the kernel's {size:#x} bytes at a multiple of {align:#x} between {lowest:#x} and \
         {highest:#x}, where they do not fit"
    )]
    NoPlace {
        /// Bytes from the kernel's first to its last.
        size: u64,
        /// The lowest address of a byte.
        lowest: u32,
        /// The highest address of a byte.
        highest: u32,
        /// Alignment of the first byte.
        align: u32,
    },
    /// Load addresses without an entry point.
    #[error("the Multiboot 2 header gives load addresses (tag 2) but no entry point (tag 3)")]
    NoEntry,
    /// No ELF and no addresses.
    #[error("the Multiboot 2 kernel is no ELF file and its header gives no load addresses (tag 2)")]
    NoAddresses,
}

/// A valid header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multiboot2Header {
    /// Its place in the file.
    pub offset: usize,
    /// Load addresses, if it has them.
    pub addresses: Option<KludgeAddresses>,
    /// The entry point, if the header has one of its own.
    pub entry: Option<u32>,
    /// Where the kernel may be loaded, if that is not where it was linked.
    pub relocation: Option<Relocation>,
}

/// Where a kernel may be loaded that runs at any address (section 3.1.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// The lowest address of a byte.
    pub lowest: u32,
    /// The highest address of a byte.
    pub highest: u32,
    /// Alignment of the first byte.
    pub align: u32,
}

impl Relocation {
    /// The lowest address above 1 MiB at which `size` bytes can be loaded. A preference for a high address is not followed.
    ///
    /// # Errors
    /// There is no such address.
    pub(super) fn place(self, size: u64) -> Result<u64, Multiboot2Error> {
        const MIB: u64 = 1 << 20;
        let Relocation { lowest, highest, align } = self;
        let first = u64::from(lowest).max(MIB).next_multiple_of(u64::from(align.max(1)));
        let fits = first.checked_add(size).is_some_and(|end| end <= u64::from(highest) + 1);
        fits.then_some(first).ok_or(Multiboot2Error::NoPlace { size, lowest, highest, align })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

/// True if the file has a header of Multiboot 1 or 2, valid or not.
pub(crate) fn has_multiboot_header(bytes: &[u8]) -> bool {
    !matches!(multiboot::find_header(bytes), Ok(None)) || candidates(bytes).next().is_some()
}

fn candidates(bytes: &[u8]) -> impl Iterator<Item = usize> {
    (0..bytes.len().min(SEARCH)).step_by(8).filter(|at| word(bytes, *at) == Some(HEADER_MAGIC))
}

/// The first header with a valid checksum; `None` if nothing looks like one.
///
/// # Errors
/// Only headers with a wrong checksum, or one that cannot be followed.
pub(super) fn find_header(bytes: &[u8]) -> Result<Option<Multiboot2Header>, Multiboot2Error> {
    let searched = bytes.get(..SEARCH).unwrap_or(bytes);
    let mut wrong = None;
    for offset in candidates(bytes) {
        let field = |index: usize| word(searched, offset + 4 * index);
        let (Some(architecture), Some(length), Some(checksum)) = (field(1), field(2), field(3)) else {
            let (end, limit) = (offset + HEAD, searched.len());
            wrong.get_or_insert(Multiboot2Error::Cut { what: "the head".to_owned(), offset, end, limit });
            continue;
        };
        let sum = HEADER_MAGIC.wrapping_add(architecture).wrapping_add(length);
        let wanted = 0u32.wrapping_sub(sum);
        if checksum != wanted {
            wrong.get_or_insert(Multiboot2Error::Checksum { offset, checksum, wanted });
            continue;
        }
        if architecture != I386 {
            return Err(Multiboot2Error::Architecture { offset, architecture });
        }
        let end = offset.saturating_add(length as usize);
        let Some(header) = searched.get(offset..end) else {
            let (what, limit) = ("the end".to_owned(), searched.len());
            return Err(Multiboot2Error::Cut { what, offset, end, limit });
        };
        return Tags { header, offset }.read().map(Some);
    }
    wrong.map_or(Ok(None), Err)
}

/// The tags of a header (section 3.1.3): each its type, its flags and its size, aligned to 8 bytes.
struct Tags<'a> {
    header: &'a [u8],
    offset: usize,
}

impl Tags<'_> {
    fn read(&self) -> Result<Multiboot2Header, Multiboot2Error> {
        const OPTIONAL: u32 = 1 << 16;
        let (mut addresses, mut entry, mut relocation) = (None, None, None);
        let mut at = HEAD;
        // A header without its end tag ends where its length says.
        while let (Some(head), Some(size)) = (word(self.header, at), word(self.header, at + 4)) {
            let (kind, required) = (head & 0xffff, head & OPTIONAL == 0);
            if kind == 0 {
                break;
            }
            let next = at.saturating_add(size.max(8) as usize);
            let Some(tag) = self.header.get(at..next) else {
                return Err(self.cut(format!("tag {kind}"), next));
            };
            let field = |index: usize| word(tag, 8 + 4 * index);
            match kind {
                1 if required => check_requests(tag)?,
                2 => addresses = [0, 1, 2, 3].map(field).into_iter().collect::<Option<Vec<u32>>>(),
                3 => entry = field(0),
                5 if required => check_screen(field(2))?,
                10 => {
                    let words = (field(0), field(1), field(2));
                    let (Some(lowest), Some(highest), Some(align)) = words else {
                        return Err(self.cut(format!("tag {kind}"), at + 20));
                    };
                    relocation = Some(Relocation { lowest, highest, align });
                }
                // Requests that are not needed; the console, which is text; modules, which always begin at a page; and what
                // concerns EFI.
                1 | 4..=6 | 8 | 9 => {}
                _ if required => return Err(Multiboot2Error::Required { what: name_of(kind) }),
                _ => {}
            }
            at = next.next_multiple_of(8);
        }
        let addresses = match (addresses.as_deref(), entry) {
            (None, _) => None,
            (Some(_), None) => return Err(Multiboot2Error::NoEntry),
            (Some(&[header, load, load_end, bss_end]), Some(entry)) => {
                // All ones: the header lies where the file begins to be loaded.
                let load = if load == u32::MAX { header.wrapping_sub(self.offset as u32) } else { load };
                Some(KludgeAddresses { header, load, load_end, bss_end, entry })
            }
            (Some(_), Some(_)) => None,
        };
        Ok(Multiboot2Header { offset: self.offset, addresses, entry, relocation })
    }

    /// `what` ends at byte `end` of the header, after the header's end.
    fn cut(&self, what: String, end: usize) -> Multiboot2Error {
        let (offset, limit) = (self.offset, self.offset + self.header.len());
        Multiboot2Error::Cut { what, offset, end: self.offset.saturating_add(end), limit }
    }
}

fn name_of(kind: u32) -> String {
    match kind {
        7 => "EFI boot services (tag 7)".to_owned(),
        _ => format!("what tag {kind} says"),
    }
}

/// Tag 1: the information that the kernel wants.
fn check_requests(tag: &[u8]) -> Result<(), Multiboot2Error> {
    let wanted = tag.get(8..).unwrap_or_default().chunks_exact(4).filter_map(|four| word(four, 0));
    match wanted.into_iter().find(|kind| !INFORMATION.contains(kind)) {
        None => Ok(()),
        Some(kind) => Err(Multiboot2Error::Required { what: format!("information of type {kind}") }),
    }
}

/// Tag 5: the screen; a depth of 0 is text.
fn check_screen(depth: Option<u32>) -> Result<(), Multiboot2Error> {
    match depth {
        None | Some(0) => Ok(()),
        Some(depth) => Err(Multiboot2Error::Required { what: format!("a screen of {depth} bits a pixel") }),
    }
}
