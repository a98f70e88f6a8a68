//! What a command line names and is not there is refused, and what a recording holds is told in the words of the options.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs in a folder; the exit code, standard output and standard error.
fn trapline(folder: &Path, args: &[&str], input: Option<&str>) -> (Option<i32>, String, String) {
    let input = input.map_or(Stdio::null(), |name| File::open(folder.join(name)).unwrap().into());
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
    let ran = command.args(args).current_dir(folder).stdin(input).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

/// A folder with the recording r.tlr, of a thousand instructions.
fn recorded(more: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let record =
        ["record", "embedded:ia32", "-o", "r.tlr", "--limit-insns", "1000", "-q", "--console", "none"];
    let (code, _, err) = trapline(folder.path(), &[&record[..], more].concat(), None);
    assert_eq!(code, Some(124), "{err}");
    folder
}

#[test]
fn what_is_not_there_is_refused_in_a_sentence() {
    let folder = recorded(&[]);
    let folder = folder.path();
    File::create(folder.join("empty")).unwrap();
    std::fs::write(folder.join("script"), "at insns=100 snapshot \"\"\n").unwrap();
    std::fs::write(folder.join("back"), "goto end-1001\n").unwrap();
    std::fs::write(folder.join("far"), "reverse to 0x1c0100f91\n").unwrap();
    std::fs::write(folder.join("beyond"), "examine 0xfffffff0 17\n").unwrap();
    let program = "name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x55\nlog 0\nexit\n";
    std::fs::write(folder.join("p.rpn"), program).unwrap();
    for (args, input, exit, said) in [
        (
            &["replay", "r.tlr", "--to", "end-1001"][..],
            None,
            2,
            "end-1001 is before the beginning of the recording",
        ),
        (
            &["replay", "r.tlr", "--at", "0"],
            Some("back"),
            2,
            "end-1001 is before the beginning of this history",
        ),
        (&["replay", "r.tlr", "--at", "0"], Some("far"), 2, "0x1c0100f91 is no address of this guest"),
        (&["replay", "r.tlr", "--at", "0"], Some("beyond"), 2, "17 bytes at 0xfffffff0 reach beyond"),
        (&["replay", "r.tlr", "--image-dir", "none"], None, 2, "--image-dir none: there is no such folder"),
        (&["verify", "r.tlr", "--image-dir", "empty"], None, 2, "--image-dir empty: there is no such folder"),
        (&["run", "embedded:ia32", "--script", "script"], None, 2, "the snapshot's name is empty"),
        (&["build", "-"], Some("p.rpn"), 2, "a program from standard input has no name; add -o FILE.ppdf"),
        (&["verify", "-", "-"], None, 2, "standard input (-) can be read only once"),
        (
            &["verify", "-", "--update"],
            None,
            2,
            "--update rewrites files, and standard input (-) is not a file",
        ),
        (&["diff", "-", "-"], None, 2, "standard input (-) can be read only once"),
        (
            &["run", "embedded:ia32", "-p", "-", "--require-signed", "-"],
            None,
            2,
            "standard input (-) can be read only once",
        ),
        (
            &["run", "embedded:ia32", "--disk", "-"],
            None,
            2,
            "it cannot be standard input; write the name of a file",
        ),
        (&["trace", "cat", "t", "--templates", "-"], None, 2, "it cannot be standard input"),
        (
            &["run", "embedded:ia32", "--sym", "empty"],
            None,
            7,
            "empty holds no symbols: it is empty (0 bytes)",
        ),
    ] {
        let (code, _, err) = trapline(folder, args, input);
        assert_eq!(code, Some(exit), "{args:?}: {err}");
        assert!(err.contains(said), "{args:?}: {err}");
    }
}

#[test]
fn no_message_repeats_a_name_of_any_length() {
    let folder = recorded(&[]);
    let folder = folder.path();
    let long = "a".repeat(100_000);
    std::fs::write(folder.join("long.d"), format!("BEGIN {{\n pr\"{long}\" }}")).unwrap();
    let text = format!(
        "name = vmlinux\nmodtype = kernel\noffset = {}\nopcode = 0x55\nlog 0\nexit\n",
        "a".repeat(60_000)
    );
    std::fs::write(folder.join("long.rpn"), text).unwrap();
    std::fs::write(folder.join("script"), format!("at insns=100 {long}\n")).unwrap();
    let long = long.as_str();
    for args in [
        &["check", "long.d"][..],
        &["run", "embedded:ia32", "-p", "long.rpn"],
        &["run", "embedded:ia32", "--script", "script"],
        &["run", long],
        &["run", "embedded:ia32", "--limit-insns", long],
        &["run", "embedded:ia32", "-n", long],
        &["dtrace", "-n", long],
        &["replay", "r.tlr", "--when", long],
        &["replay", "r.tlr", "--who-wrote", long],
        &["replay", "r.tlr", "--calls", long],
    ] {
        let (code, _, err) = trapline(folder, args, None);
        assert!(code != Some(0) && !err.is_empty(), "{code:?}");
        let longest = err.lines().map(str::len).max().unwrap();
        assert!(longest < 5_000, "{}: {longest}", args.join(" ").get(..40).unwrap_or_default());
    }
}

#[test]
fn a_status_of_d_is_its_low_byte_and_no_failure_is_a_success() {
    let folder = tempfile::tempdir().unwrap();
    for (status, code) in [(0, 0), (3, 3), (300, 44), (256, 1), (-256, 1), (-1, 255)] {
        let program = format!("BEGIN {{ exit({status}); }}");
        for args in [&["dtrace", "-q", "-n"][..], &["run", "embedded:ia32", "-q", "--console", "none", "-n"]]
        {
            let (ended, _, err) = trapline(folder.path(), &[args, &[program.as_str()]].concat(), None);
            assert_eq!(ended, Some(code), "{args:?} {status}: {err}");
        }
    }
}

#[test]
fn an_empty_file_that_cannot_be_what_it_is_read_as_exits_7_in_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    File::create(folder.join("empty")).unwrap();
    let program = "name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x55\nlog 0\nexit\n";
    std::fs::write(folder.join("p.rpn"), program).unwrap();
    for command in [
        "run empty",
        "run embedded:ia32 --sym empty",
        "list embedded:ia32 --sym empty",
        "dis embedded:ia32 do_fork --sym empty",
        "dtrace --guest embedded:ia32 --sym empty -n BEGIN",
        "run embedded:ia32 --initrd empty",
        "run embedded:ia32 --platform pc --disk empty",
        "run embedded:ia32 -p p.rpn --require-signed empty",
        "build p.rpn --sign empty -o q",
        "replay empty",
        "verify empty",
        "diff empty empty",
        "trace cat empty",
    ] {
        let args: Vec<&str> = command.split(' ').collect();
        let (code, _, err) = trapline(folder, &args, None);
        assert_eq!(code, Some(7), "{command}: {err}");
    }
}

#[test]
fn info_is_in_the_words_of_the_options() {
    let folder = recorded(&[
        "--rpn",
        "fbt::do_fork:entry { exit 3 }",
        "--fbt",
        "strict",
        "--platform",
        "minimal",
        "--append",
        "quiet",
        "--max-cores",
        "3",
    ]);
    let (code, out, err) = trapline(folder.path(), &["replay", "r.tlr", "--info"], None);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("\nlast checkpoint ") && !out.contains("digest"), "{out}");
    let (_, out, _) = trapline(folder.path(), &["replay", "r.tlr", "--info", "-f", "json"], None);
    let info: serde_json::Value = serde_json::from_str(&out).unwrap();
    let config = &info["config"];
    assert_eq!((&config["fbt"], &config["platform"]), (&"strict".into(), &"minimal".into()), "{config}");
    assert_eq!((&config["append"][0], &config["max_cores"]), (&"quiet".into(), &3.into()), "{config}");
    assert!(info["checkpoints"].as_array().unwrap().iter().all(|point| point["hash"].is_string()), "{info}");
    assert!(info["commands"].as_array().unwrap().iter().all(|row| row["command"].is_string()), "{info}");
}

/// The command with the name of its file.
fn with<'a>(command: &[&'a str], file: &'a str) -> Vec<&'a str> {
    command.iter().map(|arg| if *arg == "FILE" { file } else { *arg }).collect()
}

#[test]
fn recordings_and_ppdf_files_are_read_from_standard_input() {
    let folder = recorded(&[]);
    let folder = folder.path();
    let program = "name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x55\nlog 0\nexit\n";
    std::fs::write(folder.join("p.rpn"), program).unwrap();
    assert_eq!(trapline(folder, &["build", "p.rpn", "-o", "p.ppdf"], None).0, Some(0));
    for (command, file) in [
        (&["dis", "FILE"][..], "p.ppdf"),
        (&["replay", "FILE", "--verify"], "r.tlr"),
        (&["diff", "FILE", "--mem", "64M", "-f", "json"], "r.tlr"),
    ] {
        let (code, out, err) = trapline(folder, &with(command, file), None);
        assert!(matches!(code, Some(0 | 1)) && !format!("{out}{err}").is_empty(), "{command:?}: {err}");
        let piped = trapline(folder, &with(command, "-"), Some(file));
        assert_eq!(piped, (code, out.replace(file, "-"), err.replace(file, "-")), "{command:?}");
    }
    let (code, out, err) = trapline(folder, &["verify", "-"], Some("r.tlr"));
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("ok      -: 1000 instructions"), "{out}");
}

#[test]
fn a_trace_file_is_read_from_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = ["run", "embedded:ia32", "-n", "fbt::do_fork:entry", "-q", "-f", "raw", "-o", "t"];
    let (code, _, err) = trapline(folder, &run, None);
    assert_eq!(code, Some(0), "{err}");
    let named = trapline(folder, &["trace", "cat", "t"], None);
    assert!(named.0 == Some(0) && !named.1.is_empty(), "{named:?}");
    assert_eq!(trapline(folder, &["trace", "cat", "-"], Some("t")), named);
}
