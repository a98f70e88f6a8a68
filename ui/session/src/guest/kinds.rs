//! What a file is that is no kernel, or no raw image of a disk: people give what they have, and are told what it is and what to
//! give instead.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes that tell what a file is; an ISO 9660 file is known behind its first 32 KiB.
const LOOKED_AT: u64 = 64 << 10;

/// A kind of file, and what to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Its name, with its article.
    pub is: &'static str,
    /// What to do with it, where a kernel is wanted.
    pub instead: &'static str,
}

/// Where a kind has which bytes, and whether a raw image of a disk can be one.
struct Mark {
    at: usize,
    bytes: &'static [u8],
    raw: bool,
    kind: Kind,
}

const fn mark(at: usize, bytes: &'static [u8], raw: bool, is: &'static str, instead: &'static str) -> Mark {
    Mark { at, bytes, raw, kind: Kind { is, instead } }
}

/// What is inside of a disk that has a kernel.
const FROM_DISK: &str = "give the kernel from it as IMAGE, and the disk with --disk";
/// The same of a disk that is not raw.
const CONVERT: &str =
    "convert it with `qemu-img convert -O raw`, give the kernel from it as IMAGE, and the disk with --disk";
const INITRD: &str = "give a kernel as IMAGE, and this file with --initrd";
const UNPACK: &str = "unpack it first";

/// In the order in which they are looked for: a boot sector may be in front of anything.
const MARKS: &[Mark] = &[
    mark(0, b"QFI\xfb", false, "a qcow2 disk image", CONVERT),
    mark(0, b"KDMV", false, "a VMDK disk image", CONVERT),
    mark(0, b"vhdxfile", false, "a VHDX disk image", CONVERT),
    mark(0, b"conectix", false, "a VHD disk image", CONVERT),
    mark(0x40, b"\x7f\x10\xda\xbe", false, "a VDI disk image", CONVERT),
    mark(0, b"070701", true, "a cpio archive, as an initial RAM disk is", INITRD),
    mark(0, b"070702", true, "a cpio archive, as an initial RAM disk is", INITRD),
    mark(0, b"070707", true, "a cpio archive", INITRD),
    mark(0, b"\xfd7zXZ\0", true, "a file compressed by xz", UNPACK),
    mark(0, b"\x28\xb5\x2f\xfd", true, "a file compressed by zstd", UNPACK),
    mark(0, b"BZh", true, "a file compressed by bzip2", UNPACK),
    mark(0, b"PK\x03\x04", true, "a ZIP archive", UNPACK),
    mark(257, b"ustar", true, "a tar archive", UNPACK),
    mark(0, b"hsqs", true, "a SquashFS file system", FROM_DISK),
    mark(0, b"TRAPRECO", true, "a recording of Trapline", "give its name the ending .tlr"),
    mark(32769, b"CD001", true, "an ISO 9660 image of a CD or DVD", FROM_DISK),
    mark(512, b"EFI PART", true, "a disk image with a GPT", FROM_DISK),
    mark(1080, b"\x53\xef", true, "an ext2, ext3 or ext4 file system", FROM_DISK),
    mark(510, b"\x55\xaa", true, "a disk image with a boot sector (MBR)", FROM_DISK),
];

/// What a file with this content is, if it is known.
pub fn of_bytes(bytes: &[u8]) -> Option<Kind> {
    let is = |mark: &&Mark| bytes.get(mark.at..).is_some_and(|rest| rest.starts_with(mark.bytes));
    MARKS.iter().find(is).map(|mark| mark.kind)
}

/// What a file is that cannot be a raw image of a disk.
pub fn not_raw(path: &Path) -> Option<&'static str> {
    let mut bytes = Vec::new();
    // What cannot be read is told by who reads it.
    File::open(path).and_then(|file| file.take(LOOKED_AT).read_to_end(&mut bytes)).ok()?;
    let is =
        |mark: &&Mark| !mark.raw && bytes.get(mark.at..).is_some_and(|rest| rest.starts_with(mark.bytes));
    MARKS.iter().find(is).map(|mark| mark.kind.is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_bytes_wherever_they_are_and_cut_off_files_are_not() {
        for mark in MARKS {
            let mut file = vec![0; mark.at + mark.bytes.len()];
            file[mark.at..].copy_from_slice(mark.bytes);
            assert_eq!(of_bytes(&file), Some(mark.kind));
            assert_eq!(of_bytes(&file[..file.len() - 1]), None);
        }
        assert_eq!(of_bytes(&[]), None);
    }
}
