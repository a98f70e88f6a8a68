//! `trapline replay --who-wrote` and `--calls`, against watchpoints and probes that were there from the start.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn trapline(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_trapline")).args(args).current_dir(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

/// Records a run of the guest as `r.tlr`.
fn record(folder: &Path, image: &str) {
    let (code, _, err) = trapline(folder, &["record", image, "-q", "--console", "none", "-o", "r.tlr"]);
    assert_eq!(code, Some(0), "{err}");
}

/// The same, for so many instructions.
fn record_some(folder: &Path, image: &str, instructions: &str) {
    let recorded = ["record", image, "-q", "--console", "none", "-o", "r.tlr", "--limit-insns", instructions];
    let (code, _, err) = trapline(folder, &recorded);
    assert_eq!(code, Some(124), "{err}");
}

fn answer(folder: &Path, args: &[&str]) -> Value {
    let (code, out, err) = trapline(folder, &[&["replay", "r.tlr", "-f", "json"], args].concat());
    assert_eq!((code, err.as_str()), (Some(0), ""), "{args:?}");
    serde_json::from_str(&out).unwrap()
}

fn records(out: &str) -> Vec<Value> {
    let rows = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.filter(|row| row["type"] == "hit").collect()
}

/// The instruction counts of records.
fn counts(records: &[Value]) -> Vec<u64> {
    records.iter().map(|row| row["icount"].as_u64().unwrap()).collect()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().unwrap()
}

#[test]
fn writers_are_those_of_a_watchpoint_that_was_there_from_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for guest in ["ia32", "x86_64"] {
        let image = format!("embedded:{guest}");
        record(folder, &image);
        let found = answer(folder, &["--who-wrote", "current_task", "--last", "1000"]);
        let writers = list(&found, "last");
        let (low, high) = (found["low"].as_u64().unwrap(), found["high"].as_u64().unwrap());
        let program = format!(
            "name = vmlinux\nmodtype = kernel\naddress = {low:#x}:{high:#x}\nwatchpoint = w\npush 1\nlog 1\nexit\n"
        );
        std::fs::write(folder.join("w.rpn"), program).unwrap();
        let run =
            ["run", &image, "-p", "w.rpn", "-q", "-f", "json", "--console", "none", "--watch-unlimited"];
        let (code, out, err) = trapline(folder, &run);
        assert_eq!(code, Some(0), "{err}");
        let live = counts(&records(&out));
        let asked: Vec<u64> = writers.iter().map(|w| w["position"].as_u64().unwrap()).collect();
        assert!(live.len() > 10, "{out}");
        assert_eq!(asked.len(), live.len());
        // The count of a record is that before or after the access, always the same.
        let apart: std::collections::BTreeSet<u64> = live.iter().zip(&asked).map(|(a, b)| a - b).collect();
        assert!(apart.len() == 1 && apart.iter().all(|apart| *apart <= 1), "{apart:?}");
        for pair in writers.windows(2) {
            assert_eq!((&pair[1]["old"], &pair[1]["changed_before"]), (&pair[0]["new"], &false.into()));
        }
        let middle = asked[asked.len() / 2].to_string();
        let earlier = answer(folder, &["--who-wrote", "current_task", "--before", &middle, "--last", "1"]);
        assert!(earlier["count"].is_null(), "{earlier:#}");
        let mut last = writers[asked.len() / 2 - 1].clone();
        last["changed_before"] = Value::Null;
        assert_eq!(list(&earlier, "last"), &[last]);
        let (_, text, _) =
            trapline(folder, &["replay", "r.tlr", "--who-wrote", "current_task", "--last", "2"]);
        assert!(text.contains("current_task: the last 2 writes\n") && text.contains(" -> "), "{text}");
    }
}

#[test]
fn calls_are_those_that_probes_see() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for guest in ["ia32", "x86_64"] {
        let image = format!("embedded:{guest}");
        record(folder, &image);
        for function in ["do_fork", "kmalloc", "do_wait", "do_exit"] {
            let found = answer(folder, &["--calls", function]);
            let calls = list(&found, "calls");
            let probe = |name: &str| {
                let clause = format!("fbt::{function}:{name}");
                let run = ["run", &image, "--rpn", &clause, "-q", "-f", "json", "--console", "none"];
                let (code, out, err) = trapline(folder, &run);
                if code == Some(0) { records(&out) } else { panic!("{err}") }
            };
            let began: Vec<u64> = calls.iter().map(|call| call["position"].as_u64().unwrap()).collect();
            assert_eq!(began, counts(&probe("entry")), "{function}");
            let mut ended: Vec<u64> = calls.iter().filter_map(|call| call["returned"].as_u64()).collect();
            ended.sort_unstable();
            if function == "do_exit" {
                // Seven processes exit once each; a task structure and a stack serve several of them.
                assert_eq!(calls.len(), 7, "{found:#}");
                let ends = |call: &Value| call["left"] == "unfinished" && call["depth"] == 0;
                assert!(calls.iter().all(ends), "{found:#}");
                continue;
            }
            // A return is seen at the instruction that it leads to.
            let left: Vec<u64> = counts(&probe("return")).iter().map(|icount| icount + 1).collect();
            assert_eq!(ended, left, "{guest} {function}");
            assert!(
                calls.iter().all(|call| call["value"].is_u64() && call["left"] == "returned"),
                "{found:#}"
            );
        }
    }
    let (code, text, _) = trapline(folder, &["replay", "r.tlr", "--calls", "do_fork"]);
    assert!(
        code == Some(0)
            && text.contains("do_fork: 6 calls")
            && text.contains("from do_") | text.contains(" = 0x")
    );
}

#[test]
fn a_condition_on_memory_becomes_true_where_a_watchpoint_sees_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (guest, read, ip) in [("ia32", "u32", "eip"), ("x86_64", "u64", "rip")] {
        record_some(folder, &format!("embedded:{guest}"), "1500000");
        let written = answer(folder, &["--who-wrote", "current_task", "--last", "1000"]);
        let value = |text: &Value| {
            let bytes = text.as_str().unwrap().split(' ').map(|byte| u64::from_str_radix(byte, 16).unwrap());
            bytes.enumerate().fold(0, |value, (n, byte)| value | byte << (8 * n))
        };
        let writers = list(&written, "last");
        let task = value(&writers[writers.len() / 2]["new"]);
        let becomes = |writer: &&Value| value(&writer["new"]) == task && value(&writer["old"]) != task;
        let wanted: Vec<&Value> = writers.iter().filter(becomes).collect();
        let condition = format!("{read}[current_task] == {task:#x}");
        let found = answer(folder, &["--when", &condition, "--last", "1000"]);
        let turns = list(&found, "last");
        assert_eq!((turns.len(), &found["held"]), (wanted.len(), &false.into()), "{found:#}");
        for (turn, writer) in turns.iter().zip(&wanted) {
            for field in ["position", "virtual_ns", "ip", "symbol", "instruction", "pid", "task"] {
                assert_eq!(turn[field], writer[field], "{turn:#}");
            }
            assert_eq!(turn["by"], "instruction");
        }
        let first = answer(folder, &["--when", &condition, "--first"]);
        assert_eq!(list(&first, "last"), &turns[..1]);
        let calls = answer(folder, &["--calls", "do_fork"]);
        let entered = answer(folder, &["--when", &format!("{ip} == do_fork")]);
        let before = |call: &Value| call["position"].as_u64().unwrap() - 1;
        let called: Vec<u64> = list(&calls, "calls").iter().map(before).collect();
        let became: Vec<u64> =
            list(&entered, "last").iter().map(|turn| turn["position"].as_u64().unwrap()).collect();
        assert!(!wanted.is_empty() && !called.is_empty(), "{written:#}");
        assert_eq!(became, called, "{entered:#}");
        let (code, text, _) = trapline(folder, &["replay", "r.tlr", "--when", &condition, "--last", "1"]);
        assert!(
            code == Some(0) && text.contains(" becomes true ") && text.contains("current_task"),
            "{text}"
        );
    }
}

#[test]
fn a_wrong_condition_is_shown_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    record(folder, "embedded:ia32");
    let (code, _, err) = trapline(folder, &["replay", "r.tlr", "--when", "eax == current_tas"]);
    assert!(code == Some(2) && err.contains("\n  eax == current_tas\n         ^^^^^^^^^^^\n"), "{err}");
    assert!(err.contains("there is `current_task`"), "{err}");
    let (code, _, err) =
        trapline(folder, &["replay", "r.tlr", "--when", "1", "--from", "2000", "--to", "1000"]);
    assert!(code == Some(2) && err.contains("ends at 1000 instructions, before it begins at 2000"), "{err}");
    // What cannot be read, and what is divided by 0, does not hold.
    for condition in ["u8[0xfffffff0] == u8[0xfffffff0] || 1", "!(1 / 0)"] {
        let found = answer(folder, &["--when", condition, "--to", "1000"]);
        assert_eq!((&found["count"], &found["held"]), (&0.into(), &false.into()), "{found:#}");
    }
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    trapline(folder, &["record", "embedded:ia32", "-q", "--console", "none", "-o", "r.tlr"]);
    for (args, words) in [
        (["--who-wrote", "phys:0x1000"], "physical address"),
        (["--who-wrote", "no_such_symbol"], "no symbol `no_such_symbol`"),
        (["--calls", "no_such_function"], "no_such_function"),
        (
            ["--who-wrote", "0xffffffffffffffff:2"],
            "0xffffffffffffffff is no address of this guest: its addresses have 32 bits",
        ),
        (["--who-wrote", "0xfffffffff"], "no address of this guest"),
        (["--who-wrote", "0xffffffff:8"], "8 bytes at 0xffffffff reach beyond the addresses of this guest"),
    ] {
        let (code, _, err) = trapline(folder, &[&["replay", "r.tlr"], &args[..]].concat());
        assert!(code == Some(2) && err.contains(words), "{err}");
    }
}

/// Where the small kernels are loaded.
const BASE: u32 = 0x10_0000;

/// A 32-bit ELF file with this code, which begins at its first byte and is linked at this address.
fn kernel(code: &[u8], linked: u32) -> Vec<u8> {
    const HEADERS: u32 = 0x54;
    let mut file = b"\x7fELF\x01\x01\x01".to_vec();
    file.resize(16, 0);
    let halves = |file: &mut Vec<u8>, list: &[u16]| list.iter().for_each(|n| file.extend(n.to_le_bytes()));
    let words = |file: &mut Vec<u8>, list: &[u32]| list.iter().for_each(|n| file.extend(n.to_le_bytes()));
    halves(&mut file, &[2, 3]);
    words(&mut file, &[1, BASE, 52, 0, 0]);
    halves(&mut file, &[52, 32, 1, 40, 0, 0]);
    words(&mut file, &[1, HEADERS, linked, BASE, code.len() as u32, 0x8000, 7, 16]);
    file.extend(code);
    file
}

/// Records a small kernel, which halts.
fn record_kernel(folder: &Path, code: &[u8], more: &[&str]) {
    record_linked(folder, code, BASE, more);
}

/// The same for one that is linked at this address.
fn record_linked(folder: &Path, code: &[u8], linked: u32, more: &[&str]) {
    std::fs::write(folder.join("small.elf"), kernel(code, linked)).unwrap();
    let record = ["record", "small.elf", "--mem", "4M", "-q", "--console", "none", "-o", "r.tlr"];
    let (code, _, err) = trapline(folder, &[&record[..], more].concat());
    assert_eq!(code, Some(0), "{err}");
}

/// `mov [102010h], 0CAFEF00Dh`, then 17 bytes into the 16 at 102000h: `mov edi, 102000h; mov ecx, 17`, and
/// `mov [edi], al; inc edi; dec ecx; jnz` as a loop; `hlt`.
const OVERFLOW: &[u8] = b"\xc7\x05\x10\x20\x10\x00\x0d\xf0\xfe\xca\xbf\x00\x20\x10\x00\xb9\x11\x00\x00\x00\
    \x88\x07\x47\x49\x75\xfa\xf4";

#[test]
fn the_store_that_breaks_a_canary_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    record_kernel(folder, OVERFLOW, &[]);
    let all = answer(folder, &["--who-wrote", "0x102010:4"]);
    assert_eq!(all["count"], 2);
    let found = answer(folder, &["--who-wrote", "0x102010:4", "--last", "1"]);
    let [breaks] = list(&found, "last").as_slice() else { panic!("{found}") };
    // Three instructions, then 16 rounds of four.
    assert_eq!((&breaks["position"], &breaks["ip"]), (&Value::from(3 + 16 * 4), &Value::from(BASE + 0x14)));
    assert_eq!(breaks["instruction"], "mov [edi],al");
    assert_eq!((&breaks["old"], &breaks["new"]), (&"0d f0 fe ca".into(), &"00 f0 fe ca".into()));
    let watch = "name = vmlinux\nmodtype = kernel\naddress = 0x102010:0x102013\nwatchpoint = w\npush 1\nlog 1\nexit\n";
    std::fs::write(folder.join("w.rpn"), watch).unwrap();
    let run = ["run", "small.elf", "--mem", "4M", "-q", "--console", "none", "-p", "w.rpn", "-f", "json"];
    let (_, out, _) = trapline(folder, &run);
    let live = records(&out);
    // A watchpoint's record has the count after the instruction.
    assert_eq!(counts(&live), [1, 3 + 16 * 4 + 1]);
    assert_eq!(live[1]["ip"], format!("{:#x}", BASE + 0x14));
}

/// At 0, `lgdt [100040h]; jmp 8:0C0100010h`. The base of segment 8 is 40000000h. At 10h,
/// `mov [102010h], 0CAFEF00Dh; nop; hlt`.
const BASED: &[u8] = b"\x0f\x01\x15\x40\x00\x10\x00\xea\x10\x00\x10\xc0\x08\x00\x90\x90\
    \xc7\x05\x10\x20\x10\x00\x0d\xf0\xfe\xca\x90\xf4\x90\x90\x90\x90\
    \x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\
    \x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\
    \x0f\x00\x50\x00\x10\x00\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\
    \x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00\x00\x9a\xcf\x40";

#[test]
fn linear_addresses_wrap_at_32_bits_where_the_code_segment_has_a_base() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("map"), "c0100010 T main\nc0100030 T end\n").unwrap();
    record_kernel(folder, BASED, &["--sym", "map"]);
    let lines = "reverse to 0x100010\ncontinue to 0x10001a\nreverse to 0x100100010\nexamine 0x100010 2\n\
        examine 0x100100010 2\nexamine 0xfffffff0 32\n";
    std::fs::write(folder.join("lines"), lines).unwrap();
    let mut replay = Command::new(env!("CARGO_BIN_EXE_trapline"));
    replay.args(["replay", "r.tlr", "-q", "--at", "4", "--console", "none"]).current_dir(folder);
    let ran = replay.stdin(File::open(folder.join("lines")).unwrap()).output().unwrap();
    let out = String::from_utf8(ran.stdout).unwrap();
    let shown = "\
at 2 0x100010 main: mov dword [102010h],0CAFEF00Dh
at 3 0x10001a main+0xa: nop
0x100010: c7 05                                            ..
";
    assert_eq!(out, shown);
    let err = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(err.matches("0x100100010 is no address of this guest").count(), 2, "{err}");
    assert!(err.contains("32 bytes at 0xfffffff0 reach beyond the addresses of this guest"), "{err}");
    for question in [["--who-wrote", "0x102010:4"], ["--when", "u32[0x102010] != 0"]] {
        let found = answer(folder, &question);
        let [only] = list(&found, "last").as_slice() else { panic!("{found:#}") };
        assert_eq!((&only["ip"], &only["symbol"]), (&Value::from(BASE + 0x10), &"main".into()), "{found:#}");
    }
}

/// At 0, `mov esp, 107000h; mov eax, 3; call g; hlt`. At 20h, g: `push ebp; pop ebp; jmp f`. At 30h, f:
/// `push ebp; mov ebp, esp; test eax, eax; jz .out; dec eax; call f; inc eax; .out: pop ebp; ret`.
const RECURSION: &[u8] = b"\xbc\x00\x70\x10\x00\xb8\x03\x00\x00\x00\xe8\x11\x00\x00\x00\xf4\
    \x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\
    \x55\x5d\xe9\x09\x00\x00\x00\x90\x90\x90\x90\x90\x90\x90\x90\x90\
    \x55\x89\xe5\x85\xc0\x74\x07\x48\xe8\xf3\xff\xff\xff\x40\x5d\xc3";

#[test]
fn calls_of_a_recursive_function_and_through_a_tail_call_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("map"), "00100000 T _start\n00100020 T g\n00100030 T f\n00100040 T end\n")
        .unwrap();
    record_kernel(folder, RECURSION, &["--sym", "map"]);
    let found = answer(folder, &["--calls", "f"]);
    let calls = list(&found, "calls");
    let numbers = |name: &str| calls.iter().map(|call| call[name].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(numbers("depth"), [0, 1, 2, 3]);
    assert_eq!(numbers("value"), [3, 2, 1, 0]);
    assert_eq!(calls.iter().map(|call| &call["arguments"][0]).collect::<Vec<_>>(), [3, 2, 1, 0]);
    // The first is called by the jump in g, and returns to the caller of g.
    assert_eq!(numbers("caller"), [0x0f, 0x3d, 0x3d, 0x3d].map(|at: u64| u64::from(BASE) + at));
    assert!(calls.iter().all(|call| call["left"] == "returned" && call["tail_call"] == false));
    let run = ["run", "small.elf", "--sym", "map", "--mem", "4M", "-q", "--console", "none", "-f", "json"];
    let live = |probe: &str| {
        let (_, out, _) = trapline(folder, &[&run[..], &["-n", probe]].concat());
        counts(&records(&out))
    };
    assert_eq!(numbers("position"), live("fbt::f:entry"));
    let mut returns = numbers("returned");
    returns.reverse();
    // A return's probe fires before the instruction that returns.
    assert_eq!(returns, live("fbt::f:return").iter().map(|at| at + 1).collect::<Vec<_>>());
    let found = answer(folder, &["--calls", "g"]);
    let [tail] = list(&found, "calls").as_slice() else { panic!("{found}") };
    assert_eq!((&tail["tail_call"], &tail["value"]), (&Value::from(true), &Value::from(3)));
    assert_eq!(tail["returned"], calls[0]["returned"]);
}

/// Linked at 0C0100000h. At 0, `lgdt [100060h]; jmp 8:0C0100010h`: the bases of segments 8 and 10h are 40000000h. At 10h,
/// `mov ax, 10h; mov ss, ax; mov esp, 0C0107000h; mov eax, 3; push 7; call f; pop ecx; hlt`. At 30h, f as above.
const EARLY: &[u8] = b"\x0f\x01\x15\x60\x00\x10\x00\xea\x10\x00\x10\xc0\x08\x00\x00\x00\
    \x66\xb8\x10\x00\x8e\xd0\xbc\x00\x70\x10\xc0\xb8\x03\x00\x00\x00\
    \x6a\x07\xe8\x09\x00\x00\x00\x59\xf4\x00\x00\x00\x00\x00\x00\x00\
    \x55\x89\xe5\x85\xc0\x74\x07\x48\xe8\xf3\xff\xff\xff\x40\x5d\xc3\
    \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\
    \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\
    \x17\x00\x70\x00\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\
    \x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00\x00\x9a\xcf\x40\
    \xff\xff\x00\x00\x00\x92\xcf\x40";

#[test]
fn calls_are_found_where_code_and_stack_have_bases() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("map"), "c0100000 T _start\nc0100010 T main\nc0100030 T f\nc0100040 T end\n")
        .unwrap();
    record_linked(folder, EARLY, 0xc010_0000, &["--sym", "map"]);
    let found = answer(folder, &["--calls", "f"]);
    let calls = list(&found, "calls");
    let numbers = |name: &str| calls.iter().map(|call| call[name].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(numbers("depth"), [0, 1, 2, 3], "{found:#}");
    assert_eq!(numbers("value"), [3, 2, 1, 0]);
    // Three arguments are in registers; the next one is on the stack.
    assert_eq!(calls[0]["arguments"][3], 7, "{found:#}");
    assert_eq!(numbers("caller"), [0x27, 0x3d, 0x3d, 0x3d].map(|at: u64| 0xc010_0000 + at));
    assert_eq!(calls[0]["caller_symbol"], "main+0x17");
    let run = ["run", "small.elf", "--sym", "map", "--mem", "4M", "-q", "--console", "none", "-f", "json"];
    let live = |probe: &str| {
        let (_, out, _) = trapline(folder, &[&run[..], &["-n", probe]].concat());
        counts(&records(&out))
    };
    assert_eq!(numbers("position"), live("fbt::f:entry"));
    let mut returns = numbers("returned");
    returns.reverse();
    assert_eq!(returns, live("fbt::f:return").iter().map(|at| at + 1).collect::<Vec<_>>());
    // Seven instructions lead to the first call, and five in f to the next one.
    let lines = "where\nfinish\nback to caller\ngoto 8\nback to caller\ngoto 26\nfinish\nfinish\n";
    std::fs::write(folder.join("lines"), lines).unwrap();
    let mut replay = Command::new(env!("CARGO_BIN_EXE_trapline"));
    replay.args(["replay", "r.tlr", "-q", "--at", "14", "--console", "none"]).current_dir(folder);
    let ran = replay.stdin(File::open(folder.join("lines")).unwrap()).output().unwrap();
    let (out, err) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
    let shown = "\
at 14 0x100030 f: push ebp
at 38 0x10003d f+0xd: inc eax
at 7 0x100022 main+0x12: call f
at 8 0x100030 f: push ebp
at 7 0x100022 main+0x12: call f
at 26 0x100030 f: push ebp
at 32 0x10003d f+0xd: inc eax
at 35 0x10003d f+0xd: inc eax
";
    assert_eq!((out.as_str(), err.as_str()), (shown, ""));
}

/// `lgdt; lidt; jmp 8:next; mov esp, 107000h; xor edx, edx; xor ecx, ecx; mov eax, 6; call f; hlt`. At 40h, f: `div ecx;
/// ret`. At 50h, the handler of #DE, after which the division is tried again: `inc ecx; iretd`. At 60h, what LGDT and LIDT
/// load, then the two tables.
const RETRY: &[u8] = b"\x0f\x01\x15\x60\x00\x10\x00\x0f\x01\x1d\x66\x00\x10\x00\xea\x15\x00\x10\x00\x08\x00\
    \xbc\x00\x70\x10\x00\x31\xd2\x31\xc9\xb8\x06\x00\x00\x00\xe8\x18\x00\x00\x00\xf4\
    \x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\
    \xf7\xf1\xc3\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\
    \x41\xcf\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\
    \x17\x00\x70\x00\x10\x00\x07\x00\x88\x00\x10\x00\x00\x00\x00\x00\
    \x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00\x00\x9a\xcf\x00\xff\xff\x00\x00\x00\x92\xcf\x00\
    \x50\x00\x08\x00\x00\x8e\x10\x00";

#[test]
fn a_hit_whose_instruction_faults_and_is_tried_again_is_entered_both_times() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(
        folder.join("map"),
        "00100000 T _start\n00100040 T f\n00100050 T handler\n00100060 T end\n",
    )
    .unwrap();
    let probe = "fbt::f:entry { push r, ecx; push 7; add; log 1 }";
    record_kernel(folder, RETRY, &["--sym", "map", "--rpn", probe]);
    std::fs::write(folder.join("commands"), "step op 3\nshow handler\nback op 4\nout\nwhere\n").unwrap();
    let inside = |position: &str| {
        let mut replay = Command::new(env!("CARGO_BIN_EXE_trapline"));
        replay.args(["replay", "r.tlr", "-q", "--at", position]).current_dir(folder);
        let input = std::fs::File::open(folder.join("commands")).unwrap();
        let ran = replay.stdin(input).output().unwrap();
        (ran.status.code(), String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap())
    };
    // Eight instructions lead to the division; INC and IRET come before it is tried again. Only the second has a record.
    for (position, icount, ecx) in [("8.1", 8, 0), ("10.1", 10, 1), ("hit:1.1", 10, 1)] {
        let (code, out, err) = inside(position);
        assert_eq!(code, Some(0), "{position}: {err}");
        let shown = [
            format!("at {icount}.4 of 5, --rpn fbt::f:entry: exit"),
            format!("log        {:02x}000000", 7 + ecx),
            format!("at {icount}.0 of 5, --rpn fbt::f:entry: push r, ecx"),
            format!("at {icount} 0x100040 f: div ecx"),
        ];
        let mut rest = out.as_str();
        for line in shown {
            rest = rest.split_once(&line).unwrap_or_else(|| panic!("{position}: no `{line}` in\n{out}")).1;
        }
    }
    let (code, _, err) = inside("hit:2.1");
    assert!(
        code != Some(0) && err.contains("hit:2 is not in this run: it has 1 hit that leaves a record"),
        "{err}"
    );
}
