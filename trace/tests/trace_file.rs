//! Trace files: reading returns what was written, prints it as the run would have, and reports all damage.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use trapline_trace::{
    Counts, Destination, Destinations, DtraceSink, End, Entry, Event, Exception, FileNames, GuestStack,
    Header, HeaderItems, JsonSink, Kind, Logged, Name, NamedProbe, Piece, ProbeName, RawSink, Record, Reply,
    RunInfo, Sink, Symbolize, TextSink, TraceFileError, TraceReader,
};

fn items() -> HeaderItems {
    "pid,name,tsc".parse().unwrap()
}

/// One symbol, also in the stacks of a program, and the probes 0 and 3.
struct Known {
    probes: [ProbeName; 2],
}

impl Default for Known {
    fn default() -> Self {
        let name = |parts: [&str; 4]| {
            let [provider, module, function, name] = parts.map(Arc::from);
            ProbeName { provider, module, function, name }
        };
        let first = name(["fbt", "vmlinux", "do_fork", "entry"]);
        Self { probes: [first, name(["pid*", "a\"b", "main", "return"])] }
    }
}

impl Symbolize for Known {
    fn symbol(&self, ip: u64, _: u32) -> Option<String> {
        (ip == 0xc010_1234).then(|| "do_fork".to_owned())
    }

    fn frame(&self, kind: Kind, module: &str, address: u64) -> Option<(String, u64)> {
        let known = kind == Kind::UserStack && module == "/bin/prog" && address == 0x100f;
        known.then(|| ("main".to_owned(), 15))
    }

    fn probe(&self, number: u32) -> Option<NamedProbe<'_>> {
        match number {
            0 => Some(NamedProbe { id: 33, name: &self.probes[0] }),
            3 => Some(NamedProbe { id: 70_000, name: &self.probes[1] }),
            _ => None,
        }
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
    thrown.header.probe = 1;
    let trace = Record { header: Header { seq: 3, kind: Kind::StackTrace, ..header }, ..first.clone() };
    let last = Record { header: Header { seq: 7, icount: 2000, ..header }, ..first.clone() };
    let of_process = Header { seq: 8, probe: 3, process: 42, cpu: 1, ..header };
    vec![first, thrown, trace, last, Record { header: of_process, ..Record::default() }]
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
        sink.record(&record.view(), &Known::default()).unwrap();
    }
    sink.end(&End {
        insns: 5000,
        hits: 9,
        lost: 3,
        counts: Counts { committed: 7, overwritten: 2, oversized: 1 },
        digest: Some("00ff".into()),
        exit: -1,
        extra: vec![("reason".to_owned(), json!("done"))],
        counters: vec![("traps".to_owned(), json!(9))],
    })
    .unwrap();
}

fn file(width: u8) -> Vec<u8> {
    let mut sink = RawSink::new(Vec::new(), items());
    show(&mut sink, width);
    sink.into_inner()
}

/// The complete pieces, their bytes, and the error.
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

/// Pieces shown to a sink, as `trace cat` does.
fn replay(pieces: &[Piece], sink: &mut dyn Sink) {
    let mut names = FileNames::default();
    for piece in pieces {
        match piece {
            Piece::Begin(run) => sink.begin(run).unwrap(),
            Piece::Name(name) => names.learn(name.clone()),
            Piece::Record(record) => sink.record(&record.view(), &names).unwrap(),
            Piece::Reply(reply) => sink.reply(reply).unwrap(),
            Piece::D(shown) => sink.d(shown).unwrap(),
            Piece::End(end) => sink.end(end).unwrap(),
        }
    }
}

/// The output of a sink of form `form` for a run.
fn printed(form: u8, run: &dyn Fn(&mut dyn Sink)) -> Vec<u8> {
    let mut json = JsonSink::new(Vec::new(), items());
    let mut text = TextSink::new(Vec::new(), items());
    let mut symbols = TextSink::new(Vec::new(), items()).with_symbols(20);
    let mut raw = RawSink::new(Vec::new(), items());
    let mut dtrace = Vec::new();
    let mut dtrace_sink = DtraceSink::new(&mut dtrace);
    let sinks: [&mut dyn Sink; FORMS as usize] =
        [&mut json, &mut text, &mut symbols, &mut dtrace_sink, &mut raw];
    run(sinks[usize::from(form)]);
    [json.into_inner(), text.into_inner(), symbols.into_inner(), dtrace, raw.into_inner()].concat()
}

/// The forms of [`printed`].
const FORMS: u8 = 5;

#[test]
fn a_file_prints_as_the_run_would_have() {
    for width in [32, 64] {
        let (pieces, raw, error) = read(&file(width));
        assert!(error.is_none(), "{error:?}");
        assert_eq!(raw, file(width), "raw is the identity");
        for form in 0..FORMS {
            let direct = printed(form, &|sink| show(sink, width));
            let later = printed(form, &|sink| replay(&pieces, sink));
            assert!(!direct.is_empty());
            assert_eq!(direct.escape_ascii().to_string(), later.escape_ascii().to_string());
        }
    }
}

/// The symbol `f` for any address, and `fbt::do_fork:entry` for any probe.
struct Fork;

impl Symbolize for Fork {
    fn symbol(&self, _: u64, _: u32) -> Option<String> {
        Some("f".to_owned())
    }

    fn probe(&self, _: u32) -> Option<NamedProbe<'_>> {
        static NAME: std::sync::LazyLock<ProbeName> = std::sync::LazyLock::new(|| {
            let [provider, module, function, name] = ["fbt", "vmlinux", "do_fork", "entry"].map(Arc::from);
            ProbeName { provider, module, function, name }
        });
        Some(NamedProbe { id: 33, name: &NAME })
    }
}

#[test]
fn a_file_of_version_1_prints_as_it_did() {
    prints_as_it_did(include_bytes!("files/version-1.trace"), include_str!("files/version-1.txt"));
}

#[test]
fn a_file_of_version_2_prints_as_it_did() {
    prints_as_it_did(include_bytes!("files/version-2.trace"), include_str!("files/version-2.txt"));
}

fn prints_as_it_did(bytes: &[u8], wanted: &str) {
    let (pieces, _, error) = read(bytes);
    assert!(error.is_none(), "{error:?}");
    let items = TraceReader::open(bytes).unwrap().head().items;
    let mut shown = String::new();
    for form in ["text", "json", "dtrace", "symbols"] {
        let mut out = Vec::new();
        let text = || TextSink::new(Vec::new(), items);
        match form {
            "json" => {
                let mut sink = JsonSink::new(&mut out, items);
                replay(&pieces, &mut sink);
            }
            "dtrace" => replay(&pieces, &mut DtraceSink::new(&mut out)),
            _ => {
                let mut sink = if form == "symbols" { text().with_symbols(28) } else { text() };
                replay(&pieces, &mut sink);
                out = sink.into_inner();
            }
        }
        shown.push_str(&format!("--- {form}\n{}", String::from_utf8(out).unwrap()));
    }
    assert_eq!(shown, wanted);
}

#[test]
fn names_that_change_during_a_run_are_those_of_each_record() {
    /// The loaded module.
    struct Now(Option<&'static str>, ProbeName);
    impl Symbolize for Now {
        fn symbol(&self, _: u64, _: u32) -> Option<String> {
            None
        }
        fn frame(&self, _: Kind, _: &str, _: u64) -> Option<(String, u64)> {
            self.0.map(|name| (name.to_owned(), 4))
        }
        fn probe(&self, number: u32) -> Option<NamedProbe<'_>> {
            (number == 0).then_some(NamedProbe { id: 1, name: &self.1 })
        }
    }
    let mut stack = GuestStack::default();
    stack.push(0xc800_0010, true, Some(("driver", 0xc800_0000)));
    let mut record = Record { header: records(32)[0].header, ..Record::default() };
    record.header.kind = Kind::KernelStack;
    stack.encode(32, &mut record.data);
    let run = |sink: &mut dyn Sink| {
        sink.begin(&RunInfo { image: "demo".into(), width: 32, ..RunInfo::default() }).unwrap();
        for (loaded, probe) in [(None, 0), (Some("open"), 0), (Some("open"), 1), (Some("read"), 1), (None, 1)]
        {
            let mut name = Known::default().probes[probe].clone();
            if loaded.is_none() {
                name.name = "gone".into();
            }
            sink.record(&record.view(), &Now(loaded, name)).unwrap();
        }
        sink.end(&End::default()).unwrap();
    };
    let mut raw = RawSink::new(Vec::new(), items());
    run(&mut raw);
    let (pieces, _, error) = read(&raw.into_inner());
    assert!(error.is_none(), "{error:?}");
    for form in 0..FORMS {
        let later = printed(form, &|sink| replay(&pieces, sink));
        assert_eq!(printed(form, &run).escape_ascii().to_string(), later.escape_ascii().to_string());
    }
}

#[test]
fn the_dtrace_form_shows_every_byte() {
    let line = |width, data: &[u8]| {
        let mut record = Record { header: records(width)[0].header, ..Record::default() };
        record.data = data.to_vec();
        let mut out = Vec::new();
        DtraceSink::new(&mut out).record(&record.view(), &Known::default()).unwrap();
        String::from_utf8(out).unwrap().split_whitespace().skip(3).collect::<Vec<_>>().join(" ")
    };
    // A string of 12 bytes after its prefix.
    let path = b"\x01\x0c\x00/dev/console";
    assert_eq!(line(32, path), "0x2f000c01 0x2f766564 0x736e6f63 0x656c6f");
    assert_eq!(line(64, path), "0x2f7665642f000c01 0x656c6f736e6f63");
    assert_eq!(line(32, &[1, 0, 0, 0, 0, 0]), "0x1 0x0000");
    assert_eq!(line(32, &[0x7f]), "0x7f");
    assert_eq!(line(32, &[]), "");
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let mut sink = RawSink::new(Vec::new(), HeaderItems::default());
    sink.begin(&RunInfo { image: "g".into(), width: 32, extra: vec![] }).unwrap();
    sink.record(&records(32)[1].view(), &Fork).unwrap();
    sink.end(&End { exit: 6, ..End::default() }).unwrap();
    let bytes = sink.into_inner();
    let hex = trapline_trace::hex(&bytes, trapline_trace::HexStyle::Pairs);
    let control = |length: &str, data: &str| format!("{length}{}0220000000000000{data}", "00".repeat(16));
    let text = |text: &str| trapline_trace::hex(text.as_bytes(), trapline_trace::HexStyle::Pairs);
    let parts = [
        // magic, version, width, zero, items
        "895452430d0a1a0a".to_owned() + "0500" + "20" + "00" + "03000000",
        control("26000000", &("01".to_owned() + &text("{\"image\":\"g\"}"))),
        control("22000000", &("02".to_owned() + "999910c000000000" + &text("f"))),
        // number and identifier of the probe
        control("44000000", &("06".to_owned() + "01000000" + "21000000"))
            + &text("[\"fbt\",\"vmlinux\",\"do_fork\",\"entry\"]"),
        // length, seq, time, kind, width, termination, flags
        "54000000".to_owned() + "0200000000000000" + "dc05000000000000" + "00" + "20" + "2000" + "47000700",
        // major, minor, cpu, eip, icount, code, parm1, parm2, line
        "02000000".to_owned() + "01000000" + "00000000" + "999910c0" + "e803000000000000",
        "2000000000000000".to_owned() + "0700000000000000" + "ffffffffffffffff" + "0c000000",
        // probe, process
        "01000000".to_owned() + "00000000",
        // records, committed, overwritten, oversized, insns, hits, lost, exit
        control("85000000", &("04".to_owned() + "0100000000000000" + &"00".repeat(48) + "06000000")),
        text("{\"digest\":null,\"extra\":{},\"counters\":{}}"),
    ];
    // Each record is followed by its checksum, seeded with the previous one; the last record ends with the hash of all
    // bytes before it.
    let (mut at, mut pieces, mut check) =
        (16, 0, xxhash_rust::xxh3::xxh3_64_with_seed(&bytes[..16], 0) as u32);
    let mut without = hex[..32].to_owned();
    while at < bytes.len() {
        let end = at + 4 + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        check = xxhash_rust::xxh3::xxh3_64_with_seed(&bytes[at..end], check.into()) as u32;
        assert_eq!(bytes[end..end + 4], check.to_le_bytes());
        without.push_str(&hex[2 * at..2 * end]);
        (at, pieces) = (end + 4, pieces + 1);
    }
    assert_eq!(pieces, 5);
    let (before, hash) = bytes[..bytes.len() - 4].split_last_chunk().unwrap();
    assert_eq!(without[..without.len() - 16], parts.concat());
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
            if changed == whole {
                assert_eq!(pieces, all);
                continue;
            }
            // A change of the head is noticed at the first record, any other in its own record. If the version became
            // an old one, the first checksum is read as an invalid length.
            let before =
                ends.iter().filter(|end| **end <= n).count().max(usize::from(n == 8 && pieces.len() == 1));
            assert_eq!(pieces, all[..before], "byte {n} as {value:02x}");
            let text = error.unwrap_or_else(|| panic!("byte {n} as {value:02x} is not noticed")).to_string();
            refused += 1;
            assert!(!text.contains('\n') && text.len() < 250, "{text}");
            assert!(text.contains("byte") || text.contains("begins with"), "{text}");
        }
    }
    assert!(refused > 1000, "{refused}");
}

/// A file with the checksums that belong to its bytes.
fn sealed(mut file: Vec<u8>) -> Vec<u8> {
    let (mut at, mut check) = (16, xxhash_rust::xxh3::xxh3_64_with_seed(&file[..16], 0) as u32);
    while at < file.len() {
        let end = at + 4 + u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
        check = xxhash_rust::xxh3::xxh3_64_with_seed(&file[at..end], check.into()) as u32;
        file[end..end + 4].copy_from_slice(&check.to_le_bytes());
        at = end + 4;
    }
    file
}

#[test]
fn errors_are_reported_with_offset_and_value() {
    let whole = file(32);
    let change = |at: usize, bytes: &[u8]| {
        let mut changed = whole.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    // The same with matching checksums, as a faulty program would write it.
    let written = |at: usize, bytes: &[u8]| sealed(change(at, bytes));
    let (_, begin, _) = read(&whole);
    assert_eq!(begin.len(), whole.len());
    // The first control record begins after the head, with its length.
    let second = 16 + 8 + u32::from_le_bytes(whole[16..20].try_into().unwrap()) as usize;
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
        ("version", change(8, &[6, 0])),
        ("version 0", change(8, &[0, 0])),
        ("width of the head", change(10, &[16])),
        ("zero", change(11, &[1])),
        ("items", change(12, &[0, 0, 1, 0])),
        ("short length", change(16, &[23, 0, 0, 0])),
        ("huge length", change(16, &[0, 0, 0, 0xff])),
        ("long length", change(16, &[0, 0, 0, 0x10])),
        ("kind", written(16 + 20, &[9])),
        ("width of a record", written(16 + 21, &[64])),
        ("flags", written(16 + 24, &[0, 8, 0, 0])),
        ("control", written(16 + 28, &[9])),
        ("json", written(16 + 29, b"[")),
        ("no begin", sealed([&whole[..16], &whole[second..]].concat())),
        ("two begins", sealed([&whole[..second], &whole[16..]].concat())),
        ("count", written(end + 29, &[99])),
        ("data", change(second + 60, b"?")),
        ("items that are others", change(12, &[1, 0, 0, 0])),
        ("a record twice", [&whole[..second], &whole[16..]].concat()),
        ("hash", written(second + 60, b"?")),
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

/// A destination for tests.
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
    assert_eq!(error.to_string(), "`ntoes` is not a log destination; use notes");
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
            sink.record(&record.view(), &Known::default()).unwrap();
            sink.record(&record.view(), &Known::default()).unwrap();
            sink.end(&End::default()).unwrap();
        };
        let mut raw = RawSink::new(Vec::new(), items());
        run(&mut raw);
        let (pieces, _, error) = read(&raw.into_inner());
        assert!(
            error.is_none()
                && pieces.iter().filter(|p| matches!(p, Piece::Name(Name::Frame { .. }))).count() == 1
        );
        let text = String::from_utf8(printed(1, &run)).unwrap();
        assert_eq!(
            text.matches("user stack\n              prog`main+0x10\n              prog`+0x1010\n").count(),
            2
        );
        for form in 0..FORMS {
            assert_eq!(printed(form, &|sink| replay(&pieces, sink)), printed(form, &run));
        }
    }
}
