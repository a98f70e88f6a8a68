//! Perfetto traces, read back by the wire format.

use std::collections::BTreeMap;

use serde_json::json;
use trapline_export::{Notes, PerfettoSink};
use trapline_trace::{Record, Shown};

use crate::made::{as_d, end, hit, items, show, stack};

/// A field: a number, or bytes.
#[derive(Debug, Clone)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        shift += 7;
        if first & 0x80 == 0 {
            return value;
        }
    }
}

/// The fields of a message.
fn fields(mut bytes: &[u8]) -> BTreeMap<u64, Vec<Field>> {
    let mut found: BTreeMap<u64, Vec<Field>> = BTreeMap::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (own, rest) = bytes.split_first_chunk().unwrap();
                bytes = rest;
                Field::Number(u64::from_le_bytes(*own))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (own, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(own.to_vec())
            }
            other => panic!("wire type {other}"),
        };
        found.entry(key >> 3).or_default().push(field);
    }
    found
}

fn number(of: &BTreeMap<u64, Vec<Field>>, field: u64) -> u64 {
    match of.get(&field).map(|all| all.as_slice()) {
        Some([Field::Number(value)]) => *value,
        other => panic!("{field}: {other:?}"),
    }
}

fn bytes(of: &BTreeMap<u64, Vec<Field>>, field: u64) -> Option<Vec<u8>> {
    match of.get(&field).and_then(|all| all.first()) {
        Some(Field::Bytes(bytes)) => Some(bytes.clone()),
        _ => None,
    }
}

fn text(of: &BTreeMap<u64, Vec<Field>>, field: u64) -> String {
    String::from_utf8(bytes(of, field).unwrap_or_default()).unwrap()
}

/// Time, kind, track, name and value of an event.
type Event = (u64, u64, u64, String, u64);

/// The bytes of a trace, and the notes.
fn trace(records: &[Record], d: &[Shown]) -> (Vec<u8>, Vec<String>) {
    let (mut out, notes) = (Vec::new(), Notes::default());
    show(&mut PerfettoSink::new(&mut out, items(), notes.clone()), records, d, &end(100, 0));
    (out, notes.take())
}

/// Time, kind, thread and name of each event.
pub fn slices(records: &[Record]) -> Vec<(u64, u64, u32, String)> {
    let (out, _) = trace(records, &[]);
    let mut threads = BTreeMap::new();
    for packet in fields(&out).remove(&1).into_iter().flatten() {
        let Field::Bytes(packet) = packet else { panic!("a packet is a message") };
        // A descriptor of a track, with its thread.
        let track = bytes(&fields(&packet), 60).map(|track| fields(&track)).unwrap_or_default();
        if let Some(thread) = bytes(&track, 4) {
            threads.insert(number(&track, 1), number(&fields(&thread), 2) as u32);
        }
    }
    let (events, _) = events(records, &[]);
    events.into_iter().map(|(time, kind, track, name, _)| (time, kind, threads[&track], name)).collect()
}

/// The events, and the notes.
fn events(records: &[Record], d: &[Shown]) -> (Vec<Event>, Vec<String>) {
    let (out, notes) = trace(records, d);
    let (mut events, mut names) = (Vec::new(), BTreeMap::new());
    for packet in fields(&out).remove(&1).into_iter().flatten() {
        let Field::Bytes(packet) = packet else { panic!("a packet is a message") };
        let packet = fields(&packet);
        assert_eq!(number(&packet, 10), 1);
        // The names of events that this packet describes.
        let described = bytes(&packet, 12).map(|data| fields(&data)).unwrap_or_default();
        for name in described.get(&2).into_iter().flatten() {
            let Field::Bytes(name) = name else { panic!("a name is a message") };
            let name = fields(name);
            assert_eq!(names.insert(number(&name, 1), text(&name, 2)), None);
        }
        let Some(event) = bytes(&packet, 11) else { continue };
        assert_eq!(number(&packet, 13) & 2, 2, "the packet needs earlier names");
        let event = fields(&event);
        assert!(!event.contains_key(&23), "a name is described once");
        let name = event.get(&10).map_or(String::new(), |_| names[&number(&event, 10)].clone());
        let value = if event.contains_key(&30) { number(&event, 30) } else { 0 };
        events.push((number(&packet, 8), number(&event, 9), number(&event, 11), name, value));
    }
    (events, notes)
}

#[test]
fn slices_nest_and_balance_whatever_the_records_say() {
    // b returns without an entry; a calls b, which calls c without a return; task 2 never returns.
    let records = [(3, 5, 1), (0, 10, 1), (2, 20, 1), (4, 25, 1), (4, 30, 2), (3, 45, 1), (1, 50, 1)];
    let (events, notes) = events(&records.map(|(probe, icount, pid)| hit(probe, icount, pid)), &[]);
    let mut depth: BTreeMap<u64, i64> = BTreeMap::new();
    for (_, kind, track, ..) in &events {
        let depth = depth.entry(*track).or_default();
        *depth += [0, 1, -1, 0, 0][*kind as usize];
        assert!(*depth >= 0, "{events:?}");
    }
    assert!(depth.values().all(|depth| *depth == 0), "{depth:?}");
    assert!(events.is_sorted_by_key(|(time, ..)| *time));
    let shown: Vec<(u64, u64, &str)> =
        events.iter().map(|(t, kind, _, name, _)| (*t, *kind, name.as_str())).collect();
    let right = [
        (10, 3, "b:return"),
        (20, 1, "a"),
        (40, 1, "b"),
        (50, 1, "c"),
        (60, 1, "c"),
        (90, 2, ""),
        (90, 2, ""),
        (100, 2, ""),
        (200, 2, ""),
    ];
    assert_eq!(shown, right);
    let right = ["1 return had no entry and is an instant", "1 call had not returned and ends at the end"];
    assert_eq!(notes, right);
}

#[test]
fn firings_of_d_programs_are_in_their_threads_as_hits_are() {
    let hits = [(0, 10, 1), (0, 20, 2), (2, 30, 1), (1, 40, 2), (3, 50, 1), (4, 60, 2), (1, 70, 1)];
    let records = hits.map(|(probe, icount, pid)| hit(probe, icount, pid));
    let (of_records, notes) = events(&records, &[]);
    assert_eq!(events(&[], &as_d(&records)), (of_records, notes));
    // Who says nothing of a task is not in one.
    let mut without = as_d(&records);
    without.iter_mut().for_each(|shown| drop(shown.objects[0].as_object_mut().unwrap().remove("pid")));
    let (_, notes) = events(&[], &without);
    assert!(notes.iter().any(|note| note.contains("record with --header pid,name")), "{notes:?}");
}

#[test]
fn a_thread_has_one_track_whatever_its_records_say_of_its_process() {
    let of = |icount, process, tgid| {
        let mut hit = hit(0, icount, 8);
        (hit.header.process, hit.header.tgid) = (process, tgid);
        hit
    };
    let tracks = |records: &[Record]| {
        let (events, _) = events(records, &[]);
        events.iter().map(|event| event.2).collect::<std::collections::BTreeSet<u64>>().len()
    };
    // Probes of the kernel and of the process; then in a file that knows the process for one of them only.
    assert_eq!(tracks(&[of(10, 0, Some(7)), of(20, 7, Some(7)), of(30, 0, Some(7))]), 1);
    assert_eq!(tracks(&[of(10, 0, None), of(20, 7, None), of(30, 0, None)]), 1);
    assert_eq!(tracks(&[of(10, 7, None), of(20, 0, None)]), 1);
    // Another process has a thread of that number later.
    assert_eq!(tracks(&[of(10, 7, None), of(20, 9, None)]), 2);
}

#[test]
fn a_stack_belongs_to_its_hit_and_time_never_goes_back() {
    let (first, early) = (hit(9, 20, 1), hit(9, 10, 1));
    let (events, notes) = events(&[first.clone(), stack(&first, &[0x210]), early], &[]);
    let shown: Vec<(u64, u64, &str)> =
        events.iter().map(|(t, kind, _, name, _)| (*t, *kind, name.as_str())).collect();
    assert_eq!(shown, [(40, 3, "somewhere+0x4"), (40, 3, "somewhere+0x4")]);
    assert_eq!(notes, ["1 record was moved behind the one before"]);
}

#[test]
fn aggregations_are_counters() {
    let entries = json!([{"keys": ["a", 1], "value": 5}, {"keys": [], "value": 7}]);
    let aggregation = json!({"type": "aggregation", "name": "@n", "entries": entries});
    let part =
        json!({"action": "printa", "aggregations": [{"name": "@n", "entries": [{"keys": [], "value": 2}]}]});
    let firing = json!({"type": "d", "seq": 1, "icount": 5, "time_ns": 6, "probe": "profile:::tick-1ms", "id": 1,
        "parts": [part]});
    let shown = Shown { objects: vec![firing, aggregation], ..Shown::default() };
    let (events, _) = events(&[], &[shown]);
    let counters: Vec<(u64, u64)> = events.iter().filter(|e| e.1 == 4).map(|e| (e.0, e.4)).collect();
    assert_eq!(counters, [(6, 2), (200, 5), (200, 7)]);
    assert_eq!(events[0].3, "tick-1ms");
}

#[test]
fn the_same_texts_again_cost_a_few_bytes() {
    let size = |count: u64| trace(&(0..count).map(|n| hit(9, n, 1)).collect::<Vec<_>>(), &[]).0.len() as u64;
    let (few, many) = (size(100), size(1_100));
    assert!((many - few) / 1_000 < 90, "{} bytes a record", (many - few) / 1_000);
}
