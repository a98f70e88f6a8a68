//! makedumpfile's compressed dumps.

use std::cell::RefCell;
use std::io::Read;
use std::ops::Range;

use flate2::read::ZlibDecoder;
use ruzstd::decoding::StreamingDecoder;
use trapline_emu::PAGE;

use super::{MOST_NOTES, Source, number};
use crate::error::DumpError;
use crate::kdump::{BLOCK, DESCRIPTOR, Layout, NARROW, SIGNATURE, UTSNAME, WIDE, field, flag};
use crate::mapped::Mapped;
use crate::pages::by_page;

/// Most page frames: 8 TiB of memory. Their bitmaps take 512 MiB.
const MOST_FRAMES: u64 = 1 << 31;
/// Bits of the bitmap between two counts.
const STRIDE: usize = 1 << 15;
/// Pages that are kept unpacked.
const UNPACKED: usize = 1 << 10;
/// Descriptors that are read at once.
const AT_ONCE: u64 = 1 << 12;

/// Where the header has the name of the machine (`utsname.machine`).
const MACHINE: usize = UTSNAME.0 + 4 * UTSNAME.1;

/// A page that was unpacked, with its number.
type Unpacked = (u64, Box<[u8]>);

/// A compressed dump.
pub struct Compressed {
    source: Source,
    layout: Layout,
    /// Pages of memory, and pages that are stored: a bit each.
    bitmaps: [Bitmap; 2],
    /// Where the descriptors of the stored pages begin.
    descriptors_at: u64,
    /// The notes.
    pub notes: Vec<u8>,
    /// Pages that were unpacked, each with its number, at the remainder of that number: readers of page tables and lists
    /// come back to the same pages.
    unpacked: RefCell<Vec<Option<Unpacked>>>,
}

/// Bits of pages, with the number of set bits before each [`STRIDE`].
struct Bitmap {
    bits: Vec<u8>,
    before: Vec<u64>,
}

impl Bitmap {
    fn new(bits: Vec<u8>) -> Self {
        let mut total = 0;
        let count = |piece: &[u8]| {
            let here = total;
            total += piece.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
            here
        };
        let before = bits.chunks(STRIDE / 8).map(count).collect();
        Self { bits, before }
    }

    fn has(&self, frame: u64) -> bool {
        self.bits.get((frame / 8) as usize).is_some_and(|byte| byte >> (frame % 8) & 1 != 0)
    }

    /// How many bits are set before this one.
    fn rank(&self, frame: u64) -> u64 {
        let (byte, stride) = ((frame / 8) as usize, (frame as usize) / STRIDE);
        let within = &self.bits[stride * STRIDE / 8..byte];
        let rest = self.bits[byte] & ((1_u16 << (frame % 8)) - 1) as u8;
        let ones = within.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
        self.before[stride] + ones + u64::from(rest.count_ones())
    }

    fn count(&self) -> u64 {
        self.bits.iter().map(|byte| u64::from(byte.count_ones())).sum()
    }

    /// Runs of set bits.
    fn runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut add = |from: u64, to: u64| match runs.last_mut() {
            Some((_, end)) if *end == from => *end = to,
            _ => runs.push((from, to)),
        };
        for (byte, first) in self.bits.iter().zip((0..).step_by(8)) {
            match byte {
                0 => {}
                0xff => add(first, first + 8),
                _ => (0..8)
                    .filter(|bit| byte >> bit & 1 != 0)
                    .for_each(|bit| add(first + bit, first + bit + 1)),
            }
        }
        runs
    }
}

impl Compressed {
    pub fn open(source: Source) -> Result<Self, DumpError> {
        let head = source.part("the header", 0, 512)?;
        debug_assert!(head.starts_with(&SIGNATURE));
        let value = |layout: &Layout, n: usize| number(&head, layout.status + 4 * n, 4);
        // A number of 4096 at the place may be another field, so the name of the machine is looked at first.
        let machine = head.get(MACHINE..MACHINE + 6).unwrap_or_default();
        let order = if machine == b"x86_64" { [WIDE, NARROW] } else { [NARROW, WIDE] };
        let fits = |layout: &&Layout| value(layout, field::BLOCK_SIZE) == BLOCK;
        let Some(layout) = order.iter().find(fits).copied() else {
            return Err(DumpError::Field {
                field: "block_size",
                value: value(&WIDE, field::BLOCK_SIZE),
                valid: "dumps of x86 have blocks of 4096 bytes",
            });
        };
        let version = number(&head, SIGNATURE.len(), 4);
        if !(1..=6).contains(&version) {
            let valid = "versions 1 to 6 are known";
            return Err(DumpError::Field { field: "header_version", value: version, valid });
        }
        let second_blocks = value(&layout, field::SECOND_BLOCKS);
        let second = source.part("the second header", BLOCK, layout.second as u64)?;
        let frames = match version {
            6.. => number(&second, layout.frames + 16, 8),
            _ => value(&layout, field::MAX_MAPNR),
        };
        let bitmap_blocks = value(&layout, field::BITMAP_BLOCKS);
        let half = bitmap_blocks / 2 * BLOCK;
        if frames > MOST_FRAMES || frames.div_ceil(8) > half {
            let valid = "the bitmaps have fewer bits";
            return Err(DumpError::Field { field: "max_mapnr", value: frames, valid });
        }
        let bitmaps_at = (1 + second_blocks) * BLOCK;
        let bitmap = |at: u64| source.part("a bitmap", at, frames.div_ceil(8)).map(Bitmap::new);
        let bitmaps = [bitmap(bitmaps_at)?, bitmap(bitmaps_at + half)?];
        let notes = Self::notes(&source, layout, version, &second)?;
        let descriptors_at = bitmaps_at + bitmap_blocks * BLOCK;
        Ok(Self { source, layout, bitmaps, descriptors_at, notes, unpacked: RefCell::default() })
    }

    /// The notes of version 4 and later; before, the kernel's description of itself alone.
    fn notes(source: &Source, layout: Layout, version: u64, second: &[u8]) -> Result<Vec<u8>, DumpError> {
        let size_bytes = if layout.wide { 8 } else { 4 };
        let place = |(at, size): (usize, usize)| (number(second, at, 8), number(second, size, size_bytes));
        if version < 4 {
            return Ok(Vec::new());
        }
        let (at, size) = place(layout.note);
        source.part("the notes", at, size.min(MOST_NOTES))
    }

    /// Whether its kernel has 64 bits.
    pub fn wide(&self) -> bool {
        self.layout.wide
    }

    /// The ranges of memory.
    pub fn memory(&self) -> Vec<Mapped> {
        let mapped =
            |(from, to): (u64, u64)| Mapped { paddr: from * PAGE, size: (to - from) * PAGE, vaddr: None };
        self.bitmaps[0].runs().into_iter().map(mapped).collect()
    }

    /// The memory that is in the file: the pages whose descriptors are.
    pub fn stored(&self) -> Vec<Range<u64>> {
        let bytes = self.source.len.saturating_sub(self.descriptors_at).min(self.source.stored());
        let mut descriptors = bytes / DESCRIPTOR;
        let runs = self.bitmaps[1].runs().into_iter().map_while(|(from, to)| {
            let pages = (to - from).min(descriptors);
            descriptors -= pages;
            (pages > 0).then(|| from * PAGE..(from + pages) * PAGE)
        });
        runs.collect()
    }

    /// Pages of memory, and pages that are stored.
    pub fn pages(&self) -> (u64, u64) {
        (self.bitmaps[0].count(), self.bitmaps[1].count())
    }

    /// Pages whose content or description lies beyond the end of the file.
    pub fn missing(&self) -> u64 {
        let all = self.bitmaps[1].count();
        let there =
            self.source.len.saturating_sub(self.descriptors_at).min(self.source.stored()) / DESCRIPTOR;
        let mut missing = all.saturating_sub(there);
        let mut part = vec![0; (DESCRIPTOR * AT_ONCE) as usize];
        for first in (0..all.min(there)).step_by(AT_ONCE as usize) {
            let count = AT_ONCE.min(all.min(there) - first);
            let Some(part) = part.get_mut(..(count * DESCRIPTOR) as usize) else { break };
            let at = self.descriptors_at.saturating_add(first * DESCRIPTOR);
            if !self.source.read(at, part) {
                missing += count;
                continue;
            }
            let ends = part
                .chunks_exact(DESCRIPTOR as usize)
                .map(|bytes| number(bytes, 0, 8).saturating_add(number(bytes, 8, 4)));
            missing += ends.filter(|end| *end > self.source.len).count() as u64;
        }
        missing
    }

    /// The ways in which stored pages are compressed, with the number of pages.
    pub fn ways(&self) -> Vec<(&'static str, u64)> {
        let mut ways = WAYS.map(|(name, _)| (name, 0));
        let count = self.bitmaps[1].count();
        let mut bytes = vec![0; (AT_ONCE * DESCRIPTOR) as usize];
        for first in (0..count).step_by(AT_ONCE as usize) {
            let some = (AT_ONCE.min(count - first) * DESCRIPTOR) as usize;
            let there = self.descriptor_at(first).zip(bytes.get_mut(..some));
            if !there.is_some_and(|(at, bytes)| self.source.read(at, bytes)) {
                // A file that was cut. What it lacks is counted elsewhere.
                break;
            }
            for descriptor in bytes.chunks_exact(DESCRIPTOR as usize).take(some / DESCRIPTOR as usize) {
                let flags = number(descriptor, 12, 4) as u32;
                let way = |(_, bit): &(&str, u32)| flags & bit != 0 || (*bit == 0 && flags == 0);
                if let Some(at) = WAYS.iter().position(way) {
                    ways[at].1 += 1;
                }
            }
        }
        ways.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    fn descriptor_at(&self, n: u64) -> Option<u64> {
        self.descriptors_at.checked_add(n.checked_mul(DESCRIPTOR)?)
    }

    /// Place, size and flags of a stored page, by its number among them.
    fn descriptor(&self, n: u64) -> Option<(u64, u64, u32)> {
        let mut bytes = [0; DESCRIPTOR as usize];
        let at = self.descriptor_at(n)?;
        let found = self.source.read(at, &mut bytes);
        found.then(|| (number(&bytes, 0, 8), number(&bytes, 8, 4), number(&bytes, 12, 4) as u32))
    }

    /// Fills `to` from a physical address. A page of memory that is not stored cannot be read.
    pub fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        by_page(paddr, to, |frame, within, part| {
            let mut unpacked = self.unpacked.borrow_mut();
            if unpacked.is_empty() {
                unpacked.resize(UNPACKED, None);
            }
            let Some(place) = unpacked.get_mut(frame as usize % UNPACKED) else { return false };
            if place.as_ref().is_none_or(|(number, _)| *number != frame) {
                *place = self.page(frame).map(|page| (frame, page));
            }
            match place {
                Some((_, page)) => {
                    part.copy_from_slice(&page[within..within + part.len()]);
                    true
                }
                None => false,
            }
        })
    }

    /// The content of a stored page.
    fn page(&self, frame: u64) -> Option<Box<[u8]>> {
        if !self.bitmaps[1].has(frame) {
            return None;
        }
        let (at, size, flags) = self.descriptor(self.bitmaps[1].rank(frame))?;
        if size > PAGE {
            return None;
        }
        let mut stored = vec![0; size as usize];
        if !self.source.read(at, &mut stored) {
            return None;
        }
        let page = match flags & (flag::ZLIB | flag::LZO | flag::SNAPPY | flag::ZSTD) {
            0 => stored,
            flag::ZLIB => unpacked(ZlibDecoder::new(stored.as_slice()))?,
            flag::LZO => {
                let mut page = vec![0; PAGE as usize];
                let size = lzokay::decompress::decompress(&stored, &mut page).ok()?;
                page.truncate(size);
                page
            }
            flag::SNAPPY => snappy(&stored)?,
            flag::ZSTD => unpacked(StreamingDecoder::new(stored.as_slice()).ok()?)?,
            _ => return None,
        };
        (page.len() as u64 == PAGE).then(|| page.into_boxed_slice())
    }
}

/// The ways of compression by their flags.
const WAYS: [(&str, u32); 5] = [
    ("uncompressed", 0),
    ("zlib", flag::ZLIB),
    ("lzo", flag::LZO),
    ("snappy", flag::SNAPPY),
    ("zstd", flag::ZSTD),
];

/// A page that snappy has compressed.
fn snappy(stored: &[u8]) -> Option<Vec<u8>> {
    let mut page = vec![0; PAGE as usize];
    // The size comes first; a larger one is refused before anything is written.
    let fits = snap::raw::decompress_len(stored).is_ok_and(|size| size <= page.len());
    let size = fits.then(|| snap::raw::Decoder::new().decompress(stored, &mut page).ok())??;
    page.truncate(size);
    Some(page)
}

/// A page from its compressed form; `None` if that is damaged or holds more.
fn unpacked(from: impl Read) -> Option<Vec<u8>> {
    let mut page = Vec::new();
    from.take(PAGE + 1).read_to_end(&mut page).ok()?;
    Some(page)
}
