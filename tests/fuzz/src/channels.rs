//! The target of channels in memory.

use crate::Checks;
use std::sync::OnceLock;
use trapline_session::trapline_dti::{Cursor, View, find, json, show};
use trapline_session::trapline_emu::{PAGE, PhysMem};
use trapline_session::{Condition, GuestBuilder, Limits};

/// Where the embedded guests have their channels.
const START: usize = 0x10_0000;
const SIZE: usize = 0x10_0000;

/// Physical memory in a vector.
struct Memory(Vec<u8>);

impl PhysMem for Memory {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        let Ok(start) = usize::try_from(paddr) else { return false };
        match start.checked_add(to.len()).and_then(|end| self.0.get(start..end)) {
            Some(from) => {
                to.copy_from_slice(from);
                true
            }
            None => false,
        }
    }
}

/// The pages in which the embedded guests have marks, packed, with what the marks lead to.
struct Image {
    /// The memory of the kernel.
    bytes: Vec<u8>,
    /// Where the heads of channels, and the handles, are.
    heads: Vec<usize>,
}

/// The kernels of both widths: early and at the end.
fn images() -> &'static [Image] {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let cases = [("dti", 400_000), ("dti", u64::MAX), ("dti-ia32", 400_000), ("dti-ia32", u64::MAX)];
        cases.map(|(guest, limit)| image(guest, limit)).into_iter().collect()
    })
}

fn image(guest: &str, limit: u64) -> Image {
    let mut session = GuestBuilder::embedded(guest).memory(16 << 20).start().unwrap();
    session.run_until(&Condition::end(), &Limits::insns(limit));
    let bytes = session.core().ram().bytes()[..START + SIZE].to_vec();
    let found = find(&Memory(bytes.clone()), std::slice::from_ref(&(START as u64..(START + SIZE) as u64)));
    let channels = found.channels.iter().map(|channel| channel.paddr());
    let heads = channels.chain(found.unbound.iter().map(|handle| handle.paddr));
    Image { bytes, heads: heads.map(|paddr| paddr as usize - 8).collect() }
}

/// The first byte chooses an image; then four bytes each change a byte near a mark: which mark, where, and how.
fn changed(bytes: &[u8]) -> Memory {
    let images = images();
    let (first, edits) = bytes.split_first().unwrap_or((&0, &[]));
    let image = &images[usize::from(*first) % images.len()];
    let mut memory = image.bytes.clone();
    for edit in edits.chunks_exact(4) {
        let head = image.heads[usize::from(edit[0]) % image.heads.len()];
        let at = head + usize::from(u16::from_le_bytes([edit[1], edit[2]]) % (3 * PAGE as u16));
        if let Some(byte) = memory.get_mut(at) {
            *byte = byte.wrapping_add(edit[3]);
        }
    }
    Memory(memory)
}

/// Reads everything; whatever the memory is, there are bounds on what is found.
fn read(memory: &Memory, start: u64) {
    let size = memory.0.len() as u64;
    let found = find(memory, std::slice::from_ref(&(start..size)));
    assert!(found.damaged.len() <= 100 && found.damaged.len() as u64 <= found.damaged_count);
    for damaged in &found.damaged {
        assert!(!damaged.damage.to_string().contains('\n'));
    }
    let mut cursor = Cursor::new();
    for channel in &found.channels {
        let contents = channel.read(memory);
        let (subbufs, subbuf_size) = channel.subbufs();
        let whole = u64::from(channel.cpus()) * u64::from(subbufs) * u64::from(subbuf_size);
        assert!(whole <= size);
        let data: u64 = contents.records().map(|record| record.data.len() as u64 + 10).sum();
        assert!(data <= whole);
        let fresh = cursor.fresh(channel, &contents);
        for record in fresh.records.iter().take(4) {
            let hex = json(channel.name(), record)["data"].as_str().map(str::len);
            assert_eq!(hex, Some(2 * record.data.len()));
            assert!(!show(record.data, View::Text).contains(char::is_control));
        }
        assert!(cursor.fresh(channel, &contents).records.is_empty());
    }
}

pub fn channels(bytes: &[u8], _: Checks) {
    read(&Memory(bytes.to_vec()), 0);
    read(&changed(bytes), START as u64);
}
