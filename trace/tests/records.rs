//! Behaviour of records, channels and sinks.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use proptest::prelude::*;
use trapline_trace::{
    Accessed, Channel, ChannelConfig, Channels, DecodeError, End, Exception, Header, HeaderItems, JsonSink,
    Kind, Record, RecordView, Reply, RunInfo, Sink, TextSink, WatchItem,
};

fn sample(width: u8) -> Record {
    Record {
        header: Header {
            seq: 7,
            icount: 123_456,
            time_ns: 123_456,
            probe: 3,
            kind: Kind::Data,
            width,
            termination: 0,
            major: 2,
            minor: 1,
            cpu: 0,
            process: 0,
            tgid: None,
            pid: 42,
            uid: 1000,
            cs: 0x10,
            ss: 0x18,
            ip: 0xc010_1234,
            sp: 0xc7ff_ff00,
            tsc: 0x1_0000_0002,
            exception: None,
        },
        name: b"appln".to_vec(),
        watch: None,
        data: vec![0x2a, 0, 0, 0, 0xff],
    }
}

#[test]
fn encoded_bytes_are_those_of_the_reference() {
    let mut bytes = Vec::new();
    sample(32).view().encode(HeaderItems::all(), &mut bytes);
    let hex = trapline_trace::hex(&bytes, trapline_trace::HexStyle::Pairs);
    // length, seq, time, kind, width, termination
    let envelope = concat!("4f000000", "0700000000000000", "40e2010000000000", "00", "20", "0000");
    // flags, major, minor, cpu, pid, uid, cs, eip, ss, esp, tsc, name
    let header = concat!(
        "ff070000",
        "02000000",
        "01000000",
        "00000000",
        "2a000000",
        "e8030000",
        "10000000",
        "341210c0",
        "18000000",
        "00ffffc7",
        "0200000001000000",
        "6170706c6e00"
    );
    let whole = format!("{envelope}{header}2a000000ff");
    assert_eq!(bytes.len() - 4, usize::from(bytes[0]));
    assert_eq!(hex, whole);
}

#[test]
fn a_wide_record_has_wide_pointers() {
    let (mut narrow, mut wide) = (Vec::new(), Vec::new());
    let items = HeaderItems::EIP | HeaderItems::ESP;
    sample(32).view().encode(items, &mut narrow);
    sample(64).view().encode(items, &mut wide);
    assert_eq!(wide.len(), narrow.len() + 8);
}

#[test]
fn every_truncation_is_an_error() {
    let mut bytes = Vec::new();
    sample(64).view().encode(HeaderItems::all(), &mut bytes);
    for end in 0..bytes.len() {
        assert!(matches!(Record::decode(&bytes[..end]), Err(DecodeError::Truncated { .. })), "{end}");
    }
}

#[test]
fn header_items_parse_and_refuse() {
    let items: HeaderItems = "pid, UID,tsc".parse().unwrap();
    assert_eq!(items.to_string(), "major,minor,pid,uid,tsc");
    let error = "pid,tcs".parse::<HeaderItems>().unwrap_err();
    assert!(error.to_string().starts_with("unknown header item `tcs`"));
}

fn tiny(records: usize) -> ChannelConfig {
    ChannelConfig::fixed(records * Channel::record_size(0, 4), 2)
}

#[test]
fn a_tiny_channel_counts_what_it_lost_and_keeps_the_newest() {
    let mut channels = Channels::new(1, tiny(3));
    for n in 0..1000u32 {
        let record = RecordView { header: Header::default(), name: b"", watch: None, data: &n.to_le_bytes() };
        assert_eq!(channels.commit(&record), u64::from(n) + 1);
    }
    let mut seen = Vec::new();
    let counts = channels.counts();
    channels.drain(|r| seen.push(r.header.seq));
    assert_eq!(counts.committed, 1000);
    assert_eq!(counts.lost() + seen.len() as u64, 1000);
    assert_eq!(seen, (1000 - seen.len() as u64 + 1..=1000).collect::<Vec<_>>());
    assert!(seen.len() >= 3);
}

#[test]
fn records_taken_back_leave_no_trace_but_what_was_lost() {
    for before in 0..10u64 {
        for after in 0..12u64 {
            let mut channels = Channels::new(1, tiny(3));
            let commit = |channels: &mut Channels, n: u64| {
                let header = Header { probe: n as u32, ..Header::default() };
                channels.commit(&RecordView {
                    header,
                    name: b"",
                    watch: None,
                    data: &(n as u32).to_le_bytes(),
                });
            };
            (0..before).for_each(|n| commit(&mut channels, n));
            let mark = channels.next_seq();
            (100..100 + after).for_each(|n| commit(&mut channels, n));
            let held = channels.records().iter().filter(|r| r.header.seq >= mark).count() as u64;
            let keep = |h: &Header| h.probe.is_multiple_of(3);
            let kept =
                channels.records().iter().filter(|r| r.header.seq >= mark && keep(&r.header)).count() as u64;
            assert_eq!(channels.take_back(mark, keep), held - kept, "{before} {after}");
            let (counts, records) = (channels.counts(), channels.records());
            assert_eq!(counts.committed, before + after - (held - kept));
            assert_eq!(counts.lost() + records.len() as u64, counts.committed);
            assert_eq!(channels.next_seq(), counts.committed + 1);
            assert!(records.windows(2).all(|w| w[0].header.seq < w[1].header.seq));
            assert!(records.iter().all(|r| r.header.seq < mark || keep(&r.header)));
        }
    }
}

#[test]
fn a_hit_that_is_taken_back_loses_nothing() {
    // Three records fill a sub-buffer; one in four is too large for any.
    let commit = |channels: &mut Channels, n: u64| {
        let header = Header { probe: n as u32, ..Header::default() };
        let data = if n % 4 == 3 { vec![0; 4096] } else { (n as u32).to_le_bytes().to_vec() };
        channels.commit(&RecordView { header, name: b"", watch: None, data: &data });
    };
    for before in 0..8u64 {
        for own in 0..20u64 {
            let mut channels = Channels::new(1, tiny(2));
            (0..before).for_each(|n| commit(&mut channels, n));
            channels.begin_hit();
            let first = channels.next_seq();
            let counts = channels.counts();
            (100..100 + own).for_each(|n| commit(&mut channels, n));
            let overwritten_before = channels.counts().overwritten - counts.overwritten;
            assert_eq!(channels.take_back(first, |_| false), own, "{before} {own}");
            let after = channels.counts();
            assert_eq!((after.committed, after.oversized), (counts.committed, counts.oversized));
            // Records that the hit has overwritten in the ring are still lost.
            assert!(after.overwritten - counts.overwritten <= overwritten_before.min(before));
            assert_eq!(after.lost() + channels.records().len() as u64, after.committed);
            assert_eq!(channels.next_seq(), first);
            // Kept records are counted as usual.
            (100..100 + own).for_each(|n| commit(&mut channels, n));
            let kept = channels.counts();
            assert_eq!(channels.take_back(first, |_| true), 0);
            assert_eq!(channels.counts().committed, kept.committed);
            assert_eq!(channels.counts().oversized, kept.oversized);
            assert_eq!(channels.counts().lost() + channels.records().len() as u64, kept.committed);
        }
    }
}

#[test]
fn a_ring_that_may_grow_loses_nothing_until_it_has_grown() {
    let mut channels = Channels::new(1, ChannelConfig { most_sub_buffers: 5, ..tiny(3) });
    let commit = |channels: &mut Channels, n: u32| {
        let record = RecordView { header: Header::default(), name: b"", watch: None, data: &n.to_le_bytes() };
        channels.commit(&record)
    };
    let drained = |channels: &mut Channels| {
        let mut seen = Vec::new();
        channels.drain(|record| seen.push(record.header.seq));
        seen
    };
    // With two sub-buffers, one is not full when the ring wraps.
    for burst in [15, 4, 15] {
        let seqs: Vec<u64> = (0..burst).map(|n| commit(&mut channels, n)).collect();
        assert_eq!(drained(&mut channels), seqs);
        assert_eq!(channels.counts().lost(), 0);
    }
    let seqs: Vec<u64> = (0..17).map(|n| commit(&mut channels, n)).collect();
    assert_eq!(drained(&mut channels), seqs[3..], "the oldest sub-buffer was overwritten");
    assert_eq!(channels.counts().lost(), 3);
}

#[test]
fn a_record_larger_than_a_sub_buffer_is_counted() {
    let mut channel = Channel::new(ChannelConfig::fixed(200, 4));
    assert!(!channel.commit(&RecordView {
        header: Header::default(),
        name: b"",
        watch: None,
        data: &[0; 200]
    }));
    assert!(channel.commit(&RecordView { header: Header::default(), name: b"", watch: None, data: &[0; 8] }));
    assert_eq!((channel.counts().lost(), channel.len()), (1, 1));
}

#[test]
fn records_of_several_cpus_come_out_in_sequence() {
    let mut channels = Channels::new(3, ChannelConfig::fixed(4096, 2));
    for n in 0..30u32 {
        let header = Header { cpu: n * 7 % 3, ..Header::default() };
        channels.commit(&RecordView { header, name: b"x", watch: None, data: &[] });
    }
    let mut seen = Vec::new();
    channels.drain(|r| seen.push(r.header.seq));
    assert_eq!(seen, (1..=30).collect::<Vec<u64>>());
    channels.drain(|_| unreachable!("drained"));
}

fn through<S: Sink>(mut sink: S, done: impl Fn(S) -> Vec<u8>) -> String {
    let symbols = |ip: u64| (ip == 0xc010_1234).then(|| "do_fork".to_owned());
    sink.begin(&RunInfo { image: "demo".into(), width: 32, extra: vec![] }).unwrap();
    sink.record(&sample(32).view(), &symbols).unwrap();
    let mut second = sample(64);
    second.header.seq = 8;
    second.header.ip = 0xffff_ffff_8100_0000;
    second.header.termination = 1;
    second.header.exception = Some(Exception { code: 1, parm1: 0xdead, parm2: 0, line: 12 });
    second.name = b"a\x1b[2J".to_vec();
    second.data.clear();
    sink.record(&second.view(), &symbols).unwrap();
    sink.end(&End { insns: 1000, hits: 2, lost: 0, digest: Some("00ff".into()), ..End::default() }).unwrap();
    String::from_utf8(done(sink)).unwrap()
}

#[test]
fn text_lines() {
    let all = through(TextSink::new(Vec::new(), HeaderItems::all()), TextSink::into_inner);
    let few = through(TextSink::new(Vec::new(), "pid".parse().unwrap()), TextSink::into_inner);
    insta::assert_snapshot!(format!("{all}{few}"));
}

#[test]
fn text_from_files_cannot_steer_a_terminal() {
    let mut sink = TextSink::new(Vec::new(), HeaderItems::default()).with_symbols(5);
    sink.record(&sample(32).view(), &|_| Some("a\x1b[2J\u{9b}b".to_owned())).unwrap();
    sink.reply(&Reply { lines: vec!["\x07bell\n".to_owned()], ..Reply::default() }).unwrap();
    let text = String::from_utf8(sink.into_inner()).unwrap();
    assert_eq!(text, "      123456 a?[2J?b DProbes(2,1) 2a000000ff\n?bell?\n");
}

#[test]
fn json_lines() {
    let all = through(JsonSink::new(Vec::new(), HeaderItems::all()), JsonSink::into_inner);
    let few = through(JsonSink::new(Vec::new(), HeaderItems::default()), JsonSink::into_inner);
    insta::assert_snapshot!(format!("{all}{few}"));
}

proptest! {
    #[test]
    fn encode_then_decode_is_the_identity(
        bits in 0u32..0x800, width in prop_oneof![Just(32u8), Just(64)], seq: u64, time_ns: u64, termination: u16,
        a: u32, b: u32, c: u32, ip: u64, sp: u64, tsc: u64,
        name in proptest::collection::vec(1u8.., 0..20), data in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let items = HeaderItems::from_bits(bits).unwrap();
        let cut = |v: u64| if width == 64 { v } else { v & 0xffff_ffff };
        let pick = |item, v: u32| if items.contains(item) { v } else { 0 };
        let header = Header {
            seq, time_ns, kind: Kind::Control, width, termination,
            major: pick(HeaderItems::MAJOR, a), minor: pick(HeaderItems::MINOR, b), cpu: pick(HeaderItems::CPU, c),
            pid: pick(HeaderItems::PID, a ^ b), uid: pick(HeaderItems::UID, b ^ c),
            cs: pick(HeaderItems::CS, a ^ c), ss: pick(HeaderItems::SS, !a),
            ip: if items.contains(HeaderItems::EIP) { cut(ip) } else { 0 },
            sp: if items.contains(HeaderItems::ESP) { cut(sp) } else { 0 },
            tsc: if items.contains(HeaderItems::TSC) { tsc } else { 0 },
            ..Header::default()
        };
        let name = if items.contains(HeaderItems::NAME) { name } else { Vec::new() };
        let (old, new) = (seq.to_le_bytes(), time_ns.to_le_bytes());
        let watch = (a & 1 != 0).then(|| {
            let mut item = WatchItem { access: Accessed::Write, address: cut(ip), size: b as u16, ..WatchItem::default() };
            item.len = (c % 9) as u8;
            item.old[..usize::from(item.len)].copy_from_slice(&old[..usize::from(item.len)]);
            item.new[..usize::from(item.len)].copy_from_slice(&new[..usize::from(item.len)]);
            item
        });
        let record = Record { header, name, watch, data };
        let mut bytes = vec![];
        record.view().encode(items, &mut bytes);
        let used = bytes.len();
        bytes.extend_from_slice(b"more");
        prop_assert_eq!(Record::decode(&bytes).unwrap(), (record, items, used));
    }

    #[test]
    fn decoding_anything_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Record::decode(&bytes);
    }

    #[test]
    fn nothing_is_lost_silently(sizes in proptest::collection::vec(0usize..300, 0..200), sub in 100usize..2000, n in 1usize..5) {
        let mut channels = Channels::new(1, ChannelConfig::fixed(sub, n));
        for size in &sizes {
            channels.commit(&RecordView { header: Header::default(), name: b"", watch: None, data: &vec![0; *size] });
        }
        let held = channels.records().len() as u64;
        prop_assert_eq!(channels.counts().lost() + held, sizes.len() as u64);
        prop_assert!(channels.records().windows(2).all(|w| w[0].header.seq < w[1].header.seq));
    }
}
