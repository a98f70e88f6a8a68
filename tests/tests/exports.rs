//! Traces in the formats of other tools: babeltrace2 and protoc read them, and what they read is what `trace cat` prints.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

mod babeltrace;
mod chromium;
mod perfetto;

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{self, Ran};

/// A memory range, a word and texts, one of which cannot be read; then a handler that ends by an exception.
const PROGRAM: &str = "name = vmlinux\nmodtype = kernel\nmajor = 7\noffset = do_fork\nopcode = 0x55\nminor = 1\n\
                       push 8\npush r, esp\nlog mrf\npush pid\nlog 1\npush 12\npush 16\nlog str\nexit\n\
                       offset = do_general_protection\nopcode = 0x55\nminor = 2\npush 7\nlog 1\npush 1\npush 0\ndiv\n\
                       exit\n";
/// A watch.
const WATCH: &str = "name = vmlinux\nmodtype = kernel\naddress = nr_free_pages:nr_free_pages+3\nwatchpoint = w\n\
                     maxhits = 3\npush 5\nlog 1\nexit\n";

fn trapline(folder: &Path, args: &[&str]) -> Ran {
    let small = if args[0] == "run" { &["--mem", "32M"][..] } else { &[] };
    cli::trapline(folder, &[args, small].concat())
}

fn ok(folder: &Path, args: &[&str]) -> Ran {
    let ran = trapline(folder, args);
    assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
    ran
}

/// What a tool of Debian prints, without a word on standard error.
fn tool(folder: &Path, program: &str, package: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(folder).stdin(Stdio::null()).output();
    let output = output
        .unwrap_or_else(|error| panic!("{program}: {error}; install it: sudo apt-get install {package}"));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && err.is_empty(), "{program} {args:?}: {err}");
    String::from_utf8(output.stdout).unwrap()
}

/// A trace file `t` of a guest with hits of all kinds.
fn recorded(guest: &str) -> TempDir {
    let program = if guest.contains("64") { PROGRAM.replace("esp", "rsp") } else { PROGRAM.to_owned() };
    let folder = cli::folder(&[("p.rpn", program.as_bytes()), ("w.rpn", WATCH.as_bytes())]);
    let probes =
        ["--rpn", "fbt:::{ push pid; push 3; log 2 }", "--rpn", "profile:::tick-1ms { push 1; log 1 }"];
    let run = ["run", guest, "-p", "p.rpn", "-p", "w.rpn", "--header", "all", "--stack=3", "--ustack=2"];
    ok(folder.path(), &[&run[..], &probes, &["-f", "raw", "-q", "-o", "t"]].concat());
    folder
}

/// The objects of the JSON lines of a trace file.
fn objects(folder: &Path) -> Vec<Value> {
    let printed = ok(folder, &["trace", "cat", "t", "-f", "json"]).out;
    assert_eq!(printed, ok(folder, &["trace", "convert", "t", "--to", "json"]).out);
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn babeltrace_reads_the_events_that_trace_cat_prints() {
    for (guest, word) in [("embedded:ia32", 4), ("embedded:x86_64", 8)] {
        let folder = recorded(guest);
        ok(folder.path(), &["trace", "convert", "t", "--to", "ctf", "-o", "ctf"]);
        let args = ["--clock-seconds", "--no-delta", "--names=payload,context", "ctf"];
        let read = tool(folder.path(), "babeltrace2", "babeltrace2", &args);
        let events: Vec<babeltrace::Event> = read.lines().map(babeltrace::event).collect();
        let all = objects(folder.path());
        let records = &all[1..all.len() - 1];
        assert!(records.len() > 10_000, "{}", records.len());
        assert_eq!(events.len(), records.len(), "{guest}");
        for (event, record) in events.iter().zip(records) {
            babeltrace::assert_same(event, record, word);
        }
        assert!(events.is_sorted_by_key(|event| event.nanoseconds));
        let kinds = ["hit(7,1)", "hit(7,2)", "hit(0,0)", "kernel-stack", "user-stack", "profile:::tick-1ms"];
        for kind in kinds {
            assert!(events.iter().any(|event| event.name == kind), "{guest}: {kind}");
        }
    }
}

#[test]
fn a_run_writes_the_ctf_trace_that_its_trace_file_is_converted_to() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let run = ["run", "embedded:ia32", "-q", "--rpn", "fbt::do_fork: { push 3; log 1 }", "--header", "pid"];
    ok(here, &[&run[..], &["-f", "raw", "-o", "t"]].concat());
    ok(here, &[&run[..], &["-f", "ctf", "-o", "direct"]].concat());
    ok(here, &["trace", "convert", "t", "--to", "ctf", "-o", "later"]);
    for file in ["metadata", "stream_0"] {
        let bytes = |trace: &str| std::fs::read(here.join(trace).join(file)).unwrap();
        assert!(bytes("direct") == bytes("later"), "{file}");
    }
    for form in ["csv", "folded", "svg", "pprof", "perfetto"] {
        ok(here, &[&run[..], &["-f", form, "-o", form]].concat());
        ok(here, &["trace", "convert", "t", "--to", form, "-o", "later.out"]);
        let bytes = |name: &str| std::fs::read(here.join(name)).unwrap();
        assert!(bytes(form) == bytes("later.out") && !bytes(form).is_empty(), "{form}");
    }
    let again = trapline(here, &["trace", "convert", "t", "--to", "ctf", "-o", "later"]);
    assert_eq!(again.code, 7);
    assert!(
        again.err.contains("a CTF trace is a folder of its own, and this one is not empty"),
        "{}",
        again.err
    );
}

#[test]
fn lost_records_are_discarded_events() {
    let folder = TempDir::new().unwrap();
    let run = ["run", "embedded:ia32", "-q", "--rpn", "fbt:::{ push 3; log 1 }", "--channel", "4000x2"];
    trapline(folder.path(), &[&run[..], &["-f", "ctf", "-o", "ctf"]].concat());
    let lost = trapline(folder.path(), &[&run[..], &["-f", "json"]].concat()).out;
    let end: Value = serde_json::from_str(lost.lines().last().unwrap()).unwrap();
    let lost = end["lost"].as_u64().unwrap();
    let args = ["-c", "sink.text.details", "--params=compact=true", "ctf"];
    let output = Command::new("babeltrace2").args(args).current_dir(folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let counts = text.lines().filter_map(|line| line.split_once("Discarded events (")?.1.split(' ').next());
    let discarded: u64 = counts.map(|count| count.replace(',', "").parse::<u64>().unwrap()).sum();
    assert_eq!(discarded, lost, "{text}");
}

#[test]
fn protoc_reads_the_packets_and_slices_balance() {
    let folder = recorded("embedded:ia32");
    ok(folder.path(), &["trace", "convert", "t", "--to", "perfetto", "-o", "p"]);
    let input = std::fs::File::open(folder.path().join("p")).unwrap();
    let output = Command::new("protoc").arg("--decode_raw").stdin(input).output();
    let output = output.unwrap_or_else(|error| {
        panic!("protoc: {error}; install it: sudo apt-get install protobuf-compiler")
    });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    // Field 9 of a track event (11) of a packet (1) is its type.
    let (mut depths, mut kind) = (std::collections::BTreeMap::<u64, i64>::new(), 0);
    let mut counts = [0; 5];
    for line in text.lines() {
        if let Some(value) = line.strip_prefix("    9: ") {
            kind = value.parse::<usize>().unwrap();
            counts[kind] += 1;
        } else if let Some(track) = line.strip_prefix("    11: ") {
            let depth = depths.entry(track.parse().unwrap()).or_default();
            *depth += [0, 1, -1, 0, 0][kind];
            assert!(*depth >= 0, "track {track}");
        }
    }
    assert!(depths.len() > 3 && depths.values().all(|depth| *depth == 0), "{depths:?}");
    assert_eq!(counts[1], counts[2], "{counts:?}");
    assert!(counts[1] > 5_000 && counts[3] > 50, "{counts:?}");
}

#[test]
fn a_flame_graph_is_xml_with_the_names_and_weights_of_the_folded_stacks() {
    let folder = recorded("embedded:ia32");
    let here = folder.path();
    let folded = ok(here, &["trace", "convert", "t", "--to", "folded"]).out;
    let hits: u64 = folded.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    let stacks =
        objects(here).iter().filter(|o| o["type"] == "kernel-stack" || o["type"] == "user-stack").count();
    assert!(hits > 1_000 && hits <= stacks as u64, "{hits} hits, {stacks} stacks");
    let swap =
        "appln;appln`child;appln`swap;vmlinux`trap_entry;vmlinux`trap_dispatch;vmlinux`do_page_fault 60";
    assert!(folded.lines().any(|line| line == swap), "{folded}");
    assert!(
        folded.lines().all(|line| line.contains("vmlinux`") || line.starts_with("appln;appln`")),
        "{folded}"
    );
    let insns = ["--weight", "insns"];
    let calls = ok(here, &[&["trace", "convert", "t", "--to", "folded"][..], &insns].concat()).out;
    assert!(
        calls.lines().any(|line| line.starts_with("swapper;_start;kernel_main;fnv1a;fnv1a_more ")),
        "{calls}"
    );
    let svg = ok(here, &[&["trace", "convert", "t", "--to", "svg", "-o", "f.svg"][..], &insns].concat());
    assert_eq!(svg.out, "");
    let check = "import sys, xml.etree.ElementTree as t\n\
                 for title in t.parse(sys.argv[1]).iter('{http://www.w3.org/2000/svg}title'): print(title.text)";
    let titles = tool(here, "python3", "python3", &["-c", check, "f.svg"]);
    let whole: u64 = calls.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert!(titles.starts_with(&format!("all ({whole} instructions, 100.00 %)\n")), "{titles}");
    assert!(titles.contains("\nkernel_main (") && titles.contains("\nfnv1a_more ("), "{titles}");
    let same =
        ok(here, &[&["trace", "convert", "t", "--to", "folded", "--diff", "t"][..], &insns].concat()).out;
    assert!(same.lines().all(|line| {
        let mut words = line.rsplit(' ');
        words.next() == words.next()
    }));
}

#[test]
fn csv_has_a_row_per_record_with_the_cells_of_its_json_line() {
    let folder = recorded("embedded:x86_64");
    let check = "import csv, json, sys\n\
                 rows = list(csv.DictReader(sys.stdin))\n\
                 print(json.dumps(rows))";
    let line = "trapline_csv() { \"$@\"; }; trapline_csv \"$0\" trace convert t --to csv | python3 -c \"$1\"";
    let program = cli::binary();
    let read = tool(folder.path(), "bash", "bash", &["-c", line, program.to_str().unwrap(), check]);
    let rows: Vec<Value> = serde_json::from_str(&read).unwrap();
    let all = objects(folder.path());
    let records = &all[1..all.len() - 1];
    assert_eq!(rows.len(), records.len());
    for (row, record) in rows.iter().zip(records) {
        let more: Value =
            serde_json::from_str(row["more"].as_str().filter(|m| !m.is_empty()).unwrap_or("{}")).unwrap();
        for (name, value) in record.as_object().unwrap() {
            let cell = row.get(name).filter(|_| name != "more");
            let right = match (cell, value) {
                (Some(cell), Value::String(text)) => cell == text,
                (Some(cell), Value::Null) => cell == "",
                (Some(cell), number) => cell == &Value::String(number.to_string()),
                (None, value) => &more[name] == value,
            };
            assert!(right, "{name}: {row} {record}");
        }
    }
}

#[test]
fn a_d_program_gives_stacks_counters_and_events() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let clause = "fbt::do_fork:entry { @forks[execname] = count(); @stacks[stack()] = count(); printa(@forks); stack(2); }";
    ok(here, &["run", "embedded:ia32", "-q", "-n", clause, "-f", "raw", "-o", "t"]);
    let folded = ok(here, &["trace", "convert", "t", "--to", "folded"]).out;
    assert!(folded.contains(";vmlinux`do_syscall;vmlinux`do_fork 6"), "{folded}");
    ok(here, &["trace", "convert", "t", "--to", "ctf", "-o", "ctf"]);
    let read = tool(here, "babeltrace2", "babeltrace2", &["ctf"]);
    assert_eq!(read.matches(" fbt:vmlinux:do_fork:entry: ").count(), 6, "{read}");
    ok(here, &["trace", "convert", "t", "--to", "perfetto", "-o", "p"]);
    let bytes = std::fs::read(here.join("p")).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("@forks[appln]"));
}

#[test]
fn a_file_that_lacks_what_a_format_shows_is_refused_with_what_to_record() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    ok(here, &["run", "embedded:ia32", "-q", "--rpn", "profile:::tick-1ms {}", "-f", "raw", "-o", "t"]);
    for form in ["folded", "svg", "pprof"] {
        let ran = trapline(here, &["trace", "convert", "t", "--to", form]);
        assert_eq!((ran.code, ran.out.as_str()), (7, ""));
        assert_eq!(
            ran.err,
            "trapline: error: t: there are no stacks and no calls: record with --stack or --ustack, with probes on entries \
             and returns such as --rpn 'fbt:::{}', or with a D program that uses stack()\n"
        );
    }
    for (args, said) in [
        (
            &["--to", "csv", "--weight", "ns"][..],
            "--weight has no effect without stacks; use it with --to folded, svg or pprof",
        ),
        (&["--to", "ctf"], "a CTF trace is a folder; name it with -o FOLDER"),
    ] {
        let ran = trapline(here, &[&["trace", "convert", "t"][..], args].concat());
        assert_eq!((ran.code, ran.err), (2, format!("trapline: error: {said}\n")));
    }
}

#[test]
fn a_damaged_file_is_refused_after_what_precedes_the_damage() {
    let folder = recorded("embedded:ia32");
    let here = folder.path();
    let mut bytes = std::fs::read(here.join("t")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(here.join("flipped"), &bytes).unwrap();
    std::fs::write(here.join("cut"), &bytes[..middle - 1]).unwrap();
    for (file, why) in [("flipped", "is damaged: its checksum is"), ("cut", "the file ends early: ")] {
        for form in ["ctf", "perfetto", "folded", "svg", "pprof", "csv", "json"] {
            let out = format!("{file}.{form}");
            let ran = trapline(here, &["trace", "convert", file, "--to", form, "-o", &out]);
            assert_eq!(ran.code, 7, "{form}: {}", ran.err);
            assert!(ran.err.contains(why), "{form}: {}", ran.err);
            assert!(here.join(&out).metadata().unwrap().len() > 0, "{out}");
        }
        let read = tool(here, "babeltrace2", "babeltrace2", &[&format!("{file}.ctf")]);
        assert!(read.lines().count() > 3_000, "{file}: {}", read.lines().count());
    }
}

#[test]
fn a_profile_of_a_recording_is_that_of_its_run() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let recorded = trapline(here, &["record", "embedded:ia32", "-o", "r.tlr", "-q", "--limit-insns", "3M"]);
    assert_eq!(recorded.code, 124, "{}", recorded.err);
    let of = |what: &str, more: &[&str]| {
        let ran = trapline(here, &[&["profile", what, "-q", "--insns", "1000"][..], more].concat());
        assert!(matches!(ran.code, 0 | 124), "{}", ran.err);
        ran.out
    };
    let (run, replay) = (of("embedded:ia32", &["--", "--limit-insns", "3M"]), of("r.tlr", &[]));
    assert_eq!(run, replay);
    let samples: u64 = run.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert!((2_900..=3_000).contains(&samples), "{samples}");
}

#[test]
fn samples_agree_with_exact_counts() {
    let folder = TempDir::new().unwrap();
    let weights = |args: &[&str]| -> Vec<(String, u64)> {
        let out = ok(folder.path(), &[&["profile", "embedded:ia32", "-q"][..], args].concat()).out;
        let line = |line: &str| {
            let (stack, weight) = line.rsplit_once(' ').unwrap();
            (stack.to_owned(), weight.parse::<u64>().unwrap())
        };
        out.lines().map(line).collect()
    };
    let of = |found: &[(String, u64)], name: &str| -> f64 {
        found
            .iter()
            .filter(|(stack, _)| stack.ends_with(name) && !stack.ends_with(&format!("appln{name}")))
            .map(|(_, weight)| *weight as f64)
            .sum()
    };
    let (sampled, exact) = (weights(&["--insns", "1000"]), weights(&["--exact", "*"]));
    for function in ["fnv1a_more", "memcpy", "memset"] {
        let (samples, insns) =
            (of(&sampled, &format!("`{function}")) * 1000.0, of(&exact, &format!("`{function}")));
        assert!((samples - insns).abs() < insns * 0.05, "{function}: {samples} and {insns}");
    }
}

#[test]
fn stacks_whose_values_are_not_positive_are_counted() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let recorded = |program: &str| {
        ok(here, &["run", "embedded:ia32", "-n", program, "--console", "none", "-f", "raw", "-o", "t", "-q"]);
        trapline(here, &["trace", "convert", "t", "--to", "folded"])
    };
    let both = recorded(
        "fbt::do_fork:entry,fbt::do_exit:entry { @[stack(2)] = sum(probefunc == \"do_fork\" ? 1 : -1); }",
    );
    assert!(both.code == 0 && both.out.lines().count() == 1 && both.out.contains("do_fork"), "{}", both.out);
    assert!(both.err.contains("1 stack has a value of 0 or less and was left out"), "{}", both.err);
    let none = recorded("fbt::do_fork:entry { @[stack(2)] = sum(-1); }");
    let sentence =
        "all stacks of the aggregations have values of 0 or less, which cannot be shown as a share";
    assert!(none.code != 0 && none.err.contains(sentence), "{}", none.err);
}
