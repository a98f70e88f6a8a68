//! Channels whose memory is wrong: each field is checked, and nothing makes the reader loop or read outside.

use trapline_dti::{Damage, Found};

use super::harness::{Harness, Memory};

/// A memory with a channel of 3 CPUs that has records; the physical address of its head.
fn written() -> (Memory, usize) {
    let mut harness = Harness::start();
    harness.op('r', [0, 0, 64, 2]);
    for n in 0..40 {
        harness.op('w', [0, n, 0, n % 30]);
    }
    harness.results(41);
    let memory = harness.memory();
    let found = memory.find();
    let head = found.channels[0].paddr() as usize - 8;
    (memory, head)
}

/// The memory with other bytes somewhere in the head.
fn changed(memory: &Memory, at: usize, bytes: &[u8]) -> Memory {
    let mut memory = memory.clone();
    memory.0[at..at + bytes.len()].copy_from_slice(bytes);
    memory
}

fn damage(found: &Found) -> &Damage {
    assert_eq!((found.channels.len(), found.damaged.len()), (0, 1), "{found:?}");
    &found.damaged[0].damage
}

#[test]
fn a_wrong_field_makes_a_damaged_channel() {
    let (memory, head) = written();
    let list = head + 104;
    let pages = u32::from_le_bytes(memory.0[head + 96..head + 100].try_into().unwrap()) as usize;
    let rings = list + 8 * pages;
    let cases: [(usize, &[u8]); 14] = [
        (head, &[1]),
        (head + 63, &[2]),
        (head + 66, &[0, 0]),
        (head + 66, &[1, 1]),
        (head + 68, &[15, 0]),
        (head + 72, &[0, 0]),
        (head + 72, &[0xff; 4]),
        (head + 76, &[8]),
        (head + 96, &[0xff; 4]),
        (list, &[0xff; 2]),
        (list + 8, &[1]),
        (list + 8, &[0, 0, 0, 0, 1]),
        (rings, &[65]),
        (rings + 8, &[7]),
    ];
    let shown: Vec<String> = cases
        .iter()
        .map(|(at, bytes)| {
            let found = changed(&memory, *at, bytes).find();
            let sentence = damage(&found).to_string();
            assert!(!sentence.contains('\n'));
            // Addresses are those of one run.
            sentence.split(" 0x").next().unwrap().to_owned()
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @r"
    its pointer to struct rchan is
    its layout has version 2, and only version 1 is known
    it has 0 CPUs, which is not from 1 to 256
    it has 257 CPUs, which is not from 1 to 256
    its sub-buffers have 15 bytes, which is not from 16 to 16777216
    it has 0 sub-buffers, which is none or more than 64 MiB of memory
    it has 4294967295 sub-buffers, which is none or more than 64 MiB of memory
    its level is 8, which is not from -1 to 7
    it has 4294967295 pages, but a channel of its geometry has 2
    its list of pages begins with
    page 1 of its list is
    page 1 of its list is
    its description has 2 sub-buffers of 65 bytes, its mark has other numbers
    its pointer to sub-buffers is
    ");
    // The same page twice.
    let first: [u8; 8] = memory.0[list..list + 8].try_into().unwrap();
    let found = changed(&memory, list + 8, &first).find();
    assert!(matches!(damage(&found), Damage::Shared { index: 1, .. }), "{found:?}");
}

#[test]
fn text_and_copies_are_no_channels() {
    let (memory, head) = written();
    let nothing = |found: &Found| {
        assert_eq!((found.channels.len(), found.unbound.len(), found.damaged.len()), (0, 0, 0), "{found:?}");
    };
    // No marker; no name; a name with a control character; bytes behind its end; no word; freed; another place in its page.
    for (at, byte) in [(8, 0), (15, 0), (16, 7), (60, 1), (64, 5), (65, 0), (65, 9), (80, 9)] {
        nothing(&changed(&memory, head + at, &[byte]).find());
    }
    // A copy of the head in a page of its own.
    let mut copied = Memory(vec![0; memory.0.len() + 4096]);
    copied.0[4096..].copy_from_slice(&memory.0);
    let page = memory.0[head..head + 4096].to_vec();
    copied.0[..4096].copy_from_slice(&page);
    assert!(copied.find().damaged.iter().all(|damaged| matches!(damaged.damage, Damage::Moved { .. })));
}

#[test]
fn a_damaged_ring_gives_the_records_before_the_damage_and_those_of_other_cpus() {
    let (memory, head) = written();
    let pages = u32::from_le_bytes(memory.0[head + 96..head + 100].try_into().unwrap()) as usize;
    let ring = head + 104 + 8 * pages + 8;
    let whole = memory.find().channels[0].read(&memory);
    let read = |memory: &Memory| {
        let found = memory.find();
        assert_eq!(found.channels.len(), 1);
        found.channels[0].read(memory)
    };
    // Current sub-buffer, its number in the sequence, its used bytes.
    let current = u32::from_le_bytes(memory.0[ring + 8..ring + 12].try_into().unwrap()) as usize;
    let subbuf = ring + 32 + 8 * current;
    for (at, bytes) in
        [(ring + 8, [9, 0]), (subbuf, [0x77, 0x77]), (subbuf + 4, [65, 0]), (subbuf + 4, [5, 0])]
    {
        let damaged = read(&changed(&memory, at, &bytes));
        assert!(damaged.cpus[0].damage.is_some(), "{at:#x}: {:?}", damaged.cpus);
        let of_others =
            |contents: &trapline_dti::Contents| contents.records().filter(|record| record.cpu > 0).count();
        assert_eq!(of_others(&damaged), of_others(&whole));
    }
}

#[test]
fn a_memory_full_of_markers_is_searched_in_one_pass() {
    let (memory, head) = written();
    let page = memory.0[head..head + 4096].to_vec();
    // Every page claims to be a channel, and says that it is at its own place.
    let mut hostile = Memory(Vec::new());
    for n in 0..2_048u64 {
        let mut page = page.clone();
        page[104..112].copy_from_slice(&(n * 4096).to_le_bytes());
        hostile.0.extend(page);
    }
    let found = hostile.find();
    assert_eq!(found.damaged_count + found.channels.len() as u64, 2_048);
    assert!(found.damaged.len() <= 100);
    // Nothing but markers.
    let text = b"__DTI__DTI__".repeat(100_000);
    assert_eq!(Memory(text).find(), Found::default());
}
