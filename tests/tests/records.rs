//! Records from the hit to the line: their content and order, losses, and when a probe counts a hit.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use crate::cli::{Ran, kernel_probe, trapline};
use serde_json::Value;
use tempfile::TempDir;
use trapline_emu::load::Image;
use trapline_emu::symbols::{Symbols, UserModule};
use trapline_emu::{Machine, Stop, TrapInterposer};
use trapline_interposer::{Interposer, InterposerConfig, ProgramId};
use trapline_providers::{Target, resolve};
use trapline_rpn::parse;
use trapline_tests::embedded;
use trapline_trace::{Channel, ChannelConfig, HeaderItems, Record};

/// An instruction limit far beyond the embedded guest's run.
const LIMIT: u64 = 1_000_000_000;
/// Called for every character that the kernel formats.
const HOT: &str = "offset = put";

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Runs the embedded guest with a program and further arguments.
fn run(program: &str, args: &[&str]) -> Ran {
    let folder = folder(&[("p.rpn", program)]);
    let mut all = vec!["run", "embedded:ia32", "-p", "p.rpn"];
    all.extend(args);
    trapline(folder.path(), &all)
}

/// The same with JSON lines: header, hits, end.
fn run_json(program: &str, args: &[&str]) -> (Value, Vec<Value>, Value) {
    let mut all = vec!["-f", "json"];
    all.extend(args);
    let ran = run(program, &all);
    json(&ran)
}

fn json(ran: &Ran) -> (Value, Vec<Value>, Value) {
    let line = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let mut lines: Vec<Value> = ran.out.lines().map(line).collect();
    assert!(lines.len() >= 2, "{}{}", ran.out, ran.err);
    let end = lines.pop().unwrap();
    let header = lines.remove(0);
    assert_eq!((header["type"].as_str(), end["type"].as_str()), (Some("header"), Some("end")));
    assert!(lines.iter().all(|hit| hit["type"] == "hit"));
    (header, lines, end)
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("{field} of {value}"))
}

fn numbers(hits: &[Value], field: &str) -> Vec<u64> {
    hits.iter().map(|hit| number(hit, field)).collect()
}

/// The embedded guest's files, as probes see them.
fn target() -> Target {
    let guest = &trapline_guests::IA32;
    let image = Image::parse(guest.image, "vmlinux").unwrap();
    let symbols = Symbols::from_elf(image.bytes(), "vmlinux").unwrap();
    let modules = guest.modules.iter().map(|(name, bytes)| Arc::new(UserModule::parse(bytes, name).unwrap()));
    Target::new(image, symbols, modules.collect())
}

/// A machine with the program armed and a channel of this shape.
fn armed(program: &str, channel: ChannelConfig) -> (Machine, Interposer, ProgramId) {
    let mut machine = embedded().unwrap();
    let header = HeaderItems::default();
    let mut interposer =
        Interposer::new(InterposerConfig { header, channel, profile: None, max_steps: None });
    let program = parse("p.rpn", program).unwrap();
    let resolved = resolve(&target(), &program).unwrap();
    let id = interposer.insert(machine.core_mut(), "p.rpn", resolved.program, resolved.points).unwrap();
    (machine, interposer, id)
}

fn to_the_end(machine: &mut Machine, interposer: &mut Interposer) {
    let stop = machine.run(Some(interposer as &mut dyn TrapInterposer), LIMIT);
    assert_eq!(stop, Stop::Halted);
}

#[test]
fn a_full_channel_loses_the_oldest_and_counts_exactly_what_it_lost() {
    let program = kernel_probe(HOT, "0x55");
    let (mut machine, mut large, _) = armed(&program, ChannelConfig::fixed(16 << 20, 2));
    to_the_end(&mut machine, &mut large);
    let all = large.channels().records();
    let counts = large.channels().counts();
    assert_eq!((counts.lost(), counts.committed), (0, all.len() as u64));
    assert!(all.len() > 1000, "{}", all.len());

    for (size, sub_buffers) in [(1024, 3), (4096, 1), (500, 7), (1 << 15, 2)] {
        let (mut machine, mut small, _) = armed(&program, ChannelConfig::fixed(size, sub_buffers));
        to_the_end(&mut machine, &mut small);
        let kept: Vec<Record> = small.channels().records();
        let counts = small.channels().counts();
        // All sub-buffers are full except the last one.
        let each = size / Channel::record_size(0, 4);
        let expected = (all.len() - 1) % each + 1 + (sub_buffers - 1) * each;
        assert_eq!(kept.len(), expected, "{size}x{sub_buffers}");
        assert_eq!(counts.lost(), (all.len() - expected) as u64, "{size}x{sub_buffers}");
        assert_eq!(kept, all[all.len() - expected..], "the newest records, {size}x{sub_buffers}");
        assert_eq!(small.stats().hits, all.len() as u64);
    }
}

#[test]
fn records_larger_than_a_sub_buffer_are_lost_and_counted() {
    let program = kernel_probe("offset = do_fork", "0x55");
    let (mut machine, mut interposer, _) = armed(&program, ChannelConfig::fixed(8, 4));
    to_the_end(&mut machine, &mut interposer);
    let counts = interposer.channels().counts();
    assert_eq!((counts.committed, counts.oversized, counts.lost()), (6, 6, 6));
    assert!(interposer.channels().records().is_empty());
}

#[test]
fn a_run_that_loses_records_says_how_many_and_shows_the_gaps() {
    let program = kernel_probe(HOT, "0x55");
    let (_, all, _) = run_json(&program, &[]);
    let (_, hits, end) = run_json(&program, &["--channel", "1Kx2"]);
    assert_eq!(number(&end, "hits"), all.len() as u64);
    assert!(number(&end, "lost") > 0);
    assert_eq!(number(&end, "lost"), (all.len() - hits.len()) as u64);
    let sequence = numbers(&hits, "seq");
    assert!(sequence.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(hits.last(), all.last(), "the newest record is there");
    for hit in &hits {
        assert_eq!(*hit, all[number(hit, "seq") as usize - 1]);
    }
}

#[test]
fn a_loss_fails_the_run_only_when_that_was_asked_for() {
    let program = kernel_probe(HOT, "0x55");
    assert_eq!(run(&program, &["--channel", "1Kx2"]).code, 0);
    let ran = run(&program, &["--channel", "1Kx2", "--fail-on-loss", "-f", "json"]);
    assert_eq!(ran.code, 6, "{}", ran.err);
    assert_eq!(number(&json(&ran).2, "exit"), 6);
    assert_eq!(run(&program, &["--fail-on-loss"]).code, 0);
}

#[test]
fn json_lines_have_the_fields_of_the_format() {
    let (header, hits, end) = run_json(&kernel_probe("offset = do_fork", "0x55"), &[]);
    assert_eq!(number(&header, "version"), 1);
    assert_eq!((header["image"].as_str(), number(&header, "width")), (Some("embedded:ia32"), 32));
    assert_eq!(header["observe_only"], true);
    assert_eq!(numbers(&hits, "seq"), [1, 2, 3, 4, 5, 6]);
    for hit in &hits {
        let fields: Vec<&str> = hit.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["type", "seq", "icount", "time_ns", "ip", "symbol", "major", "minor", "data"]);
        assert_eq!((number(hit, "major"), number(hit, "minor")), (1, 1));
        assert_eq!((hit["symbol"].as_str(), hit["data"].as_str()), (Some("do_fork"), Some("01000000")));
        assert!(hit["ip"].as_str().unwrap().starts_with("0xc01"));
    }
    assert!(numbers(&hits, "icount").windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!((number(&end, "hits"), number(&end, "lost"), number(&end, "exit")), (6, 0, 0));
    assert!(number(&end, "insns") > number(&hits[2], "icount"));
    let digest = end["digest"].as_str().unwrap();
    assert!(digest.len() == 32 && digest.bytes().all(|b| b.is_ascii_hexdigit()), "{digest}");
}

#[test]
fn header_items_are_the_guests_own_pids_uids_names_and_time() {
    let items = ["--header", "pid,uid,tsc,name"];
    let (header, forks, _) = run_json(&kernel_probe("offset = do_fork", "0x55"), &items);
    assert_eq!(header["items"], "major,minor,pid,uid,tsc,name");
    for fork in &forks {
        assert_eq!((number(fork, "pid"), number(fork, "uid"), &fork["name"]), (1, 0, &Value::from("appln")));
    }
    // There is no HLT before the first fork, so time equals the instruction count; later it is ahead.
    assert_eq!(number(&forks[0], "tsc"), number(&forks[0], "icount"));
    assert!(forks.iter().all(|fork| number(fork, "tsc") >= number(fork, "icount")));

    let (_, protections, _) = run_json(&kernel_probe("offset = do_general_protection", "0x55"), &items);
    assert_eq!(protections.len(), 12);
    for hit in &protections {
        assert_eq!((number(hit, "pid"), number(hit, "uid"), &hit["name"]), (2, 1000, &Value::from("appln")));
    }

    let (_, switches, _) = run_json(&kernel_probe("offset = schedule", "0x55"), &items);
    let names: Vec<&str> = switches.iter().map(|hit| hit["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"swapper") && names.contains(&"appln"), "{names:?}");
    for hit in &switches {
        assert_eq!(hit["name"] == "swapper", number(hit, "pid") == 0, "{hit}");
    }
}

#[test]
fn text_has_the_papers_header() {
    let ran = run(&kernel_probe("offset = do_fork", "0x55"), &["--header", "all"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let line = ran.out.lines().next().unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let keys: Vec<&str> = words[1..words.len() - 1].iter().map(|w| w.split('=').next().unwrap()).collect();
    assert_eq!(words[0], "DProbes(1,1)");
    assert_eq!(keys, ["cpu", "name", "pid", "uid", "cs", "eip", "ss", "esp", "tsc"]);
    assert_eq!(words.last(), Some(&"01000000"));
    assert_eq!(ran.out.lines().count(), 6);
}

#[test]
fn two_runs_write_the_same_bytes() {
    let program = kernel_probe(HOT, "0x55");
    for format in ["text", "json"] {
        let args = ["-f", format, "--header", "all", "--console", "stdio", "--digest", "--stats"];
        let first = run(&program, &args);
        assert_eq!(first.code, 0, "{}", first.err);
        assert_eq!(first, run(&program, &args), "{format}");
    }
}

#[test]
fn an_observe_only_probe_changes_neither_count_nor_digest_nor_console() {
    let here = Path::new(".");
    let plain = trapline(here, &["run", "embedded:ia32", "-f", "json", "--console", "stdio"]);
    let probed = run(&kernel_probe(HOT, "0x55"), &["-f", "json", "--console", "stdio"]);
    let (plain_end, probed_end) = (json(&plain).2, json(&probed).2);
    for field in ["insns", "digest", "exit"] {
        assert_eq!(plain_end[field], probed_end[field], "{field}");
    }
    let console = |ran: &Ran| -> Vec<String> {
        ran.err.lines().filter(|line| !line.starts_with("trapline: ")).map(str::to_owned).collect()
    };
    assert_eq!(console(&plain), console(&probed));
}

#[test]
fn a_handler_that_ends_by_an_exception_is_recorded_and_fails_the_run_when_asked() {
    let program = "name = vmlinux\nmodtype = kernel\nmajor = 1\noffset = do_fork\nopcode = 0x55\nminor = 1\n\
                   push 7\nlog 1\npush 1\npush 0\ndiv\nlog 2\nexit\n";
    let ran = run(program, &["-f", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let (_, hits, end) = json(&ran);
    assert_eq!((hits.len(), number(&end, "hits")), (6, 6));
    for hit in &hits {
        // DIVIDE_BY_ZERO, at the `div`; the data logged before it is kept.
        assert_eq!((number(hit, "termination"), number(&hit["exception"], "line")), (0x20, 11));
        assert_eq!(
            (hit["exception"]["code"].as_str(), hit["data"].as_str()),
            (Some("0x20"), Some("07000000"))
        );
    }
    let failed = run(program, &["-f", "json", "--fail-on-exception"]);
    assert_eq!((failed.code, number(&json(&failed).2, "exit")), (1, 1));
    assert_eq!(run(&kernel_probe("offset = do_fork", "0x55"), &["--fail-on-exception"]).code, 0);
}

#[test]
fn a_user_probe_fires_in_ring_3_on_a_page_that_came_in_after_it_was_armed() {
    let example = std::fs::read_to_string(trapline_tests::root().join("examples/man/1-appln.rpn")).unwrap();
    let (mut machine, mut interposer, id) = armed(&example, ChannelConfig::default());
    assert_eq!(interposer.stats().sites, 0, "no page of appln is in memory yet");
    to_the_end(&mut machine, &mut interposer);
    assert_eq!(interposer.runs(id), [1]);
    let records = interposer.channels().records();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].header.cs & 3, 3, "ring 3");
    let main = target().modules()[0].symbols().sole("main").unwrap().addr;
    assert_eq!(records[0].header.ip, main);
}

#[test]
fn a_user_probe_fires_in_every_address_space_that_has_the_page() {
    let program =
        "name = appln\nmajor = 1\noffset = work\nopcode = 0x55\nminor = 1\npush u, esp\nlog 1\nexit\n";
    let (_, hits, _) = run_json(program, &["--header", "pid,cs"]);
    let mut pids = numbers(&hits, "pid");
    pids.sort_unstable();
    // Twice in the first task, once in each worker's own copy of the page, at each turn of those that yield.
    let turns = [[5; 10], [6; 10]].concat();
    assert_eq!(pids, [vec![1, 1, 3, 4], turns].concat());
    assert!(hits.iter().all(|hit| hit["symbol"] == "appln:work" && hit["cs"] == "0x1b"));
}

#[test]
fn handlers_at_one_site_run_in_the_order_of_insertion() {
    let log = |major: u32, value: u32| {
        format!(
            "name = vmlinux\nmodtype = kernel\nmajor = {major}\noffset = do_fork\nopcode = 0x55\nminor = 1\n\
             push {value}\nlog 1\nexit\n"
        )
    };
    let two = "\noffset = do_fork\nopcode = 0x55\nminor = 2\npush 9\nlog 1\nexit\n";
    let folder = folder(&[("a.rpn", &(log(1, 7) + two)), ("b.rpn", &log(2, 8))]);
    let order = |args: &[&str]| {
        let mut all = vec!["run", "embedded:ia32", "-q"];
        all.extend(args);
        let ran = trapline(folder.path(), &all);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out
    };
    let (a, b) = ("DProbes(1,1) 07000000\nDProbes(1,2) 09000000\n", "DProbes(2,1) 08000000\n");
    assert_eq!(order(&["-p", "a.rpn", "-p", "b.rpn"]), format!("{a}{b}").repeat(6));
    assert_eq!(order(&["-p", "b.rpn", "-p", "a.rpn"]), format!("{b}{a}").repeat(6));
}

#[test]
fn ignore_passes_over_and_maxhits_ends_exactly() {
    let limited = |limits: &str| {
        let program = kernel_probe("offset = do_general_protection", "0x55");
        let (_, hits, end) = run_json(&program.replace("minor = 1", &format!("minor = 1\n{limits}")), &[]);
        assert_eq!(number(&end, "hits"), hits.len() as u64);
        numbers(&hits, "icount")
    };
    let all = limited("");
    assert_eq!(all.len(), 12);
    assert_eq!(limited("ignore = 3"), all[3..]);
    assert_eq!(limited("maxhits = 5"), all[..5]);
    assert_eq!(limited("ignore = 3\nmaxhits = 5"), all[3..8]);
    assert_eq!(limited("ignore = 11\nmaxhits = 5"), all[11..]);
    assert!(limited("ignore = 12").is_empty());
    assert_eq!(limited("maxhits = 1"), all[..1]);
}

#[test]
fn a_probe_on_the_same_site_outlives_one_that_has_had_its_last_hit() {
    let short =
        kernel_probe("offset = do_general_protection", "0x55").replace("minor = 1", "minor = 1\nmaxhits = 2");
    let program = short + "offset = do_general_protection\nopcode = 0x55\nminor = 2\npush pid\nlog 1\nexit\n";
    let (_, hits, _) = run_json(&program, &[]);
    let of = |minor: u64| hits.iter().filter(|hit| number(hit, "minor") == minor).count();
    assert_eq!((of(1), of(2)), (2, 12));
}
