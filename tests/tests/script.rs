//! Control scripts on the embedded guest: commands at exact counts and hits, and snapshots.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::cli::{Ran, kernel_probe, trapline};
use serde_json::Value;
use tempfile::TempDir;

/// Called for every character that the kernel formats.
const HOT: &str = "offset = put";

/// A folder with some probe programs.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in [
        ("hot.rpn", kernel_probe(HOT, "0x55")),
        ("fork.rpn", kernel_probe("offset = do_fork", "0x55")),
        ("line.rpn", kernel_probe("offset = put + 4", "0x8b")),
        ("repeat.rpn", kernel_probe("offset = memset + 0x2d", "0xf3")),
        ("fault.rpn", user_probe("fill_table + 0x19", "0x89")),
        ("refused.rpn", user_probe("forbidden + 0x15", "0xf4")),
        ("main.rpn", user_probe("main", "0x55")),
        ("work.rpn", user_probe("work", "0x55")),
        ("counter.rpn", COUNTER.to_owned()),
        ("groups.rpn", GROUPS.to_owned()),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Counts in variables.
const COUNTER: &str = "name = vmlinux\nmodtype = kernel\nmajor = 3\nvars = 2\ngvars = 1\noffset = schedule\n\
    opcode = 0x55\nminor = 1\ninc lv, 1\npush lv, 1\npop gv, 0\npush lv, 1\nlog 1\nexit\n";

/// Four probe points of two groups and two types.
const GROUPS: &str = "name = vmlinux\nmodtype = kernel\nmajor = 1\ngroupdef = process memory\ntypedef = enter leave\n\
    offset = do_fork\nopcode = 0x55\nminor = 1\ngroup = process\ntype = enter\nlog 0\nexit\n\
    offset = schedule\nopcode = 0x55\nminor = 2\ngroup = process\ntype = leave\nlog 0\nexit\n\
    offset = copy_space\nopcode = 0x55\nminor = 3\ngroup = memory\ntype = enter\nlog 0\nexit\n\
    offset = put\nopcode = 0x55\nminor = 4\nlog 0\nexit\n";

fn user_probe(place: &str, opcode: &str) -> String {
    format!(
        "name = appln\nmajor = 2\noffset = {place}\nopcode = {opcode}\nminor = 1\npush r, eip\nlog 1\nexit\n"
    )
}

/// Runs the embedded guest under a script.
fn run(folder: &Path, script: &str, args: &[&str]) -> Ran {
    std::fs::write(folder.join("s.script"), script).unwrap();
    let mut all = vec!["run", "embedded:ia32", "--mem", "32M", "--script", "s.script"];
    all.extend(args);
    trapline(folder, &all)
}

/// The lines of a JSON run: those between header and end, and the end.
fn lines(ran: &Ran) -> (Vec<Value>, Value) {
    let parsed = ran.out.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut lines: Vec<Value> = parsed.collect();
    assert!(lines.len() >= 2, "{}{}", ran.out, ran.err);
    let end = lines.pop().unwrap();
    lines.remove(0);
    (lines, end)
}

fn scripted(folder: &Path, script: &str, args: &[&str]) -> (Vec<Value>, Value) {
    let mut all = vec!["-f", "json"];
    all.extend(args);
    let ran = run(folder, script, &all);
    assert_eq!(ran.code, 0, "{script}\n{}", ran.err);
    lines(&ran)
}

/// A run without a script.
fn plain(folder: &Path, args: &[&str]) -> (Vec<Value>, Value) {
    let mut all = vec!["run", "embedded:ia32", "--mem", "32M", "-f", "json"];
    all.extend(args);
    lines(&trapline(folder, &all))
}

fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

fn icount(line: &Value) -> u64 {
    line["icount"].as_u64().unwrap()
}

/// The hits without their sequence numbers, which never go back.
fn hits(lines: &[Value]) -> Vec<Value> {
    let mut hits: Vec<Value> = of(lines, "hit").into_iter().cloned().collect();
    for hit in &mut hits {
        hit.as_object_mut().unwrap().remove("seq");
    }
    hits
}

fn within(hits: &[Value], from: u64, to: u64) -> Vec<Value> {
    hits.iter().filter(|hit| (from..to).contains(&icount(hit))).cloned().collect()
}

fn same_end(one: &Value, other: &Value) {
    assert_eq!((&one["insns"], &one["digest"]), (&other["insns"], &other["digest"]));
}

#[test]
fn a_program_inserted_at_a_count_sees_what_it_would_have_seen_from_there_on() {
    let folder = folder();
    for program in ["hot.rpn", "line.rpn", "work.rpn", "fault.rpn"] {
        let (lines, end) = plain(folder.path(), &["-p", program]);
        let all = hits(&lines);
        let middle = icount(&all[all.len() / 2]);
        for at in [0, 1, 60_001, middle, middle + 1, 3_000_000] {
            let (lines, scripted_end) =
                scripted(folder.path(), &format!("at insns={at} insert {program}\n"), &[]);
            assert_eq!(hits(&lines), within(&all, at, u64::MAX), "{program} at {at}");
            same_end(&scripted_end, &end);
        }
    }
}

#[test]
fn a_program_removed_at_a_hit_has_exactly_that_many() {
    let folder = folder();
    for program in ["hot.rpn", "line.rpn", "repeat.rpn", "work.rpn", "fault.rpn"] {
        let (lines, end) = plain(folder.path(), &["-p", program]);
        let all = hits(&lines);
        for n in [1, 2, 3, 4] {
            let script = format!("on hit {n} of {program} query\non hit {n} of {program} remove {program}\n");
            let (lines, scripted_end) = scripted(folder.path(), &script, &["-p", program]);
            assert_eq!(hits(&lines), all[..n], "{program}");
            let query = of(&lines, "query")[0];
            assert_eq!(query["programs"][0]["hits"], n);
            // The displaced instruction has completed, and nothing after it.
            let retired = icount(query) - icount(&all[n - 1]);
            assert!(if program == "repeat.rpn" { retired > 1 } else { retired == 1 }, "{program}: {retired}");
            same_end(&scripted_end, &end);
        }
    }
}

#[test]
fn hits_are_counted_over_all_probe_points_of_a_program() {
    let folder = folder();
    let (all, _) = plain(folder.path(), &["-p", "groups.rpn"]);
    for n in [1, 7, 1300] {
        let script = format!("on hit {n} of groups.rpn stop\n");
        let (lines, end) = scripted(folder.path(), &script, &["-p", "groups.rpn"]);
        assert_eq!(hits(&lines), hits(&all)[..n]);
        assert_eq!(end["insns"], icount(&hits(&all)[n - 1]) + 1);
        assert_eq!(end["reason"], "the script stopped the run");
    }
}

#[test]
fn a_hit_whose_instruction_faults_is_waited_for_until_one_completes() {
    let folder = folder();
    // HLT in ring 3: each hit faults and none is retried.
    let ran = run(folder.path(), "on hit 1 of refused.rpn stop\n", &["-p", "refused.rpn", "--digest"]);
    assert!(ran.err.contains("s.script:1 was never reached"), "{}", ran.err);
    let (_, end) = plain(folder.path(), &["--console", "none"]);
    let halted = format!("the guest halted after {} instructions", end["insns"]);
    assert!(ran.err.contains(&halted), "{}", ran.err);
}

#[test]
fn asking_changes_nothing() {
    let folder = folder();
    let (_, unprobed) = plain(folder.path(), &["--console", "none"]);
    let mut script =
        String::from("every insns=77_777 query\nevery insns=0x1_0001 getvars\nat insns=0 query\n");
    for n in (0..400).map(|n| 9_001 * n + n % 7) {
        script.push_str(&format!("at insns={n} getvars\n"));
    }
    for n in 1..60 {
        script.push_str(&format!(
            "on hit {n} of counter.rpn query\non hit {n} of hot.rpn getvars counter.rpn\n"
        ));
    }
    let programs = ["-p", "counter.rpn", "-p", "hot.rpn", "-p", "repeat.rpn", "-p", "fault.rpn"];
    let (lines, end) = scripted(folder.path(), &script, &programs);
    same_end(&end, &unprobed);
    let (without, _) = plain(folder.path(), &programs);
    assert_eq!(hits(&lines), hits(&without));
    let counts: Vec<u64> = of(&lines, "getvars").into_iter().map(icount).collect();
    assert!(counts.windows(2).all(|pair| pair[0] <= pair[1]));
    for n in (0..400).map(|n| 9_001 * n + n % 7) {
        assert!(counts.contains(&n), "{n}");
    }
    // Replies are between the records where they were requested.
    let mut last = 0;
    for line in lines.iter().filter(|line| line["type"] != "hit") {
        let at = icount(line);
        assert!(at >= last);
        last = at;
    }
}

#[test]
fn the_same_script_writes_the_same_bytes() {
    let folder = folder();
    let script = "at insns=100K snapshot s\non hit 20 of hot.rpn insert fork.rpn\non hit 2 of fork.rpn restore s\n\
                  every insns=500K query\nat insns=2M disable hot.rpn\nat insns=2500K enable hot.rpn 0\n\
                  at insns=3M getvars\n";
    for format in ["text", "json"] {
        let args = ["-p", "hot.rpn", "-f", format, "--digest", "--stats", "--console", "stdio"];
        let first = run(folder.path(), script, &args);
        assert_eq!(first.code, 0, "{}", first.err);
        assert!(first.out.contains("query"));
        assert_eq!(first, run(folder.path(), script, &args), "{format}");
    }
}

#[test]
fn ten_levels_of_snapshots_repeat_the_same_records() {
    const TOP: u64 = 2_600_000;
    let folder = folder();
    let level = |n: u64| n * 211_111;
    let mut script = String::new();
    for n in 1..=10 {
        script.push_str(&format!("at insns={} snapshot l{n}\n", level(n)));
    }
    // One after the other, and the deepest twice.
    let back: Vec<u64> = (1..=10).rev().chain([10, 3]).collect();
    for n in &back {
        script.push_str(&format!("at insns={TOP} getvars\nat insns={TOP} restore l{n}\n"));
    }
    let programs = ["-p", "counter.rpn", "-p", "hot.rpn", "-p", "fault.rpn"];
    let (without, end) = plain(folder.path(), &programs);
    let all = hits(&without);
    let (lines, scripted_end) = scripted(folder.path(), &script, &programs);
    let mut expected = within(&all, 0, TOP);
    for n in &back {
        expected.extend(within(&all, level(*n), TOP));
    }
    expected.extend(within(&all, TOP, u64::MAX));
    assert_eq!(hits(&lines), expected);
    same_end(&scripted_end, &end);
    let vars = of(&lines, "getvars");
    assert_eq!(vars.len(), back.len());
    assert!(vars.iter().all(|answer| *answer == vars[0]), "variables are restored too");
    assert_ne!(vars[0]["gv"][0], 0);
}

#[test]
fn a_snapshot_restores_the_probes_of_its_time() {
    let folder = folder();
    let script = "at insns=900K snapshot s\nat insns=1M remove hot.rpn\nat insns=1100K insert fork.rpn\n\
                  at insns=1200K insert counter.rpn\nat insns=1950K query\nat insns=1950K restore s\n\
                  at insns=1950K query\n";
    let (without, end) = plain(folder.path(), &["-p", "hot.rpn", "-p", "work.rpn"]);
    let all = hits(&without);
    let (lines, scripted_end) = scripted(folder.path(), script, &["-p", "hot.rpn", "-p", "work.rpn"]);
    same_end(&scripted_end, &end);
    let restored = lines.iter().position(|line| line["action"] == "restore").unwrap();
    assert_eq!(hits(&lines[restored..]), within(&all, 900_000, u64::MAX));
    let names = |query: &Value| -> Vec<String> {
        let programs = query["programs"].as_array().unwrap();
        programs.iter().map(|program| program["name"].as_str().unwrap().to_owned()).collect()
    };
    let queries = of(&lines, "query");
    assert_eq!(names(queries[0]), ["work.rpn", "fork.rpn", "counter.rpn"]);
    assert_eq!(names(queries[1]), ["hot.rpn", "work.rpn"]);
    // The line after `restore` is due when the run reaches that count again.
    assert_eq!(icount(queries[1]), 1_950_000);
}

#[test]
fn a_snapshot_without_probes_has_none_when_it_comes_back() {
    let folder = folder();
    let (_, unprobed) = plain(folder.path(), &["--console", "none"]);
    let script = "at insns=30K snapshot s\nat insns=31K insert main.rpn\nat insns=32K insert hot.rpn\n\
                  at insns=500K restore s\nat insns=600K query\n";
    let (lines, end) = scripted(folder.path(), script, &[]);
    same_end(&end, &unprobed);
    let restored = lines.iter().position(|line| line["action"] == "restore").unwrap();
    assert!(!hits(&lines[..restored]).is_empty());
    assert!(hits(&lines[restored..]).is_empty());
    assert_eq!(of(&lines, "query")[0]["programs"].as_array().unwrap().len(), 0);
}

#[test]
fn a_user_probe_fires_again_after_going_back_to_before_its_page_was_run() {
    let folder = folder();
    for at in [1_000, 30_000, 68_000] {
        let script = format!("at insns={at} snapshot s\nat insns=1M restore s\nat insns=2M restore s\n");
        let (lines, _) = scripted(folder.path(), &script, &["-p", "main.rpn", "-p", "work.rpn"]);
        let main: Vec<Value> = hits(&lines).into_iter().filter(|hit| hit["symbol"] == "appln:main").collect();
        assert_eq!(main.len(), 3, "{at}");
        assert_eq!((&main[0], &main[0]), (&main[1], &main[2]));
    }
}

#[test]
fn groups_and_types_choose_probe_points() {
    let folder = folder();
    let minors = |args: &[&str]| {
        let mut all = vec!["-p", "groups.rpn"];
        all.extend(args);
        let (lines, _) = plain(folder.path(), &all);
        let mut minors: Vec<u64> = hits(&lines).iter().map(|hit| hit["minor"].as_u64().unwrap()).collect();
        minors.sort_unstable();
        minors.dedup();
        minors
    };
    assert_eq!(minors(&[]), [1, 2, 3, 4]);
    assert_eq!(minors(&["--group", "process"]), [1, 2]);
    assert_eq!(minors(&["--type", "enter"]), [1, 3]);
    assert_eq!(minors(&["--group", "process,memory", "--type", "enter"]), [1, 3]);
    assert_eq!(minors(&["--group", "process", "--type", "leave"]), [2]);
    let none = trapline(folder.path(), &["run", "embedded:ia32", "-p", "groups.rpn", "--group", "faults"]);
    assert_eq!(none.code, 2);
    assert_eq!(none.err, "trapline: error: no probe point of the programs has group=faults\n");

    let script = "at insns=0 disable type=enter\nat insns=500K enable group=process\nat insns=500K query\n\
                  at insns=1M disable groups.rpn group=process type=leave\nat insns=1M disable groups.rpn 3\n\
                  at insns=1M query\n";
    let (lines, _) = scripted(folder.path(), script, &["-p", "groups.rpn"]);
    let enabled = |query: &Value| -> Vec<bool> {
        let points = query["programs"][0]["points"].as_array().unwrap();
        points.iter().map(|point| point["enabled"].as_bool().unwrap()).collect()
    };
    let queries = of(&lines, "query");
    assert_eq!(enabled(queries[0]), [true, true, false, true]);
    assert_eq!(enabled(queries[1]), [true, false, false, false]);
    let late = within(&hits(&lines), 1_000_000, u64::MAX);
    assert!(!late.is_empty() && late.iter().all(|hit| hit["minor"] == 1));
}

#[test]
fn a_line_that_cannot_be_carried_out_ends_the_run_with_what_was_recorded() {
    let folder = folder();
    let (all, _) = plain(folder.path(), &["-p", "fork.rpn"]);
    let before: Vec<Value> = hits(&all).into_iter().filter(|hit| icount(hit) < 2_000_000).collect();
    assert!(!before.is_empty());
    for (line, sentence) in [
        ("at insns=2M remove hot.rpn", "s.script:2: no program `hot.rpn` is inserted; only `fork.rpn` is"),
        ("at insns=2M insert fork.rpn", "s.script:2: `fork.rpn` is already inserted"),
        ("at insns=2M restore later", "s.script:2: there is no snapshot `later`; the only one is `early`"),
        (
            "at insns=2M enable fork.rpn 5",
            "s.script:2: `fork.rpn` has 1 probe point, counted from 0; there is no 5",
        ),
        (
            "at insns=2M disable group=g type=t",
            "s.script:2: no probe point that is inserted has group=g type=t",
        ),
    ] {
        let script = format!(
            "at insns=1M snapshot early\n{line}\nat insns=3M snapshot later\nat insns=3M insert hot.rpn\n"
        );
        let ran = run(folder.path(), &script, &["-p", "fork.rpn", "-f", "json"]);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains(&format!("trapline: error: {sentence}\n")), "{}", ran.err);
        let (lines, end) = lines(&ran);
        assert_eq!(hits(&lines), before, "records made before are written");
        assert_eq!((&end["insns"], &end["exit"]), (&Value::from(2_000_000), &Value::from(2)));
    }
}

/// A script of `at` lines, as defined in docs/script.md: a model of the records of its run.
mod model {
    use super::{Value, icount};
    use std::collections::BTreeMap;

    /// The action of a line.
    #[derive(Debug, Clone)]
    pub enum Action {
        Switch(usize, bool),
        Snapshot(u64),
        Restore(u64),
    }

    /// Lines by their counts, in the order of the file.
    pub type Script = Vec<(u64, Action)>;

    /// The hits of a run with these programs, all enabled at the start, and where it ended when a line failed.
    pub fn run(script: &Script, programs: &[Vec<Value>]) -> (Vec<Value>, Option<u64>) {
        let mut on = vec![true; programs.len()];
        let mut done = vec![false; script.len()];
        let mut saved: BTreeMap<u64, (u64, Vec<bool>)> = BTreeMap::new();
        let (mut at, mut hits) = (0, Vec::new());
        loop {
            while let Some(line) = (0..script.len()).find(|&n| !done[n] && script[n].0 == at) {
                done[line] = true;
                match script[line].1 {
                    Action::Switch(program, state) => on[program] = state,
                    Action::Snapshot(label) => drop(saved.insert(label, (at, on.clone()))),
                    Action::Restore(label) => match saved.get(&label) {
                        Some((from, then)) => (at, on) = (*from, then.clone()),
                        None => return (hits, Some(at)),
                    },
                }
            }
            let open = (0..script.len()).filter(|&n| !done[n] && script[n].0 > at);
            let next = open.map(|n| script[n].0).min().unwrap_or(u64::MAX);
            let enabled = programs.iter().zip(&on).filter(|(_, on)| **on).flat_map(|(hits, _)| hits);
            let mut piece: Vec<&Value> = enabled.filter(|hit| (at..next).contains(&icount(hit))).collect();
            piece.sort_by_key(|hit| icount(hit));
            hits.extend(piece.into_iter().cloned());
            if next == u64::MAX {
                return (hits, None);
            }
            at = next;
        }
    }
}

#[test]
fn any_script_records_what_its_meaning_says() {
    use model::Action;
    let folder = folder();
    let names = ["hot.rpn", "line.rpn", "fork.rpn", "work.rpn", "fault.rpn"];
    let (_, unprobed) = plain(folder.path(), &["--console", "none"]);
    let alone: Vec<Vec<Value>> =
        names.iter().map(|name| hits(&plain(folder.path(), &["-p", name]).0)).collect();
    let icount_of_end = unprobed["insns"].as_u64().unwrap();
    let interesting: Vec<u64> = alone.iter().flatten().map(icount).collect();
    let args: Vec<&str> = names.iter().flat_map(|name| ["-p", name]).collect();
    let (mut finished, mut back) = (0, 0);
    for seed in 0..24u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut script: model::Script = (0..4 + random(20))
            .map(|_| {
                let near = interesting[random(interesting.len() as u64) as usize];
                let at = if random(2) == 0 { near + random(3) } else { random(icount_of_end) };
                let action = match random(4) {
                    0 => Action::Snapshot(random(3)),
                    1 => Action::Restore(random(3)),
                    _ => Action::Switch(random(names.len() as u64) as usize, random(2) == 0),
                };
                (at, action)
            })
            .collect();
        // Most scripts restore only existing snapshots.
        if seed % 4 != 0 {
            script.extend((0..3).map(|label| (label * 20_001, Action::Snapshot(label))));
        }
        // Defines every label, at a count that is never reached.
        let never = icount_of_end + 1;
        let mut text: String = (0..3).map(|n| format!("at insns={never} snapshot {n}\n")).collect();
        for (at, action) in &script {
            let words = match action {
                Action::Switch(program, true) => format!("enable {}", names[*program]),
                Action::Switch(program, false) => format!("disable {}", names[*program]),
                Action::Snapshot(label) => format!("snapshot {label}"),
                Action::Restore(label) => format!("restore {label}"),
            };
            text.push_str(&format!("at insns={at} {words}\n"));
        }
        let (expected, failed) = model::run(&script, &alone);
        let mut all = vec!["-f", "json"];
        all.extend(&args);
        let ran = run(folder.path(), &text, &all);
        let (lines, end) = lines(&ran);
        assert_eq!(hits(&lines), expected, "seed {seed}\n{text}{}", ran.err);
        match failed {
            Some(at) => assert_eq!((ran.code, &end["insns"]), (2, &Value::from(at)), "seed {seed}\n{text}"),
            None => same_end(&end, &unprobed),
        }
        finished += u64::from(failed.is_none());
        back += of(&lines, "action").iter().filter(|line| line["action"] == "restore").count();
    }
    assert!(finished >= 14 && back >= 35, "{finished} runs to the end, {back} times back");
}

#[test]
fn a_run_can_be_asked_at_its_end() {
    let script = "at insns=2M query\nat insns=2M getvars\nat insns=2M stop\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s"), script).unwrap();
    std::fs::copy(trapline_tests::root().join("examples/man/3-count.rpn"), folder.path().join("c.rpn"))
        .unwrap();
    for format in ["text", "json", "raw"] {
        let all = |more: &[&str]| {
            let args = ["run", "embedded:ia32", "-p", "c.rpn", "-q", "-f", format, "-o", "out"];
            let ran = trapline(folder.path(), &[&args[..], more].concat());
            std::fs::read(folder.path().join("out")).unwrap_or_else(|_| panic!("{}", ran.err))
        };
        let (by_script, at_end) =
            (all(&["--script", "s"]), all(&["--limit-insns", "2000000", "--query", "--getvars"]));
        let asked = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let lines = text.lines().filter(|line| line.contains("query") || line.contains("getvars"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        if format == "raw" {
            assert!(at_end.len() > 200);
        } else {
            // The script's own lines say that it stopped the run, too.
            assert_eq!(asked(&by_script)[..2], asked(&at_end)[..2]);
            assert!(asked(&at_end).len() >= 2);
        }
    }
}
