//! Dumps: writing one against the disk and the compressors alone, and channels out of a large one against reading it.

use super::table::{Row, Target, median};
use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Instant;

use flate2::write::ZlibEncoder;
use trapline_session::trapline_dti as dti;
use trapline_session::trapline_dump::Mapped;
use trapline_session::trapline_emu::{PAGE, PhysMem};
use trapline_session::{Compression, DumpFile, GuestBuilder, Session, Vmcore};

/// Memory of the machine that is dumped.
const MEMORY: u64 = 256 << 20;
/// The large dump, and its channels.
const LARGE: u64 = 4 << 30;
const CHANNELS: u64 = 64;
const CHANNEL: u64 = 1 << 20;
/// Bytes that are read at a time.
const WINDOW: usize = 1 << 20;

/// Memory of which each page has content of its own, which compresses as a kernel's does: to a half.
struct Busy;

impl PhysMem for Busy {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        for (n, word) in to.chunks_mut(8).enumerate() {
            let at = paddr / 8 + n as u64;
            let mixed = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let value = if at % 4 < 2 { mixed } else { at / 512 };
            word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
        }
        true
    }
}

/// What a dump of a machine with this memory has.
fn head(session: &Session) -> trapline_session::trapline_dump::MachineHead {
    session.vmcore().head
}

fn seconds(run: impl FnOnce() -> io::Result<()>) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    run()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Writes the memory and nothing else, through `write` for each page.
fn alone(to: &Path, mut pack: impl FnMut(&[u8], &mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(to)?);
    let mut piece = vec![0; WINDOW];
    let mut packed = Vec::new();
    for at in (0..MEMORY).step_by(WINDOW) {
        Busy.read(at, &mut piece);
        for page in piece.chunks(PAGE as usize) {
            packed.clear();
            pack(page, &mut packed)?;
            file.write_all(&packed)?;
        }
    }
    file.flush()
}

fn zlib(page: &[u8], to: &mut Vec<u8>) -> io::Result<()> {
    let mut encoder = ZlibEncoder::new(to, flate2::Compression::fast());
    encoder.write_all(page)?;
    encoder.finish().map(drop)
}

fn plain(page: &[u8], to: &mut Vec<u8>) -> io::Result<()> {
    to.extend_from_slice(page);
    Ok(())
}

/// How fast a dump is written, against the disk and the compressor alone.
fn writing(folder: &Path, rounds: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let session = GuestBuilder::embedded("x86_64").memory(MEMORY).start()?;
    let (ours, others) = (folder.join("vmcore"), folder.join("alone"));
    type Pack = fn(&[u8], &mut Vec<u8>) -> io::Result<()>;
    let kinds: [(&str, Compression, Pack, &'static str); 2] = [
        ("   256 MiB as an ELF core", Compression::None, plain, "the disk alone"),
        ("   256 MiB compressed by zlib", Compression::Zlib, zlib, "zlib alone"),
    ];
    let mut rows = Vec::new();
    for (what, compression, pack, of) in kinds {
        let (mut times, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..rounds.min(5) {
            let took = seconds(|| {
                let mut file = BufWriter::with_capacity(1 << 20, File::create(&ours)?);
                Vmcore { head: head(&session), memory: &Busy }.write(&mut file, compression)
            })?;
            let without = seconds(|| alone(&others, pack))?;
            times.push(took);
            ratios.push(without / took);
        }
        rows.push(Row::plain(what, median(times), "s").against(median(ratios), of, Target::AtLeast(0.5)));
    }
    Ok(rows)
}

/// The pages of a channel with one ring that is full of records of 118 bytes, at a physical address, mapped where it is.
fn channel(n: u64, paddr: u64) -> Vec<u8> {
    let (subbuf, subbufs) = (CHANNEL / 8, 8_u64);
    let data_pages = CHANNEL / PAGE;
    let head_bytes = |pages: u64| 104 + 8 * pages + 8 + 32 + 8 * subbufs;
    let head_pages = head_bytes(data_pages + 1).div_ceil(PAGE);
    let pages = data_pages + head_pages;
    let rings = 104 + 8 * pages;
    let mut bytes = vec![0; (pages * PAGE) as usize];
    let mut put = |at: u64, from: &[u8]| bytes[at as usize..at as usize + from.len()].copy_from_slice(from);
    put(0, &(paddr + rings).to_le_bytes());
    put(8, b"__DTI__");
    put(15, format!("channel{n}").as_bytes());
    put(63, &[1, 8, 1, 1, 0]);
    put(68, &(subbuf as u32).to_le_bytes());
    put(72, &(subbufs as u32).to_le_bytes());
    put(76, &7_u32.to_le_bytes());
    put(80, &(paddr + 8).to_le_bytes());
    put(96, &(pages as u32).to_le_bytes());
    (0..pages).for_each(|page| put(104 + 8 * page, &(paddr + page * PAGE).to_le_bytes()));
    put(rings, &(subbuf as u32).to_le_bytes());
    put(rings + 4, &(subbufs as u32).to_le_bytes());
    let ring = rings + 8;
    put(ring, &(paddr + head_pages * PAGE).to_le_bytes());
    put(ring + 8, &(subbufs as u32 - 1).to_le_bytes());
    for index in 0..subbufs {
        put(ring + 32 + 8 * index, &(index as u32).to_le_bytes());
        put(ring + 36 + 8 * index, &(subbuf as u32).to_le_bytes());
        for record in 0..subbuf / 128 {
            let at = head_pages * PAGE + index * subbuf + record * 128;
            put(at, &118_u16.to_le_bytes());
            put(at + 2, &(1 + index * subbuf + record).to_le_bytes());
        }
    }
    bytes
}

/// Channels out of a large dump, against reading the memory of the dump once.
fn extraction(folder: &Path, rounds: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let path = folder.join("large");
    let session = GuestBuilder::embedded("x86_64").memory(MEMORY).start()?;
    let memory = vec![Mapped { paddr: 0, size: LARGE, vaddr: None }];
    let head = trapline_session::trapline_dump::MachineHead { memory, kernel: None, ..head(&session) };
    struct Channels;
    impl PhysMem for Channels {
        fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
            to.fill(0);
            let space = LARGE / CHANNELS;
            let (n, into) = (paddr / space, paddr % space);
            let bytes = if into <= 2 * CHANNEL { channel(n, n * space + PAGE) } else { Vec::new() };
            // The channel begins one page into its space.
            for (at, byte) in (into..).zip(to.iter_mut()) {
                let found = at.checked_sub(PAGE).and_then(|at| bytes.get(at as usize));
                *byte = found.copied().unwrap_or(0);
            }
            true
        }
    }
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&path)?);
    Vmcore { head, memory: &Channels }.write(&mut file, Compression::None)?;
    file.seek(SeekFrom::End(0))?;
    drop(file);
    let dump = DumpFile::open(&path)?;
    let read_once = || {
        let mut window = vec![0; WINDOW];
        seconds(|| {
            for at in (0..LARGE).step_by(WINDOW) {
                dump.read(at, &mut window);
                black_box(&window);
            }
            Ok(())
        })
    };
    // Both sides find the file in the host's memory.
    read_once()?;
    let (mut times, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..rounds.min(3) {
        let took = seconds(|| {
            let found = dti::find(&dump, &dump.stored());
            let bytes: usize = found
                .channels
                .iter()
                .map(|channel| channel.read(&dump).records().map(|record| record.data.len()).sum::<usize>())
                .sum();
            let expected = (CHANNELS * CHANNEL / 128 * 118) as usize;
            if bytes == expected {
                Ok(())
            } else {
                Err(io::Error::other(format!("{bytes} bytes of records")))
            }
        })?;
        let reading = read_once()?;
        times.push(took);
        ratios.push(took / reading);
    }
    let row = Row::plain("   64 channels of 1 MiB out of 4 GiB", median(times), "s");
    Ok(vec![row.against(median(ratios), "reading the dump", Target::AtMost(1.5))])
}

/// All rows.
///
/// # Errors
/// A file cannot be written or read.
pub fn rows(rounds: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("trapline-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let measured = writing(&folder, rounds).and_then(|mut rows| {
        rows.extend(extraction(&folder, rounds)?);
        Ok(rows)
    });
    std::fs::remove_dir_all(&folder)?;
    measured
}
