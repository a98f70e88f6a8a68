//! `trapline replay --who-wrote` and `--calls`, against watchpoints and probes that were there from the start.

#![allow(clippy::unwrap_used, clippy::panic)]

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
        // A record counts the instructions before or behind the access, always the same.
        let apart: std::collections::BTreeSet<u64> = live.iter().zip(&asked).map(|(a, b)| a - b).collect();
        assert!(apart.len() == 1 && apart.iter().all(|apart| *apart <= 1), "{apart:?}");
        for pair in writers.windows(2) {
            assert_eq!((&pair[1]["old"], &pair[1]["changed_before"]), (&pair[0]["new"], &false.into()));
        }
        let middle = asked[asked.len() / 2].to_string();
        let earlier = answer(folder, &["--who-wrote", "current_task", "--before", &middle, "--last", "1"]);
        assert_eq!(earlier["count"].as_u64().unwrap(), asked.len() as u64 / 2, "{earlier:#}");
        assert_eq!(list(&earlier, "last")[0], writers[asked.len() / 2 - 1]);
        let (_, text, _) =
            trapline(folder, &["replay", "r.tlr", "--who-wrote", "current_task", "--last", "2"]);
        assert!(text.contains("of which these are the last 2") && text.contains(" -> "), "{text}");
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
                let run = ["run", &image, "-n", &clause, "-q", "-f", "json", "--console", "none"];
                let (code, out, err) = trapline(folder, &run);
                if code == Some(0) { records(&out) } else { panic!("{err}") }
            };
            let began: Vec<u64> = calls.iter().map(|call| call["position"].as_u64().unwrap()).collect();
            assert_eq!(began, counts(&probe("entry")), "{function}");
            let mut ended: Vec<u64> = calls.iter().filter_map(|call| call["returned"].as_u64()).collect();
            ended.sort_unstable();
            if function == "do_exit" {
                assert!(calls.iter().all(|call| call["left"] != "returned"), "{found:#}");
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
fn what_cannot_be_asked_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    trapline(folder, &["record", "embedded:ia32", "-q", "--console", "none", "-o", "r.tlr"]);
    for (args, words) in [
        (["--who-wrote", "phys:0x1000"], "physical address"),
        (["--who-wrote", "no_such_symbol"], "no symbol `no_such_symbol`"),
        (["--calls", "no_such_function"], "no_such_function"),
    ] {
        let (code, _, err) = trapline(folder, &[&["replay", "r.tlr"], &args[..]].concat());
        assert!(code == Some(2) && err.contains(words), "{err}");
    }
}
