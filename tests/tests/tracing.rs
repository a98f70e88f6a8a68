//! Exceptions and stack traces from the hit to the record: their bytes, when they are committed and dropped, and that
//! a decoder which shares no code with ours reads the same in them.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use crate::cli::{Ran, finish, patient, trapline};
use serde_json::{Value, json};
use trapline_guests::Guest;
use trapline_interposer::Stats;
use trapline_providers::Target;
use trapline_session::{Command, Condition, Ending, GuestBuilder, Limits, Probing, SourceOptions, compile};
use trapline_tests::root;
use trapline_trace::{HeaderItems, HexStyle, Kind, Record, StackTrace, hex};

/// An instruction limit far beyond the embedded guests' runs.
const LIMIT: u64 = 1_000_000_000;

/// The probe target of a guest.
fn target(guest: &Guest) -> Arc<Target> {
    Arc::clone(GuestBuilder::embedded(guest.name).open().unwrap().target())
}

/// Runs a guest with a program at `do_fork`, whose opcode is filled in; returns the records, encoded with all header
/// items.
fn run_guest(guest: &Guest, head: &str, handler: &str) -> (Vec<u8>, Vec<Record>, Stats) {
    let header = HeaderItems::all();
    let probing = Probing { header, ..Probing::default() };
    let mut session = GuestBuilder::embedded(guest.name).open().unwrap().start(probing).unwrap();
    let fork = session.symbols().sole("do_fork").unwrap().addr;
    let opcode = session.target().image().plan().bytes_at(fork, 1).unwrap()[0];
    let text = format!(
        "name = vmlinux\nmodtype = kernel\n{head}offset = do_fork\nopcode = {opcode:#x}\nminor = 6\n{handler}"
    );
    let program = compile("p.rpn", &text, &SourceOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    session.apply(Command::insert("p.rpn", program)).unwrap();
    assert_eq!(session.run_until(&Condition::end(), &Limits::insns(LIMIT)), Ending::Halted);
    let stats = session.stats();
    let mut bytes = Vec::new();
    session.records().for_each(|record| record.view().encode(header, &mut bytes));
    let mut records = Vec::new();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (record, _, taken) = Record::decode(rest).unwrap();
        records.push(record);
        rest = &rest[taken..];
    }
    (bytes, records, stats)
}

/// The output of the Python decoder for a stream.
fn python(bytes: &[u8]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.bin");
    std::fs::write(&path, bytes).unwrap();
    let mut command = patient("python3");
    command.arg(root().join("tests/decode_records.py")).arg("--items").arg(path);
    finish(command)
}

/// The output of Trapline's decoder, in the form of the Python one.
fn ours(record: &Record) -> Value {
    let h = &record.header;
    let mut line = json!({
        "seq": h.seq, "time": h.time_ns, "termination": h.termination, "width": h.width,
        "major": h.major, "minor": h.minor, "cpu": h.cpu, "pid": h.pid, "uid": h.uid, "cs": h.cs,
        "ip": h.ip, "ss": h.ss, "sp": h.sp, "tsc": h.tsc, "name": String::from_utf8_lossy(&record.name),
        "kind": if h.kind == Kind::Data { "data" } else { "stack-trace" },
        "data": hex(&record.data, HexStyle::Pairs),
    });
    if h.kind == Kind::StackTrace {
        let trace = StackTrace::decode(&record.data, h.width).unwrap();
        let frames = |record: &trapline_trace::TraceRecord| -> Vec<Value> {
            let frame = |f: &trapline_trace::TraceFrame| json!({"called": f.called, "return": f.ret, "stack": f.stack, "lv": f.lv, "gv": f.gv});
            record.frames.iter().map(frame).collect()
        };
        let record = |r: &trapline_trace::TraceRecord| {
            json!({
                "code": r.code, "handler": r.handler, "parm1": r.parm1, "parm2": r.parm2, "frames": frames(r),
            })
        };
        line["trace"] = json!({
            "module": String::from_utf8_lossy(&trace.module), "offset": trace.offset, "id": trace.id,
            "major": trace.major, "minor": trace.minor,
            "records": trace.records.iter().map(record).collect::<Vec<_>>(),
        });
    }
    line
}

/// Every kind of prefixed data, a caught exception in a procedure, an explicit trace, and an exception that ends the
/// handler.
const EVERYTHING: (&str, &str) = (
    "id = 0x12345678\nmajor = 5\nvars = 3\ngvars = 2\nautostacktrace = yes\n",
    "inc lv, 1
push 16
push task
push 12
add
log str
push 12
push task
log mrf
push 1
push 2
log lv
push 0
push 2
log gv
push 7
push 9
push 2
log
save tsp
push 0xabc
xchg
push 1
trace pv
sx caught
call outer
exit
caught: log st
push 0
rx
push 4
push 0x10
log mrf
exit
proc outer
push 0
push 3
trace lv
call inner
ret
endproc
proc inner
push 0
push 2
trace gv
push 1
push 0
idiv
endproc
",
);

#[test]
fn a_decoder_of_its_own_reads_the_same_in_every_record() {
    for guest in [&trapline_guests::IA32, &trapline_guests::X86_64] {
        let (bytes, records, _) = run_guest(guest, EVERYTHING.0, EVERYTHING.1);
        assert_eq!(records.len(), 12, "six forks, a trace with each");
        let ran = python(&bytes);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), records.len());
        for (n, (mut line, record)) in lines.into_iter().zip(&records).enumerate() {
            let items = line.as_object_mut().unwrap().shift_remove("items");
            assert_eq!(line, ours(record), "{} record {n}", guest.name);
            if record.header.kind == Kind::Data {
                let runs = n as u64 / 2 + 1;
                let expected = json!([
                    {"item": "str", "value": "appln"},
                    {"item": "mrf", "value": "000000000100000000000000"},
                    {"item": "lv", "value": [runs, 0]},
                    {"item": "gv", "value": [0, 0]},
                    {"item": "log", "value": [9, 7]},
                    {"item": "fault", "value": 0x10},
                ]);
                assert_eq!(items, Some(expected), "{} record {n}", guest.name);
            }
        }
        let cut = python(&bytes[..bytes.len() - 1]);
        assert_eq!(cut.code, 1, "a truncated record is an error");
    }
}

#[test]
fn a_trace_says_where_the_program_was_and_what_its_scopes_asked_for() {
    for guest in [&trapline_guests::IA32, &trapline_guests::X86_64] {
        let (_, records, stats) = run_guest(guest, EVERYTHING.0, EVERYTHING.1);
        let [data, record] = &records[..2] else { panic!("two records") };
        let (d, h) = (data.header, record.header);
        assert_eq!((d.kind, d.major, d.minor, d.termination), (Kind::Data, 5, 6, 1));
        assert_eq!((h.kind, h.major, h.minor, h.termination), (Kind::StackTrace, 0, 0, 1));
        assert_eq!((h.seq, h.ip, h.sp, h.pid), (d.seq + 1, d.ip, d.sp, d.pid));
        let trace = StackTrace::decode(&record.data, h.width).unwrap();
        let text = target(guest).text_base().unwrap();
        assert_eq!((trace.module.as_slice(), trace.offset), (&b"vmlinux"[..], h.ip - text));
        assert_eq!((trace.id, trace.major, trace.minor), (0x1234_5678, 5, 6));
        let ones = if h.width == 64 { u64::MAX } else { 0xffff_ffff };
        // idiv two calls deep, the same again by `log st`, the fault of `log mrf` that nothing handles.
        let said: Vec<_> =
            trace.records.iter().map(|r| (r.code, r.handler, r.parm1, r.frames.len())).collect();
        let caught = trace.records[0].handler;
        assert_eq!(said, [(0x20, caught, 0, 3), (0x20, caught, 0, 1), (1, ones, 0x10, 1)]);
        let [inner, outer, handler] = &trace.records[0].frames[..] else { panic!("three frames") };
        assert_eq!((&inner.gv, &outer.lv), (&vec![0, 0], &vec![0, 1, 0]));
        assert_eq!((handler.called, handler.ret, handler.stack.len()), (0, ones, 1));
        assert!(outer.ret < inner.ret && outer.called < inner.called && inner.ret > outer.called);
        assert_eq!((stats.hits, stats.exceptions, stats.traces_dropped), (6, 6, 0));
    }
}

#[test]
fn abort_drops_the_trace_with_the_log() {
    let (_, records, stats) = run_guest(&trapline_guests::IA32, "", "log st\npush 1\nlog 1\nabort\n");
    assert_eq!((records.len(), stats.hits), (0, 6));
}

#[test]
fn a_trace_that_was_purged_leaves_the_log_alone() {
    let (_, records, _) = run_guest(&trapline_guests::IA32, "", "log st\npurge st\npush 1\nlog 1\nexit\n");
    assert_eq!(records.len(), 6);
    assert!(records.iter().all(|r| r.header.kind == Kind::Data && r.data == [1, 0, 0, 0]));
}

#[test]
fn trace_records_that_do_not_fit_are_counted_and_whole_ones_stay() {
    let three = "log st\nlog st\nlog st\nexit\n";
    for (size, kept) in [(0, 0), (35, 0), (36, 1), (71, 1), (72, 2), (108, 3)] {
        let (_, records, stats) = run_guest(&trapline_guests::IA32, &format!("excpt_log = {size}\n"), three);
        let traces: Vec<&Record> = records.iter().filter(|r| r.header.kind == Kind::StackTrace).collect();
        assert_eq!(traces.len(), if kept > 0 { 6 } else { 0 }, "excpt_log = {size}");
        for trace in traces {
            assert_eq!(
                StackTrace::decode(&trace.data, 32).unwrap().records.len(),
                kept,
                "excpt_log = {size}"
            );
        }
        assert_eq!(stats.traces_dropped, 6 * (3 - kept as u64), "excpt_log = {size}");
    }
}

#[test]
fn the_end_of_a_run_says_how_many_trace_records_did_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        "name = vmlinux\nmodtype = kernel\nexcpt_log = 40\noffset = do_fork\nopcode = 0x55\nlog st\nlog st\n";
    std::fs::write(folder.path().join("p.rpn"), text).unwrap();
    let ran = trapline(folder.path(), &["run", "embedded:ia32", "-p", "p.rpn", "--stats"]);
    assert!(
        ran.err.contains("6 hits, 0 records lost, 6 stack trace records did not fit excpt_log"),
        "{}",
        ran.err
    );
    assert!(ran.err.lines().any(|l| l.split_whitespace().eq(["traces_dropped", "6"])), "{}", ran.err);
}

#[test]
fn handlers_at_one_site_have_traces_of_their_own() {
    let second = "setmaj 9\nlog st\nexit\noffset = do_fork\nopcode = 0x55\nminor = 7\npush 1\nlog 1\nexit\n\
                  offset = do_fork\nopcode = 0x55\nminor = 8\npush stp\nlog 1\nlog st\nexit\n";
    let (_, records, _) = run_guest(&trapline_guests::IA32, "major = 2\n", second);
    let codes: Vec<_> =
        records[..5].iter().map(|r| (r.header.kind, r.header.major, r.header.minor)).collect();
    let (data, trace) = (Kind::Data, Kind::StackTrace);
    assert_eq!(codes, [(data, 9, 6), (trace, 0, 0), (data, 2, 7), (data, 2, 8), (trace, 0, 0)]);
    // The second trace belongs to the third handler, and begins empty.
    assert_eq!(records[3].data, [0; 4]);
    let minor = |n: usize| StackTrace::decode(&records[n].data, 32).unwrap().minor;
    assert_eq!((minor(1), minor(4)), (6, 8));
}

/// Runs the embedded IA32 guest with a program at `do_fork`; the lines.
fn lines(head: &str, handler: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "name = vmlinux\nmodtype = kernel\nmajor = 1\n{head}offset = do_fork\nopcode = 0x55\nminor = 2\n{handler}"
    );
    std::fs::write(folder.path().join("p.rpn"), text).unwrap();
    let ran = trapline(folder.path(), &["run", "embedded:ia32", "-p", "p.rpn", "-q"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.out.lines().map(str::to_owned).collect()
}

fn little(value: u32) -> String {
    hex(&value.to_le_bytes(), HexStyle::Pairs)
}

#[test]
fn the_example_of_the_docs_has_this_log() {
    let program = "examples/stack-trace.rpn";
    let ran = trapline(&root(), &["run", "embedded:ia32", "-p", program, "-q", "-f", "json"]);
    let target = target(&trapline_guests::IA32);
    let offset = target.symbols().sole("do_fork").unwrap().addr - target.text_base().unwrap();
    let mut expected = Vec::new();
    for runs in 1..=6 {
        let words = |list: &[u32]| list.iter().map(|n| little(*n)).collect::<String>();
        expected.push(words(&[0x20, 0, 0]));
        let head = format!("010700{}{}", hex(b"vmlinux", HexStyle::Pairs), words(&[offset as u32, 77, 3, 1]));
        let record = format!("020100{}030200", words(&[0x20, 9, 0, 0]));
        let callee = format!("{}040000050200{}060000", words(&[12, 7]), words(&[runs, 0]));
        let handler = format!("{}040100{}050000060000", words(&[0, u32::MAX]), words(&[0x11]));
        expected.push(format!("{head}{record}{callee}{handler}"));
    }
    let lines = ran.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let data: Vec<String> = lines.filter_map(|line| line["data"].as_str().map(str::to_owned)).collect();
    assert_eq!(data, expected);
}

/// The offset that the first stack trace of a program at this place has.
fn offset_at(module: &str, place: &str) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("name = {module}\n{place}\nopcode = 0x55\nlog st\nexit\n");
    std::fs::write(folder.path().join("p.rpn"), text).unwrap();
    let ran = trapline(folder.path(), &["run", "embedded:ia32", "-p", "p.rpn", "-q", "-f", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let lines = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let trace = lines.into_iter().find(|line| line["type"] == "stack-trace").unwrap();
    assert_eq!(trace["trace"]["module"], module);
    let offset = trace["trace"]["offset"].as_str().unwrap();
    u64::from_str_radix(offset.strip_prefix("0x").unwrap(), 16).unwrap()
}

#[test]
fn the_offset_counts_from_the_start_of_the_module_however_the_place_was_written() {
    let target = target(&trapline_guests::IA32);
    let fork = target.symbols().sole("do_fork").unwrap().addr;
    let from_text = fork - target.text_base().unwrap();
    for place in
        ["offset = do_fork".to_owned(), format!("offset = {from_text}"), format!("address = {fork:#x}")]
    {
        assert_eq!(offset_at("vmlinux", &format!("modtype = kernel\n{place}")), from_text, "{place}");
    }
    let appln = &target.modules()[0];
    let main = appln.vaddr_to_offset(appln.symbols().sole("main").unwrap().addr).unwrap();
    assert_eq!(offset_at("appln", "offset = main"), main, "in the file");
}

#[test]
fn log_mrf_as_the_man_page_shows_it_logs_the_first_40_bytes_of_the_task() {
    // state, pid, uid, comm; then pointers.
    let task =
        format!("{}{}", "00000000".to_owned() + &little(1) + &little(0), "6170706c6e0000000000000000000000");
    for line in lines("", "push w, 40\npush task\nlog mrf\nexit\n") {
        let data = line.strip_prefix("DProbes(1,2) ").unwrap();
        assert_eq!(data.len(), 2 * (3 + 40));
        assert!(data.starts_with(&format!("002800{task}")), "{data}");
    }
}

#[test]
fn log_str_as_the_man_page_shows_it_logs_the_string_or_the_fault() {
    // The address of the string is in ECX, as the man page has it: put there, and put back.
    let at_ecx = |address: &str| {
        let handler = format!(
            "push r, ecx\n{address}\npop r, ecx\npush w, 256\npush R, ECX\nlog str\npop r, ecx\nexit\n"
        );
        lines("", &handler)
    };
    assert_eq!(at_ecx("push task\npush 12\nadd"), ["DProbes(1,2) \"appln\""; 6]);
    // Token -1, length 4, the faulting address; then INVALID_ADDR, which ends the handler.
    let faults = lines("", "push 5\nlog 1\npush w, 256\npush 0x10\nlog str\npush 6\nlog 1\nexit\n");
    assert_eq!(faults, ["DProbes(1,2) 05000000ff040010000000"; 6]);
    // Unless it is caught: the paper's "interpretation of the RPN probe handler is allowed to continue".
    let caught = "sx caught\npush w, 256\npush 0x10\nlog str\ncaught: log 3\nexit\n";
    assert_eq!(lines("", caught), ["DProbes(1,2) ff040010000000010000001000000000000000"; 6]);
}

#[test]
fn a_partial_log_is_backed_out_with_the_log_pointer() {
    // LOG_OVERFLOW unmasked; LP is kept, since PLP belongs to the last successful log.
    let handler = "push lp\npop lv, 0\nsx full\npush 1\ndup 4\nlog 5\nexit\nfull: ros 3\npush lv, 0\npop lp\npush 9\nlog 1\nexit\n";
    let head = "vars = 1\nlogmax = 12\nexcpt_mask = 0x1fff\n";
    assert_eq!(lines(head, handler), ["DProbes(1,2) 09000000"; 6]);
    // The same masked, as by default: the part that fits is kept, and the handler continues.
    let masked = lines("vars = 1\nlogmax = 12\n", handler);
    assert_eq!(masked, ["DProbes(1,2) 010000000100000001000000"; 6]);
}
