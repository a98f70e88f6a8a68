//! `trapline profile` as tables, and `trapline top`: exact counts against single steps, samples against exact counts.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;

use iced_x86::Mnemonic;
use tempfile::TempDir;
use trapline_session::{Condition, CountBy, GuestBuilder, Limits, Session};
use trapline_tests::begun;
use trapline_tests::linux::Linux;
use trapline_tests::{guest, root};

use crate::cli::{Ran, trapline};
use crate::terminal::Terminal;

/// Rows with their counts.
type Rows = BTreeMap<String, u64>;

/// EFLAGS.IF.
const IF: u64 = 1 << 9;

/// Whether IF is set, and the next instruction is none that clears it.
fn allows_interrupts(session: &Session) -> bool {
    use Mnemonic as M;
    let core = session.core();
    let next = core.decode_original(core.linear_ip()).map(|i| i.mnemonic());
    let clears = matches!(
        next,
        None | Some(
            M::Cli | M::Popfd | M::Popfq | M::Iretd | M::Iretq | M::Syscall | M::Sysenter | M::Int | M::Int3
        )
    );
    core.env().eflags_raw() & IF != 0 && !clears
}

/// Steps through a number of instructions; counts each in the row that `row` gives it.
fn stepped(session: &mut Session, insns: u64, row: impl Fn(&Session) -> String) -> Rows {
    let (mut rows, end) = (Rows::new(), session.icount() + insns);
    while session.icount() < end {
        let (here, before, could_interrupt) = (row(session), session.icount(), allows_interrupts(session));
        assert_eq!(session.step(1), None);
        // The step that delivers an interrupt runs the first instruction of its handler, which has IF = 0.
        let interrupted = could_interrupt && session.core().env().eflags_raw() & IF == 0;
        let here = if interrupted { row(session) } else { here };
        *rows.entry(here).or_default() += session.icount() - before;
    }
    rows
}

/// The exact counts of so many instructions.
fn counted(session: &mut Session, insns: u64, by: CountBy) -> Rows {
    let limit = session.icount() + insns;
    session.count_exactly(&["*".to_owned()], by).unwrap();
    session.run_until(&Condition::end(), &Limits::insns(limit));
    let (rows, whole) = session.counted_exactly().unwrap();
    assert_eq!((whole, rows.iter().map(|(_, count)| count).sum::<u64>()), (insns, insns));
    rows.into_iter().collect()
}

/// The row of the next instruction, told by its address.
fn place(session: &Session, by: CountBy) -> String {
    let (core, target) = (session.core(), session.target());
    if core.env().cpl() == 3 {
        return "(programs)".to_owned();
    }
    let linear = core.linear_ip();
    // Early code runs where it is linked, with a base of CS.
    let is_linked = core.env().cs_base() != 0 && session.symbols().at(linear).is_none();
    // Before paging, it runs where it was loaded.
    let paddr = core.code_paddr(linear).filter(|_| session.symbols().at(linear).is_none());
    let loaded = paddr.and_then(|paddr| target.image().plan().paddr_to_vaddr(paddr));
    let at = if is_linked { core.env().eip() } else { loaded.unwrap_or(linear) };
    let Some(found) = session.symbols().at(at) else {
        return "(the kernel outside of its image)".to_owned();
    };
    let function = format!("{}`{}", target.kernel_name(), found.symbol.name);
    match target.source_line(at).filter(|_| by == CountBy::Line) {
        Some(line) => format!("{}:{}", line.file, line.line),
        None if by == CountBy::Line => format!("{function} (no line known)"),
        None => function,
    }
}

/// Exact counts are those of single steps, over stretches of a run that begin there.
fn agrees(start: impl Fn() -> Session, from: &[u64], insns: u64, by: CountBy) {
    for from in from {
        let at = || {
            let mut session = start();
            if *from > 0 {
                session.step(*from);
            }
            session
        };
        let stepped = stepped(&mut at(), insns, |session| place(session, by));
        assert!(stepped.len() > 1, "{stepped:?}");
        assert_eq!(counted(&mut at(), insns, by), stepped, "{by:?} from {from}");
    }
}

fn embedded(name: &str) -> Session {
    GuestBuilder::embedded(name).memory(32 << 20).start().unwrap()
}

#[test]
fn exact_counts_are_those_of_single_steps() {
    trapline_tests::turns::take().unwrap();
    for name in ["ia32", "x86_64"] {
        agrees(|| embedded(name), &[0, 150_000], 60_000, CountBy::Function);
    }
}

#[test]
fn guest_linux_exact_counts_of_debian_are_those_of_single_steps() {
    trapline_tests::turns::take().unwrap();
    let start = || linux("cloud-amd64");
    agrees(start, &[0, 20_000_000], 120_000, CountBy::Function);
}

#[test]
fn guest_gnumach_exact_counts_of_source_lines_are_those_of_single_steps() {
    trapline_tests::turns::take().unwrap();
    let start = || {
        let file = trapline_tests::fetched("gnumach").unwrap();
        GuestBuilder::image_bytes("gnumach", file).cmdline("console=com0").start().unwrap()
    };
    agrees(start, &[0, 5_000_000], 30_000, CountBy::Line);
}

/// The words of `run` for Debian's kernel.
fn kernel_words(flavour: &str) -> Vec<String> {
    let linux = Linux::of(flavour).unwrap();
    let (kernel, initrd) = (format!("linux-{flavour}"), format!("initramfs-{}.cpio.gz", linux.arch));
    vec![guest(&kernel), "--initrd".to_owned(), guest(&initrd)]
}

/// Debian's kernel where it executes the first process.
fn linux(flavour: &str) -> Session {
    let words = kernel_words(flavour);
    let args: Vec<&str> = std::iter::once("run").chain(words.iter().map(String::as_str)).collect();
    let [_, quick, _, snapshot] = begun::options(&root(), &args).unwrap();
    let guest = GuestBuilder::image(&words[0]).initrd(words[2].as_str()).append(&quick);
    let mut session = guest.start().unwrap();
    let saved = session.read_snapshot(&std::fs::read(snapshot).unwrap()).unwrap();
    session.restore(&saved).unwrap();
    session
}

/// The rows of a table: counts by name.
fn rows(table: &str) -> Vec<(String, u64)> {
    let row = |line: &str| {
        let (numbers, name) = line.split_once("%  ").unwrap();
        let name = name.rsplit("%  ").next().unwrap();
        let count = numbers.split_whitespace().next().unwrap().replace(',', "");
        (name.to_owned(), count.parse().unwrap())
    };
    table.lines().skip(1).map(row).collect()
}

fn ok(folder: &Path, args: &[&str]) -> Ran {
    let ran = trapline(folder, args);
    assert!(matches!(ran.code, 0 | 124), "{args:?}: {}", ran.err);
    ran
}

/// The ten hottest functions of the kernel agree with a count of every instruction, each within a part of it that depends
/// on the number of its samples.
fn ten_hottest_agree(words: &[&str], insns: u64, within: impl Fn(u64) -> f64) {
    let folder = TempDir::new().unwrap();
    let (image, options) = words.split_first().unwrap();
    let profile = |args: &[&str]| {
        let args = [&["profile", image, "-q", "--by", "function"], args, &["--"], options].concat();
        rows(&ok(folder.path(), &args).out)
    };
    let sampled: Rows = profile(&["--insns", &insns.to_string()]).into_iter().collect();
    let exact = profile(&["--exact", "*"]);
    let kernel = |(name, _): &&(String, u64)| !name.starts_with('(');
    let hottest: Vec<&(String, u64)> = exact.iter().filter(kernel).take(10).collect();
    assert_eq!(hottest.len(), 10);
    let compared = hottest.iter().map(|(name, exact)| {
        let samples = sampled.get(name).copied().unwrap_or_default() * insns;
        (name, *exact, samples, (samples as f64 - *exact as f64).abs() / *exact as f64)
    });
    let compared: Vec<_> = compared.collect();
    let right = compared.iter().all(|(_, _, samples, error)| *error <= within(samples / insns));
    assert!(right, "{compared:#?}");
}

#[test]
fn guest_linux_the_ten_hottest_functions_agree_with_a_count_as_far_as_samples_can() {
    let words = kernel_words("cloud-amd64");
    let mut args: Vec<&str> = words.iter().map(String::as_str).collect();
    let more = begun::options(&root(), &[&["run"], args.as_slice()].concat()).unwrap();
    args.extend(more.iter().map(String::as_str));
    args.extend(["--until", "/ # "]);
    // There are few samples in this part of the run: four standard deviations of their number.
    ten_hottest_agree(&args, 1009, |samples| 4.0 / (samples.max(1) as f64).sqrt());
}

#[test]
fn guest_linux_the_ten_hottest_functions_of_a_boot_agree_with_a_count_at_length() {
    let words = kernel_words("cloud-amd64");
    let mut args: Vec<&str> = words.iter().map(String::as_str).collect();
    args.extend(["--until", "/ # "]);
    ten_hottest_agree(&args, 1009, |_| 0.02);
}

#[test]
fn samples_of_processes_agree_with_exact_counts() {
    let folder = TempDir::new().unwrap();
    for guest in ["embedded:ia32", "embedded:x86_64"] {
        let table = |how: &[&str]| {
            rows(&ok(folder.path(), &[&["profile", guest, "-q", "--by", "process"], how].concat()).out)
        };
        let sampled: Rows = table(&["--insns", "1000"]).into_iter().collect();
        let exact = table(&["--exact", "*"]);
        assert!(exact.len() > 1, "{exact:?}");
        let whole: u64 = exact.iter().map(|(_, count)| count).sum();
        for (name, insns) in exact {
            let samples = sampled.get(&name).copied().unwrap_or_default() * 1000;
            assert!(samples.abs_diff(insns) <= whole / 100, "{guest} {name}: {samples} and {insns}");
        }
    }
}

#[test]
fn all_tables_count_the_same_samples() {
    let folder = TempDir::new().unwrap();
    let all = ["function", "process", "module"].map(|by| {
        let args = ["profile", "embedded:ia32", "--insns", "1000", "--by", by, "-q"];
        let found = rows(&ok(folder.path(), &args).out);
        assert!(found.len() > 1 && found.is_sorted_by(|one, other| one.1 >= other.1), "{found:?}");
        found.iter().map(|(_, count)| count).sum::<u64>()
    });
    let stacks = ok(folder.path(), &["profile", "embedded:ia32", "--insns", "1000", "-q"]).out;
    let weights = stacks.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    assert_eq!(all, [weights.sum::<u64>(); 3]);
}

#[test]
fn lines_are_refused_where_there_are_none() {
    let folder = TempDir::new().unwrap();
    let ran = trapline(folder.path(), &["profile", "embedded:ia32", "--by", "line", "-q"]);
    assert_eq!(ran.code, 2);
    let sentence =
        "--by line: neither embedded:ia32 nor a program of this guest has debugging information (DWARF)";
    assert!(ran.err.contains(sentence) && ran.out.is_empty(), "{}", ran.err);
}

#[test]
fn guest_gnumach_samples_name_source_lines() {
    let folder = TempDir::new().unwrap();
    let file = guest("gnumach.gz");
    let run = ["--", "--cmdline", "console=com0", "--limit-insns", "20M"];
    let line = |how: &[&str]| {
        let args = [&["profile", file.as_str(), "-q", "--by", "line"], how, run.as_slice()].concat();
        rows(&ok(folder.path(), &args).out)
    };
    let (sampled, exact) = (line(&["--insns", "1000"]), line(&["--exact", "*"]));
    assert!(sampled[0].0.contains(".c:") || sampled[0].0.contains(".S:"), "{sampled:?}");
    assert_eq!(sampled[0].0, exact[0].0);
}

/// The rows of JSON are those of the text, and their sum is in the end line.
#[test]
fn tables_as_json_are_those_of_the_text() {
    let folder = TempDir::new().unwrap();
    let ways: [&[&str]; 5] = [
        &["--insns", "1000", "--by", "function"],
        &["--insns", "1000", "--by", "process"],
        &["--hz", "100000", "--by", "module"],
        &["--exact", "fnv1a*", "--by", "function"],
        &["--exact", "*", "--by", "process"],
    ];
    for way in ways {
        let args = [&["profile", "embedded:ia32", "-q"], way].concat();
        let text = rows(&ok(folder.path(), &args).out);
        let out = ok(folder.path(), &[&args[..], &["-f", "json"]].concat()).out;
        let lines: Vec<serde_json::Value> =
            out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (header, end, table) = (&lines[0], lines.last().unwrap(), &lines[1..lines.len() - 1]);
        let by = header["by"].as_str().unwrap();
        let row =
            |row: &serde_json::Value| (row[by].as_str().unwrap().to_owned(), row["count"].as_u64().unwrap());
        assert_eq!(table.iter().map(row).collect::<Vec<_>>(), text, "{way:?}");
        let sum: u64 = text.iter().map(|(_, count)| count).sum();
        assert_eq!(end["counted"], sum, "{way:?}");
        let whole = if way[1] == "fnv1a*" { &end["insns"] } else { &end["counted"] };
        assert_eq!(&end["of"], whole, "{way:?}");
        let totals = way[0] != "--exact" && by == "function";
        for row in table {
            let right = match row["total"].as_u64() {
                Some(total) => totals && total >= row["count"].as_u64().unwrap() && total <= sum,
                None => !totals,
            };
            assert!(right, "{way:?}: {row}");
        }
    }
    let refused = trapline(folder.path(), &["profile", "embedded:ia32", "-f", "json"]);
    assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{}", refused.err);
}

#[test]
fn functions_that_are_not_there_are_told() {
    let folder = TempDir::new().unwrap();
    let ran = trapline(folder.path(), &["profile", "embedded:ia32", "--exact", "do_frk", "--by", "function"]);
    assert_eq!(ran.code, 2);
    let sentence = "--exact: the kernel's image has no function `do_frk`; there is `do_fork`";
    assert!(ran.err.contains(sentence), "{}", ran.err);
}

#[test]
fn an_exact_profile_names_the_kernel_before_paging() {
    let folder = TempDir::new().unwrap();
    let args =
        ["profile", "embedded:ia32", "--exact", "*", "--by", "function", "-q", "--", "--limit-insns", "50"];
    let found = rows(&trapline(folder.path(), &args).out);
    assert_eq!(found, [("vmlinux`_start".to_owned(), 50)]);
}

#[test]
fn top_prints_the_same_tables_for_a_run_and_its_recording() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let recorded = trapline(here, &["record", "embedded:ia32", "-o", "r.tlr", "-q", "--limit-insns", "3M"]);
    assert_eq!(recorded.code, 124, "{}", recorded.err);
    let top = |what: &str, more: &[&str]| {
        let args = [&["top", what, "-q", "--insns", "1000", "--every", "1ms"], more].concat();
        ok(here, &args).out
    };
    let run = top("embedded:ia32", &["--", "--limit-insns", "3M"]);
    assert_eq!(run, top("embedded:ia32", &["--", "--limit-insns", "3M"]));
    assert_eq!(run, top("r.tlr", &[]));
    let whens: Vec<&str> =
        run.lines().filter_map(|line| line.strip_prefix("At ")?.split(':').next()).collect();
    assert!(whens.len() >= 3 && whens.is_sorted() && whens[0] == "0.001000000 s", "{run}");
    let (_, total) = run.rsplit_once("In all: ").unwrap();
    let once = ok(here, &["top", "r.tlr", "-q", "--insns", "1000", "--once"]).out;
    assert_eq!(once, format!("In all: {total}"));
}

#[test]
fn the_samples_of_the_lines_of_top_add_up() {
    let folder = TempDir::new().unwrap();
    let args =
        ["top", "embedded:ia32", "-q", "--insns", "1000", "--every", "1ms", "-f", "json", "--rows", "1000"];
    let out = ok(folder.path(), &args).out;
    let lines: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (end, tables) = (lines.last().unwrap(), &lines[1..lines.len() - 1]);
    let now: u64 = tables.iter().chain([end]).map(|line| line["samples_now"].as_u64().unwrap()).sum();
    assert_eq!(end["samples"].as_u64().unwrap(), now);
    for kind in ["functions", "processes"] {
        let all = end[kind].as_array().unwrap().iter().map(|row| row["all"].as_u64().unwrap());
        assert_eq!(all.sum::<u64>(), now, "{kind}");
    }
    let table = rows(
        &ok(folder.path(), &["profile", "embedded:ia32", "-q", "--insns", "1000", "--by", "process"]).out,
    );
    let processes = end["processes"].as_array().unwrap().iter();
    let processes: Rows = processes
        .map(|row| (row["process"].as_str().unwrap().to_owned(), row["all"].as_u64().unwrap()))
        .collect();
    assert_eq!(processes, table.into_iter().collect());
}

#[test]
fn tables_of_top_are_taken_at_their_times_and_the_last_one_at_the_end() {
    let folder = TempDir::new().unwrap();
    for (image, insns, every, limit) in
        [("embedded:ia32", "300K", 1_000_000u64, "1G"), ("embedded:idle", "1M", 100_000_000, "20000")]
    {
        let run = ["run", image, "--stats", "-q", "--console", "none", "--limit-insns", limit];
        let stats = trapline(folder.path(), &run).err;
        let counter = |name: &str| -> u64 {
            let line = stats.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().parse().unwrap()
        };
        let (insns_in_all, time) = (counter("instructions"), counter("virtual_ns"));
        let period = format!("{every}ns");
        let top = ["top", image, "-q", "--insns", insns, "--every", &period, "-f", "json", "--"];
        let out = trapline(folder.path(), &[&top[..], &["--limit-insns", limit]].concat()).out;
        let lines: Vec<serde_json::Value> =
            out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (end, tables) = (lines.last().unwrap(), &lines[1..lines.len() - 1]);
        let number = |line: &serde_json::Value, name: &str| line[name].as_u64().unwrap();
        assert_eq!((number(end, "icount"), number(end, "time_ns")), (insns_in_all, time), "{image}");
        assert_eq!(tables.len() as u64, time / every, "{image}");
        for (n, table) in (1..).zip(tables) {
            assert_eq!(number(table, "time_ns"), n * every, "{image}");
        }
    }
}

#[test]
fn top_has_a_screen_on_a_terminal_and_gives_it_back() {
    trapline_tests::turns::take().unwrap();
    let mut terminal = Terminal::with_modes(&["top", "embedded:ia32", "--insns", "1000"]);
    let shown = terminal.shows("the guest halted");
    assert!(shown.contains("in all  function") && shown.contains("q quit"), "{shown}");
    assert!(terminal.is_full_screen());
    terminal.press("p");
    terminal.shows("in all  process");
    terminal.press("f");
    terminal.shows("in all  function");
    terminal.press("q");
    let (code, screen) = terminal.end();
    let shown = screen.screen().contents();
    assert_eq!(code, Some(0), "{shown}");
    assert!(!screen.screen().alternate_screen(), "{shown}");
    assert!(
        shown.contains(" icanon") && shown.contains(" echo ") && shown.contains("samples    share  process"),
        "{shown}"
    );
}

#[test]
fn a_signal_ends_top_with_its_table() {
    trapline_tests::turns::take().unwrap();
    for (key, signal) in [("\x03", None), ("", Some("-TERM"))] {
        let mut terminal = Terminal::with_modes(&["top", "embedded:ia32", "--insns", "1000"]);
        terminal.shows("the guest halted");
        terminal.press(key);
        signal.into_iter().for_each(|signal| terminal.signal(signal));
        let (code, screen) = terminal.end();
        let shown = screen.screen().contents();
        assert!(shown.contains("samples    share  process") && shown.contains(" icanon"), "{shown}");
        // The guest has ended by itself.
        assert_eq!(code, Some(0), "{shown}");
    }
}

#[test]
fn top_shows_something_on_a_terminal_of_any_size() {
    trapline_tests::turns::take().unwrap();
    let mut terminal = Terminal::shell();
    terminal.ends_with("ready>");
    for (columns, rows) in [(1, 1), (2, 3), (500, 200), (0, 0)] {
        let size = format!("stty cols {columns} rows {rows}; ");
        terminal.press(&format!(
            "clear; {size} trapline top embedded:ia32 -q >/dev/tty; echo left {columns} with $?\n"
        ));
        terminal.press("fp rq");
        terminal.shows(&format!("left {columns} with 0"));
    }
    terminal.press("exit\n");
    terminal.end();
}

#[test]
fn resetting_top_forgets_the_samples_so_far() {
    trapline_tests::turns::take().unwrap();
    let mut terminal = Terminal::with_modes(&["top", "embedded:ia32", "--insns", "1000"]);
    terminal.shows("the guest halted");
    terminal.press("p");
    let shown = terminal.shows("in all  process");
    let rows = |shown: &str| shown.lines().filter(|line| line.matches("% ").count() == 2).count();
    assert!(rows(&shown) > 1, "{shown}");
    // The guest has ended: nothing is counted from now on.
    terminal.press("rf");
    let shown = terminal.shows("in all  function");
    assert_eq!(rows(&shown), 0, "{shown}");
    terminal.press("q");
    let (code, screen) = terminal.end();
    let shown = screen.screen().contents();
    assert_eq!(code, Some(0), "{shown}");
    let (_, table) = shown.split_once("samples    share  function").unwrap_or_else(|| panic!("{shown}"));
    assert!(!table.contains('%'), "{shown}");
}

#[test]
fn top_begins_with_the_run() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let recorded = trapline(here, &["record", "embedded:ia32", "-o", "r.tlr", "-q", "--limit-insns", "3M"]);
    assert_eq!(recorded.code, 124, "{}", recorded.err);
    let top = trapline(here, &["top", "r.tlr", "--once", "--", "--from", "1M"]);
    let sentence = "trapline: error: --from after -- cannot be used with top, whose counts begin with the run; profile \
                    accepts it\n";
    assert_eq!((top.code, top.out.as_str(), top.err.as_str()), (2, "", sentence));
    ok(here, &["profile", "r.tlr", "--insns", "1000", "--", "--from", "1M"]);
}

#[test]
fn a_sample_has_the_innermost_128_frames() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    // Of these calls, two more have led to the first one, and the last one calls the function that works.
    for (bits, depth) in [("64", 125), ("64", 126), ("64", 300), ("32", 125), ("32", 126), ("32", 300)] {
        let format = format!("elf{bits}");
        let depth_is = format!("DEPTH={depth}");
        super::hobby_kernels::build(here, &[bits, "PVH", &format, "k", "deep.c", "--", &depth_is]);
        let profile = |more: &[&str]| {
            let args = [&["profile", "k", "-q", "--insns", "1000"], more, &["--", "--mem", "64M"]].concat();
            let ran = trapline(here, &args);
            // The kernel ends with 42.
            assert_eq!(ran.code, 85, "{}", ran.err);
            ran.out
        };
        let whole = [&["k`start", "k`main"][..], &vec!["k`down"; depth], &["k`work"]].concat();
        let kept = &whole[whole.len().saturating_sub(128)..];
        let folded = profile(&[]);
        let (stack, samples) = folded
            .lines()
            .filter_map(|line| line.rsplit_once(' '))
            .find(|(stack, _)| stack.ends_with("k`work"))
            .unwrap();
        assert_eq!(stack.split(';').collect::<Vec<_>>(), kept, "{bits} bits, {depth}");
        // It runs 600 of a thousand instructions each: what was cut off has no part of them.
        assert_eq!(samples, "600");
        let table = profile(&["--by", "function"]);
        let total = |name: &str| -> u64 {
            let row = table.lines().find(|line| line.ends_with(&format!("k`{name}")));
            let row =
                row.map(|line| line.split_whitespace().nth(2).unwrap().trim_end_matches('%').to_owned());
            row.map_or(0, |share| share.parse::<f64>().unwrap() as u64)
        };
        let all: Vec<bool> = ["down", "main", "start"].iter().map(|name| total(name) > 90).collect();
        assert_eq!(all, [true, kept.contains(&"k`main"), kept.contains(&"k`start")], "{depth}: {table}");
    }
}
