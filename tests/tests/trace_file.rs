//! Trace files and log destinations through the command line: a trace file prints the same as the run, damaged files
//! are read up to the damage, and records on a serial port leave the guest unaffected.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli;
use std::path::Path;

use crate::cli::{FORMS, Ran, binary, finish, kernel_probe, patient, trace_file_prints_the_run};
use tempfile::TempDir;

/// A memory range, a string and a bad address; then a handler that ends by an exception.
fn programs(word: u32) -> String {
    let header = "name = vmlinux\nmodtype = kernel\nmajor = 7\n";
    let log = "push 8\npush r, esp\nlog mrf\npush pid\nlog 1\npush 12\npush 16\nlog str\nexit\n";
    let push = if word == 64 { log.replace("esp", "rsp") } else { log.to_owned() };
    let first = format!("offset = do_fork\nopcode = 0x55\nminor = 1\n{push}");
    let second = "offset = do_general_protection\nopcode = 0x55\nminor = 2\npush 7\nlog 1\npush 1\npush 0\ndiv\nexit\n";
    format!("{header}{first}{second}")
}

const DIRECTORY: &str = "major=7 file=\"seven.fmt\"\n";
const TEMPLATES: &str =
    "major=7\nminor=1, desc=\"fork\", fmt=\"stack %r(%4x )\\n\", fmt=\"pid %4d\\nstring '%ps'\"\n";
const SCRIPT: &str = "at insns=300000 query\non hit 3 of p.rpn getvars\n";

fn folder(word: u32) -> TempDir {
    let folder = TempDir::new().unwrap();
    let program = programs(word);
    let files =
        [("p.rpn", program.as_str()), ("dir", DIRECTORY), ("seven.fmt", TEMPLATES), ("s.txt", SCRIPT)];
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Runs `trapline` on a guest with little memory.
fn trapline(folder: &Path, args: &[&str]) -> Ran {
    let small = if args[0] == "run" { &["--mem", "32M"][..] } else { &[] };
    cli::trapline(folder, &[args, small].concat())
}

fn ok(folder: &TempDir, args: &[&str]) -> String {
    let ran = trapline(folder.path(), args);
    assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
    ran.out
}

#[test]
fn a_trace_file_prints_what_the_run_would_have_printed() {
    for (guest, word) in [("embedded:ia32", 32), ("embedded:x86_64", 64)] {
        let folder = folder(word);
        let common = ["run", guest, "-q", "-p", "p.rpn", "--script", "s.txt"];
        for run_only in
            [&["--header", "all"][..], &["--header", "pid,cs", "--stats"], &["--channel", "400x2"]]
        {
            let run = |more: &[&str]| ok(&folder, &[&common, run_only, more].concat());
            assert_eq!(run(&["-f", "raw", "-o", "t.trace"]), "");
            for form in [
                &["-f", "text"][..],
                &["-f", "json"],
                &["--symbols"],
                &["--templates", "dir"],
                &["--templates", "dir", "--symbols"],
                &["-f", "json", "--templates", "dir"],
            ] {
                let direct = run(form);
                assert!(direct.lines().count() > 5, "{direct}");
                let later = ok(&folder, &[&["trace", "cat", "t.trace"], form].concat());
                assert_eq!(direct, later, "{guest} {run_only:?} {form:?}");
            }
            ok(&folder, &["trace", "cat", "t.trace", "-o", "out"]);
            let out = std::fs::read_to_string(folder.path().join("out")).unwrap();
            assert_eq!(out, ok(&folder, &["trace", "cat", "t.trace"]));
            ok(&folder, &["trace", "cat", "t.trace", "-f", "raw", "-o", "copy"]);
            let bytes = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
            assert_eq!(bytes("copy"), bytes("t.trace"));
        }
    }
}

/// The providers' probes and a program's of an embedded guest: entry and return, a user program's, a timer, an offset, a
/// watch, a handler that fails, a string that is no whole word.
fn of_every_provider(word: u32, clauses: &[&str]) -> (TempDir, Vec<String>) {
    let folder = folder(word);
    let watch = "name = vmlinux\nmodtype = kernel\naddress = nr_free_pages:nr_free_pages+3\nwatchpoint = w\n\
                 maxhits = 3\npush 5\nlog 1\nexit\n";
    std::fs::write(folder.path().join("w.rpn"), watch).unwrap();
    let guest = if word == 64 { "embedded:x86_64" } else { "embedded:ia32" };
    let mut args: Vec<String> =
        ["run", guest, "--mem", "32M", "-p", "p.rpn", "-p", "w.rpn", "--header", "all"]
            .iter()
            .map(ToString::to_string)
            .collect();
    args.extend(["--stack=3".to_owned(), "--ustack=2".to_owned()]);
    args.extend(clauses.iter().flat_map(|clause| ["--rpn".to_owned(), (*clause).to_owned()]));
    (folder, args)
}

#[test]
fn a_trace_file_of_every_provider_prints_what_the_run_would_have_printed() {
    let clauses = [
        "fbt::do_fork: { push 3; push task; log mrf; push 7; log 1 }",
        "fbt::do_general_protection:entry { push 1; push 0; div }",
        "profile:::tick-1ms",
        "pid*:appln:main:entry { push 5; push u, esp; log mrf }",
    ];
    for word in [32, 64] {
        let clauses =
            clauses.map(|clause| if word == 64 { clause.replace("esp", "rsp") } else { clause.into() });
        let clauses: Vec<&str> = clauses.iter().map(String::as_str).collect();
        let (folder, args) = of_every_provider(word, &clauses);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let text = trace_file_prints_the_run(folder.path(), &args, &FORMS);
        for wanted in ["probe=fbt:", "probe=profile:", "probe=pid1:appln:main:entry", "watch=w", "DProbes(7,"]
        {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
    }
}

#[test]
fn a_trace_file_of_static_probes_prints_what_the_run_would_have_printed() {
    let folder = TempDir::new().unwrap();
    crate::static_catalog::loaded_kernel(folder.path());
    let handlers = ["push arg, 1; push arg, 0; log 2", "push arg, 0; log 1", "push 3; push arg, 1; log mrf"];
    let clauses: Vec<String> = ["vm-page-out", "tail", "begin"]
        .iter()
        .zip(handlers)
        .map(|(name, handler)| format!("sdt:::{name} {{ {handler} }}"))
        .collect();
    let args = [&["run", "kernel"][..], &["--rpn", &clauses[0], "--rpn", &clauses[1], "--rpn", &clauses[2]]]
        .concat();
    let text = trace_file_prints_the_run(folder.path(), &args, &FORMS);
    assert_eq!(text.matches("probe=sdt:kernel:").count(), 9, "{text}");
}

#[test]
fn a_trace_file_shows_the_counters_of_its_run_when_they_are_asked_for() {
    let folder = folder(32);
    let run = ["run", "embedded:ia32", "-p", "p.rpn", "-q"];
    let direct = trapline(folder.path(), &[&run[..], &["--stats"]].concat());
    ok(&folder, &[&run[..], &["-f", "raw", "-o", "t.trace"]].concat());
    let cat = |more: &[&str]| trapline(folder.path(), &[&["trace", "cat", "t.trace"], more].concat());
    assert_eq!(
        (cat(&["--stats"]).out, cat(&["--stats"]).err),
        (direct.out.clone(), said_as_data(&direct.err))
    );
    assert_eq!((cat(&[]).out, cat(&[]).err), (direct.out, String::new()));
    assert_eq!(cat(&["--stats", "-f", "raw", "-o", "x"]).code, 2, "a copy shows no counters");
}

#[test]
fn templates_show_what_the_paper_says() {
    let folder = folder(32);
    let shown =
        ok(&folder, &["run", "embedded:ia32", "-q", "-p", "p.rpn", "--templates", "dir", "--header", "pid"]);
    let mut lines = shown.lines();
    assert_eq!(lines.next(), Some("DProbes(7,1) pid=1 fork"));
    let stack: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert!(
        stack.len() == 3 && stack[0] == "stack" && stack[1..].iter().all(|word| word.len() == 8),
        "{stack:?}"
    );
    assert_eq!(lines.next(), Some("pid 1"));
    // Address 16 is nothing in the kernel's mapping.
    assert_eq!(lines.next(), Some("string '(fault at address 0x00000010)'"));
    // No template for minor 2: the dump.
    let second = shown.lines().skip_while(|line| *line != "DProbes(7,2) pid=2").nth(1).unwrap();
    assert!(second.starts_with("+00000000 07 00 00 00  ") && second.ends_with(" *....*"), "{second}");
}

#[test]
fn a_damaged_trace_file_is_read_as_far_as_it_is_whole() {
    let folder = folder(32);
    ok(&folder, &["run", "embedded:ia32", "-q", "-p", "p.rpn", "-f", "raw", "-o", "t.trace"]);
    let whole = std::fs::read(folder.path().join("t.trace")).unwrap();
    let text = ok(&folder, &["trace", "cat", "t.trace"]);
    let cat = |bytes: &[u8]| {
        std::fs::write(folder.path().join("cut"), bytes).unwrap();
        let ran = trapline(folder.path(), &["trace", "cat", "cut"]);
        assert_eq!((ran.code, ran.err.lines().count()), (7, 1), "{}", ran.err);
        assert!(ran.err.starts_with("trapline: error: cannot read cut: "), "{}", ran.err);
        // Nothing is printed of the damaged part or after it.
        assert!(text.starts_with(&ran.out), "{}", ran.out);
        ran
    };
    let mut sizes = Vec::new();
    for end in (0..whole.len()).step_by(whole.len() / 23) {
        sizes.push(cat(&whole[..end]).out.len());
    }
    assert!(sizes.is_sorted() && sizes.last() > Some(&(text.len() / 2)), "{sizes:?}");
    // Raw: the whole pieces, byte for byte.
    let ran = trapline(folder.path(), &["trace", "cat", "cut", "-f", "raw", "-o", "part"]);
    let part = std::fs::read(folder.path().join("part")).unwrap();
    assert_eq!(ran.code, 7);
    assert!(whole.starts_with(&part) && part.len() > whole.len() / 2);
    let mut changed = whole.clone();
    let at = whole.len() / 2;
    changed[at..at + 60].fill(0xee);
    cat(&changed);
    for at in (0..whole.len()).step_by(whole.len() / 23) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        let ran = cat(&changed);
        // At least as much is printed as for a file that ends before the damaged record.
        assert!(ran.out.len() >= cat(&whole[..at]).out.len(), "byte {at}: {}", ran.out);
    }
    assert!(cat(b"ELF").err.contains("it begins with 45 4c 46 instead of 89 54 52 43"));
}

/// Standard error without Trapline's own messages, such as those about handlers that failed.
fn said_as_data(err: &str) -> String {
    err.split_inclusive('\n').filter(|line| !line.starts_with("trapline: ")).collect()
}

fn refused(folder: &TempDir, args: &[&str], code: i32, sentence: &str) {
    let ran = trapline(folder.path(), args);
    let expected = Ran { code, out: String::new(), err: format!("trapline: error: {sentence}\n") };
    assert_eq!(ran, expected, "{args:?}");
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let folder = folder(32);
    let run = |more: &[&str], sentence: &str| {
        refused(&folder, &[&["run", "embedded:ia32", "-p", "p.rpn"], more].concat(), 2, sentence);
    };
    run(&["--log-to", "file"], "--log-to file needs -o FILE");
    run(
        &["--log-to", "com1", "-o", "x"],
        "records have one destination; give --log-to com1 or -o FILE, not both",
    );
    run(
        &["--log-to", "lpt1"],
        "--log-to: `lpt1` is not a log destination; use file or stdout or com1 or com2",
    );
    run(
        &["--log-to", "com2", "-f", "raw"],
        "-f raw writes binary data, which cannot go to a serial port; use -f text or json with --log-to com2",
    );
    run(
        &["-f", "raw", "--templates", "dir", "-o", "x"],
        "--templates has no effect with -f raw; use it with -f text or json",
    );
    ok(&folder, &["run", "embedded:ia32", "-q", "-p", "p.rpn", "-f", "raw", "-o", "t.trace"]);
    let same = "the output would overwrite an input of this command, t.trace; give another file";
    refused(&folder, &["trace", "cat", "t.trace", "-o", "t.trace"], 2, same);
    let missing = "cannot read nothere: No such file or directory";
    refused(&folder, &["trace", "cat", "nothere"], 7, missing);
    let folder_as_file = "cannot write nothere/x: No such file or directory";
    refused(&folder, &["trace", "cat", "t.trace", "-o", "nothere/x"], 7, folder_as_file);
    std::fs::write(folder.path().join("seven.fmt"), "major=8\nminor=1 desc=\"d\" fmt=\"%q\"\n").unwrap();
    let ran = trapline(folder.path(), &["run", "embedded:ia32", "-p", "p.rpn", "--templates", "dir"]);
    let first = "trapline: error: seven.fmt:1:7: the major code is 8; the template directory says 7, so write `major=7`";
    let second = "trapline: error: seven.fmt:2:23: `%q` is not a control; after `%` write one of c d f i p r s u x z, or %% %( %) for the character itself";
    assert_eq!((ran.code, ran.out.as_str()), (7, ""));
    assert_eq!(ran.err.lines().collect::<Vec<_>>(), [first, second]);
}

/// Console and digest of a run that is not probed.
fn plain(folder: &TempDir) -> (String, String) {
    let console = ok(folder, &["run", "embedded:ia32", "-q"]);
    let ran = trapline(folder.path(), &["run", "embedded:ia32", "-q", "--digest", "--console", "none"]);
    (console, ran.err)
}

#[test]
fn records_on_a_serial_port_stand_where_they_happened_and_the_guest_is_as_it_was() {
    let folder = folder(32);
    let (console, digest) = plain(&folder);
    let args = ["run", "embedded:ia32", "-q", "-p", "p.rpn", "--header", "pid", "--log-to", "com1"];
    let out = ok(&folder, &args);
    let (records, rest): (Vec<&str>, Vec<&str>) = out.lines().partition(|line| line.starts_with("DProbes("));
    assert_eq!(rest, console.lines().collect::<Vec<_>>(), "the guest's own bytes, in their order");
    assert_eq!(records, ok(&folder, &args[..7]).lines().collect::<Vec<_>>());
    // do_fork runs before it says so, and the handler of #GP before it prints.
    let lines: Vec<&str> = out.lines().collect();
    for (n, line) in lines.iter().enumerate() {
        if line.starts_with("fork: parent") || line.starts_with("general protection: ") {
            let minor = if line.starts_with("fork") { "DProbes(7,1)" } else { "DProbes(7,2)" };
            assert!(lines[n - 1].starts_with(minor), "{line}\n{}", lines[n - 1]);
        }
    }
    let probed = trapline(folder.path(), &[&args[..], &["--digest", "--console", "none"]].concat());
    assert_eq!((probed.out.as_str(), said_as_data(&probed.err)), ("", digest));
    // To a file, and JSON lines.
    ok(&folder, &[&args[..], &["--console", "console.txt"]].concat());
    assert_eq!(std::fs::read_to_string(folder.path().join("console.txt")).unwrap(), out);
    let json = ok(&folder, &[&args[..], &["-f", "json"]].concat());
    assert_eq!(json.lines().filter(|line| line.starts_with("{\"type\":\"hit\"")).count(), records.len());
}

#[test]
fn a_record_of_the_instruction_that_sends_follows_what_it_sent() {
    let folder = folder(32);
    // `out dx, al` in the function that sends one character.
    let listing = ok(&folder, &["dis", "embedded:ia32", "serial_put", "-f", "json", "-q"]);
    let site = listing
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .find(|line| line["bytes"].as_str().is_some_and(|bytes| bytes == "ee"));
    let site = site.unwrap_or_else(|| panic!("{listing}"));
    let at = site["address"].as_str().unwrap();
    let program = kernel_probe(&format!("address = {at}"), "0xee").replace("push pid", "push r, eax");
    std::fs::write(folder.path().join("out.rpn"), program.replace("minor = 1", "minor = 1\nmaxhits = 3"))
        .unwrap();
    let out = ok(&folder, &["run", "embedded:ia32", "-q", "-p", "out.rpn", "--log-to", "com1"]);
    let mut expected = String::new();
    for letter in "vml".chars() {
        expected.push(letter);
        expected.push_str(&format!("DProbes(1,1) {:02x}", u32::from(letter)));
        assert!(out.starts_with(&expected), "{out}");
        let rest = out[expected.len()..].find('\n').unwrap();
        expected = out[..=expected.len() + rest].to_owned();
    }
    assert!(out[expected.len()..].starts_with("inux: "), "{out}");
}

#[test]
fn the_second_serial_port_carries_records_without_the_console() {
    let folder = folder(32);
    let args = ["run", "embedded:ia32", "-q", "-p", "p.rpn"];
    let records = ok(&folder, &args);
    assert_eq!(ok(&folder, &[&args[..], &["--log-to", "com2"]].concat()), records);
    let (console, _) = plain(&folder);
    let both = [&args[..], &["--log-to", "com2", "--com2", "two.txt", "--console", "stdio"]].concat();
    assert_eq!(ok(&folder, &both), console);
    assert_eq!(std::fs::read_to_string(folder.path().join("two.txt")).unwrap(), records);
    // Standard output belongs to the port with the records; the console goes to standard error.
    let ran = trapline(folder.path(), &[&args[..], &["--log-to", "com2", "--console", "stdio"]].concat());
    assert_eq!((ran.code, ran.out.as_str(), said_as_data(&ran.err)), (0, records.as_str(), console));
}

#[test]
fn a_trace_file_goes_through_a_pipe() {
    let folder = folder(32);
    let mut bash = patient("bash");
    let script = "set -o pipefail; \"$0\" run embedded:ia32 --mem 32M -q -p p.rpn -f raw | \"$0\" trace cat /dev/stdin";
    bash.args(["-c", script]).arg(binary()).current_dir(folder.path());
    let ran = finish(bash);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.out, ok(&folder, &["run", "embedded:ia32", "-q", "-p", "p.rpn"]));
}
