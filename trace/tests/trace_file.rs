//! Trace files: what is written comes back, prints as the run would have, and nothing that is wrong with one goes unsaid.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use proptest::prelude::*;
use serde_json::json;
use trapline_trace::{
    Counts, Destination, Destinations, End, Entry, Event, Exception, GuestStack, Header, HeaderItems,
    JsonSink, Kind, Logged, Piece, RawSink, Record, Reply, RunInfo, Sink, Symbolize, TextSink,
    TraceFileError, TraceReader,
};

fn items() -> HeaderItems {
    "pid,name,tsc".parse().unwrap()
}

/// One symbol, also in the stacks of a program.
struct OneSymbol;

impl Symbolize for OneSymbol {
    fn symbol(&self, ip: u64) -> Option<String> {
        (ip == 0xc010_1234).then(|| "do_fork".to_owned())
    }

    fn frame(&self, kind: Kind, module: &str, address: u64) -> Option<(String, u64)> {
        let known = kind == Kind::UserStack && module == "/bin/prog" && address == 0x100f;
        known.then(|| ("main".to_owned(), 15))
    }
}

fn records(width: u8) -> Vec<Record> {
    let header = Header {
        seq: 1,
        icount: 1000,
        time_ns: 1500,
        width,
        major: 2,
        minor: 1,
        pid: 42,
        tsc: 0x1_0000_0002,
        ip: 0xc010_1234,
        ..Header::default()
    };
    let first = Record { header, name: b"appln".to_vec(), watch: None, data: vec![1, 2, 3] };
    let exception = Some(Exception { code: 0x20, parm1: 7, parm2: u64::MAX, line: 12 });
    let mut thrown =
        Record { header: Header { seq: 2, termination: 0x20, exception, ..header }, ..Record::default() };
    thrown.header.ip = 0xc010_9999;
    let trace = Record { header: Header { seq: 3, kind: Kind::StackTrace, ..header }, ..first.clone() };
    let last = Record { header: Header { seq: 7, icount: 2000, ..header }, ..first.clone() };
    vec![first, thrown, trace, last]
}

/// A run shown to a sink.
fn show(sink: &mut dyn Sink, width: u8) {
    let extra = vec![("programs".to_owned(), json!(["a.rpn"])), ("mem".to_owned(), json!(u64::MAX))];
    sink.begin(&RunInfo { image: "demo \"x\"".into(), width, extra }).unwrap();
    for (n, record) in records(width).iter().enumerate() {
        if n == 1 {
            let object = json!({"type": "query", "icount": 5});
            sink.reply(&Reply { lines: vec!["query 5".to_owned(), "more".to_owned()], object }).unwrap();
        }
        sink.record(&record.view(), &OneSymbol).unwrap();
    }
    sink.end(&End {
        insns: 5000,
        hits: 9,
        lost: 3,
        counts: Counts { committed: 7, overwritten: 2, oversized: 1 },
        digest: Some("00ff".into()),
        exit: -1,
        extra: vec![("reason".to_owned(), json!("done"))],
    })
    .unwrap();
}

fn file(width: u8) -> Vec<u8> {
    let mut sink = RawSink::new(Vec::new(), items());
    show(&mut sink, width);
    sink.into_inner()
}

/// What is whole, the bytes of it, and what is wrong.
fn read(bytes: &[u8]) -> (Vec<Piece>, Vec<u8>, Option<TraceFileError>) {
    let (mut pieces, mut raw) = (Vec::new(), Vec::new());
    let mut reader = match TraceReader::open(bytes) {
        Ok(reader) => reader,
        Err(error) => return (pieces, raw, Some(error)),
    };
    loop {
        raw.extend_from_slice(reader.raw());
        match reader.next_piece() {
            Ok(Some(piece)) => pieces.push(piece),
            Ok(None) => return (pieces, raw, None),
            Err(error) => return (pieces, raw, Some(error)),
        }
    }
}

#[derive(Default)]
struct Names {
    symbols: BTreeMap<u64, String>,
    frames: BTreeMap<(Kind, String, u64), (String, u64)>,
}

impl Symbolize for Names {
    fn symbol(&self, ip: u64) -> Option<String> {
        self.symbols.get(&ip).cloned()
    }

    fn frame(&self, kind: Kind, module: &str, address: u64) -> Option<(String, u64)> {
        self.frames.get(&(kind, module.to_owned(), address)).cloned()
    }
}

/// Pieces shown to a sink, as `trace cat` does.
fn replay(pieces: &[Piece], sink: &mut dyn Sink) {
    let mut names = Names::default();
    for piece in pieces {
        match piece {
            Piece::Begin(run) => sink.begin(run).unwrap(),
            Piece::Symbol { ip, name } => drop(names.symbols.insert(*ip, name.clone())),
            Piece::Frame { kind, module, address, name, offset } => {
                names.frames.insert((*kind, module.clone(), *address), (name.clone(), *offset));
            }
            Piece::Record(record) => sink.record(&record.view(), &names).unwrap(),
            Piece::Reply(reply) => sink.reply(reply).unwrap(),
            Piece::End(end) => sink.end(end).unwrap(),
        }
    }
}

/// What a sink of form `form` makes of a run.
fn printed(form: u8, run: &dyn Fn(&mut dyn Sink)) -> Vec<u8> {
    let mut json = JsonSink::new(Vec::new(), items());
    let mut text = TextSink::new(Vec::new(), items());
    let mut symbols = TextSink::new(Vec::new(), items()).with_symbols(20);
    let mut raw = RawSink::new(Vec::new(), items());
    run([&mut json as &mut dyn Sink, &mut text, &mut symbols, &mut raw][usize::from(form)]);
    [json.into_inner(), text.into_inner(), symbols.into_inner(), raw.into_inner()].concat()
}

#[test]
fn a_file_prints_as_the_run_would_have() {
    for width in [32, 64] {
        let (pieces, raw, error) = read(&file(width));
        assert!(error.is_none(), "{error:?}");
        assert_eq!(raw, file(width), "raw is the identity");
        for form in 0..4 {
            let direct = printed(form, &|sink| show(sink, width));
            let later = printed(form, &|sink| replay(&pieces, sink));
            assert!(!direct.is_empty());
            assert_eq!(direct.escape_ascii().to_string(), later.escape_ascii().to_string());
        }
    }
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let mut sink = RawSink::new(Vec::new(), HeaderItems::default());
    sink.begin(&RunInfo { image: "g".into(), width: 32, extra: vec![] }).unwrap();
    sink.record(&records(32)[1].view(), &|_| Some("f".to_owned())).unwrap();
    sink.end(&End { exit: 6, ..End::default() }).unwrap();
    let bytes = sink.into_inner();
    let hex = trapline_trace::hex(&bytes, trapline_trace::HexStyle::Pairs);
    let control = |length: &str, data: &str| format!("{length}{}0220000000000000{data}", "00".repeat(16));
    let text = |text: &str| trapline_trace::hex(text.as_bytes(), trapline_trace::HexStyle::Pairs);
    let parts = [
        // magic, version, width, zero, items
        "895452430d0a1a0a".to_owned() + "0100" + "20" + "00" + "03000000",
        control("26000000", &("01".to_owned() + &text("{\"image\":\"g\"}"))),
        control("22000000", &("02".to_owned() + "999910c000000000" + &text("f"))),
        // length, seq, time, kind, width, termination, flags
        "48000000".to_owned() + "0200000000000000" + "dc05000000000000" + "00" + "20" + "2000" + "43000300",
        // major, minor, eip, icount, code, parm1, parm2, line
        "02000000".to_owned() + "01000000" + "999910c0" + "e803000000000000" + "2000000000000000",
        "0700000000000000".to_owned() + "ffffffffffffffff" + "0c000000",
        // records, committed, overwritten, oversized, insns, hits, lost, exit
        control("77000000", &("04".to_owned() + "0100000000000000" + &"00".repeat(48) + "06000000")),
        text("{\"digest\":null,\"extra\":{}}"),
    ];
    let (before, hash) = bytes.split_last_chunk().unwrap();
    assert_eq!(hex[..2 * before.len()], parts.concat());
    assert_eq!(u64::from_le_bytes(*hash), xxhash_rust::xxh3::xxh3_64(before));
}

#[test]
fn every_truncation_keeps_what_is_whole_and_says_where_it_ends() {
    let whole = file(32);
    let (all, ..) = read(&whole);
    for end in 0..whole.len() {
        let (pieces, raw, error) = read(&whole[..end]);
        let error = error.unwrap_or_else(|| panic!("{end} bytes are no whole file"));
        assert_eq!(pieces, all[..pieces.len()], "{end}");
        assert!(whole.starts_with(&raw) && raw.len() <= end, "{end}");
        let text = error.to_string();
        match error {
            TraceFileError::Magic { .. } => assert_eq!(end, 0),
            TraceFileError::Truncated { at, have, .. } => assert_eq!(at + have, end as u64, "{text}"),
            TraceFileError::NoEnd { at } => assert_eq!(at, end as u64, "{text}"),
            _ => panic!("{end}: {text}"),
        }
    }
}

#[test]
fn every_change_of_one_byte_leaves_what_was_before_it() {
    let whole = file(64);
    let (all, ..) = read(&whole);
    // Where each piece ends.
    let mut ends = Vec::new();
    let mut reader = TraceReader::open(whole.as_slice()).unwrap();
    let mut at = reader.raw().len();
    while reader.next_piece().unwrap().is_some() {
        at += reader.raw().len();
        ends.push(at);
    }
    let mut refused = 0;
    for n in 0..whole.len() {
        for value in [0, 1, 2, 3, 0x20, 0x40, 0x7f, 0x80, 0xff, whole[n] ^ 1, whole[n] ^ 0x10] {
            let mut changed = whole.clone();
            changed[n] = value;
            let (pieces, _, error) = read(&changed);
            let before = ends.iter().filter(|end| **end <= n).count();
            assert!(pieces.len() >= before, "byte {n} as {value:02x}");
            assert_eq!(pieces[..before], all[..before], "byte {n} as {value:02x}");
            if changed == whole {
                continue;
            }
            let text = error.unwrap_or_else(|| panic!("byte {n} as {value:02x} is not noticed")).to_string();
            refused += 1;
            assert!(!text.contains('\n') && text.len() < 250, "{text}");
            assert!(text.contains("byte") || text.contains("begins with"), "{text}");
        }
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn what_is_wrong_is_said_with_offset_and_value() {
    let whole = file(32);
    let change = |at: usize, bytes: &[u8]| {
        let mut changed = whole.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let (_, begin, _) = read(&whole);
    assert_eq!(begin.len(), whole.len());
    // The first control record begins behind the head, with its length.
    let second = 16 + 4 + u32::from_le_bytes(whole[16..20].try_into().unwrap()) as usize;
    let last_length = {
        let mut reader = TraceReader::open(whole.as_slice()).unwrap();
        let mut last = 0;
        while reader.next_piece().unwrap().is_some() {
            last = reader.raw().len();
        }
        last
    };
    let end = whole.len() - last_length;
    let cases = [
        ("empty", Vec::new()),
        ("text", b"DProbes(1,2)".to_vec()),
        ("version", change(8, &[2, 0])),
        ("width of the head", change(10, &[16])),
        ("zero", change(11, &[1])),
        ("items", change(12, &[0, 0, 1, 0])),
        ("short length", change(16, &[23, 0, 0, 0])),
        ("huge length", change(16, &[0, 0, 0, 0xff])),
        ("long length", change(16, &[0, 0, 0, 0x10])),
        ("kind", change(16 + 20, &[9])),
        ("width of a record", change(16 + 21, &[64])),
        ("flags", change(16 + 24, &[0, 8, 0, 0])),
        ("control", change(16 + 28, &[9])),
        ("json", change(16 + 29, b"[")),
        ("no begin", [&whole[..16], &whole[second..]].concat()),
        ("two begins", [&whole[..second], &whole[16..]].concat()),
        ("count", change(end + 29, &[99])),
        ("data", change(second + 60, b"?")),
        ("no end", whole[..end].to_vec()),
        ("more", [whole.as_slice(), b"x"].concat()),
    ];
    let shown: Vec<String> = cases
        .iter()
        .map(|(what, bytes)| {
            let (pieces, _, error) = read(bytes);
            format!("{what}: {} whole; {}", pieces.len(), error.unwrap_or_else(|| panic!("{what}")))
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"));
}

/// A destination of a test's own.
struct Notes(Rc<RefCell<Vec<String>>>);

impl Destination for Notes {
    fn create(&mut self, event: &Event) -> io::Result<()> {
        self.0.borrow_mut().push(format!("create {} {} ({})", event.name, event.format, event.desc));
        Ok(())
    }

    fn log(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        self.0.borrow_mut().push(format!("log {:?} {}", entry.icount, entry.data.escape_ascii()));
        Ok(())
    }

    fn destroy(&mut self) -> io::Result<()> {
        self.0.borrow_mut().push("destroy".to_owned());
        Ok(())
    }
}

#[test]
fn a_registered_destination_is_created_logged_to_record_by_record_and_destroyed() {
    let notes = Rc::new(RefCell::new(Vec::new()));
    let mut known = Destinations::default();
    known.register("notes", || panic!("replaced"));
    let own = Rc::clone(&notes);
    known.register("notes", move || Box::new(Notes(own)));
    let to = known.open("notes").unwrap();
    let mut sink = Logged::new("text", |page| Box::new(TextSink::new(page, HeaderItems::default())), to);
    show(&mut sink, 32);
    insta::assert_snapshot!(notes.borrow().join("\n"));
    let mut known = Destinations::default();
    known.register("notes", || Box::new(Notes(Rc::default())));
    let Err(error) = known.open("ntoes") else { panic!("no such destination") };
    assert_eq!(error.to_string(), "`ntoes` is no log destination; notes would be right");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), head: bool) {
        let bytes = if head { [&file(32)[..16], &bytes].concat() } else { bytes };
        let (_, _, error) = read(&bytes);
        prop_assert!(error.is_some());
    }

    #[test]
    fn any_record_comes_back(
        width in prop_oneof![Just(32u8), Just(64)], seq: u64, icount: u64, ip: u32, line: u32, code: u64,
        thrown: bool, data in proptest::collection::vec(any::<u8>(), 0..100), kind in 0u8..2,
    ) {
        let header = Header {
            seq, icount, width, ip: ip.into(),
            kind: if kind == 0 { Kind::Data } else { Kind::StackTrace },
            exception: thrown.then_some(Exception { code, parm1: seq, parm2: icount, line }),
            ..Header::default()
        };
        let record = Record { header, name: Vec::new(), watch: None, data };
        let mut sink = RawSink::new(Vec::new(), HeaderItems::default());
        sink.begin(&RunInfo { image: "x".into(), width, extra: vec![] }).unwrap();
        sink.record(&record.view(), &|_| None).unwrap();
        sink.end(&End::default()).unwrap();
        let (pieces, _, error) = read(&sink.into_inner());
        prop_assert!(error.is_none());
        prop_assert_eq!(&pieces[1], &Piece::Record(record));
    }
}

#[test]
fn a_programs_stack_is_printed_as_the_run_would_have() {
    for width in [32, 64] {
        let mut stack = GuestStack::default();
        stack.push(0x4000_1010, false, Some(("/bin/prog", 0x4000_0000)));
        stack.push(0x4000_1010, true, Some(("/bin/prog", 0x4000_0000)));
        stack.push(0x1234, true, None);
        let mut record = Record { header: records(width)[0].header, ..Record::default() };
        record.header.kind = Kind::UserStack;
        stack.encode(width, &mut record.data);
        let run = |sink: &mut dyn Sink| {
            sink.begin(&RunInfo { image: "demo".into(), width, ..RunInfo::default() }).unwrap();
            sink.record(&record.view(), &OneSymbol).unwrap();
            sink.record(&record.view(), &OneSymbol).unwrap();
            sink.end(&End::default()).unwrap();
        };
        let mut raw = RawSink::new(Vec::new(), items());
        run(&mut raw);
        let (pieces, _, error) = read(&raw.into_inner());
        assert!(error.is_none() && pieces.iter().filter(|p| matches!(p, Piece::Frame { .. })).count() == 1);
        let text = String::from_utf8(printed(1, &run)).unwrap();
        assert_eq!(
            text.matches("user stack\n              prog`main+0x10\n              prog`+0x1010\n").count(),
            2
        );
        for form in 0..3 {
            assert_eq!(printed(form, &|sink| replay(&pieces, sink)), printed(form, &run));
        }
    }
}
