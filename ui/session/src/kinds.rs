//! What a file is that is not what a command takes: people give what they have, and are told what it is and what to do with it.

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
    /// What to do with it.
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
const DUMP: &str = "`trapline dump --info` and `trapline dump -n` read it";
/// What is known by what it lacks.
const TEXT: Kind = Kind { is: "a text", instead: "a program in RPN is given with -p, one in D with -s" };

/// In the order in which they are looked for: a boot sector may be in front of anything.
const MARKS: &[Mark] = &[
    mark(0, b"QFI\xfb", false, "a qcow2 disk image", CONVERT),
    mark(0, b"KDMV", false, "a VMDK disk image", CONVERT),
    mark(0, b"vhdxfile", false, "a VHDX disk image", CONVERT),
    mark(0, b"conectix", false, "a VHD disk image", CONVERT),
    mark(0x40, b"\x7f\x10\xda\xbe", false, "a VDI disk image", CONVERT),
    mark(0, b"QED\0", false, "a QED disk image", CONVERT),
    mark(0, b"WithoutFreeSpace", false, "a disk image of Parallels", CONVERT),
    mark(0, b"WithouFreSpacExt", false, "a disk image of Parallels", CONVERT),
    mark(0, b"Bochs Virtual HD Image", false, "a disk image of Bochs", CONVERT),
    mark(0, b"070701", true, "a cpio archive, as an initial RAM disk is", INITRD),
    mark(0, b"070702", true, "a cpio archive, as an initial RAM disk is", INITRD),
    mark(0, b"070707", true, "a cpio archive", INITRD),
    mark(0, b"\xfd7zXZ\0", false, "a file compressed by xz", UNPACK),
    mark(0, b"\x28\xb5\x2f\xfd", false, "a file compressed by zstd", UNPACK),
    mark(0, b"BZh", false, "a file compressed by bzip2", UNPACK),
    mark(0, b"\x1f\x8b\x08", false, "a file compressed by gzip", UNPACK),
    mark(0, b"PK\x03\x04", false, "a ZIP archive", UNPACK),
    mark(257, b"ustar", true, "a tar archive", UNPACK),
    mark(0, b"hsqs", true, "a SquashFS file system", FROM_DISK),
    mark(
        0,
        b"TRAPRECO",
        true,
        "a recording of Trapline",
        "`trapline replay` runs it again, under a name that ends in .tlr",
    ),
    mark(0, b"\x89TRC\r\n\x1a\n", true, "a trace file of Trapline", "`trapline trace cat` prints it"),
    mark(
        0,
        b"\x89PPDF\r\n\x1a",
        true,
        "a compiled probe program (PPDF)",
        "-p takes it, and a kernel is IMAGE",
    ),
    mark(0, b"KDUMP   ", true, "a crash dump", DUMP),
    mark(0, b"makedumpfile\0", true, "a crash dump in makedumpfile's flattened format", DUMP),
    mark(0, b"PERFILE2", true, "a recording of perf", "`perf report` reads it"),
    mark(0, b"\x17\x08\x44tracing", true, "a recording of trace-cmd", "`trace-cmd report` reads it"),
    mark(0, b"#!", true, "a script", "in a Linux guest, type its name (docs/script.md)"),
    mark(32769, b"CD001", true, "an ISO 9660 image of a CD or DVD", FROM_DISK),
    mark(512, b"EFI PART", true, "a disk image with a GPT", FROM_DISK),
    mark(1080, b"\x53\xef", true, "an ext2, ext3 or ext4 file system", FROM_DISK),
    mark(510, b"\x55\xaa", true, "a disk image with a boot sector (MBR)", FROM_DISK),
];

impl Kind {
    /// What a file with this content is, if it is known.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let marked = MARKS.iter().find(|mark| mark.is_in(bytes)).map(|mark| mark.kind);
        let looked_at = &bytes[..bytes.len().min(LOOKED_AT as usize)];
        let is_printed = |c: char| !c.is_control() || c.is_ascii_whitespace();
        let is_text = |text: &str| text.contains('\n') && text.chars().all(is_printed);
        marked.or_else(|| std::str::from_utf8(looked_at).ok().filter(|text| is_text(text)).map(|_| TEXT))
    }

    /// What a file is. What cannot be read is told by who reads it.
    pub fn of_file(path: &Path) -> Option<Self> {
        Self::of_bytes(&beginning(path)?)
    }

    /// What a file is that cannot be a raw image of a disk, or is none that anybody means; and how one is made of it.
    pub fn not_raw(path: &Path) -> Option<(&'static str, &'static str)> {
        let bytes = beginning(path)?;
        let Self { is, instead } = MARKS.iter().find(|mark| !mark.raw && mark.is_in(&bytes))?.kind;
        Some((is, if instead == CONVERT { "convert it with `qemu-img convert -O raw`" } else { instead }))
    }
}

impl Mark {
    fn is_in(&self, bytes: &[u8]) -> bool {
        bytes.get(self.at..).is_some_and(|rest| rest.starts_with(self.bytes))
    }
}

/// The beginning of a regular file: nothing is taken from a pipe.
fn beginning(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    File::open(path).and_then(|file| file.take(LOOKED_AT).read_to_end(&mut bytes)).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_bytes_wherever_they_are_and_cut_off_files_are_not() {
        for mark in MARKS {
            let mut file = vec![0; mark.at + mark.bytes.len()];
            file[mark.at..].copy_from_slice(mark.bytes);
            assert_eq!(Kind::of_bytes(&file), Some(mark.kind));
            assert!(Kind::of_bytes(&file[..file.len() - 1]).is_none_or(|kind| kind == TEXT));
        }
        assert_eq!(Kind::of_bytes(&[]), None);
        assert_eq!(Kind::of_bytes(b"name = vmlinux\n"), Some(TEXT));
        assert_eq!(Kind::of_bytes(b"\0name"), None);
    }
}
