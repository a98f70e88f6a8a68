//! Sessions in files: a new process that resumes one ends like an uninterrupted run, with the same digest, records,
//! statistics and console. The guests are probed in every way (`src/resume.rs`).
//!
//! `TRAPLINE_SNAPSHOTS=1000` takes that many of each guest instead of a few.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::trapline;
use std::process::Command;

/// Snapshots to take of a guest.
fn wanted(few: usize) -> usize {
    std::env::var("TRAPLINE_SNAPSHOTS").map_or(few, |n| n.parse().unwrap())
}

fn resumes(guest: &str, few: usize) {
    let n = wanted(few).to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_resume")).args([guest, "all", &n]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(&format!("{n} snapshots")), "{text}");
}

#[test]
fn an_embedded_guest_goes_on_from_a_file_in_a_new_process() {
    for guest in trapline_guests::ALL {
        resumes(&format!("embedded:{}", guest.name), 30);
    }
}

#[test]
fn guest_linux_goes_on_from_a_file_in_a_new_process_at_length() {
    for guest in ["linux:cloud-amd64", "linux:686"] {
        resumes(guest, 1);
    }
    // Semaphores and pointers of a program, and a kernel module that is loaded and unloaded.
    resumes("shop:cloud-amd64", 1);
}

/// Found by an outsider: such a file was refused.
#[test]
fn a_guest_with_memory_above_the_devices_goes_on_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    for mem in ["3073M", "32G"] {
        let run = |more: &[&str]| {
            let common = ["run", "embedded:x86_64", "--mem", mem, "--console", "none", "--digest", "--quiet"];
            trapline(folder.path(), &[&common[..], more].concat())
        };
        let (whole, first) = (run(&[]), run(&["--limit-insns", "1234567", "--save", "s"]));
        let rest = run(&["--restore", "s"]);
        assert_eq!((whole.code, first.code, rest.code), (0, 124, 0), "{mem}: {}{}", first.err, rest.err);
        assert!(whole.err.starts_with("digest "), "{}", whole.err);
        assert_eq!(rest.err, whole.err, "{mem}");
    }
}

/// The same probes, the same limit: what two processes write is what one writes.
#[test]
fn run_goes_on_from_where_run_has_saved() {
    let folder = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| {
        let common = ["run", "embedded:x86_64", "--console", "none", "--digest", "--quiet"];
        trapline(folder.path(), &[&common[..], more].concat())
    };
    let probes = ["-n", "fbt:::entry"];
    let whole = run(&probes);
    let first = run(&[&probes[..], &["--limit-insns", "1234567", "--save", "s"]].concat());
    let rest = run(&["--restore", "s"]);
    assert_eq!((whole.code, first.code, rest.code), (0, 124, 0), "{}{}", first.err, rest.err);
    assert!(first.out.lines().count() > 100 && first.err.starts_with("digest "), "{}", first.err);
    assert_eq!((first.out + &rest.out, rest.err), (whole.out, whole.err));

    let more = run(&["--restore", "s", "-n", "fbt::do_fork:entry", "--restore", "s"]);
    assert_eq!(more.code, 2, "one snapshot at most: {}", more.err);
    let header = run(&["--restore", "s", "-n", "fbt::do_fork:return", "-f", "json"]).out;
    assert!(
        header.lines().next().unwrap().contains(r#""programs":["-n fbt:::entry","-n fbt::do_fork:return"]"#)
    );
}

#[test]
fn a_snapshot_that_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = |image: &str, more: &[&str]| {
        trapline(folder.path(), &[&["run", image, "--console", "none", "--quiet"], more].concat())
    };
    assert_eq!(run("embedded:ia32", &["--limit-insns", "500K", "--save", "s"]).code, 124);
    let file = std::fs::read(folder.path().join("s")).unwrap();
    std::fs::write(folder.path().join("cut"), &file[..file.len() / 2]).unwrap();
    let cases = [
        (
            "embedded:x86_64",
            vec!["--restore", "s"],
            7,
            "cannot restore s: the snapshot is of another machine",
        ),
        ("embedded:ia32", vec!["--restore", "cut"], 7, "cannot restore cut: the snapshot is damaged"),
        ("embedded:ia32", vec!["--restore", "absent"], 7, "cannot read absent"),
        ("embedded:ia32", vec!["--restore", "s", "--save", "s"], 2, "the snapshot would overwrite an input"),
        ("embedded:ia32", vec!["--restore", "s", "--record", "r"], 2, "cannot be used with"),
        (
            "embedded:ia32",
            vec!["--restore", "s", "--limit-insns", "499999"],
            2,
            "--limit-insns 499999 is before the snapshot s, which was taken after 500000 instructions: the limit counts from the \
             start of the guest",
        ),
        ("embedded:ia32", vec!["--restore", "s", "--limit-insns", "500K"], 124, ""),
        ("embedded:ia32", vec!["--save", "no/where", "--limit-insns", "1K"], 7, "cannot write no/where"),
    ];
    for (image, more, code, text) in cases {
        let ran = run(image, &more);
        assert!(ran.code == code && ran.err.contains(text), "{more:?}: {} {}", ran.code, ran.err);
    }
    assert_eq!(std::fs::read(folder.path().join("s")).unwrap(), file);
    // Before the run; and no file stays of a run that does not end well.
    let early = run("embedded:ia32", &["--save", "no/where", "--record", "r.tlr"]);
    assert!(early.code == 7 && !early.err.contains("instructions"), "{}", early.err);
    let full = run("embedded:ia32", &["-n", "fbt:::", "-o", "/dev/full", "--save", "new"]);
    assert!(full.code == 7 && !folder.path().join("new").exists(), "{}: {}", full.code, full.err);
}

#[test]
fn a_snapshot_is_continued_with_the_probe_options_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| {
        let common = ["run", "embedded:ia32", "--console", "none", "-q"];
        trapline(folder.path(), &[&common[..], more].concat())
    };
    let clause = "fbt::do_fork:entry { @[pid] = count(); }";
    let plain = "fbt::do_fork:entry";
    let saved = |file: &str, probes: &[&str]| {
        let all = [&["--limit-insns", "1M", "--save", file], probes].concat();
        assert_eq!(run(&all).code, 124, "{file}");
    };
    saved("none", &[]);
    saved("d", &["-n", clause]);
    saved("plain", &["-n", plain, "-o", "/dev/null"]);
    saved("header", &["-n", plain, "--header", "pid", "--stack", "-o", "/dev/null"]);
    for file in ["none", "d", "plain", "header"] {
        for more in [&[][..], &["-n", clause], &["-n", plain, "-o", "/dev/null"]] {
            let ran = run(&[&["--restore", file], more].concat());
            assert_eq!(ran.code, 0, "{file} {more:?}: {}", ran.err);
        }
    }
    let refused = run(&["--restore", "header", "--header", "uid", "-n", plain]);
    let sentence = "the snapshot was taken with other values of these probe options: header\n";
    assert!(refused.code == 7 && refused.err.ends_with(sentence), "{}", refused.err);
}
