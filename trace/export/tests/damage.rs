//! Damaged and hostile trace files: every sink ends without a panic.

use std::sync::Arc;

use serde_json::json;
use trapline_export::{CsvSink, CtfSink, FlameForm, FlameSink, Notes, PerfettoSink};
use trapline_trace::{
    Call, CallArgument, CallForm, End, Header, Layout, NamedProbe, ProbeName, Record, Shape, ShowError,
    Shown, Sink, Symbolize, TraceReader,
};

use crate::made::{end, file, hit, items, show, stack};

fn whole() -> Vec<u8> {
    let first = hit(0, 10, 1);
    let records =
        [first.clone(), stack(&first, &[0x210, 0x320]), hit(2, 20, 2), hit(3, 30, 2), hit(99, 40, 1)];
    let firing = json!({"type": "d", "seq": 1, "icount": 5, "time_ns": 5, "probe": "fbt:k:f:entry", "id": 1,
        "parts": [{"action": "stack", "value": ["f", "main+0x3"]}]});
    file(&records, &[Shown { objects: vec![firing], ..Shown::default() }])
}

/// All sinks, the last one with a folder of its own.
fn sinks(folder: &std::path::Path) -> Vec<Box<dyn Sink>> {
    let notes = Notes::default;
    vec![
        Box::new(CsvSink::new(Vec::new(), items())),
        Box::new(PerfettoSink::new(Vec::new(), items(), notes())),
        Box::new(FlameSink::new(Vec::new(), FlameForm::Folded, items(), None, notes())),
        Box::new(FlameSink::new(Vec::new(), FlameForm::Svg, items(), None, notes())),
        Box::new(CtfSink::new(folder, items(), notes())),
    ]
}

/// Converts bytes to each format; whether they were a whole trace file.
fn convert(bytes: &[u8]) -> bool {
    let folder = tempfile::TempDir::new().unwrap();
    let mut results = Vec::new();
    for mut sink in sinks(folder.path()) {
        let Ok(mut reader) = TraceReader::open(bytes) else { return false };
        let shown = reader.show(sink.as_mut(), |_| {});
        match &shown {
            Ok(()) => {}
            Err(ShowError::File(_)) => sink.end(&End::default()).unwrap(),
            Err(ShowError::Sink(error)) => panic!("{error}"),
        }
        results.push(shown.is_ok());
    }
    assert!(results.windows(2).all(|two| two[0] == two[1]));
    results[0]
}

#[test]
fn every_truncation_is_noticed_and_what_precedes_it_is_converted() {
    let bytes = whole();
    assert!(convert(&bytes));
    for length in (0..bytes.len()).step_by(7).chain(bytes.len() - 3..bytes.len()) {
        assert!(!convert(&bytes[..length]), "{length} of {} bytes", bytes.len());
    }
}

#[test]
fn every_flipped_byte_is_noticed() {
    let bytes = whole();
    for at in (0..bytes.len()).step_by(5) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x41;
        assert!(!convert(&flipped), "byte {at}");
    }
}

/// Names and layouts that nothing sensible would write.
struct Hostile(ProbeName, Arc<Layout>);

impl Symbolize for Hostile {
    fn symbol(&self, _: u64, _: u32) -> Option<String> {
        Some("\"];}\n;\0<&>".to_owned())
    }

    fn probe(&self, _: u32) -> Option<NamedProbe<'_>> {
        Some(NamedProbe { id: u32::MAX, name: &self.0 })
    }

    fn layout(&self, _: u32) -> Option<&Arc<Layout>> {
        Some(&self.1)
    }
}

#[test]
fn hostile_records_end_nothing() {
    let [provider, module, function] = ["f\"bt", "m;\n", "\u{1b}[31m<script>"].map(Arc::from);
    let argument = |name: &str, shape| CallArgument {
        name: name.to_owned(),
        type_name: String::new(),
        word: 0,
        pair: false,
        length: None,
        shape,
    };
    let items_of = vec![("\"\\\n".to_owned(), i64::MIN), ("x".to_owned(), i64::MAX)];
    let arguments = vec![
        argument("", Shape::Enum { bits: 64, signed: true, items: items_of }),
        argument("", Shape::Int { bits: 63, signed: true }),
        argument("event", Shape::Flags { bits: 0, names: Vec::new() }),
    ];
    let call = Call { function: String::new(), form: CallForm::Entry, words: 1, arguments };
    let name = ProbeName { provider, module, function, name: Arc::from("entry") };
    let hostile = Hostile(name, Arc::new(Layout::Call(call)));
    let folder = tempfile::TempDir::new().unwrap();
    for mut sink in sinks(folder.path()) {
        sink.begin(&trapline_trace::RunInfo { image: "\"\n<&".into(), width: 32, extra: Vec::new() })
            .unwrap();
        for n in [u64::MAX, 0, 7, u64::MAX - 1] {
            let header =
                Header { seq: n, icount: n, time_ns: n, cpu: n as u32, width: 32, ..Header::default() };
            let record = Record { header, data: vec![0xff; 4], ..Record::default() };
            sink.record(&record.view(), &hostile).unwrap();
        }
        sink.end(&end(3, u64::MAX)).unwrap();
    }
    assert!(folder.path().join("metadata").is_file());
}

#[test]
fn a_ctf_trace_is_not_mixed_with_other_files() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut sink = CtfSink::new(&folder.path().join("new"), items(), Notes::default());
    show(&mut sink, &[hit(0, 10, 1)], &[], &end(100, 0));
    let mut again = CtfSink::new(&folder.path().join("new"), items(), Notes::default());
    let error = again.begin(&trapline_trace::RunInfo::default()).unwrap_err().to_string();
    assert_eq!(error, "a CTF trace is a folder of its own, and this one is not empty");
}

#[test]
fn the_same_run_gives_the_same_bytes() {
    let made = || {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("ctf");
        show(
            &mut CtfSink::new(&path, items(), Notes::default()),
            &[hit(0, 10, 1), hit(1, 20, 1)],
            &[],
            &end(100, 0),
        );
        ["metadata", "stream_0"].map(|name| std::fs::read(path.join(name)).unwrap())
    };
    assert_eq!(made(), made());
}
