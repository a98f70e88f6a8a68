//! Watchpoint probes from end to end: on the embedded guests through the built program, and through the interposer.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::cli::{Ran, trapline};
use serde_json::Value;
use tempfile::TempDir;
use trapline_emu::{BootState, CpuMode, CpuModel, Machine, MachineConfig, Stop, WatchKind};
use trapline_interposer::{Interposer, Output, Place};
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_tests::{interposer, root};
use trapline_trace::Accessed;

const GUESTS: [&str; 2] = ["ia32", "x86_64"];
/// `sdt`, the counters of appln, on each guest.
const SDT: [u64; 2] = [0x0805_3000, 0x0040_b000];

/// A run as JSON: the hits, and the end line.
fn run(guest: &str, args: &[&str]) -> (Vec<Value>, Value) {
    let image = format!("embedded:{guest}");
    let mut all = vec!["run", &image, "--mem", "32M", "-f", "json", "--console", "none", "-q"];
    all.extend(args);
    let ran = trapline(&root(), &all);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let mut lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = lines.pop().unwrap();
    (lines.into_iter().filter(|l| l["type"] == "hit").collect(), end)
}

fn digest(guest: &str) -> (Value, Value) {
    let (_, end) = run(guest, &[]);
    (end["insns"].clone(), end["digest"].clone())
}

fn number(value: &Value) -> u64 {
    let text = value.as_str().unwrap();
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// The first logged element.
fn logged(hit: &Value) -> u64 {
    let data = hit["data"].as_str().unwrap();
    let bytes = (0..data.len() / 2).map(|n| u8::from_str_radix(&data[2 * n..2 * n + 2], 16).unwrap());
    bytes.rev().fold(0, |value, byte| value << 8 | u64::from(byte))
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn example_7a_logs_what_the_kernel_writes_to_nr_free_pages() {
    for guest in GUESTS {
        let (hits, end) = run(guest, &["-p", "examples/man/7a-nr_free_pages.rpn"]);
        assert_eq!((end["insns"].clone(), end["digest"].clone()), digest(guest), "{guest}");
        assert!(hits.len() > 20 && hits.len() <= 100, "{guest}: {} hits", hits.len());
        let mut before = 0;
        for (n, hit) in hits.iter().enumerate() {
            let watch = &hit["watch"];
            let (old, new) = (number(&watch["old"]), number(&watch["new"]));
            assert_eq!((old, logged(hit), watch["size"].as_u64()), (before, new, Some(4)), "{guest} hit {n}");
            // The kernel sets it once, then takes or gives a page at a time.
            assert!(n == 0 || old.abs_diff(new) == 1, "{guest} hit {n}: {hit}");
            let symbol = hit["symbol"].as_str().unwrap();
            let function = symbol.split('+').next().unwrap();
            assert!(n == 0 || matches!(function, "get_free_page" | "free_page"), "{guest}: {symbol}");
            assert_eq!(n == 0 || new < old, n == 0 || function == "get_free_page", "{guest}: {symbol}");
            before = new;
        }
    }
}

#[test]
fn example_7b_watches_a_user_address() {
    let folder = tempfile::tempdir().unwrap();
    let example = std::fs::read_to_string(root().join("examples/man/7b-user.rpn")).unwrap();
    for (guest, at) in GUESTS.iter().zip(SDT) {
        let text = example.replace("0x08053000:0x08053003", &format!("{at:#x}:{:#x}", at + 3));
        let path = write(folder.path(), "7b.rpn", &text);
        let (hits, end) = run(guest, &["-p", &path, "--header", "name,pid"]);
        assert_eq!((end["insns"].clone(), end["digest"].clone()), digest(guest), "{guest}");
        // Eight passes of a static site that counts itself, then the line that prints the count.
        let values: Vec<u64> = hits.iter().map(|h| number(&h["watch"]["new"])).collect();
        assert_eq!(values[..8], [1, 2, 3, 4, 5, 6, 7, 8], "{guest}");
        assert!(values[8..].iter().all(|&v| v == 8) && values.len() > 8, "{guest}: {values:?}");
        for hit in &hits {
            assert_eq!((logged(hit), hit["name"].as_str()), (number(&hit["ip"]), Some("appln")), "{guest}");
            assert!(hit["symbol"].as_str().unwrap().starts_with("appln:"), "{guest}: {hit}");
        }
    }
}

#[test]
fn watches_of_every_kind_leave_the_guest_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name = vmlinux\nmodtype = kernel\n\
        address = do_fork\nwatchpoint = x\nminor = 1\npush r, eip\nlog 1\nexit\n\
        address = 0x3f8:0x3f8\nwatchpoint = io\nminor = 2\nexit\n\
        address = page_stack:page_stack + 0xfff\nwatchpoint = rw\nminor = 3\nexit\n\
        address = nr_free_pages:nr_free_pages + 3\nwatchpoint = rw\nminor = 4\nexit\n\
        address = 0x08000000:0x0bffffff\nwatchpoint = w\nminor = 5\nexit\n";
    let path = write(folder.path(), "kinds.rpn", text);
    for guest in GUESTS {
        let (hits, end) = run(guest, &["-p", &path, "--watch-unlimited", "--channel", "1Mx64"]);
        assert_eq!((end["insns"].clone(), end["digest"].clone()), digest(guest), "{guest}");
        assert_eq!(end["lost"], 0);
        let count = |minor: u64| hits.iter().filter(|h| h["minor"] == minor).count();
        assert!((1..=3).all(|n| count(n) > 4), "{guest}: {:?}", [count(1), count(2), count(3), count(4)]);
        assert!(guest != "ia32" || count(5) > 1000, "{guest}: {}", count(5));
        let forks: Vec<_> = hits.iter().filter(|h| h["minor"] == 1).collect();
        assert!(forks.iter().all(|h| h["symbol"] == "do_fork" && h["watch"]["access"] == "x"), "{guest}");
        // The same run again.
        let (again, _) = run(guest, &["-p", &path, "--watch-unlimited", "--channel", "1Mx64"]);
        assert!(hits == again, "{guest}: two runs differ");
    }
}

#[test]
fn every_access_execution_and_port_can_be_watched() {
    let folder = tempfile::tempdir().unwrap();
    for (guest, top) in GUESTS.iter().zip([u64::from(u32::MAX), u64::MAX]) {
        let point = |high: u64, kind: &str| format!("address = 0:{high:#x}\nwatchpoint = {kind}\nabort\n");
        let points = [point(top, "rw"), point(top, "x"), point(0xffff, "io")].concat();
        let path = write(folder.path(), "all.rpn", &format!("name = vmlinux\nmodtype = kernel\n{points}"));
        let image = format!("embedded:{guest}");
        let end = |more: &[&str]| {
            let args = ["run", &image, "--mem", "32M", "--limit-insns", "500000", "-f", "json", "-q"];
            let ran = trapline(&root(), &[&args[..], more].concat());
            assert_eq!(ran.code, 124, "{}", ran.err);
            serde_json::from_str::<Value>(ran.out.lines().last().unwrap()).unwrap()
        };
        let (all, none) = (end(&["--watch-unlimited", "-p", &path]), end(&[]));
        assert_eq!((&all["insns"], &all["digest"]), (&none["insns"], &none["digest"]), "{guest}");
        assert!(all["hits"].as_u64().unwrap() > 500_000, "{guest}: {}", all["hits"]);
    }
}

#[test]
fn scripts_insert_remove_and_go_back_over_watches() {
    let folder = tempfile::tempdir().unwrap();
    let example = "examples/man/7a-nr_free_pages.rpn";
    let lines = "on hit 5 of 7a-nr_free_pages.rpn snapshot five\non hit 9 of 7a-nr_free_pages.rpn query\n\
        on hit 12 of 7a-nr_free_pages.rpn remove 7a-nr_free_pages.rpn\nat insns=4M restore five\n";
    let script = write(folder.path(), "s.script", lines);
    let (whole, plain) = run("ia32", &["-p", example]);
    let args =
        ["run", "embedded:ia32", "--mem", "32M", "-p", example, "--script", &script, "-f", "json", "-q"];
    let ran: Ran = trapline(&root(), &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let hits: Vec<_> = lines.iter().filter(|l| l["type"] == "hit").collect();
    let of =
        |hits: &[&Value]| hits.iter().map(|h| (h["icount"].clone(), h["watch"].clone())).collect::<Vec<_>>();
    let whole: Vec<&Value> = whole.iter().collect();
    assert_eq!(of(&hits[..12]), of(&whole[..12]), "until it is removed");
    assert_eq!(of(&hits[12..]), of(&whole[5..]), "from the snapshot on, where it is inserted again");
    let query = lines.iter().find(|l| l["type"] == "query").unwrap();
    let point = &query["programs"][0]["points"][0];
    assert_eq!((point["hits"].as_u64(), point["sites"].as_u64()), (Some(9), Some(1)), "{query}");
    let end = lines.last().unwrap();
    assert_eq!((&end["insns"], &end["digest"]), (&plain["insns"], &plain["digest"]));
}

#[test]
fn a_refusal_names_the_probe_the_limit_and_the_option() {
    let folder = tempfile::tempdir().unwrap();
    let point = |range: &str, kind: &str| format!("address = {range}\nwatchpoint = {kind}\nexit\n");
    let head = "name = vmlinux\nmodtype = kernel\n";
    let refused = |points: &str| {
        let path = write(folder.path(), "bad.rpn", &format!("{head}{points}"));
        let ran = trapline(
            &root(),
            &["run", "embedded:ia32", "--mem", "16M", "-q", "-p", &path, "--limit-insns", "1"],
        );
        assert_eq!(ran.code, 3, "{}", ran.err);
        ran.err
    };
    let five: String = (0..5).map(|n| point(&format!("0x{n}000:0x{n}003"), "w")).collect();
    let text = refused(&five);
    assert!(text.contains("bad.rpn:15:11: error: the watch of 0x4000:0x4003 would be one more"), "{text}");
    assert!(text.contains("which are 4; --watch-unlimited takes any number"), "{text}");
    for (range, kind, reason) in [
        ("0x1000:0x1002", "w", "1, 2, 4 or 8 bytes, aligned to their size; --watch-unlimited"),
        ("0x1002:0x1005", "rw", "1, 2, 4 or 8 bytes, aligned to their size; --watch-unlimited"),
        ("0x1000:0x1001", "x", "it takes 1 byte; --watch-unlimited"),
        ("0x1004:0x1000", "w", "0x1004:0x1000 ends before it begins"),
        ("0x10000:0x10000", "io", "ends at 0x10000, which is not a port; the highest port is 0xffff"),
    ] {
        let text = refused(&point(range, kind));
        assert!(text.contains("bad.rpn:3:11: error") && text.contains(reason), "{range} {kind}: {text}");
    }
    let path = write(folder.path(), "five.rpn", &format!("{head}{five}"));
    let args = [
        "run",
        "embedded:ia32",
        "--mem",
        "16M",
        "-q",
        "-p",
        &path,
        "--limit-insns",
        "1",
        "--watch-unlimited",
    ];
    assert_eq!(trapline(&root(), &args).code, 124);
}

#[test]
fn the_limit_holds_for_the_groups_that_are_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let point = |n: u64| {
        let group = if n < 4 { "few" } else { "many" };
        format!("address = 0x{n}000\nwatchpoint = w\ngroup = {group}\nexit\n")
    };
    let points: String = (0..9).map(point).collect();
    let text = format!("name = vmlinux\nmodtype = kernel\ngroupdef = few many\n{points}");
    let path = write(folder.path(), "groups.rpn", &text);
    let run = |groups: &str| {
        let args = [
            "run",
            "embedded:ia32",
            "--mem",
            "16M",
            "-q",
            "-p",
            &path,
            "--limit-insns",
            "1",
            "--group",
            groups,
        ];
        let ran = trapline(&root(), &args);
        (ran.code, ran.err)
    };
    assert_eq!(run("few"), (124, String::new()));
    let (code, err) = run("many");
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("the watch of 0x8000:0x8000 would be one more"), "{err}");
}

const AT: u64 = 0x1_0000;
const DATA: u64 = 0x2_0000;

/// A flat machine that runs `code` at `AT`.
fn machine(code: &[u8]) -> Machine {
    let mut m = Machine::new(&MachineConfig { mem_size: 1 << 20, model: CpuModel::Ia32 }).unwrap();
    m.write_physical(AT, code);
    m.boot(&BootState { mode: CpuMode::Flat32, ip: AT, ax: 0, bx: 0, sp: DATA + 0x100, si: 0 });
    m
}

fn insert(
    m: &mut Machine,
    probes: &mut Interposer,
    points: &str,
    places: Vec<Place>,
) -> trapline_interposer::ProgramId {
    let text = format!("name = vmlinux\nmodtype = kernel\nvars = 4\n{points}");
    let program = parse("watch.rpn", &text).unwrap().link(Width::W32, &NoSymbols).unwrap();
    probes.insert(m.core_mut(), "watch", program, places).unwrap()
}

fn place(kind: WatchKind, low: u64, high: u64) -> Place {
    Place::Watch(trapline_emu::Watch { kind, low, high })
}

/// `mov ecx, 10; l: inc dword [DATA]; loop l; hlt`.
fn counting() -> Vec<u8> {
    vec![0xb9, 10, 0, 0, 0, 0xff, 0x05, 0, 0, 2, 0, 0xe2, 0xf8, 0xf4]
}

#[test]
fn ignore_and_maxhits_count_accesses_and_remove_ends_them() {
    for (statements, handler, expected) in [
        ("ignore = 3\nmaxhits = 4\n", "log 1\nexit", vec![4, 5, 6, 7]),
        ("", "remove\nlog 1\nexit", vec![1]),
        ("maxhits = 2\n", "log 1\nexit", vec![1, 2]),
    ] {
        let mut m = machine(&counting());
        let mut probes = interposer();
        let text = format!(
            "address = {DATA:#x}:{:#x}\nwatchpoint = w\n{statements}push {DATA:#x}\npush mem, u32\n{handler}\n",
            DATA + 3
        );
        insert(&mut m, &mut probes, &text, vec![place(WatchKind::Write, DATA, DATA + 3)]);
        assert_eq!(m.run(Some(&mut probes), u64::MAX), Stop::Halted);
        let seen: Vec<u8> = probes.channels().records().iter().map(|r| r.data[0]).collect();
        assert_eq!(seen, expected, "{statements}{handler}");
        assert_eq!(probes.stats().sites, u64::from(statements.contains("ignore") && expected.len() > 4));
    }
}

#[test]
fn a_probe_and_a_watch_meet_at_one_instruction() {
    // push eax; pop ebx; hlt: both are emulated when probed.
    let code = [0x50, 0x5b, 0xf4];
    let mut plain = machine(&code);
    assert_eq!(plain.run(None, u64::MAX), Stop::Halted);
    let mut m = machine(&code);
    let mut probes = interposer();
    let low = DATA + 0xfc;
    let points = format!(
        "address = {AT:#x}\nopcode = 0x50\nminor = 1\npush r, eip\nlog 1\nexit\n\
         address = {:#x}\nopcode = 0x5b\nminor = 2\npush r, eip\nlog 1\nexit\n\
         address = {low:#x}:{:#x}\nwatchpoint = rw\nminor = 3\npush r, esp\npush r, eip\nlog 2\nexit\n\
         address = {AT:#x}\nwatchpoint = x\nminor = 4\npush r, eip\nlog 1\nexit\n",
        AT + 1,
        low + 3
    );
    let kernel = |at: u64| Place::Kernel { linear: at, paddr: at };
    let places = vec![
        kernel(AT),
        kernel(AT + 1),
        place(WatchKind::ReadWrite, low, low + 3),
        place(WatchKind::Execute, AT, AT),
    ];
    insert(&mut m, &mut probes, &points, places);
    assert_eq!(m.run(Some(&mut probes), u64::MAX), Stop::Halted);
    assert_eq!((m.icount(), m.digest()), (plain.icount(), plain.digest()));
    let stack = |data: &[u8]| data.get(4..8).map(|b| u32::from_le_bytes(b.try_into().unwrap()));
    let records = probes.channels().records();
    let seen: Vec<_> = records
        .iter()
        .map(|r| (r.header.minor, r.header.ip, r.watch.map(|w| w.access), stack(&r.data), r.header.icount))
        .collect();
    let top = DATA as u32 + 0x100;
    assert_eq!(
        seen,
        [
            (4, AT, Some(Accessed::Execute), None, 0),
            (1, AT, None, None, 0),
            (3, AT, Some(Accessed::Write), Some(top - 4), 1),
            (2, AT + 1, None, None, 1),
            (3, AT + 1, Some(Accessed::Read), Some(top), 2),
        ]
    );
    for (n, at) in [AT, AT, AT, AT + 1, AT + 1].iter().enumerate() {
        assert_eq!(u64::from(u32::from_le_bytes(records[n].data[..4].try_into().unwrap())), *at);
    }
    assert_eq!(probes.stats().sites, 4);
}

#[test]
fn an_execution_that_faults_leaves_no_record_and_its_retry_counts_once() {
    // A #UD at AT whose handler patches the instruction to a NOP would need an IDT; here `ud2` triple-faults.
    let code = [0x90, 0x0f, 0x0b];
    for (logonfault, records) in [("no", 0), ("yes", 1)] {
        let mut m = machine(&code);
        let mut probes = interposer();
        let text = format!("address = {:#x}\nwatchpoint = x\nlogonfault = {logonfault}\nexit\n", AT + 1);
        insert(&mut m, &mut probes, &text, vec![place(WatchKind::Execute, AT + 1, AT + 1)]);
        assert!(matches!(m.run(Some(&mut probes), u64::MAX), Stop::TripleFault(_)));
        assert_eq!(probes.channels().records().len(), records, "logonfault = {logonfault}");
        assert_eq!((probes.stats().hits, probes.stats().faulted), (1, 1));
    }
}

#[test]
fn a_saved_table_brings_its_watches_back() {
    let mut m = machine(&counting());
    let mut probes = interposer();
    let text = format!(
        "address = {DATA:#x}:{:#x}\nwatchpoint = w\nmaxhits = 3\ninc lv, 0\nexit\n\
         address = {:#x}\nwatchpoint = x\ninc lv, 1\nexit\n",
        DATA + 3,
        AT + 5
    );
    let places = vec![place(WatchKind::Write, DATA, DATA + 3), place(WatchKind::Execute, AT + 5, AT + 5)];
    let id = insert(&mut m, &mut probes, &text, places);
    let (start, table) = (m.snapshot(), probes.save(m.core()));
    for _ in 0..3 {
        assert_eq!(m.run(Some(&mut probes), u64::MAX), Stop::Halted);
        assert_eq!((probes.locals(id)[..2].to_vec(), probes.stats().sites), (vec![3, 10], 1));
        probes.remove(m.core_mut(), id);
        assert_eq!(probes.stats().sites, 0);
        m.restore(&start).unwrap();
        probes.restore(m.core_mut(), &table, Output::GoesOn);
        assert_eq!(probes.stats().sites, 2);
    }
}

#[test]
fn enabling_a_fifth_watch_is_refused_and_leaves_it_disabled() {
    let mut m = machine(&counting());
    let mut probes = interposer();
    let point = |n: u64| format!("address = {:#x}\nwatchpoint = w\nexit\n", DATA + n);
    let four: String = (0..4).map(point).collect();
    let places = |range: std::ops::Range<u64>| {
        range.map(|n| place(WatchKind::Write, DATA + n, DATA + n)).collect::<Vec<_>>()
    };
    let first = insert(&mut m, &mut probes, &four, places(0..4));
    probes.set_enabled(m.core_mut(), first, 0, false).unwrap();
    let second = insert(&mut m, &mut probes, &point(4), places(4..5));
    let error = probes.set_enabled(m.core_mut(), first, 0, true).unwrap_err();
    assert!(error.to_string().contains("which are 4; --watch-unlimited"), "{error}");
    probes.remove(m.core_mut(), second);
    probes.set_enabled(m.core_mut(), first, 0, true).unwrap();
    assert_eq!(probes.stats().sites, 4);
}

/// The address of the first instruction of a function of the embedded guest whose line in `trapline dis` has this text.
fn address_of(function: &str, text: &str) -> String {
    let shown = trapline(&root(), &["dis", "embedded:ia32", function, "-q"]).out;
    let line = shown.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {shown}"));
    line.split_whitespace().next().unwrap().to_owned()
}

/// Hits that leave a record, by minor code.
fn records_by_minor(programs: &[&str], more: &[&str]) -> [usize; 3] {
    let mut args = vec!["run", "embedded:ia32", "--watch-unlimited", "-q", "--console", "none"];
    programs.iter().for_each(|program| args.extend(["-p", program]));
    args.extend(more);
    let out = trapline(&root(), &args).out;
    [1, 2, 9].map(|minor| out.lines().filter(|line| line.contains(&format!("DProbes(0,{minor})"))).count())
}

#[test]
fn a_watch_of_execution_counts_a_repeated_instruction_once_whatever_else_observes_it() {
    let folder = TempDir::new().unwrap();
    let at = address_of("memcpy", "rep movs");
    let begin = "name = vmlinux\nmodtype = kernel\n";
    let x = |minor: u32| format!("{begin}address = {at}\nwatchpoint = x\nminor = {minor}\nexit\n");
    let first = write(folder.path(), "x.rpn", &x(1));
    let second = write(folder.path(), "y.rpn", &x(2));
    let probe =
        write(folder.path(), "b.rpn", &format!("{begin}address = {at}\nopcode = 0xf3\nminor = 2\nexit\n"));
    let range = "address = 0xc0100000:0xc01fffff\nwatchpoint = rw\nminor = 9\nexit\n";
    let data = write(folder.path(), "w.rpn", &format!("{begin}{range}"));
    let [hits, ..] = records_by_minor(&[&first], &[]);
    assert!(hits > 100, "{hits}");
    assert_eq!(records_by_minor(&[&first, &probe], &[]), [hits, hits, 0]);
    assert_eq!(records_by_minor(&[&first, &second], &[]), [hits, hits, 0]);
    for programs in [&[&*first, &data][..], &[&first, &second, &data], &[&first, &probe, &data]] {
        let [one, other, of_data] = records_by_minor(programs, &[]);
        let others = if programs.len() == 3 { hits } else { 0 };
        assert_eq!((one, other), (hits, others), "{programs:?}");
        assert!(of_data > 100_000, "{of_data}");
    }
}

#[test]
fn a_watch_of_execution_records_no_fault_whatever_else_observes_it() {
    let folder = TempDir::new().unwrap();
    // A HLT in user mode raises #GP each time; a store reaches a new page once.
    for (at, probe, count) in
        [("0x080490ff", "pid*:appln:forbidden:15", 0), ("0x0804913f", "pid*:appln:heap:19", 8)]
    {
        let begin = "name = vmlinux\nmodtype = kernel\n";
        let x = |minor: u32| format!("{begin}address = {at}\nwatchpoint = x\nminor = {minor}\nexit\n");
        let first = write(folder.path(), "x.rpn", &x(1));
        let second = write(folder.path(), "y.rpn", &x(2));
        let clause = format!("{probe} {{ exit }}");
        let together = ["--rpn", clause.as_str()];
        assert_eq!(records_by_minor(&[&first], &[])[0], count, "{at}");
        assert_eq!(records_by_minor(&[&first], &together)[0], count, "{at} with a probe");
        assert_eq!(records_by_minor(&[&first, &second], &together)[..2], [count, count], "{at} with both");
        let ran = trapline(
            &root(),
            &[&["run", "embedded:ia32", "-q", "--console", "none"], &together[..]].concat(),
        );
        assert_eq!(ran.out.lines().filter(|line| line.contains("probe=")).count(), count, "{at} alone");
    }
}
