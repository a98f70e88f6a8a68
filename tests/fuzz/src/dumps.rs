//! The target of crash dumps.

use crate::{Checks, Part};
use std::cell::RefCell;
use std::io::Cursor;
use std::sync::{Arc, Mutex, OnceLock};
use trapline_session::trapline_dump::notes::Registers;
use trapline_session::trapline_dump::{MachineHead, Mapped};
use trapline_session::trapline_emu::{CpuState, PAGE, PhysMem};
use trapline_session::trapline_os::kernel_log;
use trapline_session::{
    Compression, Condition, DumpFile, DumpInfo, GuestBuilder, Limits, Listing, Look, Session, Vmcore, Wanted,
};

/// Pages of the machine that is dumped. Few, because each execution copies the file.
const PAGES: u64 = 6;

/// Memory with pages of every kind: zeros, one value, and many values in the last one, which takes longest to unpack.
struct Memory;

impl PhysMem for Memory {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        for (at, byte) in (paddr..).zip(to.iter_mut()) {
            let page = at / PAGE;
            *byte = match page {
                _ if page.is_multiple_of(3) => 0,
                5 => (at.wrapping_mul(page * page) >> 3) as u8,
                _ => page as u8,
            };
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
        memory: vec![mapped(0, 2 * PAGE), mapped(3 * PAGE, (PAGES - 3) * PAGE)],
        registers,
        cpu: CpuState { control: [1, 0, 5 * PAGE, 0], ip: 9, ..CpuState::default() },
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

/// Four bytes again and again, a page of them, as LZO packs them: the bytes, and a copy of 33 + 15 * 255 + 234 bytes from 4
/// bytes before.
fn lzo() -> Vec<u8> {
    let mut packed = b"\x15page\x20".to_vec();
    packed.extend([0; 15]);
    packed.extend([234, 3 << 2, 0, 0x11, 0, 0]);
    packed
}

/// The same page as snappy packs it: its size, the bytes, 63 copies of 64 bytes and one of 60.
fn snappy() -> Vec<u8> {
    let mut packed = b"\x80\x20\x0cpage".to_vec();
    (0..63).for_each(|_| packed.extend([63 << 2 | 2, 4, 0]));
    packed.extend([59 << 2 | 2, 4, 0]);
    packed
}

/// A compressed dump of 64 bits whose first two stored pages are packed in another way, which our writer does not know.
fn repacked(packed: &[u8], flag: u32) -> Vec<u8> {
    let mut file = written(true, Compression::Zlib);
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    // The header, the second header, and the bitmaps come before the descriptors.
    let descriptors = (1 + word(432) + word(436)) * PAGE as usize;
    let place = file.len() as u64;
    for descriptor in file[descriptors..descriptors + 48].chunks_mut(24) {
        descriptor[..8].copy_from_slice(&place.to_le_bytes());
        descriptor[8..12].copy_from_slice(&(packed.len() as u32).to_le_bytes());
        descriptor[12..16].copy_from_slice(&flag.to_le_bytes());
    }
    file.extend(packed);
    let mut page = [0; PAGE as usize];
    assert!(
        DumpFile::from_bytes(file.clone()).unwrap().read(PAGE, &mut page) && page.starts_with(b"pagepage")
    );
    file
}

/// Dumps in every format.
fn files() -> &'static [Vec<u8>] {
    static FILES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FILES.get_or_init(|| {
        let kinds = [Compression::None, Compression::Zlib, Compression::Zstd];
        let mut files: Vec<Vec<u8>> =
            [true, false].into_iter().flat_map(|wide| kinds.map(|kind| written(wide, kind))).collect();
        files.extend([repacked(&lzo(), 2), repacked(&snappy(), 4)]);
        files.iter().map(|file| flattened(file)).chain(files.iter().cloned()).collect()
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
fn read(file: Vec<u8>, checks: Checks) {
    match DumpFile::from_bytes(file) {
        Err(error) => assert!(!error.to_string().contains('\n')),
        Ok(dump) => {
            let info = dump.info();
            assert!(info.cpus.len() <= 1 << 13);
            for range in info.memory.iter().take(2) {
                dump.read(range.paddr, &mut [0; 20]);
                // The end of one page and the beginning of the next; then what is not there.
                if checks.have(Part::OtherWidth) {
                    dump.read(range.paddr.wrapping_add(PAGE - 20), &mut [0; 40]);
                    dump.read(range.end().wrapping_sub(10), &mut [0; 20]);
                }
            }
        }
    }
}

/// The guest whose memory is listed, and how much memory it has.
const GUEST: &str = "embedded:x86_64";
const MEMORY: u64 = 32 << 20;

/// The memory of a guest's dump, some bytes of which have other values.
#[derive(Clone, Default)]
struct Edited(Arc<Mutex<Vec<(u64, u8)>>>);

/// A guest that has run for a while: its dump.
fn whole() -> &'static (Vec<u8>, DumpInfo) {
    static WHOLE: OnceLock<(Vec<u8>, DumpInfo)> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let mut session = GuestBuilder::image(GUEST).memory(MEMORY).start().unwrap();
        session.run_until(&Condition::end(), &Limits::insns(3_000_000));
        let mut file = Cursor::new(Vec::new());
        session.vmcore().write(&mut file, Compression::None).unwrap();
        let dump = DumpFile::from_bytes(file.into_inner()).unwrap();
        let mut memory = vec![0; MEMORY as usize];
        for range in dump.info().memory {
            let part = &mut memory[range.paddr as usize..range.end() as usize];
            assert!(dump.read(range.paddr, part));
        }
        (memory, dump.info())
    })
}

impl PhysMem for Edited {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        let Some(from) = whole().0.get(paddr as usize..).and_then(|rest| rest.get(..to.len())) else {
            return false;
        };
        to.copy_from_slice(from);
        for (at, value) in self.0.lock().unwrap().iter() {
            if let Some(byte) = at.checked_sub(paddr).and_then(|at| to.get_mut(at as usize)) {
                *byte = *value;
            }
        }
        true
    }
}

thread_local! {
    /// The machine of that dump, made once: only its memory changes.
    static MACHINE: RefCell<Option<(Edited, Session)>> = const { RefCell::new(None) };
}

/// Lists what is in a guest's memory with some bytes changed: the lists are bounded.
fn list(bytes: &[u8]) {
    let edits = bytes.chunks_exact(5).take(64).map(|edit| {
        let near = u64::from(u32::from_le_bytes([edit[0], edit[1], edit[2], edit[3] & 1]));
        // Most of the guest is in its first 2 MiB from 1 MiB on.
        ((1 << 20) + near % (2 << 20), edit[4])
    });
    MACHINE.with_borrow_mut(|machine| {
        let (memory, session) = machine.get_or_insert_with(|| {
            let memory = Edited::default();
            let look = Look { symbols: Some(GUEST.to_owned()), ..Look::default() };
            let session = Session::of_memory(Box::new(memory.clone()), &whole().1, &look).unwrap().1;
            (memory, session)
        });
        *memory.0.lock().unwrap() = edits.collect();
        let target = Arc::clone(session.target());
        for wanted in [Wanted::Processes, Wanted::Modules] {
            let found = session.present(|present| Listing::find(&target, Some(present), &wanted)).unwrap();
            assert!(found.len() <= 4096);
        }
        let stacks = session.stacks(16);
        assert!(stacks.len() <= 4097 && stacks.iter().all(|stack| stack.frames.len() <= 16));
    });
}

/// The description of a kernel with a log at the beginning of its memory.
const DESCRIPTION: &str = "SYMBOL(prb)=0
OFFSET(printk_ringbuffer.desc_ring)=0
OFFSET(printk_ringbuffer.text_data_ring)=32
OFFSET(prb_desc_ring.count_bits)=8
OFFSET(prb_desc_ring.descs)=12
OFFSET(prb_desc_ring.infos)=16
OFFSET(prb_desc_ring.head_id)=20
OFFSET(prb_desc_ring.tail_id)=24
SIZE(prb_desc)=12
OFFSET(prb_desc.state_var)=0
OFFSET(prb_desc.text_blk_lpos)=4
OFFSET(prb_data_blk_lpos.begin)=0
OFFSET(prb_data_blk_lpos.next)=4
SIZE(printk_info)=16
OFFSET(printk_info.ts_nsec)=0
OFFSET(printk_info.text_len)=8
OFFSET(prb_data_ring.size_bits)=0
OFFSET(prb_data_ring.data)=4
OFFSET(atomic_long_t.counter)=0
";

/// Reads the log of a kernel whose memory is these bytes, again and again.
fn log(bytes: &[u8]) {
    let read = |va: u64, to: &mut [u8]| {
        for (at, byte) in (va..).zip(to.iter_mut()) {
            *byte = bytes.get(at as usize % bytes.len().max(1)).copied().unwrap_or(0);
        }
        va < 1 << 20
    };
    match kernel_log(DESCRIPTION.as_bytes(), false, &read) {
        Ok(log) => assert!(log.is_empty() || log.ends_with(b"\n")),
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
}

pub fn dump(bytes: &[u8], checks: Checks) {
    read(bytes.to_vec(), checks);
    read(changed(bytes), checks);
    if checks.have(Part::Printed) {
        log(bytes);
    }
    // It costs a hundred times as much as the rest.
    if checks.have(Part::Run) && checks.have(Part::Shown) {
        list(bytes);
    }
}
