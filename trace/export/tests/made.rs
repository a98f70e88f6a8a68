//! Runs that are made up.

use std::sync::Arc;

use serde_json::json;
use trapline_trace::{
    Call, CallArgument, CallForm, Counts, End, GuestStack, Header, HeaderItems, Kind, Layout, NamedProbe,
    ProbeName, RawSink, Record, RunInfo, Shape, Shown, Sink, Symbolize,
};

/// The items of all made records.
pub fn items() -> HeaderItems {
    "pid,name".parse().unwrap()
}

/// The functions `a`, `b` and `c`: entries are the even numbers, returns the odd ones.
pub struct Known {
    probes: Vec<ProbeName>,
    layout: Arc<Layout>,
}

impl Default for Known {
    fn default() -> Self {
        let name = |n: usize| {
            let (function, name) = (["a", "b", "c"][n / 2], ["entry", "return"][n % 2]);
            let [provider, module, function, name] = ["fbt", "kernel", function, name].map(Arc::from);
            ProbeName { provider, module, function, name }
        };
        let bytes = CallArgument {
            name: "bytes".into(),
            type_name: "size_t".into(),
            word: 0,
            pair: false,
            length: None,
            shape: Shape::Int { bits: 32, signed: false },
        };
        let call = Call { function: "a".into(), form: CallForm::Entry, words: 1, arguments: vec![bytes] };
        Self { probes: (0..6).map(name).collect(), layout: Arc::new(Layout::Call(call)) }
    }
}

impl Symbolize for Known {
    fn symbol(&self, ip: u64, _: u32) -> Option<String> {
        (ip == 0x100).then(|| "somewhere+0x4".to_owned())
    }

    fn frame(&self, _: Kind, _: &str, address: u64) -> Option<(String, u64)> {
        (address < 0x1000).then(|| (format!("f{}", address / 0x100), address % 0x100))
    }

    fn probe(&self, number: u32) -> Option<NamedProbe<'_>> {
        self.probes.get(number as usize).map(|name| NamedProbe { id: number + 1, name })
    }

    fn layout(&self, probe: u32) -> Option<&Arc<Layout>> {
        (probe == 0).then_some(&self.layout)
    }
}

/// A hit of the probe with this number at an instruction count, by a task.
pub fn hit(probe: u32, icount: u64, pid: u32) -> Record {
    let header = Header {
        seq: icount,
        icount,
        time_ns: icount * 2,
        probe,
        width: 32,
        pid,
        ip: 0x100,
        ..Header::default()
    };
    Record { header, name: format!("task{pid}").into_bytes(), watch: None, data: vec![7, 0, 0, 0] }
}

/// The same hits, as the firings of a D program.
pub fn as_d(records: &[Record]) -> Vec<Shown> {
    let known = Known::default();
    let firing = |record: &Record| {
        let (h, name) = (&record.header, known.probes[record.header.probe as usize].to_string());
        json!({"type": "d", "seq": h.seq, "icount": h.icount, "time_ns": h.time_ns, "cpu": h.cpu, "pid": h.pid,
            "process": h.process, "name": String::from_utf8_lossy(&record.name), "probe": name, "id": h.probe + 1,
            "parts": []})
    };
    records.iter().map(|record| Shown { objects: vec![firing(record)], ..Shown::default() }).collect()
}

/// The kernel's stack of a hit.
pub fn stack(of: &Record, addresses: &[u64]) -> Record {
    let (mut stack, mut data) = (GuestStack::default(), Vec::new());
    addresses.iter().for_each(|address| stack.push(*address, false, Some(("kernel", 0))));
    stack.encode(32, &mut data);
    Record { header: Header { kind: Kind::KernelStack, ..of.header }, data, ..of.clone() }
}

/// The end of a run after this many instructions.
pub fn end(insns: u64, lost: u64) -> End {
    let counters = vec![("virtual_ns".to_owned(), json!(insns * 2))];
    End { insns, lost, counts: Counts::default(), counters, ..End::default() }
}

/// Shows a run to a sink.
pub fn show(sink: &mut dyn Sink, records: &[Record], d: &[Shown], end: &End) {
    sink.begin(&RunInfo { image: "made".into(), width: 32, extra: Vec::new() }).unwrap();
    let known = Known::default();
    records.iter().for_each(|record| sink.record(&record.view(), &known).unwrap());
    d.iter().for_each(|shown| sink.d(shown).unwrap());
    sink.end(end).unwrap();
}

/// A trace file of a run.
pub fn file(records: &[Record], d: &[Shown]) -> Vec<u8> {
    let mut sink = RawSink::new(Vec::new(), items());
    show(&mut sink, records, d, &end(1000, 0));
    sink.into_inner()
}
