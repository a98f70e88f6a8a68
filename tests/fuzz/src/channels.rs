//! The target of channels in memory.

use crate::{Checks, Part};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use trapline_session::trapline_dti::{Channel, Cursor, View, find, json, show};
use trapline_session::trapline_emu::{PAGE, PhysMem};
use trapline_session::{Condition, GuestBuilder, Limits};

/// Where the embedded guests have their channels.
const START: usize = 0x10_0000;
const SIZE: usize = 0x10_0000;

/// Physical memory in a vector that begins at this address.
struct Memory {
    start: u64,
    bytes: Vec<u8>,
}

impl PhysMem for Memory {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        let Some(start) = paddr.checked_sub(self.start).and_then(|at| usize::try_from(at).ok()) else {
            return false;
        };
        match start.checked_add(to.len()).and_then(|end| self.bytes.get(start..end)) {
            Some(from) => {
                to.copy_from_slice(from);
                true
            }
            None => false,
        }
    }
}

/// Memory with channels, and what is searched of it: the pages of channels and handles.
struct Image {
    memory: Memory,
    ranges: Vec<Range<u64>>,
    /// Where the heads of channels, and the handles, are.
    heads: Vec<u64>,
}

/// The kernels of both widths, early and at the end, and channels of Linux.
fn images() -> Vec<Image> {
    let cases = [("dti", 400_000), ("dti", u64::MAX), ("dti-ia32", 400_000), ("dti-ia32", u64::MAX)];
    let embedded = cases.map(|(guest, limit)| embedded(guest, limit));
    embedded.into_iter().chain([8, 4].map(linux)).collect()
}

fn embedded(guest: &str, limit: u64) -> Image {
    let mut session = GuestBuilder::embedded(guest).memory(16 << 20).start().unwrap();
    session.run_until(&Condition::end(), &Limits::insns(limit));
    let bytes = session.core().ram().bytes()[START..START + SIZE].to_vec();
    let memory = Memory { start: START as u64, bytes };
    let all = START as u64..(START + SIZE) as u64;
    let found = find(&memory, std::slice::from_ref(&all));
    assert!(!found.channels.is_empty() && found.damaged.is_empty());
    let mut pages: BTreeSet<u64> = found.channels.iter().flat_map(Channel::pages).collect();
    let channels = found.channels.iter().map(Channel::paddr);
    let heads: Vec<u64> =
        channels.chain(found.unbound.iter().map(|handle| handle.paddr)).map(|at| at - 8).collect();
    pages.extend(heads.iter().map(|head| head - head % PAGE));
    let ranges = pages.into_iter().map(|page| page..page + PAGE).collect();
    Image { memory, ranges, heads }
}

/// Two CPUs, of which one has not been online, as dti.ko leaves them: the head in page 0, relay's structures in page 1, and
/// two pages of sub-buffers.
fn linux(word: usize) -> Image {
    const BASE: u64 = 0x1000;
    const VIRTUAL: u64 = 0xc000_0000;
    let mut bytes = vec![0; 4 * PAGE as usize];
    let mut put = |at: usize, value: u64, size: usize| {
        bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    };
    let (pages, subbuf, subbufs) = (5, 2048, 4);
    put(8 - word, VIRTUAL + PAGE, word);
    put(8, u64::from_le_bytes(*b"__DTI__l"), 8);
    put(8 + 55, 1 | (word as u64) << 8 | 4 << 16 | 2 << 24, 5);
    put(8 + 60, subbuf, 4);
    put(8 + 64, subbufs, 4);
    put(8 + 68, 7, 4);
    put(8 + 72, VIRTUAL + 8, 8);
    put(96, pages, 4);
    put(100, 1, 4);
    for (n, page) in [1, 3, 4].into_iter().enumerate() {
        put(104 + 8 * n, page * PAGE, 8);
    }
    let relay = 104 + 8 * pages as usize;
    put(relay, BASE + PAGE, 8);
    for (n, offset) in [0, 8, 0, 8, 16, 24, 32, 40, 48, 56].into_iter().enumerate() {
        put(relay + 8 + 2 * n, offset, 2);
    }
    put(relay + 32, BASE + PAGE + 64, 8);
    put(relay + 40, VIRTUAL + 2 * PAGE, 8);
    put(relay + 48, BASE + PAGE + 256, 8);
    let at = PAGE as usize;
    put(at, subbuf, word);
    put(at + 8, subbufs, word);
    // Sub-buffer 5 is the current one: the second time that index 1 is written to.
    let ring =
        [VIRTUAL + 2 * PAGE, VIRTUAL + 2 * PAGE + subbuf, 30, 5, 3, VIRTUAL + PAGE, VIRTUAL + PAGE + 256, 12];
    for (n, value) in ring.into_iter().enumerate() {
        put(at + 64 + 8 * n, value, word);
    }
    for n in 0..subbufs as usize {
        put(at + 256 + word * n, subbuf - 30, word);
        for record in 0..3 {
            let at = 2 * at + n * subbuf as usize + 10 * record;
            put(at + 2, 100 + n as u64, 8);
        }
    }
    let memory = Memory { start: BASE, bytes };
    let ranges: Vec<Range<u64>> = std::iter::once(BASE..BASE + 4 * PAGE).collect();
    let found = find(&memory, &ranges);
    assert_eq!((found.channels.len(), found.damaged.len()), (1, 0), "{:?}", found.damaged);
    assert_eq!(found.channels[0].read(&memory).records().count(), 12);
    Image { memory, ranges, heads: vec![BASE, BASE + PAGE] }
}

thread_local! {
    static IMAGES: RefCell<Vec<Image>> = RefCell::new(images());
}

/// Reads an image with changes, which are then undone. The first byte chooses it; then four bytes each change a byte near a
/// mark: which mark, where, and how.
fn read_changed(bytes: &[u8], checks: Checks) {
    IMAGES.with_borrow_mut(|images| {
        let (first, edits) = bytes.split_first().unwrap_or((&0, &[]));
        let count = images.len();
        let image = &mut images[usize::from(*first) % count];
        let mut undo = Vec::new();
        for edit in edits.chunks_exact(4) {
            let head = image.heads[usize::from(edit[0]) % image.heads.len()];
            let at = head + u64::from(u16::from_le_bytes([edit[1], edit[2]])) % (3 * PAGE);
            let at = (at - image.memory.start) as usize;
            if let Some(byte) = image.memory.bytes.get_mut(at) {
                undo.push((at, *byte));
                *byte = byte.wrapping_add(edit[3]);
            }
        }
        read(&image.memory, &image.ranges, checks);
        undo.into_iter().rev().for_each(|(at, byte)| image.memory.bytes[at] = byte);
    });
}

/// Reads everything; whatever the memory is, there are bounds on what is found.
fn read(memory: &Memory, ranges: &[Range<u64>], checks: Checks) {
    let size = memory.bytes.len() as u64;
    let found = find(memory, ranges);
    assert!(found.damaged.len() <= 100 && found.damaged.len() as u64 <= found.damaged_count);
    for damaged in &found.damaged {
        assert!(!damaged.damage.to_string().contains('\n'));
    }
    let mut cursor = Cursor::new();
    for channel in &found.channels {
        let contents = channel.read(memory);
        let whole = channel.pages().len() as u64 * PAGE;
        assert!(whole <= size.next_multiple_of(PAGE) + PAGE);
        let data: u64 = contents.records().map(|record| record.data.len() as u64 + 10).sum();
        assert!(data <= whole);
        if !checks.have(Part::Printed) {
            continue;
        }
        let fresh = cursor.fresh(channel, &contents);
        for record in fresh.records.iter().take(4) {
            let hex = json(channel.name(), record)["data"].as_str().map(str::len);
            assert_eq!(hex, Some(2 * record.data.len()));
            assert!(!show(record.data, View::Text).contains(char::is_control));
        }
        assert!(cursor.fresh(channel, &contents).records.is_empty());
    }
}

pub fn channels(bytes: &[u8], checks: Checks) {
    let all = 0..bytes.len() as u64;
    read(&Memory { start: 0, bytes: bytes.to_vec() }, std::slice::from_ref(&all), checks);
    read_changed(bytes, checks);
}
