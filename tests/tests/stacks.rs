//! Stacks of the embedded guests: their frames and records, and that the guest is unaffected.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, finish, patient, trapline};
use serde_json::{Value, json};
use std::path::Path;
use trapline_tests::root;
use trapline_trace::{GuestStack, HeaderItems, Piece, Record, TraceReader};

fn run(folder: &Path, guest: &str, more: &[&str]) -> Ran {
    let guest = format!("embedded:{guest}");
    let ran = trapline(folder, &[&["run", &guest, "-n", "fbt::do_fork:entry"], more].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran
}

/// Kind and functions of each stack record.
fn functions(out: &str) -> Vec<(String, Vec<String>)> {
    let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let frame = |frame: &Value| frame.as_str().unwrap().split('+').next().unwrap().to_owned();
    lines
        .filter(|line| line.get("frames").is_some_and(Value::is_array))
        .map(|line| {
            let frames = line["frames"].as_array().unwrap().iter().map(frame).collect();
            (line["type"].as_str().unwrap().to_owned(), frames)
        })
        .collect()
}

#[test]
fn a_system_call_has_a_stack_in_the_kernel_and_one_in_the_program() {
    let folder = tempfile::tempdir().unwrap();
    for (guest, entry) in [("ia32", "trap_entry"), ("x86_64", "syscall_entry")] {
        let both = ["--stack", "--ustack", "-f", "json", "--stop-after", "1"];
        let found = functions(&run(folder.path(), guest, &both).out);
        let kernel = ["do_syscall", "trap_dispatch", entry].map(|f| format!("vmlinux`{f}"));
        let user = ["syscall", "main", "_start"].map(|f| format!("appln`{f}"));
        let wanted = [("kernel-stack", kernel), ("user-stack", user)];
        assert_eq!(found, wanted.map(|(kind, frames)| (kind.to_owned(), frames.to_vec())));
        // With the requested depth, and each kind without the other.
        let found = functions(&run(folder.path(), guest, &["--stack=2", "-f", "json"]).out);
        assert!(found.len() >= 6 && found.iter().all(|(kind, f)| kind == "kernel-stack" && f.len() == 2));
        let found = functions(&run(folder.path(), guest, &["--ustack=1", "-f", "json"]).out);
        assert!(found.iter().all(|(_, frames)| *frames == ["appln`syscall"]), "{found:?}");
    }
}

#[test]
fn user_mode_has_no_stack_of_the_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let program = "name = appln\nmodtype = user\noffset = swap\nopcode = 0x55\nexit\n";
    std::fs::write(folder.path().join("swap.rpn"), program).unwrap();
    for guest in ["ia32", "x86_64"] {
        let guest = format!("embedded:{guest}");
        let args = ["run", &guest, "-p", "swap.rpn", "--stack", "--ustack", "-f", "json"];
        let found = functions(&trapline(folder.path(), &args).out);
        let user = ["swap", "child", "main", "_start"].map(|f| format!("appln`{f}"));
        assert_eq!(found, [("user-stack".to_owned(), user.to_vec())]);
    }
}

#[test]
fn no_guest_notices_its_stacks() {
    let folder = tempfile::tempdir().unwrap();
    let digest =
        |ran: &Ran| ran.err.lines().find_map(|line| line.strip_prefix("digest ").map(str::to_owned)).unwrap();
    for guest in ["ia32", "x86_64"] {
        let clause = ["-n", "fbt:::entry", "-o", "records", "--channel", "4Mx64", "--digest"];
        let plain = run(folder.path(), guest, &["--digest"]);
        let stacks = run(folder.path(), guest, &[&clause[..], &["--stack", "--ustack"]].concat());
        assert_eq!(digest(&stacks), digest(&plain));
    }
}

/// A record as the Python decoder must show it.
fn as_python(record: &Record) -> Value {
    let stack = GuestStack::decode(&record.data, record.header.width).unwrap();
    let modules = stack.modules.iter().map(|m| json!({"base": m.base, "name": m.name}));
    let frames = stack.frames.iter().map(|f| {
        let number = f.module.map_or(0, |n| n + 1);
        json!({"module": number, "exact": f.exact, "ip": f.ip})
    });
    json!({"modules": modules.collect::<Vec<_>>(), "frames": frames.collect::<Vec<_>>()})
}

#[test]
fn another_decoder_reads_the_same_stacks_and_a_trace_file_prints_them_again() {
    let folder = tempfile::tempdir().unwrap();
    for guest in ["ia32", "x86_64"] {
        let both = ["--stack", "--ustack"];
        run(folder.path(), guest, &[&both[..], &["-f", "raw", "-o", "raw"]].concat());
        for form in ["text", "json", "dtrace"] {
            let cat = trapline(folder.path(), &["trace", "cat", "raw", "-f", form]);
            let direct = run(folder.path(), guest, &[&both[..], &["-f", form]].concat());
            let stacks = |text: &str| -> Vec<String> {
                text.lines().filter(|line| line.contains('`')).map(str::to_owned).collect()
            };
            assert!(stacks(&direct.out).len() > 6);
            let frames = |text: &str| {
                if form == "json" { format!("{:?}", functions(text)) } else { stacks(text).concat() }
            };
            assert_eq!(frames(&cat.out), frames(&direct.out), "{guest} {form}");
        }
        let bytes = std::fs::read(folder.path().join("raw")).unwrap();
        let mut reader = TraceReader::open(&bytes[..]).unwrap();
        let (mut encoded, mut wanted) = (Vec::new(), Vec::new());
        while let Some(piece) = reader.next_piece().unwrap() {
            let Piece::Record(record) = piece else { continue };
            if record.header.kind.is_guest_stack() {
                record.view().encode(HeaderItems::all(), &mut encoded);
                wanted.push(as_python(&record));
            }
        }
        std::fs::write(folder.path().join("records"), encoded).unwrap();
        let mut python = patient("python3");
        python.arg(root().join("tests/decode_records.py")).arg(folder.path().join("records"));
        let said = finish(python);
        let found: Vec<Value> =
            said.out.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["stack"].clone()).collect();
        assert!(found.len() >= 12, "{}", said.err);
        assert_eq!(found, wanted);
    }
}
