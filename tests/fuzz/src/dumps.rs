//! The target of crash dumps.

use crate::Checks;
use std::io::Cursor;
use std::sync::OnceLock;
use trapline_session::trapline_dump::notes::Registers;
use trapline_session::trapline_dump::{MachineHead, Mapped};
use trapline_session::trapline_emu::{PAGE, PhysMem};
use trapline_session::{Compression, DumpFile, Vmcore};

/// Pages of the machine that is dumped.
const PAGES: u64 = 12;

/// Memory with pages of every kind.
struct Memory;

impl PhysMem for Memory {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        for (at, byte) in (paddr..).zip(to.iter_mut()) {
            let page = at / PAGE;
            *byte = if page.is_multiple_of(3) { 0 } else { (at.wrapping_mul(page * page) >> 3) as u8 };
        }
        paddr < PAGES * PAGE
    }
}

/// A dump in this format, of a machine of 64 or 32 bits.
fn written(wide: bool, compression: Compression) -> Vec<u8> {
    let mapped = |paddr: u64, size: u64| Mapped { paddr, size, vaddr: Some(0xc000_0000 + paddr) };
    let registers = Registers { gpr: [7; 16], ip: 9, flags: 2, selectors: [8; 6], bases: [0; 2] };
    let head = MachineHead {
        wide,
        kernel: Some(mapped(5 * PAGE, PAGE)),
        memory: vec![mapped(0, 3 * PAGE), mapped(4 * PAGE, (PAGES - 4) * PAGE)],
        registers,
        pid: 1,
        vmcoreinfo: Some(b"OSRELEASE=6.1\n".to_vec()),
    };
    let mut file = Cursor::new(Vec::new());
    Vmcore { head, memory: &Memory }.write(&mut file, compression).unwrap();
    file.into_inner()
}

/// The same in makedumpfile's flattened form, in pieces of an odd size.
fn flattened(bytes: &[u8]) -> Vec<u8> {
    let mut stream = b"makedumpfile\0\0\0\0".to_vec();
    stream.resize(PAGE as usize, 0);
    for (n, piece) in bytes.chunks(1999).enumerate() {
        stream.extend((n as i64 * 1999).to_be_bytes());
        stream.extend((piece.len() as i64).to_be_bytes());
        stream.extend(piece);
    }
    stream.extend([0xff; 16]);
    stream
}

/// Dumps in every format.
fn files() -> &'static [Vec<u8>] {
    static FILES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FILES.get_or_init(|| {
        let kinds = [Compression::None, Compression::Zlib, Compression::Zstd];
        let plain: Vec<Vec<u8>> =
            [true, false].into_iter().flat_map(|wide| kinds.map(|kind| written(wide, kind))).collect();
        plain.iter().map(|file| flattened(file)).chain(plain.iter().cloned()).collect()
    })
}

/// The first byte chooses a file; then four bytes each change one byte of it: where (three bytes), and how.
fn changed(bytes: &[u8]) -> Vec<u8> {
    let files = files();
    let (first, edits) = bytes.split_first().unwrap_or((&0, &[]));
    let mut file = files[usize::from(*first) % files.len()].clone();
    for edit in edits.chunks_exact(4) {
        let at = u32::from_le_bytes([edit[0], edit[1], edit[2] % 2, 0]) as usize % file.len();
        file[at] = file[at].wrapping_add(edit[3]);
    }
    file
}

/// Reads a file; whatever its content, the result is a dump or a one-sentence error.
fn read(file: Vec<u8>) {
    match DumpFile::from_bytes(file) {
        Err(error) => assert!(!error.to_string().contains('\n')),
        Ok(dump) => {
            let info = dump.info();
            assert!(info.cpus.len() <= 1 << 13);
            for range in info.memory.iter().take(4) {
                dump.read(range.paddr, &mut [0; 5000]);
                dump.read(range.end().wrapping_sub(10), &mut [0; 20]);
            }
        }
    }
}

pub fn dump(bytes: &[u8], _: Checks) {
    read(bytes.to_vec());
    read(changed(bytes));
}
