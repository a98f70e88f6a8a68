//! Outputs that end early: closed pipes, full disks, signals. What can be whole is whole, and the exit code says what was.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

#[path = "../../emu/tests/common/patience.rs"]
mod patience;

use patience::{status, until, until_handled};

const GUEST: &str = "embedded:ia32";

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
    command.args(args).current_dir(folder).stdin(Stdio::null());
    command
}

fn trapline(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs it with a standard output that is closed after a line; the exit code and standard error.
fn read_one_line(folder: &Path, args: &[&str]) -> (Option<i32>, String) {
    let mut child = command(folder, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.len() > 1);
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    (child.wait().unwrap().code(), err)
}

/// Prints lines of 63 `x` on COM1 without end.
const PRINTS_LINES: [u8; 19] = [
    0x66, 0xba, 0xf8, 0x03, // mov dx, 3f8h
    0xb0, b'x', // line: mov al, 'x'
    0xb9, 63, 0, 0, 0,    // mov ecx, 63
    0xee, // again: out dx, al
    0xe2, 0xfd, // loop again
    0xb0, b'\n', // mov al, '\n'
    0xee,  // out dx, al
    0xeb, 0xf1, // jmp line
];

/// An ELF32 kernel of this code, loaded and entered at 1 MiB.
fn kernel(code: &[u8]) -> Vec<u8> {
    const HEADERS: u32 = 52 + 32;
    const BASE: u32 = 0x10_0000;
    let size = code.len() as u32;
    let mut elf = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let half = |elf: &mut Vec<u8>, values: &[u16]| values.iter().for_each(|v| elf.extend(v.to_le_bytes()));
    let word = |elf: &mut Vec<u8>, values: &[u32]| values.iter().for_each(|v| elf.extend(v.to_le_bytes()));
    half(&mut elf, &[2, 3]);
    word(&mut elf, &[1, BASE, 52, 0, 0]);
    half(&mut elf, &[52, 32, 1, 40, 0, 0]);
    word(&mut elf, &[1, HEADERS, BASE, BASE, size, size, 5, 4]);
    elf.extend(code);
    elf
}

/// The ending of a recording, which replays.
fn ending(folder: &Path, recording: &str) -> String {
    let verified = trapline(folder, &["replay", recording, "--verify", "-q"]);
    assert_eq!((verified.status.code(), text(&verified.stderr)), (Some(0), String::new()), "{recording}");
    let info = trapline(folder, &["replay", recording, "--info", "-f", "json"]);
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(info["whole"], true);
    info["ending"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_reader_that_closes_standard_output_ends_the_run_and_all_files_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let all = ["-n", "fbt:::", "--limit-insns", "20M"];
    let run = [&["record", GUEST, "-q", "-o", "r.tlr"][..], &all].concat();
    assert_eq!(read_one_line(folder, &run), (Some(141), String::new()));
    assert_eq!(ending(folder, "r.tlr"), "interrupted");

    // Not the records, but the console. The guest prints more than a pipe holds, so it is closed in the middle.
    std::fs::write(folder.join("prints"), kernel(&PRINTS_LINES)).unwrap();
    std::fs::write(folder.join("prints.map"), "00100000 T main\n").unwrap();
    let run = ["run", "prints", "--sym", "prints.map", "-f", "raw", "-o", "p.raw", "--console", "stdio"];
    let (code, err) = read_one_line(folder, &[&run[..], &all].concat());
    assert_eq!(code, Some(141), "{err}");
    assert!(err.contains("trapline: standard output was closed, and the run ended after "), "{err}");
    let cat = trapline(folder, &["trace", "cat", "p.raw", "-f", "json"]);
    assert_eq!(cat.status.code(), Some(0), "{}", text(&cat.stderr));
    let end: serde_json::Value = serde_json::from_str(text(&cat.stdout).lines().last().unwrap()).unwrap();
    assert_eq!((&end["type"], &end["exit"]), (&"end".into(), &141.into()), "{end}");

    // A whole run, whose records are more than a pipe holds: r.tlr may have ended before that.
    let whole = trapline(folder, &["record", GUEST, "-q", "-o", "whole.tlr"]);
    assert_eq!(whole.status.code(), Some(0), "{}", text(&whole.stderr));
    let branch =
        ["replay", "whole.tlr", "--rpn", "fbt::: { push 1; pop gv, 0; log 0 }", "-q", "--branch", "b.tlr"];
    assert_eq!(read_one_line(folder, &branch), (Some(141), String::new()));
    assert_eq!(ending(folder, "b.tlr"), "interrupted");
}

#[test]
fn stop_ends_a_branch_where_it_stands_and_so_does_to() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert_eq!(trapline(folder, &["record", GUEST, "-q", "-o", "r.tlr"]).status.code(), Some(0));
    let end = |args: &[&str], line: &str| {
        let all = [&["replay", "r.tlr", "--branch", "b.tlr", "-f", "json", "-q"], args].concat();
        let mut child = command(folder, &all).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
        let ran = child.wait_with_output().unwrap();
        let last: serde_json::Value =
            serde_json::from_str(text(&ran.stdout).lines().last().unwrap()).unwrap();
        (ran.status.code(), last["insns"].as_u64().unwrap(), ending(folder, "b.tlr"))
    };
    let stopped = "the script stopped the run".to_owned();
    assert_eq!(end(&["--at", "1M"], "type x\nstop\ntype y\n"), (Some(0), 1_000_000, stopped.clone()));
    assert_eq!(end(&["--at", "0"], "stop\n"), (Some(0), 0, stopped));
    let limit = "the instruction limit was reached".to_owned();
    assert_eq!(end(&["--to", "1M", "-n", "fbt::do_fork:entry"], ""), (Some(0), 1_000_000, limit));
    // What was not carried out is not in it.
    assert_eq!(end(&["--at", "1M"], "nix\n"), (Some(2), 1_000_000, "interrupted".to_owned()));
}

#[test]
fn an_output_that_cannot_be_written_is_named_with_the_reason_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let full = "trapline: error: cannot write /dev/full: No space left on device\n";
    for output in ["-o", "--console", "--record", "--com2"] {
        let to = if output == "--com2" { &["--log-to", "com2"][..] } else { &[] };
        let run =
            trapline(folder, &[&["run", GUEST, "-q", "-n", "fbt:::", output, "/dev/full"], to].concat());
        assert_eq!((run.status.code(), text(&run.stderr).as_str()), (Some(7), full), "{output}");
    }
    // A disk that is full later: files may have 4 KiB.
    let limited = |args: &str| {
        let line = format!("trap '' XFSZ; ulimit -f 8; exec {} {args}", env!("CARGO_BIN_EXE_trapline"));
        let ran = Command::new("sh").args(["-c", &line]).current_dir(folder).output().unwrap();
        (ran.status.code(), text(&ran.stderr))
    };
    let record = limited("record embedded:ia32 -q --console none --pages --checkpoint-insns 10K -o r.tlr");
    let too_large = |file: &str| format!("trapline: error: cannot write {file}: File too large\n");
    assert_eq!(record, (Some(7), too_large("r.tlr")));
    let both = limited("run embedded:ia32 -q -n fbt::: -o r.txt --record s.tlr");
    assert_eq!(both, (Some(7), too_large("r.txt")));
    // The other file is whole.
    assert_eq!(ending(folder, "s.tlr"), "interrupted");
}

#[test]
fn a_run_that_does_not_come_about_leaves_the_recording_of_an_earlier_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert_eq!(trapline(folder, &["record", GUEST, "-q", "-o", "r.tlr"]).status.code(), Some(0));
    let before = std::fs::read(folder.join("r.tlr")).unwrap();
    for wrong in
        [&["-n", "fbt::nosuch:entry"][..], &["--core-dir", "nosuch", "-n", "fbt:::"], &["-p", "none"]]
    {
        let run = trapline(folder, &[&["record", GUEST, "-q", "-o", "r.tlr"], wrong].concat());
        assert!(matches!(run.status.code(), Some(2 | 3 | 7)), "{}", text(&run.stderr));
        assert!(std::fs::read(folder.join("r.tlr")).unwrap() == before, "{wrong:?}");
    }
}

/// Sends a signal to a child whose program has begun.
fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
}

#[test]
fn a_signal_ends_a_replay_at_once_also_where_it_waits_for_a_line_or_its_shell_ignores_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert_eq!(trapline(folder, &["record", GUEST, "-q", "-o", "r.tlr"]).status.code(), Some(0));
    // Each waits for standard input, which stays open.
    for (command, first) in [
        ("replay r.tlr --at 1M -f json -o records.json", "where\n"),
        ("replay r.tlr --at 1M --branch b.tlr -f json -o records.json", "query\n"),
        ("run - ", ""),
        ("run embedded:ia32 -p - --record new.tlr", ""),
    ] {
        for name in ["INT", "TERM"] {
            let line = format!("trap '' INT; exec {} -q {command}", env!("CARGO_BIN_EXE_trapline"));
            let mut child = Command::new("sh");
            child.args(["-c", &line]).current_dir(folder).stdin(Stdio::piped()).stderr(Stdio::piped());
            let mut child = child.spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(first.as_bytes()).unwrap();
            if !first.is_empty() {
                until("the first line is read", || rustix::io::ioctl_fionread(&stdin).unwrap() == 0);
            }
            listens(&child);
            signal(&child, name);
            let ran = child.wait_with_output().unwrap();
            assert_eq!((ran.status.code(), text(&ran.stderr)), (Some(130), String::new()), "{command}");
            // It has not waited for the end of its input.
            drop(stdin);
        }
    }
    assert_eq!(ending(folder, "b.tlr"), "interrupted");
    let records = std::fs::read_to_string(folder.join("records.json")).unwrap();
    assert!(records.lines().last().unwrap().contains("\"exit\":130"), "{records}");
    assert!(!folder.join("new.tlr").exists());
}

#[test]
fn a_signal_ends_verify_with_the_results_that_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert_eq!(trapline(folder, &["record", GUEST, "-q", "-o", "a.tlr"]).status.code(), Some(0));
    let recording = std::fs::read(folder.join("a.tlr")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("b.tlr")).status().unwrap().success());
    let paths: Vec<String> = ["a.tlr".into(), "b.tlr".into()]
        .into_iter()
        .chain((0..200).map(|n| {
            let name = format!("c{n}.tlr");
            std::fs::hard_link(folder.join("a.tlr"), folder.join(&name)).unwrap();
            name
        }))
        .collect();
    for (name, more) in [("INT", &["--junit", "j.xml"][..]), ("TERM", &["--update"])] {
        let args: Vec<&str> = ["verify"]
            .into_iter()
            .chain(paths.iter().map(String::as_str))
            .chain(more.iter().copied())
            .collect();
        let child = command(folder, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // It has verified the first, and reads the second.
        let mut second = std::fs::OpenOptions::new().write(true).open(folder.join("b.tlr")).unwrap();
        signal(&child, name);
        second.write_all(&recording).unwrap();
        drop(second);
        let ran = child.wait_with_output().unwrap();
        let (out, err) = (text(&ran.stdout), text(&ran.stderr));
        assert_eq!(ran.status.code(), Some(130), "{out}{err}");
        let done = out.lines().filter(|line| line.starts_with("ok      ")).count();
        assert!(out.starts_with("ok      a.tlr: ") && done < 202, "{out}");
        assert!(
            err.contains(&format!("verified, 0 failed; interrupted, with {} recordings left", 202 - done)),
            "{err}"
        );
    }
    assert!(std::fs::read_to_string(folder.join("j.xml")).unwrap().ends_with("</testsuite>\n"));
    assert!(std::fs::read(folder.join("a.tlr")).unwrap() == recording);
}

/// Waits until the program handles SIGINT and does not run any more: it waits for its input.
fn listens(child: &Child) {
    until_handled(child.id(), &[2]);
    until("it waits", || status(child.id(), "State").starts_with('S'));
}
