//! Writing dumps.

use std::io::{self, Seek, SeekFrom, Write};

use flate2::Compression as Level;
use flate2::write::ZlibEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use trapline_emu::PAGE;

use crate::elf::{self, PF_R, PF_W, PF_X, Segment};
use crate::kdump::{BLOCK, DESCRIPTOR, Layout, NARROW, SIGNATURE, UTSNAME, VERSION, WIDE, field, flag};
use crate::mapped::Mapped;
use crate::pages::is_zero;
use crate::vmcore::Vmcore;

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;

/// How the pages of a dump are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// An ELF core.
    #[default]
    None,
    /// The format of makedumpfile, with pages compressed by zlib.
    Zlib,
    /// The same, by Zstandard.
    Zstd,
}

impl Vmcore<'_> {
    /// Writes the dump. Pages that are zero become holes in an ELF core.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, to: &mut (impl Write + Seek), compression: Compression) -> io::Result<()> {
        match compression {
            Compression::None => self.write_elf(to),
            Compression::Zlib => self.write_compressed(to, flag::ZLIB, zlib),
            Compression::Zstd => self.write_compressed(to, flag::ZSTD, zstd),
        }
    }

    fn write_elf(&self, to: &mut (impl Write + Seek)) -> io::Result<()> {
        to.write_all(&elf::head(elf::Of::Machine, self.head.wide, &self.head.notes(), &self.segments()))?;
        let mut sparse = Sparse { to, hole: 0 };
        let mut piece = vec![0; PIECE as usize];
        for range in &self.head.memory {
            for at in (range.paddr..range.end()).step_by(PIECE as usize) {
                let part = &mut piece[..(range.end() - at).min(PIECE) as usize];
                self.fill(at, part);
                sparse.write(part)?;
            }
        }
        sparse.end()
    }

    /// The kernel's image as a part of the memory, then the memory: the order of kdump.
    fn segments(&self) -> Vec<Segment> {
        let segment = |range: &Mapped, shares| Segment {
            vaddr: range.vaddr.unwrap_or(u64::MAX),
            paddr: range.paddr,
            size: range.size,
            flags: PF_R | PF_W | PF_X,
            shares,
        };
        let mut before = 0;
        let mut kernel = None;
        for range in &self.head.memory {
            let inside = |k: &&Mapped| range.paddr <= k.paddr && k.end() <= range.end();
            if let Some(k) = self.head.kernel.as_ref().filter(inside) {
                kernel = Some(segment(k, Some(before + (k.paddr - range.paddr))));
            }
            before += range.size;
        }
        kernel.into_iter().chain(self.head.memory.iter().map(|range| segment(range, None))).collect()
    }

    /// Reads memory; what is not there is zero.
    fn fill(&self, paddr: u64, to: &mut [u8]) {
        if self.memory.read(paddr, to) {
            return;
        }
        for (n, page) in to.chunks_mut(PAGE as usize).enumerate() {
            if !self.memory.read(paddr + n as u64 * PAGE, page) {
                page.fill(0);
            }
        }
    }

    fn write_compressed(
        &self,
        to: &mut (impl Write + Seek),
        flags: u32,
        compress: fn(&[u8]) -> io::Result<Vec<u8>>,
    ) -> io::Result<()> {
        let head = self.compressed_head();
        to.write_all(&head)?;
        let descriptors_at = head.len() as u64;
        let pages = self.head.bytes() / PAGE;
        let mut at = descriptors_at + pages * DESCRIPTOR;
        to.seek(SeekFrom::Start(at))?;
        let mut descriptors = Vec::with_capacity((pages * DESCRIPTOR) as usize);
        // One stored page stands for all that are zero.
        let mut zero = None;
        let mut page = [0; PAGE as usize];
        for paddr in
            self.head.memory.iter().flat_map(|range| (range.paddr..range.end()).step_by(PAGE as usize))
        {
            self.fill(paddr, &mut page);
            let is_zero = is_zero(&page);
            if let Some(descriptor) = zero.filter(|_| is_zero) {
                descriptors.extend(descriptor);
                continue;
            }
            let packed = compress(&page)?;
            let (stored, flags) =
                if packed.len() < page.len() { (&packed[..], flags) } else { (&page[..], 0) };
            to.write_all(stored)?;
            let descriptor = descriptor(at, stored.len(), flags);
            zero = zero.or(is_zero.then_some(descriptor));
            descriptors.extend(descriptor);
            at += stored.len() as u64;
        }
        to.seek(SeekFrom::Start(descriptors_at))?;
        to.write_all(&descriptors)?;
        to.flush()
    }

    /// The headers, the notes and the bitmaps.
    fn compressed_head(&self) -> Vec<u8> {
        let layout = if self.head.wide { WIDE } else { NARROW };
        let frames = self.head.memory.iter().map(|range| range.end() / PAGE).max().unwrap_or(0);
        let bitmap_blocks = frames.div_ceil(8 * BLOCK);
        let notes = self.head.notes();
        let second_blocks = (layout.second as u64 + notes.len() as u64).div_ceil(BLOCK);
        let mut bytes = vec![0; ((1 + second_blocks + 2 * bitmap_blocks) * BLOCK) as usize];
        self.put_header(&mut bytes, layout, (second_blocks, 2 * bitmap_blocks, frames));
        let second = BLOCK as usize;
        let notes_at = second + layout.second;
        bytes[notes_at..notes_at + notes.len()].copy_from_slice(&notes);
        let mut place = |(offset, size): (usize, usize), at: u64, length: usize| {
            put(&mut bytes, second + offset, at, 8);
            put(&mut bytes, second + size, length as u64, if layout.wide { 8 } else { 4 });
        };
        place(layout.note, notes_at as u64, notes.len());
        if let Some(text) = &self.head.vmcoreinfo {
            // The last note, whose content ends with it but for its padding.
            let padded = text.len().next_multiple_of(4);
            place(layout.vmcoreinfo, (notes_at + notes.len() - padded) as u64, text.len());
        }
        put(&mut bytes, second + layout.frames + 8, frames, 8);
        put(&mut bytes, second + layout.frames + 16, frames, 8);
        let first_bitmap = ((1 + second_blocks) * BLOCK) as usize;
        for frame in self.head.memory.iter().flat_map(|range| range.paddr / PAGE..range.end() / PAGE) {
            for bitmap in [first_bitmap, first_bitmap + (bitmap_blocks * BLOCK) as usize] {
                bytes[bitmap + frame as usize / 8] |= 1 << (frame % 8);
            }
        }
        bytes
    }

    fn put_header(&self, bytes: &mut [u8], layout: Layout, (second, bitmaps, frames): (u64, u64, u64)) {
        bytes[..SIGNATURE.len()].copy_from_slice(&SIGNATURE);
        put(bytes, SIGNATURE.len(), VERSION.into(), 4);
        let machine = if layout.wide { "x86_64" } else { "i686" };
        let release = self.head.described("OSRELEASE").unwrap_or_default();
        let system = if self.head.vmcoreinfo.is_some() { "Linux" } else { "" };
        for (n, text) in [system, "", &release, "", machine, ""].into_iter().enumerate() {
            let (at, size) = (UTSNAME.0 + n * UTSNAME.1, text.len().min(UTSNAME.1 - 1));
            bytes[at..at + size].copy_from_slice(&text.as_bytes()[..size]);
        }
        let pages = self.head.bytes() / PAGE;
        let fields = [
            (field::BLOCK_SIZE, BLOCK),
            (field::SECOND_BLOCKS, second),
            (field::BITMAP_BLOCKS, bitmaps),
            (field::MAX_MAPNR, frames),
            (field::RAM_BLOCKS, pages),
            (field::CPUS, 1),
        ];
        for (number, value) in fields {
            put(bytes, layout.status + 4 * number, value, 4);
        }
    }
}

/// Writes the low bytes of a number, little-endian.
fn put(bytes: &mut [u8], at: usize, value: u64, size: usize) {
    bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

/// Place, size, flags, and page flags, of which there are none.
fn descriptor(at: u64, size: usize, flags: u32) -> [u8; DESCRIPTOR as usize] {
    let mut bytes = [0; DESCRIPTOR as usize];
    put(&mut bytes, 0, at, 8);
    put(&mut bytes, 8, size as u64, 4);
    put(&mut bytes, 12, flags.into(), 4);
    bytes
}

fn zlib(page: &[u8]) -> io::Result<Vec<u8>> {
    // makedumpfile and kexec-tools use the fastest level too.
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(page.len()), Level::fast());
    encoder.write_all(page)?;
    encoder.finish()
}

fn zstd(page: &[u8]) -> io::Result<Vec<u8>> {
    Ok(compress_to_vec(page, CompressionLevel::Fastest))
}

/// A file in which pages of zeros become holes.
struct Sparse<'a, W> {
    to: &'a mut W,
    /// Bytes of zeros that were passed over.
    hole: u64,
}

impl<W: Write + Seek> Sparse<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let pages = || rest.chunks(PAGE as usize);
            let zeros: usize = pages().take_while(|page| is_zero(page)).map(<[u8]>::len).sum();
            self.hole += zeros as u64;
            rest = &rest[zeros..];
            let full: usize =
                rest.chunks(PAGE as usize).take_while(|page| !is_zero(page)).map(<[u8]>::len).sum();
            if full > 0 {
                self.pass()?;
                self.to.write_all(&rest[..full])?;
                rest = &rest[full..];
            }
        }
        Ok(())
    }

    /// Goes past the hole.
    fn pass(&mut self) -> io::Result<()> {
        if self.hole > 0 {
            self.to.seek(SeekFrom::Current(self.hole as i64))?;
            self.hole = 0;
        }
        Ok(())
    }

    /// Gives the file its size.
    fn end(&mut self) -> io::Result<()> {
        if self.hole > 0 {
            self.hole -= 1;
            self.pass()?;
            self.to.write_all(&[0])?;
        }
        self.to.flush()
    }
}
