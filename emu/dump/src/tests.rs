//! Dumps of random memory in every format, read back; and damaged files.

use std::io::Cursor;

use proptest::collection::vec;
use proptest::prelude::*;
use trapline_emu::{CpuState, PAGE, PhysMem};

use crate::mapped::Mapped;
use crate::notes::Registers;
use crate::vmcore::{CrashDump, MachineHead, Vmcore};
use crate::{Compression, DumpError, DumpFile};

/// Memory of some pages; others cannot be read.
struct Pages(Vec<u8>);

impl PhysMem for Pages {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        let from = usize::try_from(paddr).ok().and_then(|at| self.0.get(at..at.checked_add(to.len())?));
        from.map(|from| to.copy_from_slice(from)).is_some()
    }
}

fn registers() -> Registers {
    Registers {
        gpr: std::array::from_fn(|n| 0x1000 + n as u64),
        ip: 0xc010_0000,
        flags: 0x202,
        selectors: [0x10, 0x18, 0x20, 0x28, 0x30, 0x38],
        bases: [0, 0],
    }
}

/// A machine with two ranges of memory, the second of which has the kernel's image.
fn head(wide: bool, pages: u64) -> MachineHead {
    let mapped = |paddr: u64, size: u64| Mapped { paddr, size, vaddr: Some(0xc000_0000 + paddr) };
    let low = pages / 3;
    let memory = vec![mapped(0, low * PAGE), mapped((low + 1) * PAGE, (pages - low - 1) * PAGE)];
    let kernel = Mapped { paddr: (low + 2) * PAGE, size: PAGE, vaddr: Some(0xe000_0000) };
    let info = b"OSRELEASE=6.1.0-test\nPAGESIZE=4096\n".to_vec();
    let mut registers = registers();
    if !wide {
        registers.gpr[8..].fill(0);
    }
    MachineHead {
        wide,
        kernel: Some(kernel),
        memory,
        registers,
        cpu: CpuState::default(),
        pid: 42,
        vmcoreinfo: Some(info),
    }
}

fn written(vmcore: &Vmcore<'_>, compression: Compression) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    vmcore.write(&mut file, compression).unwrap();
    file.into_inner()
}

fn opened(bytes: &[u8]) -> Result<DumpFile, DumpError> {
    DumpFile::from_bytes(bytes.to_vec())
}

/// The same dump as makedumpfile's stream of pieces, of which a later one replaces a part of an earlier one.
fn flattened(bytes: &[u8], piece: usize) -> Vec<u8> {
    let mut stream = b"makedumpfile\0\0\0\0".to_vec();
    stream.extend(1_i64.to_be_bytes());
    stream.extend(1_i64.to_be_bytes());
    stream.resize(4096, 0);
    let mut add = |at: usize, part: &[u8]| {
        stream.extend((at as i64).to_be_bytes());
        stream.extend((part.len() as i64).to_be_bytes());
        stream.extend(part);
    };
    add(piece / 2, &vec![0xaa; piece.min(bytes.len() - piece / 2)]);
    for (n, part) in bytes.chunks(piece).enumerate() {
        add(n * piece, part);
    }
    stream.extend((-1_i64).to_be_bytes());
    stream.extend((-1_i64).to_be_bytes());
    stream
}

fn memory(pages: u64, seed: &[u8]) -> Pages {
    let mut bytes = vec![0; (pages * PAGE) as usize];
    for (n, page) in bytes.chunks_mut(PAGE as usize).enumerate() {
        match seed.get(n % seed.len().max(1)).copied().unwrap_or(0) % 4 {
            0 => {}
            1 => page.fill(n as u8),
            2 => page[n % 4096] = 1,
            _ => {
                let mut x = n as u64 * 0x9e37_79b9 + 1;
                page.fill_with(|| {
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                    x as u8
                });
            }
        }
    }
    Pages(bytes)
}

/// Each dump of `vmcore` has its memory, its registers and what its kernel says of itself.
fn assert_read_back(vmcore: &Vmcore<'_>, pages: &Pages, bytes: &[u8]) {
    let dump = opened(bytes).unwrap();
    let info = dump.info();
    assert_eq!((info.wide, &info.vmcoreinfo), (vmcore.head.wide, &vmcore.head.vmcoreinfo));
    assert_eq!(info.cpus, [(vmcore.head.registers.clone(), 42)]);
    assert_eq!(info.pages.0, vmcore.head.bytes() / PAGE);
    for range in &vmcore.head.memory {
        let mut found = vec![0xff; range.size as usize];
        assert!(dump.read(range.paddr, &mut found));
        assert!(found == pages.0[range.paddr as usize..range.end() as usize]);
        assert!(
            !dump.read(range.end(), &mut [0]) || vmcore.head.memory.iter().any(|r| r.paddr == range.end())
        );
    }
    assert!(!dump.read(u64::MAX, &mut [0; 2]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_format_holds_the_memory_and_the_registers(
        wide: bool,
        pages in 6_u64..80,
        seed in vec(any::<u8>(), 1..40),
        piece in 100_usize..9000,
    ) {
        let memory = memory(pages, &seed);
        let vmcore = Vmcore { head: head(wide, pages), memory: &memory };
        for compression in [Compression::None, Compression::Zlib, Compression::Zstd] {
            let bytes = written(&vmcore, compression);
            assert_read_back(&vmcore, &memory, &bytes);
            assert_read_back(&vmcore, &memory, &flattened(&bytes, piece));
        }
        // A dump that was copied is written as the machine's own.
        let copy = CrashDump::copy(Vmcore { head: head(wide, pages), memory: &memory }, 7);
        prop_assert!(written(&copy.vmcore(), Compression::None) == written(&vmcore, Compression::None));
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_dump_is_refused_or_read(
        wide: bool,
        compression in prop_oneof![Just(Compression::None), Just(Compression::Zlib), Just(Compression::Zstd)],
        flat: bool,
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in any::<prop::sample::Index>(),
        cuts: bool,
    ) {
        let memory = memory(12, &[1, 2, 3]);
        let mut bytes = written(&Vmcore { head: head(wide, 12), memory: &memory }, compression);
        if flat {
            bytes = flattened(&bytes, 5000);
        }
        // Nearly all fields are in the first blocks.
        let most = bytes.len().min(3 * 4096);
        for (at, byte) in flips {
            bytes[at.index(most)] = byte;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        match opened(&bytes) {
            Ok(dump) => {
                let info = dump.info();
                for range in info.memory.iter().take(8) {
                    dump.read(range.paddr, &mut [0; 5000]);
                    dump.read(range.end().wrapping_sub(10), &mut [0; 20]);
                }
            }
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }
}

#[test]
fn other_files_are_refused_with_a_sentence() {
    for (bytes, sentence) in [
        (
            &b"hello, world"[..],
            "its first bytes are 68 65 6c 6c: this is no ELF core, no compressed dump of kdump and no flattened dump of \
             makedumpfile",
        ),
        (b"\x7fELF\x02", "the ELF header ends at byte 0x40, but the file has 0x5 bytes"),
        (b"KDUMP   ", "the header ends at byte 0x200, but the file has 0x8 bytes"),
    ] {
        assert_eq!(opened(bytes).err().unwrap().to_string(), sentence);
    }
}

/// The first piece of memory of an ELF core of 64 bits: its program header follows that of the notes.
const LOAD: usize = 64 + 56;

#[test]
fn what_a_file_claims_beyond_its_end_is_not_searched() {
    let memory = memory(12, &[1, 2, 3]);
    let whole = written(&Vmcore { head: head(true, 12), memory: &memory }, Compression::None);
    let bytes =
        |ranges: Vec<std::ops::Range<u64>>| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
    let memory_bytes = bytes(opened(&whole).unwrap().stored());
    // Memory that is not in the file, as if makedumpfile had left it out.
    let mut large = whole.clone();
    large[LOAD + 40..LOAD + 48].copy_from_slice(&(1_u64 << 56).to_le_bytes());
    assert_eq!(bytes(opened(&large).unwrap().stored()), memory_bytes);
    // A dump that was cut short, and one that claims to be.
    for (at, value) in [(40, 1_u64 << 56), (32, 1 << 56), (40, 1 << 56)] {
        large[LOAD + at..LOAD + at + 8].copy_from_slice(&value.to_le_bytes());
        assert!(opened(&large).is_err() || bytes(opened(&large).unwrap().stored()) <= large.len() as u64);
    }
    let cut = opened(&whole[..whole.len() - 4096]).unwrap();
    assert_eq!(bytes(cut.stored()), memory_bytes - 4096);
    // Pieces that share all of the file.
    let mut shared = whole.clone();
    for n in 0..3 {
        let place = [0_u64, u64::MAX, (n as u64) << 40, whole.len() as u64, whole.len() as u64];
        for (field, value) in place.into_iter().enumerate() {
            let at = LOAD + 56 * n + 8 + 8 * field;
            shared[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    let sentence = opened(&shared).err().unwrap().to_string();
    assert!(sentence.ends_with("the file has fewer bytes"), "{sentence}");
    // Of a compressed dump the pages whose descriptors are there.
    let packed = written(&Vmcore { head: head(true, 12), memory: &memory }, Compression::Zlib);
    assert_eq!(bytes(opened(&packed).unwrap().stored()), memory_bytes);
    let descriptors = packed.len() - packed.len() % 4096;
    assert!(bytes(opened(&packed[..descriptors.min(4 * 4096 + 50)]).unwrap().stored()) <= 2 * 4096);
}

/// The dump that a small flattened file describes may be large; what is read of it is not.
#[test]
fn a_part_of_a_flattened_dump_is_not_longer_than_its_file() {
    let memory = memory(12, &[1, 2, 3]);
    let mut bytes = written(&Vmcore { head: head(true, 12), memory: &memory }, Compression::Zlib);
    // `bitmap_blocks`, and `max_mapnr_64` in the second header.
    bytes[436..440].copy_from_slice(&(1_u32 << 17).to_le_bytes());
    bytes[4096 + 96..4096 + 104].copy_from_slice(&(1_u64 << 31).to_le_bytes());
    let mut stream = flattened(&bytes, 5000);
    let end = stream.len() - 16;
    let far: Vec<u8> = [1_i64 << 40, 1].into_iter().flat_map(i64::to_be_bytes).chain([7]).collect();
    stream.splice(end..end, far);
    let sentence = opened(&stream).err().unwrap().to_string();
    let expected = format!("a bitmap ends at byte 0x10002000, but the file has {:#x} bytes", stream.len());
    assert_eq!(sentence, expected);
}

#[test]
fn pages_of_zeros_are_holes_of_an_elf_core_and_one_page_of_a_compressed_one() {
    let memory = Pages(vec![0; 1 << 20]);
    let vmcore = Vmcore { head: head(true, 256), memory: &memory };
    let dump = opened(&written(&vmcore, Compression::Zlib)).unwrap();
    assert_eq!(dump.info().compressed, [("zlib", 255)]);
    assert!(written(&vmcore, Compression::Zlib).len() < 8 * 4096 + 255 * 24);
}
