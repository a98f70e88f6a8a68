//! No test depends on the host's speed: none sleeps, reads a clock, or gives up after a time, but in the places that are
//! listed here. A test waits for what lasts (`emu/tests/common/patience.rs`), and bounds counts of what is done.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use regex::Regex;
use trapline_house::{members, root};

use crate::test_files::sources;

/// Names of what waits for a time or measures it, in whatever way they are used.
static NAMES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?x)^(?:u?sleep|nanosleep|clock_nanosleep|sleep_ms|sleep_until|alarm|setitimer|\w+_timeout\w*|timeout|timeout_at
        |\w+_deadline|Instant|SystemTime|elapsed|duration_since|cpu_seconds|clock_gettime|gettimeofday|_+rdtscp?
        |epoll_wait|ppoll|pselect)$",
    )
    .unwrap()
});
/// Paths that wait for a time, though their last names are common ones.
const PATHS: [&str; 4] = ["libc::poll", "channel::after", "channel::tick", "time::interval"];

/// What may be where, and why.
const ALLOWED: [(&str, &[&str], &str); 17] = [
    ("emu/tests/common/patience.rs", &["sleep"], "pauses between two looks at what lasts"),
    ("tests/src/turns.rs", &["sleep"], "pauses between two looks at who has a turn"),
    ("tests/src/lib.rs", &["cpu_seconds", "clock_gettime"], "the clock of the benchmarks"),
    ("tests/tests/cli/mod.rs", &["timeout"], "kills what hangs, after the time of patience.rs"),
    ("tests/tests/terminal.rs", &["recv_timeout"], "gives up after the time of patience.rs"),
    ("ui/tui/src/tests.rs", &["recv_timeout", "Instant"], "as above; an event tells when it was read"),
    ("ui/tui/src/tests/panics.rs", &["recv_timeout"], "gives up after the time of patience.rs"),
    ("ui/tui/src/tests/millions.rs", &["schedstat"], "prints how long it took"),
    ("ui/tui/src/hits/sorted.rs", &["Instant", "elapsed"], "prints how long it took; nothing else runs it"),
    ("tests/tests/interactive.rs", &["Instant", "elapsed"], "the least time of an idle guest, no most"),
    ("tests/tests/guest_linux_stacks.rs", &["cpu_seconds"], "compares two times of one thread"),
    ("rpn-vm/tests/mutation.rs", &["clock_gettime"], "compares two times of one thread"),
    ("emu/src/devices/pit8254_tests.rs", &["elapsed"], "a device's virtual time"),
    ("emu/tests/snapshots.rs", &["alarm"], "that of the guest's clock, in virtual time"),
    ("tests/src/built.rs", &["SystemTime"], "which of two files is newer"),
    ("tests/tests/harness.rs", &["SystemTime"], "which of two files is newer"),
    ("tests/tests/linux_images.rs", &["SystemTime"], "a year that a file has"),
];

/// Tests whose guest has a shell that sleeps or reads its clock: in virtual time, which is the same on every host.
const OF_GUESTS: [&str; 2] = ["sleep of a shell", "clock"];
const GUESTS: [&str; 13] = [
    "tests/tests/gdb_linux.rs",
    "tests/tests/guest_linux_dti.rs",
    "tests/tests/guest_linux_dumps.rs",
    "tests/tests/guest_linux_listing.rs",
    "tests/tests/guest_linux_module_probes.rs",
    "tests/tests/guest_linux_probes.rs",
    "tests/tests/guest_linux_static.rs",
    "tests/tests/guest_linux_system.rs",
    "tests/tests/guest_linux_tail_calls.rs",
    "tests/tests/guest_linux_task_stacks.rs",
    "tests/tests/guest_linux_threads.rs",
    "tests/tests/interactive.rs",
    "tests/tests/user_context.rs",
];

/// What was found: a name or a word, and its line.
type Found = Vec<(String, usize)>;

/// Finds in tokens, all of them or those of tests alone, and collects the names of modules that are of tests and in another file.
fn find(tokens: TokenStream, is_test: bool, found: &mut Found, modules: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut in_item = false;
    for (n, token) in tokens.iter().enumerate() {
        let next = tokens.get(n + 1);
        let counts = is_test || in_item;
        match token {
            TokenTree::Group(group) => {
                in_item |= group.delimiter() == Delimiter::Bracket && marks_a_test(&group.stream());
                find(group.stream(), counts, found, modules);
                in_item &= group.delimiter() != Delimiter::Brace;
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => in_item = false,
            TokenTree::Ident(ident) if counts => {
                let (name, line) = (ident.to_string(), ident.span().start().line);
                let ahead: String = tokens[n + 1..].iter().take(3).map(ToString::to_string).collect();
                let program = tokens.get(n + 4).filter(|_| name == "Command" && ahead == "::new");
                if let Some(word) = program.and_then(|program| program_that_waits(&program.to_string())) {
                    found.push((word.to_owned(), line));
                } else if NAMES.is_match(&name) {
                    found.push((name, line));
                } else if PATHS.contains(&&*format!("{name}{ahead}")) {
                    found.push((format!("{name}{ahead}"), line));
                } else if name == "mod" && matches!(tokens.get(n + 2), Some(TokenTree::Punct(_))) {
                    modules.extend(next.map(ToString::to_string));
                }
            }
            TokenTree::Literal(literal) if counts => {
                let line = literal.span().start().line;
                found.extend(words(&literal.to_string()).into_iter().map(|word| (word.to_owned(), line)));
            }
            _ => {}
        }
    }
}

/// Whether these tokens of an attribute make what follows a test.
fn marks_a_test(tokens: &TokenStream) -> bool {
    let text: String = tokens.to_string().split_whitespace().collect();
    text == "test" || text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// The program of `Command::new` that waits for a time.
fn program_that_waits(argument: &str) -> Option<&'static str> {
    let path = argument.strip_prefix("(\"")?.strip_suffix("\")")?;
    ["sleep", "usleep", "timeout"].into_iter().find(|word| path.rsplit('/').next() == Some(word))
}

/// What waits for a time or measures it in text: commands of a shell, calls of Python, clocks of Linux.
fn words(text: &str) -> Vec<&'static str> {
    static FORMS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let begin = r"(?:^|[^\w.]|\\n)";
        let gap = r"(?:[ \t]|\\t)+";
        let forms = [
            (format!(r#"{begin}u?sleep{gap}["'$\d.{{\\]"#), "sleep of a shell"),
            (format!(r#"{begin}timeout{gap}["'$\d.{{\\-]"#), "timeout"),
            (format!(r"{begin}read{gap}(?:-\w+{gap})*-\w*t"), "read -t"),
            (format!(r#"{begin}date{gap}\\?["']?\+%"#), "date"),
            (r"\btime\.(?:sleep|time|monotonic|perf_counter)\b".to_owned(), "time of Python"),
            ("/proc/uptime|\\bEPOCHSECONDS|\\bEPOCHREALTIME|\\$SECONDS|\\bSECONDS=".to_owned(), "clock"),
            ("/schedstat".to_owned(), "schedstat"),
        ];
        forms.into_iter().map(|(form, word)| (Regex::new(&form).unwrap(), word)).collect()
    });
    FORMS.iter().filter(|(form, _)| form.is_match(text)).map(|(_, word)| *word).collect()
}

/// What is found in a file of another language, or in the commands of a document.
fn find_in_text(text: &str, is_document: bool) -> Found {
    let lines = text.lines().zip(1..).filter(|(line, _)| !is_document || line.starts_with("$ "));
    lines.flat_map(|(line, n)| words(line).into_iter().map(move |word| (word.to_owned(), n))).collect()
}

/// The scripts of tests and the documents of the cases from the field.
fn scripts(folder: &Path, found: &mut BTreeMap<PathBuf, Found>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            scripts(&path, found);
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let ends = |end: &str| path.extension().is_some_and(|e| e == end);
        if ends("sh") || ends("py") || ends("md") || text.starts_with("#!") {
            found.insert(path.canonicalize().unwrap(), find_in_text(&text, ends("md")));
        }
    }
}

fn find_in(text: &str, is_test: bool) -> (Found, Vec<String>) {
    let (mut found, mut modules) = (Vec::new(), Vec::new());
    find(text.parse().unwrap(), is_test, &mut found, &mut modules);
    (found, modules)
}

/// The file of a module, and the folder of its own modules, next to a file with these.
fn file_of(module: &str, file: &Path) -> Option<PathBuf> {
    let folder = file.parent()?;
    let own = folder.join(file.file_stem()?);
    [
        folder.join(format!("{module}.rs")),
        own.join(format!("{module}.rs")),
        folder.join(module).join("mod.rs"),
    ]
    .into_iter()
    .find(|path| path.is_file())
}

/// What is found in the tests of all crates, by their files.
fn all() -> BTreeMap<PathBuf, Found> {
    let mut of_tests = BTreeSet::new();
    let mut others = BTreeSet::new();
    for member in members() {
        let folder = root().join(&member);
        for (name, files) in [("tests", &mut of_tests), ("src", &mut others)] {
            if folder.join(name).is_dir() {
                sources(&folder.join(name), files);
            }
        }
    }
    // The shared code of the system tests is theirs, but for what measures.
    let shared = root().join("tests/src").canonicalize().unwrap();
    let measures = |file: &PathBuf| ["bench", "bin"].iter().any(|part| file.starts_with(shared.join(part)));
    let of_shared: Vec<PathBuf> = others.iter().filter(|file| file.starts_with(&shared)).cloned().collect();
    others.retain(|file| !file.starts_with(&shared));
    of_tests.extend(of_shared.into_iter().filter(|file| !measures(file)));
    // What has its own limits: the fuzzers. And this file, which names what it looks for.
    let own = root().join("tests/house").join("tests/host_speed.rs");
    of_tests.retain(|file| !file.starts_with(root().join("tests/fuzz")) && *file != own);
    let mut all = BTreeMap::new();
    scripts(&root().join("tests"), &mut all);
    for file in others {
        let (found, modules) = find_in(&std::fs::read_to_string(&file).unwrap(), false);
        let mut open: Vec<PathBuf> = modules.iter().filter_map(|module| file_of(module, &file)).collect();
        while let Some(file) = open.pop() {
            let text = std::fs::read_to_string(&file).unwrap();
            open.extend(find_in(&text, true).1.iter().filter_map(|module| file_of(module, &file)));
            of_tests.insert(file.canonicalize().unwrap());
        }
        all.insert(file, found);
    }
    for file in of_tests {
        let found = find_in(&std::fs::read_to_string(&file).unwrap(), true).0;
        all.insert(file, found);
    }
    all
}

#[test]
fn no_test_waits_for_a_time_or_measures_it_but_where_it_is_listed() {
    let all = all();
    assert!(all.len() > 400, "only {} files looked at", all.len());
    let mut wrong = Vec::new();
    let mut needed = BTreeSet::new();
    for (file, found) in &all {
        let name = file.strip_prefix(root().canonicalize().unwrap()).unwrap().display().to_string();
        for (what, line) in found {
            let allowed = ALLOWED.iter().any(|(file, names, _)| *file == name && names.contains(&&**what));
            let of_guest = OF_GUESTS.contains(&&**what) && GUESTS.contains(&&*name);
            if allowed || of_guest {
                needed.insert((name.clone(), what.clone()));
            } else {
                wrong.push(format!("{name}:{line}: {what}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "these depend on the host's speed; wait for what lasts, or count what is done:\n{}",
        wrong.join("\n")
    );
    let listed = ALLOWED.iter().flat_map(|(file, names, _)| names.iter().map(move |name| (*file, *name)));
    let listed = listed.chain(GUESTS.map(|file| (file, "sleep of a shell")));
    let idle: Vec<_> =
        listed.filter(|(file, what)| !needed.contains(&((*file).into(), (*what).into()))).collect();
    assert!(idle.is_empty(), "these are listed and are not there any more: {idle:?}");
    assert!(ALLOWED.iter().all(|(.., why)| why.contains(' ')), "each has its reason");
}

#[test]
fn what_depends_on_the_hosts_speed_is_found_in_tests_and_nowhere_else() {
    let found = |text: &str, is_test| -> Vec<String> {
        find_in(text, is_test).0.into_iter().map(|(what, _)| what).collect()
    };
    for (text, what) in [
        ("fn t() { std::thread::sleep(Duration::from_millis(1)); }", "sleep"),
        ("fn t() { let from = std::time::Instant::now(); }", "Instant"),
        ("fn t() { assert!(from.elapsed() < LIMIT, \"slow\"); }", "elapsed"),
        ("fn t() { assert!(hears.recv_timeout(SOON).is_err()); }", "recv_timeout"),
        ("fn t() { let line = format!(\"run & sleep {n}; kill $!\"); }", "sleep of a shell"),
        ("fn t() { sh(r\"sleep 0.5; echo\"); }", "sleep of a shell"),
        ("fn t() { Command::new(\"timeout\"); }", "timeout"),
        ("fn t() { Command::new(\"sleep\").arg(\"1\"); }", "sleep"),
        ("fn t() { let start = cpu_seconds(); }", "cpu_seconds"),
        ("fn t() { thread::sleep_ms(1); }", "sleep_ms"),
        ("fn t() { thread::sleep_until(then); }", "sleep_until"),
        ("fn t() { thread::park_timeout_ms(1); }", "park_timeout_ms"),
        ("fn t() { let f = std::thread::sleep; }", "sleep"),
        ("fn t() { (std::thread::sleep)(d); }", "sleep"),
        ("fn t() { sleep::<>(d); }", "sleep"),
        ("fn t() { use std::thread::sleep as nap; nap(d); }", "sleep"),
        ("fn t() { use std::time::Instant as I; I::now(); }", "Instant"),
        ("fn t() { one.wait_timeout_while(guard, d, f); }", "wait_timeout_while"),
        ("fn t() { tokio::time::timeout(d, f); }", "timeout"),
        ("fn t() { tokio::time::interval(d); }", "time::interval"),
        ("fn t() { select.select_timeout(d); }", "select_timeout"),
        ("fn t() { hears.recv_deadline(then); }", "recv_deadline"),
        ("fn t() { channel::after(d); }", "channel::after"),
        ("fn t() { stream.set_write_timeout(d); }", "set_write_timeout"),
        ("fn t() { TcpStream::connect_timeout(at, d); }", "connect_timeout"),
        ("fn t() { libc::poll(at, 1, 5); }", "libc::poll"),
        ("fn t() { libc::usleep(5); }", "usleep"),
        ("fn t() { libc::alarm(5); }", "alarm"),
        ("fn t() { libc::nanosleep(at, to); }", "nanosleep"),
        ("fn t() { _rdtsc(); }", "_rdtsc"),
        ("fn t() { Command::new(\"/bin/sleep\"); }", "sleep"),
        ("fn t() { sh(\"timeout 5 x\"); }", "timeout"),
        ("fn t() { sh(\"sleep  5\"); }", "sleep of a shell"),
        ("fn t() { sh(\"x; sleep\\t5\"); }", "sleep of a shell"),
        ("fn t() { sh(r#\"sleep \"$n\"\"#); }", "sleep of a shell"),
        ("fn t() { sh(\"read -t 1\"); }", "read -t"),
        ("fn t() { sh(\"date +%s\"); }", "date"),
        ("fn t() { python(\"time.sleep(1)\"); }", "time of Python"),
        ("fn t() { read(\"/proc/uptime\"); }", "clock"),
    ] {
        assert_eq!(found(text, true), [what], "{text}");
        let (program, test) = (format!("{text} "), format!("#[test] {text}"));
        assert!(found(&program, false).is_empty(), "{program}");
        assert_eq!(
            found(&format!("fn f() {{ sleep(1) }} {test} fn g() {{ sleep(1) }}"), false),
            [what],
            "{test}"
        );
        let module = format!("fn f() {{ sleep(1) }} #[cfg(test)] mod tests {{ use super::*; {test} }}");
        assert_eq!(found(&module, false), [what], "{module}");
    }
    for text in [
        "fn t() { halt_sleeps_until(1); let sleeping = 1; self.instant; channel.after(1); }",
        "fn t() { event(Type::At, now); parameters(\"sleep\"); }",
        "fn t() { assert!(b(\"sleep\\n\") && b(\"do_sleep 1\")); }",
    ] {
        assert!(found(text, true).is_empty(), "{text}: {:?}", found(text, true));
    }
    assert_eq!(find_in("#[cfg(test)] mod one; mod two; #[cfg(test)] mod three {}", false).1, ["one"]);
}

#[test]
fn scripts_and_the_commands_of_documents_are_looked_at() {
    let found = |text: &str, is_document| -> Found { find_in_text(text, is_document) };
    assert_eq!(found("#!/bin/sh\n sleep 3\n", false), [("sleep of a shell".into(), 2)]);
    assert_eq!(found("import time\ntime.sleep(3)\n", false), [("time of Python".into(), 2)]);
    assert_eq!(found("sleep 3\n$ sleep 3\n", true), [("sleep of a shell".into(), 2)]);
    assert!(found("a sleep of 3 seconds, up to date + more; time.strftime\n", false).is_empty());
    let mut all = BTreeMap::new();
    scripts(&root().join("tests"), &mut all);
    let ends = |end: &str| all.keys().any(|file| file.ends_with(end));
    assert!(ends("tests/field/tlb-bound/memory") && ends("decode_records.py") && ends("rpn-plp/README.md"));
}
