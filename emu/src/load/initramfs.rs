//! The files of a Linux initramfs: cpio archives in the "newc" format, one after the other, each plain or in gzip.
//!
//! Source: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst. Owners, modes, times and devices are
//! not kept. Of two entries with one path the later counts, as in the kernel. Not here: xz, zstd, lz4 and the like,
//! which are refused by their first bytes.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use super::{MAX_IMAGE, first_bytes};

/// Bytes of an entry's header: a magic number and 13 numbers of 8 hexadecimal digits.
const HEADER: usize = 110;
/// `c_magic`, without and with checksums.
const MAGICS: [&[u8]; 2] = [b"070701", b"070702"];
/// The name of the entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";
/// Type of a file in `c_mode`, and the types that are kept.
const TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
/// Most symbolic links that one path may lead through (MAXSYMLINKS).
const MAX_LINKS: usize = 40;

/// Why the files of an initramfs cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitramfsError {
    /// No header where one must be.
    #[error("at {at:#x} of the unpacked initramfs is {first}, but a cpio entry begins with 070701 or 070702")]
    Magic {
        /// Where in the unpacked bytes.
        at: usize,
        /// The first bytes there in hexadecimal.
        first: String,
    },
    /// A header field is not a hexadecimal number.
    #[error("number {field} of the cpio entry at {at:#x} is {text:?}; it must be 8 hexadecimal digits")]
    Number {
        /// Where the entry begins.
        at: usize,
        /// Which of the 13, from 1.
        field: usize,
        /// The text there.
        text: String,
    },
    /// An entry ends after the end of the archive.
    #[error("the cpio entry at {at:#x} ends at {end:#x}, but the archive has {len:#x} bytes")]
    Truncated {
        /// Where the entry begins.
        at: usize,
        /// Where it would end.
        end: u64,
        /// Bytes of the archive.
        len: usize,
    },
    /// A packed part that is not read here.
    #[error("a part of the initramfs begins with {first}, which is neither cpio (newc) nor gzip")]
    Packing {
        /// The first bytes in hexadecimal.
        first: String,
    },
    /// The gzip stream is damaged.
    #[error("the gzip stream of the initramfs cannot be unpacked after {unpacked} bytes: {reason}")]
    Gzip {
        /// Bytes before the damage.
        unpacked: usize,
        /// The decompressor's message.
        reason: String,
    },
    /// The unpacked size exceeds the limit.
    #[error("the initramfs unpacks to more than {MAX_IMAGE} bytes, the most that is accepted")]
    TooLarge,
}

#[derive(Clone, Debug)]
enum Entry {
    File(Arc<[u8]>, Range<usize>),
    Link(String),
}

/// Files of a guest by their paths, with symbolic links.
#[derive(Clone, Debug, Default)]
pub struct Files {
    entries: BTreeMap<String, Entry>,
}

impl Files {
    /// The files of the initramfs `bytes`.
    ///
    /// # Errors
    /// The first part that is damaged or packed in another way than gzip.
    pub fn of_initramfs(bytes: &[u8]) -> Result<Self, InitramfsError> {
        let mut files = Self::default();
        let plain: Arc<[u8]> = bytes.into();
        let (mut at, mut unpacked) = (0, 0);
        loop {
            at = files.archives(&plain, at)?;
            let rest = bytes.get(at..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(files);
            }
            if !rest.starts_with(&[0x1f, 0x8b]) {
                return Err(InitramfsError::Packing { first: first_bytes(rest) });
            }
            let (part, left) = gunzip(rest)?;
            unpacked += part.len() as u64;
            if unpacked > MAX_IMAGE {
                return Err(InitramfsError::TooLarge);
            }
            at = bytes.len() - left.len();
            let part: Arc<[u8]> = part.into();
            let end = files.archives(&part, 0)?;
            if end < part.len() {
                let first = first_bytes(part.get(end..).unwrap_or_default());
                return Err(InitramfsError::Magic { at: end, first });
            }
        }
    }

    /// Puts a file at `path`, whatever was there.
    pub fn insert(&mut self, path: &str, bytes: Vec<u8>) {
        let range = 0..bytes.len();
        self.entries.insert(normal(path), Entry::File(bytes.into(), range));
    }

    /// Every regular file: its path from `/` and its bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().filter_map(|(path, entry)| match entry {
            Entry::File(bytes, range) => Some((path.as_str(), bytes.get(range.clone())?)),
            Entry::Link(_) => None,
        })
    }

    /// The path of the file that `path` leads to, through symbolic links; `None` when it leads to no file.
    pub fn resolve(&self, path: &str) -> Option<String> {
        let mut at = String::new();
        let mut rest: Vec<String> = parts(path).map(str::to_owned).rev().collect();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            if part == ".." {
                at.truncate(at.rfind('/').unwrap_or(0));
                continue;
            }
            let next = format!("{at}/{part}");
            let Some(Entry::Link(target)) = self.entries.get(&next) else {
                at = next;
                continue;
            };
            links += 1;
            if links > MAX_LINKS {
                return None;
            }
            if target.starts_with('/') {
                at.clear();
            }
            rest.extend(parts(target).rev().map(str::to_owned));
        }
        matches!(self.entries.get(&at), Some(Entry::File(..))).then_some(at)
    }

    /// The archives in `bytes` from `at` on, with zeros before, between and after them; returns where they end.
    fn archives(&mut self, bytes: &Arc<[u8]>, mut at: usize) -> Result<usize, InitramfsError> {
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let zeros = rest.iter().take_while(|byte| **byte == 0).count();
            at += zeros;
            if !rest.get(zeros..).is_some_and(|rest| MAGICS.iter().any(|magic| rest.starts_with(magic))) {
                return Ok(at);
            }
            at = self.archive(bytes, at)?;
        }
    }

    /// Reads the archive at `at`; returns where it ends.
    fn archive(&mut self, bytes: &Arc<[u8]>, mut at: usize) -> Result<usize, InitramfsError> {
        // A file with several names has its contents at one of them, as a rule the last.
        let mut twins: BTreeMap<[u32; 3], Vec<String>> = BTreeMap::new();
        while at < bytes.len() {
            let header = Header::read(bytes, at)?;
            at = header.end;
            if header.name == TRAILER {
                break;
            }
            let path = normal(&header.name);
            match header.mode & TYPE {
                REGULAR => {
                    let mut names = vec![path];
                    if header.links > 1 {
                        let waiting = twins.entry(header.identity).or_default();
                        match header.data.is_empty() {
                            true => waiting.extend_from_slice(&names),
                            false => names.append(waiting),
                        }
                    }
                    for name in names {
                        let file = Entry::File(Arc::clone(bytes), header.data.clone());
                        self.entries.insert(name, file);
                    }
                }
                LINK => {
                    let target = bytes.get(header.data.clone()).unwrap_or_default();
                    let target = String::from_utf8_lossy(target).trim_end_matches('\0').to_owned();
                    self.entries.insert(path, Entry::Link(target));
                }
                _ => {
                    self.entries.remove(&path);
                }
            }
        }
        Ok(at)
    }
}

/// An entry's header.
struct Header {
    name: String,
    mode: u32,
    links: u32,
    /// Inode and device: equal for the names of one file.
    identity: [u32; 3],
    data: Range<usize>,
    /// Where the next entry begins.
    end: usize,
}

impl Header {
    fn read(bytes: &[u8], at: usize) -> Result<Self, InitramfsError> {
        let truncated = |end: u64| InitramfsError::Truncated { at, end, len: bytes.len() };
        let here = bytes.get(at..).unwrap_or_default();
        if !MAGICS.iter().any(|magic| here.starts_with(magic)) {
            return Err(InitramfsError::Magic { at, first: first_bytes(here) });
        }
        let header = here.get(..HEADER).ok_or_else(|| truncated((at + HEADER) as u64))?;
        let mut numbers = [0; 13];
        for (field, (digits, number)) in
            header.get(6..).unwrap_or_default().chunks(8).zip(&mut numbers).enumerate()
        {
            let text = String::from_utf8_lossy(digits);
            let hexadecimal = text.bytes().all(|byte| byte.is_ascii_hexdigit());
            let parsed = u32::from_str_radix(&text, 16).ok().filter(|_| hexadecimal);
            let text = text.into_owned();
            *number = parsed.ok_or(InitramfsError::Number { at, field: field + 1, text })?;
        }
        let [inode, mode, _, _, links, _, size, major, minor, _, _, name_size, _] = numbers;
        // Counted from the entry's own beginning.
        let padded = |end: u64| at as u64 + (end - at as u64).next_multiple_of(4);
        let name_at = (at + HEADER) as u64;
        let data_at = padded(name_at + u64::from(name_size));
        let data_end = data_at + u64::from(size);
        // The padding after the last entry may be missing.
        let within = |end: u64| usize::try_from(end).ok().filter(|end| *end <= bytes.len());
        let start = within(data_at.min(bytes.len() as u64));
        let (start, stop) = start.zip(within(data_end)).ok_or_else(|| truncated(data_end))?;
        let end = within(padded(data_end)).unwrap_or(bytes.len());
        let name = within(name_at + u64::from(name_size)).and_then(|end| bytes.get(at + HEADER..end));
        let name = name.ok_or_else(|| truncated(name_at + u64::from(name_size)))?;
        let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
        Ok(Self { name, mode, links, identity: [inode, major, minor], data: start..stop, end })
    }
}

/// The components of a path, without empty ones and `.`.
fn parts(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}

/// A path with one slash before each part.
fn normal(path: &str) -> String {
    parts(path).flat_map(|part| ["/", part]).collect()
}

/// The gzip stream that `bytes` begin with, unpacked, and the bytes after it.
fn gunzip(bytes: &[u8]) -> Result<(Vec<u8>, &[u8]), InitramfsError> {
    let mut reader = flate2::bufread::GzDecoder::new(bytes);
    let mut unpacked = Vec::new();
    match (&mut reader).take(MAX_IMAGE + 1).read_to_end(&mut unpacked) {
        Err(error) => Err(InitramfsError::Gzip { unpacked: unpacked.len(), reason: error.to_string() }),
        Ok(_) if unpacked.len() as u64 > MAX_IMAGE => Err(InitramfsError::TooLarge),
        Ok(_) => Ok((unpacked, reader.into_inner())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(inode: u32, name: &str, mode: u32, links: u32, data: &[u8]) -> Vec<u8> {
        let numbers = [inode, mode, 0, 0, links, 0, data.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        let mut bytes = b"070701".to_vec();
        bytes.extend(numbers.iter().flat_map(|number| format!("{number:08X}").into_bytes()));
        for part in [name.as_bytes(), b"\0"] {
            bytes.extend(part);
        }
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
        [entries.concat(), entry(0, TRAILER, 0, 1, b"")].concat()
    }

    fn sample() -> Vec<u8> {
        archive(&[
            entry(1, ".", 0o040_755, 2, b""),
            entry(2, "bin", LINK | 0o777, 1, b"usr/bin"),
            entry(3, "usr/bin/busybox", REGULAR | 0o755, 1, b"program"),
            entry(4, "usr/bin/sh", LINK | 0o777, 1, b"/bin/../bin/busybox"),
            entry(5, "a", LINK | 0o777, 1, b"b"),
            entry(6, "b", LINK | 0o777, 1, b"a"),
            entry(7, "one", REGULAR | 0o644, 2, b""),
            entry(7, "./two", REGULAR | 0o644, 2, b"twins"),
        ])
    }

    #[test]
    fn files_are_found_through_links() {
        let files = Files::of_initramfs(&sample()).unwrap();
        let found: Vec<_> = files.iter().collect();
        let right: [(&str, &[u8]); 3] =
            [("/one", b"twins"), ("/two", b"twins"), ("/usr/bin/busybox", b"program")];
        assert_eq!(found, right);
        for path in ["/bin/sh", "bin//busybox", "/usr/bin/sh", "/../bin/./sh"] {
            assert_eq!(files.resolve(path).as_deref(), Some("/usr/bin/busybox"), "{path}");
        }
        for path in ["/a", "/usr/bin", "/nothing", ""] {
            assert_eq!(files.resolve(path), None, "{path}");
        }
    }

    #[test]
    fn parts_follow_each_other_and_later_ones_count() {
        use std::io::Write;
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&archive(&[entry(1, "one", REGULAR, 1, b"later")])).unwrap();
        let bytes = [sample(), vec![0; 512], packed.finish().unwrap(), vec![0; 7]].concat();
        let files = Files::of_initramfs(&bytes).unwrap();
        assert_eq!(files.iter().next(), Some(("/one", b"later".as_slice())));
        assert_eq!(files.iter().count(), 3);
    }

    #[test]
    fn damage_is_reported_in_one_sentence_and_never_panics() {
        let whole = sample();
        for len in 0..whole.len() {
            let _ = Files::of_initramfs(&whole[..len]);
            let mut bent = whole.clone();
            bent[len] ^= 0x41;
            let _ = Files::of_initramfs(&bent);
        }
        let said = |bytes: &[u8]| Files::of_initramfs(bytes).unwrap_err().to_string();
        assert_eq!(
            said(b"\xfd7zXZ\0"),
            "a part of the initramfs begins with fd 37 7a 58, which is neither cpio (newc) nor gzip"
        );
        assert_eq!(said(&whole[..100]), "the cpio entry at 0x0 ends at 0x6e, but the archive has 0x64 bytes");
        let mut bent = whole.clone();
        bent[6..14].copy_from_slice(b"+000000g");
        assert!(said(&bent).starts_with("number 1 of the cpio entry at 0x0 is \"+000000g\""));
        assert!(said(&[0x1f, 0x8b, 8, 0]).starts_with("the gzip stream of the initramfs cannot be unpacked"));
    }
}
