//! `trapline replay --at`, going back and forth.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn trapline(folder: &Path, args: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
    command.args(args).current_dir(folder);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let ran = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

#[test]
fn every_command_goes_where_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let record =
        ["record", "embedded:ia32", "--rpn", "fbt::do_fork:entry { push pid; log 1 }", "-q", "-o", "r.tlr"];
    assert_eq!(trapline(folder, &record, "").0, Some(0));
    let lines = "\
next hit\nfinish\nback to caller\nprevious hit of fbt::do_fork:entry\nback 2\nstep\nwhere\ngoto 500K\nreverse to do_fork\n\
continue to write 0x8053000:4\nregisters\nexamine do_fork+1 20\nhistory\nquery\n";
    let replay = ["replay", "r.tlr", "-q", "--at", "1M", "-f", "json"];
    let (code, out, err) = trapline(folder, &replay, lines);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let rows: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let places: Vec<&serde_json::Value> = rows.iter().filter(|row| row["type"] == "place").collect();
    assert_eq!(places.len(), 10, "{out}");
    let at =
        |n: usize| (places[n]["icount"].as_u64().unwrap(), places[n]["symbol"].as_str().unwrap_or_default());
    let (hit, done, call) = (at(0), at(1), at(2));
    assert!(hit.0 > 1_000_000 && hit.1.starts_with("do_fork"), "{out}");
    assert!(done.0 > hit.0 && !done.1.starts_with("do_fork"), "{out}");
    assert_eq!(places[2]["instruction"].as_str().map(|text| text.starts_with("call")), Some(true), "{out}");
    assert!(call.0 < done.0, "{out}");
    let before = at(3);
    assert!(before.0 < call.0 && before.1.starts_with("do_fork"), "{out}");
    assert_eq!([at(4).0, at(5).0, at(6).0, at(7).0], [before.0 - 2, before.0 - 1, before.0 - 1, 500_000]);
    assert!(at(8).0 < 500_000 && at(8).1 == "do_fork", "{out}");
    assert!(at(9).0 > at(8).0, "{out}");
    let lines_of = |action: &str| {
        let row = rows.iter().find(|row| row["action"] == action).unwrap_or_else(|| panic!("{out}"));
        row["lines"].as_array().unwrap().len()
    };
    assert!(lines_of("registers") > 3 && lines_of("examine") == 2 && lines_of("history") == 1);
}

#[test]
fn a_line_that_leads_nowhere_is_said_and_a_command_cuts_the_future() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let record = ["record", "embedded:ia32", "-n", "fbt::do_fork:entry", "-q", "-o", "r.tlr"];
    assert_eq!(trapline(folder, &record, "").0, Some(0));
    let replay = ["replay", "r.tlr", "--at", "300K", "--history-mem", "64M"];
    let (code, out, err) =
        trapline(folder, &replay, "goto 900M\nprevious hit of nobody\nexamine nowhere 4\nwhere\n");
    assert_eq!(code, Some(2), "{out}{err}");
    assert!(err.contains("900000000 is past the end of this run, which has"), "{err}");
    assert!(err.contains("no program `nobody` is inserted; only `-n fbt::do_fork:entry` is"), "{err}");
    assert!(err.contains("the kernel has no symbol `nowhere`"), "{err}");
    assert!(out.lines().any(|line| line.starts_with("at 300000 0x")), "{out}");
    let (code, out, err) = trapline(folder, &replay, "type \"x\"\nstep 10\n");
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(err.contains("what came later in the recording is gone"), "{err}");
    assert!(out.lines().any(|line| line.starts_with("at 300010 0x")), "{out}");
}

#[test]
fn standard_input_that_cannot_be_read_is_told_and_the_lines_after_a_bad_one_are_carried_out() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let record = ["record", "embedded:ia32", "--limit-insns", "2M", "-q", "-o", "r.tlr", "--console", "none"];
    assert_eq!(trapline(folder, &record, "").0, Some(124));
    for branch in [&[][..], &["--branch", "b.tlr"]] {
        let args = [&["replay", "r.tlr", "--at", "1M", "-q", "--console", "none"][..], branch].concat();
        let replay = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
            command.args(&args).current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        std::fs::write(folder.join("lines"), b"query\nquery \xff\nquery\n").unwrap();
        let ran = replay().stdin(std::fs::File::open(folder.join("lines")).unwrap()).output().unwrap();
        let (out, err) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
        assert_eq!((ran.status.code(), out.lines().count()), (Some(2), 2), "{out}{err}");
        assert!(err.contains("standard input is not text: byte 6 is not UTF-8"), "{err}");
        let ran = replay().stdin(std::fs::File::open(folder).unwrap()).output().unwrap();
        let err = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(2), "{err}");
        assert!(err.contains("cannot read standard input: Is a directory"), "{err}");
    }
}

#[test]
fn a_command_that_is_written_wrongly_is_told_with_its_form() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert_eq!(trapline(folder, &["record", "embedded:ia32", "-q", "-o", "r.tlr"], "").0, Some(0));
    for (line, said) in [
        ("goto\n", "`goto` is not understood; write goto POSITION"),
        ("into it\n", "`into it` is not understood; write into hit"),
        ("out of\n", "`out of` is not understood; write out"),
        ("where now\n", "`where now` is not understood; write where"),
        ("back to call\n", "write back [N], back op [N], back to caller, or back to change of REGISTER"),
        ("examine nothing+1 4\n", "the kernel has no symbol `nothing`"),
    ] {
        let (code, _, err) = trapline(folder, &["replay", "r.tlr", "-q", "--at", "1M"], line);
        assert!(code == Some(2) && err.contains(said), "{line}: {err}");
    }
}

#[test]
fn what_a_replay_cannot_do_is_told_under_q() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let record =
        ["record", "embedded:ia32", "-n", "fbt::do_fork:entry", "-q", "-o", "r.tlr", "--console", "none"];
    assert_eq!(trapline(folder, &record, "").0, Some(0));
    for (args, said) in [
        (&["--to", "hit:99"][..], "hit:99 is not in this run: it has 6 hits that leave a record"),
        (
            &["-n", "fbt::do_exit:entry", "--to", "hit:99"],
            "hit:99 is not in this run: it has 7 hits that leave a record; those are the hits of the probes of this command \
             line: the recording's programs, which only observe, are left out",
        ),
        (
            &["-n", "fbt::do_exit:entry", "--at", "hit:99"],
            "hit:99 is not in this run: it has 7 hits that leave a record; those are the hits of the probes of this command",
        ),
        (
            &["-n", "fbt::do_exit:entry", "--from", "hit:99"],
            "--from hit:99 is not in the recording: fewer hits of its programs leave a record",
        ),
        (&["--header", "pid"], "--header has no effect without probes of this command line"),
        (&["-n", "fbt::do_fork:entry", "-f", "dtrace", "--header", "pid"], "with -f dtrace"),
    ] {
        let (code, _, err) = trapline(folder, &[&["replay", "r.tlr", "-q"][..], args].concat(), "");
        assert_eq!((code, err.lines().count()), (Some(2), 1), "{args:?}: {err}");
        assert!(err.contains(said), "{args:?}: {err}");
    }
}

#[test]
fn probes_come_in_at_a_hit_of_the_recordings_programs_though_these_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, probe) in [("none.tlr", &[][..]), ("r.tlr", &["-n", "fbt::do_fork:entry"])] {
        let record = ["record", "embedded:ia32", "-q", "-o", name, "--console", "none"];
        assert_eq!(trapline(folder, &[&record[..], probe].concat(), "").0, Some(0));
    }
    let hits = |args: &[&str]| {
        let asked = ["replay", "r.tlr", "-q", "-f", "json", "-n", "fbt::do_exit:entry"];
        let (code, out, err) = trapline(folder, &[&asked[..], args].concat(), "");
        assert_eq!((code, err.as_str()), (Some(0), ""));
        let lines = out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines
            .filter(|line| line["type"] == "hit")
            .map(|hit| hit["icount"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    let (code, where_it_is, err) =
        trapline(folder, &["replay", "r.tlr", "-q", "-f", "json", "--to", "hit:3"], "");
    assert_eq!(code, Some(0), "{err}");
    let end: serde_json::Value = serde_json::from_str(where_it_is.lines().last().unwrap()).unwrap();
    let third = end["insns"].as_u64().unwrap();
    let all = hits(&[]);
    let later: Vec<u64> = all.iter().copied().filter(|at| *at > third).collect();
    assert!(!later.is_empty() && later.len() < all.len(), "{all:?} {third}");
    assert_eq!(hits(&["--from", "hit:3"]), later);
    assert_eq!(hits(&["--from", &third.to_string()]), later);
    let without = ["replay", "none.tlr", "-q", "-n", "fbt::do_exit:entry", "--from", "hit:1"];
    let (code, out, err) = trapline(folder, &without, "");
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("--from hit:1 is not in the recording: it has no probes"), "{err}");
}

#[test]
fn within_a_hit_one_goes_by_operation() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let record = [
        "record",
        "embedded:ia32",
        "--rpn",
        "fbt::do_fork:entry { push 7; push pid; log 2 }",
        "-q",
        "-o",
        "r.tlr",
    ];
    assert_eq!(trapline(folder, &record, "").0, Some(0));
    let replay = ["replay", "r.tlr", "-q", "--at", "1M"];
    let lines = "into hit\nnext hit\nstep op\ninto hit\nstep op 2\nshow handler\nback op\nstep op 3\nstep op\nout\nwhere\n";
    let (code, out, err) = trapline(folder, &replay, lines);
    assert_eq!(code, Some(2), "{out}{err}");
    assert!(err.contains("no handler runs at 1000000 instructions"), "{err}");
    assert!(err.contains("this position is not within a hit; `into hit` enters the hit here"), "{err}");
    assert!(err.contains("the handlers here execute 4 operations, and 5 is past them"), "{err}");
    let shown: Vec<&str> = out.lines().filter(|line| !line.starts_with("DProbes")).collect();
    let icount = shown[0].split(' ').nth(1).unwrap();
    let name = "--rpn fbt::do_fork:entry";
    let expected = [
        format!("at {icount}.0 of 4, {name}: push 0x7  [stack empty; log empty]"),
        format!("at {icount}.2 of 4, {name}: log 2  [stack 0x7 0x1; log empty]"),
        format!("at {icount}.2 of 4, handler 1 of 1: {name} at fbt:vmlinux:do_fork:entry"),
        "     0  push 0x7".to_owned(),
        "     1  push pid".to_owned(),
        ">    2  log 2".to_owned(),
        "     3  exit".to_owned(),
        "     4  exit".to_owned(),
        "stack      0x7 0x1".to_owned(),
        "log        empty".to_owned(),
        format!("at {icount}.1 of 4, {name}: push pid  [stack 0x7; log empty]"),
        format!("at {icount}.4 of 4, {name}: the handler has ended  [stack empty; log 0100000007000000]"),
    ];
    assert_eq!(shown[1..13], expected, "{out}");
    assert_eq!(shown[13..], [shown[0], shown[0]], "{out}");
    let replay = ["replay", "r.tlr", "-q", "--at", "hit:2.3", "-f", "json"];
    let (code, out, err) = trapline(folder, &replay, "where\nregisters\n");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let rows: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let row = rows.iter().find(|row| row["type"] == "operation").unwrap_or_else(|| panic!("{out}"));
    assert_eq!(
        (&row["executed"], &row["operations"], &row["instruction"]),
        (&3.into(), &4.into(), &"exit".into())
    );
    assert_eq!(row["log"].as_str().map(|log| log.ends_with("07000000")), Some(true), "{out}");
    let (code, _, err) = trapline(folder, &["replay", "r.tlr", "-q", "--to", "hit:2.3"], "");
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("hit:2.3 is within a hit, where a replay does not stop"), "{err}");
}

/// As `--when` finds them, and as one more state: after the event that makes the condition true.
#[test]
fn conditions_are_met_where_the_question_finds_them_and_expressions_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let record = ["record", "embedded:ia32", "-q", "-o", "r.tlr", "--limit-insns", "600K"];
    assert_eq!(trapline(folder, &record, "").0, Some(124));
    let condition = "eax == 7 && ecx > 3";
    let first_number = |text: &str| -> u64 {
        text.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    let asked = |more: &[&str]| {
        let question = [&["replay", "r.tlr", "-q", "--when", condition][..], more].concat();
        let (_, out, err) = trapline(folder, &question, "");
        first_number(out.lines().last().unwrap_or_else(|| panic!("{err}")))
    };
    let gone = |line: &str| {
        let (code, out, err) = trapline(folder, &["replay", "r.tlr", "-q", "--at", "400000"], line);
        assert_eq!(code, Some(0), "{err}");
        out
    };
    let before = asked(&["--to", "400000", "--last", "1"]);
    assert_eq!(first_number(&gone(&format!("reverse when {condition}\n"))), before + 1);
    let after = asked(&["--from", "400000", "--first"]);
    assert_eq!(first_number(&gone(&format!("continue when {condition}\n"))), after + 1);
    // The instruction before the place that is found has changed the register.
    let changed = gone("back to change of eax\nprint eax\nback\nprint eax\n");
    let values: Vec<&str> = changed.lines().filter(|line| line.starts_with("eax = ")).collect();
    assert!(values.len() == 2 && values[0] != values[1], "{changed}");
    let shown = gone("print *(int *)esp\nprint sizeof (long) * 2\n");
    assert!(shown.contains("  int at 0x") && shown.ends_with("sizeof (long) * 2 = 0x8\n"), "{shown}");
}
