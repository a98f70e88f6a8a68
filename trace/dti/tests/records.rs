//! What is read of channels: the paper's figure 3, every length, nested writes, handles, several CPUs, the reader's cursor.

use trapline_dti::{Contents, Cursor, Origin, Record, Refusal, View, Write, json, show};

use super::harness::{Harness, Memory};

/// The records of the only channel.
fn contents(memory: &Memory) -> Contents {
    let found = memory.find();
    assert_eq!((found.channels.len(), found.damaged_count), (1, 0), "{found:?}");
    found.channels[0].read(memory)
}

fn texts(contents: &Contents) -> Vec<String> {
    contents.records().map(|record| show(record.data, View::Auto)).collect()
}

/// A channel in slot 0 with this geometry.
fn harness(size: u32, n: u32) -> Harness {
    let mut harness = Harness::start();
    harness.op('r', [0, 0, size, n]);
    assert_eq!(harness.results(1), [0]);
    harness
}

#[test]
fn figure_3_of_the_paper() {
    // Four records fill one of three sub-buffers. The 13th and the 14th overwrite the 1st and the 2nd.
    let mut harness = harness(4 * (10 + 11), 3);
    for n in 1..=14 {
        harness.op('p', [0, 0, 3, 10 + n]);
    }
    assert_eq!(harness.results(14), [0; 14]);
    let memory = harness.memory();
    let read = contents(&memory);
    let shown: Vec<String> = read.records().map(|record| show(record.data, View::Auto)).collect();
    insta::assert_snapshot!(shown.join("\n"), @r"
    15 of text
    16 of text
    17 of text
    18 of text
    19 of text
    20 of text
    21 of text
    22 of text
    23 of text
    24 of text
    ");
    // A read in the guest gives the same records.
    harness.op('d', [0, 0, 4096, 0]);
    let mut raw = Vec::new();
    read.records().for_each(|record| record.raw(&mut raw));
    let mut expected = (raw.len() as u32).to_le_bytes().to_vec();
    expected.extend(&raw);
    assert_eq!(harness.results(expected.len()), expected);
    // They are read then, and another read gives nothing until all are made readable again.
    assert!(contents(&harness.memory()).records().all(|record| !record.unread));
    harness.op('d', [0, 0, 4096, 0]);
    assert_eq!(harness.results(4), [0; 4]);
    harness.op('c', [0; 4]);
    harness.op('d', [0, 0, 4096, 0]);
    assert_eq!(harness.results(expected.len()), expected);
}

#[test]
fn records_of_every_length_up_to_the_sub_buffer_are_kept_and_longer_ones_refused() {
    for size in [16, 100, 257] {
        let mut harness = harness(size, 2);
        for len in 0..=size - 10 {
            harness.op('w', [0, 0, 0, len]);
            assert_eq!(harness.results(1), [0], "{len} of {size}");
            let memory = harness.memory();
            let read = contents(&memory);
            let last = read.records().last().unwrap();
            assert_eq!(last.data, (0..len).map(|n| (len + n * 7) as u8).collect::<Vec<_>>());
        }
        for len in [size - 9, size, 65_536] {
            harness.op('w', [0, 0, 0, len]);
        }
        assert_eq!(harness.results(3), [0xff; 3]);
        assert_eq!(contents(&harness.memory()).cpus[0].too_long, 3);
    }
    // A length has 16 bits.
    let mut harness = harness(70_000, 1);
    harness.op('w', [0, 0, 0, 65_535]);
    harness.op('w', [0, 0, 0, 65_536]);
    assert_eq!(harness.results(2), [0, 0xff]);
    let read = contents(&harness.memory());
    assert_eq!((read.records().next().unwrap().data.len(), read.cpus[0].too_long), (65_535, 1));
}

#[test]
fn a_write_from_a_fault_on_the_data_comes_after_the_record_that_it_interrupts() {
    // With a sub-buffer that has room for both, and with one that has not.
    for size in [200, 60] {
        let mut harness = harness(size, 4);
        harness.op('n', [0, 1, 20, 40]);
        assert_eq!(harness.results(2), [0, 0]);
        let read = contents(&harness.memory());
        let all: Vec<Record<'_>> = read.records().collect();
        assert_eq!(all.iter().map(|record| record.data.len()).collect::<Vec<_>>(), [40, 20]);
        assert!(all[0].time < all[1].time && all.iter().all(|record| record.cpu == 1));
        assert_eq!(all[0].data, (0..40u32).map(|n| (40 + n * 7) as u8).collect::<Vec<_>>());
        assert_eq!(all[1].data, (0..20u32).map(|n| (99 + n * 7) as u8).collect::<Vec<_>>());
    }
}

#[test]
fn cpus_are_merged_by_time_then_cpu() {
    let mut harness = harness(256, 2);
    for (n, cpu) in [2, 0, 1, 0, 2].into_iter().enumerate() {
        harness.op('p', [0, cpu, 0, n as u32]);
    }
    // Two CPUs at the same time.
    for cpu in [2, 1] {
        harness.op('t', [0, 0, 0, 100]);
        harness.op('p', [0, cpu, 0, 5 + cpu]);
    }
    assert_eq!(harness.results(7), [0; 7]);
    let read = contents(&harness.memory());
    let cpus: Vec<u16> = read.records().map(|record| record.cpu).collect();
    assert_eq!(cpus, [2, 0, 1, 0, 2, 1, 2]);
    assert_eq!(texts(&read)[5..], ["6 of text", "7 of text"]);
}

#[test]
fn early_records_are_in_the_handles_buffer_and_then_in_its_channel() {
    let mut harness = Harness::start();
    harness.op('h', [3, 0, 4096, 600]);
    harness.results(0);
    let found = harness.memory().find();
    assert_eq!((found.channels.len(), found.unbound[0].name.as_str()), (0, "handle"));
    // No memory yet.
    harness.op('m', [0; 4]);
    for len in [5, 6, 200] {
        harness.op('e', [3, 0, 2, len]);
    }
    harness.op('i', [3, 0, 0, 0]);
    assert_eq!(harness.results(4), [0, 0, 0xff, 0xff]);
    let memory = harness.memory();
    let found = memory.find();
    assert_eq!((found.channels.len(), found.unbound.len()), (1, 0));
    assert_eq!(found.channels[0].origin(), Origin::Early);
    let early = found.channels[0].read(&memory);
    assert_eq!(early.records().map(|record| record.data.len()).collect::<Vec<_>>(), [5, 6]);
    assert_eq!(early.cpus[0].too_long, 1);
    // Another CPU cannot move them, the first can; they keep their times.
    harness.op('m', [1, 0, 0, 0]);
    harness.op('i', [3, 1, 0, 0]);
    harness.op('e', [3, 0, 2, 7]);
    assert_eq!(harness.results(2), [0xff, 0]);
    let memory = harness.memory();
    let found = memory.find();
    assert_eq!((found.channels.len(), found.unbound.len(), found.damaged_count), (1, 0, 0));
    assert_eq!(found.channels[0].origin(), Origin::Channel);
    let bound = found.channels[0].read(&memory);
    let of = |contents: &Contents| -> Vec<_> {
        contents.records().map(|record| (record.time, record.data.to_vec())).collect()
    };
    assert_eq!(of(&bound)[..2], of(&early));
    assert_eq!(of(&bound)[2].1.len(), 7);
    // Without its channel, the handle is unbound again.
    harness.op('k', [3, 0, 0, 0]);
    harness.results(0);
    let found = harness.memory().find();
    assert_eq!((found.channels.len(), found.unbound.len()), (0, 1));
}

#[test]
fn a_cursor_gives_each_record_once_and_counts_what_was_overwritten() {
    let mut harness = harness(4 * 21, 3);
    let mut cursor = Cursor::new();
    let mut look = |harness: &mut Harness| {
        let memory = harness.memory();
        let found = memory.find();
        let read = found.channels[0].read(&memory);
        let fresh = cursor.fresh(&found.channels[0], &read);
        let texts: Vec<String> = fresh.records.iter().map(|record| show(record.data, View::Text)).collect();
        (texts.iter().map(|text| text[..2].parse().unwrap()).collect::<Vec<u32>>(), fresh.lost)
    };
    let write = |harness: &mut Harness, numbers: std::ops::Range<u32>| {
        numbers.clone().for_each(|n| harness.op('p', [0, 0, 0, n]));
        harness.results(numbers.len());
    };
    assert_eq!(look(&mut harness), (vec![], 0));
    write(&mut harness, 10..13);
    assert_eq!(look(&mut harness), ((10..13).collect(), 0));
    assert_eq!(look(&mut harness), (vec![], 0));
    write(&mut harness, 13..20);
    assert_eq!(look(&mut harness), ((13..20).collect(), 0));
    // 20 to 29 are overwritten before they are read: the rest of a sub-buffer, and two more.
    write(&mut harness, 20..40);
    assert_eq!(look(&mut harness), ((30..40).collect(), 3));
    assert_eq!(look(&mut harness), (vec![], 0));
}

#[test]
fn views() {
    let record = |data: &'static [u8]| Record { cpu: 1, time: 1 << 40, place: (2, 30), unread: true, data };
    let text = record(b"reset, status 7\n");
    let bytes = record(b"\x01\x02text\x00");
    insta::assert_snapshot!(
        [
            show(text.data, View::Auto),
            show(text.data, View::Hex),
            show(bytes.data, View::Auto),
            show(bytes.data, View::Text),
            json("3c59x", &text).to_string(),
            json("3c59x", &bytes).to_string(),
        ]
        .join("\n"),
        @r#"
    reset, status 7
    +00000000 72 65 73 65 74 2c 20 73 74 61 74 75 73 20 37 0a                                                 *reset, status 7.*
    +00000000 01 02 74 65 78 74 00                                                                            *..text.*
    ..text.
    {"channel":"3c59x","cpu":1,"time":1099511627776,"subbuf":2,"offset":30,"unread":true,"data":"72657365742c2073746174757320370a","text":"reset, status 7"}
    {"channel":"3c59x","cpu":1,"time":1099511627776,"subbuf":2,"offset":30,"unread":true,"data":"01027465787400"}
    "#
    );
    let mut raw = Vec::new();
    bytes.raw(&mut raw);
    assert_eq!(raw, [&[7, 0, 0, 0, 0, 0, 0, 1, 0, 0][..], bytes.data].concat());
}

/// One harness writes by `dti_event_raw`, the other is written to from outside: the memories stay the same.
#[test]
fn a_record_from_outside_leaves_what_the_drivers_own_would() {
    for (size, n) in [(16, 1), (64, 3), (257, 4), (4096, 2)] {
        let (mut inside, mut outside) = (harness(size, n), harness(size, n));
        let mut refused = 0;
        for step in 0..40_u32 {
            let (cpu, prio) = (step % 3, step % 6);
            let len = [0, 3, size.saturating_sub(30), size - 10, size - 9, 70_000][step as usize * 5 % 6];
            let time = if step == 20 { 1 << 32 } else { 1000 + u64::from(step) };
            for harness in [&mut inside, &mut outside] {
                harness.op('t', [0, 0, (time >> 32) as u32, time as u32]);
            }
            inside.op('w', [0, cpu, prio, len]);
            let done = inside.results(1);
            outside.results(0);
            let memory = outside.memory();
            let data: Vec<u8> = (0..len).map(|n| (len + n * 7) as u8).collect();
            let channel = &memory.find().channels[0];
            assert!(channel.counts_tsc());
            let stores = match channel.write(&memory, cpu as u16, prio as i32, time, &data) {
                Write::Record(stores) => {
                    assert_eq!(done, [0], "{size} {step}");
                    stores
                }
                Write::Refused(refusal, stores) => {
                    assert_eq!(done, [0xff], "{size} {step}");
                    let expected = if prio > 3 { Refusal::Level } else { Refusal::TooLong };
                    assert_eq!(refusal, expected, "{size} {step}");
                    refused += 1;
                    stores
                }
            };
            outside.store(&stores);
            assert!(inside.memory().0 == outside.memory().0, "{size} x {n}, step {step}");
        }
        assert!(refused > 10, "{refused}");
    }
}
