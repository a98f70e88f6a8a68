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

#[test]
fn pages_of_zeros_are_holes_of_an_elf_core_and_one_page_of_a_compressed_one() {
    let memory = Pages(vec![0; 1 << 20]);
    let vmcore = Vmcore { head: head(true, 256), memory: &memory };
    let dump = opened(&written(&vmcore, Compression::Zlib)).unwrap();
    assert_eq!(dump.info().compressed, [("zlib", 255)]);
    assert!(written(&vmcore, Compression::Zlib).len() < 8 * 4096 + 255 * 24);
}
