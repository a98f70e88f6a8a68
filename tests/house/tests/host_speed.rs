//! No test depends on the host's speed: none sleeps, reads a clock, or gives up after a time, but in the places that are
//! listed here. A test waits for what lasts (`emu/tests/common/patience.rs`), and bounds counts of what is done.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use trapline_house::{members, root};

use crate::test_files::sources;

/// Methods and functions that wait for a time or measure it.
const CALLS: [&str; 9] = [
    "sleep",
    "elapsed",
    "recv_timeout",
    "wait_timeout",
    "park_timeout",
    "set_read_timeout",
    "cpu_seconds",
    "clock_gettime",
    "duration_since",
];
/// Types with a function `now`.
const CLOCKS: [&str; 2] = ["Instant", "SystemTime"];

/// What may be where, and why.
const ALLOWED: [(&str, &[&str], &str); 12] = [
    ("emu/tests/common/patience.rs", &["sleep"], "pauses between two looks at what lasts"),
    ("tests/src/turns.rs", &["sleep"], "pauses between two looks at who has a turn"),
    ("tests/src/lib.rs", &["cpu_seconds", "clock_gettime"], "the clock of the benchmarks"),
    ("tests/tests/cli/mod.rs", &["timeout"], "kills what hangs, after the time of patience.rs"),
    ("tests/tests/terminal.rs", &["recv_timeout"], "gives up after the time of patience.rs"),
    ("ui/tui/src/tests.rs", &["recv_timeout", "Instant::now"], "as above; an event tells when it was read"),
    ("ui/tui/src/tests/panics.rs", &["recv_timeout"], "gives up after the time of patience.rs"),
    ("ui/tui/src/tests/millions.rs", &["schedstat"], "prints how long it took"),
    (
        "ui/tui/src/hits/sorted.rs",
        &["Instant::now", "elapsed"],
        "prints how long it took; nothing else runs it",
    ),
    ("tests/tests/interactive.rs", &["Instant::now", "elapsed"], "the least time of an idle guest, no most"),
    ("tests/tests/guest_linux_stacks.rs", &["cpu_seconds"], "compares two times of one thread"),
    ("rpn-vm/tests/mutation.rs", &["clock_gettime"], "compares two times of one thread"),
];

/// Tests whose guest has a shell that sleeps: in virtual time, which is the same on every host.
const GUESTS: [&str; 9] = [
    "tests/tests/gdb_linux.rs",
    "tests/tests/guest_linux_dti.rs",
    "tests/tests/guest_linux_dumps.rs",
    "tests/tests/guest_linux_listing.rs",
    "tests/tests/guest_linux_module_probes.rs",
    "tests/tests/guest_linux_probes.rs",
    "tests/tests/guest_linux_static.rs",
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
                let is_called = matches!(next, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
                let ahead: String = tokens[n + 1..].iter().take(3).map(ToString::to_string).collect();
                let program = (name == "Command" && ahead == "::new").then(|| tokens.get(n + 4));
                let program = program.flatten().map(ToString::to_string).unwrap_or_default();
                if let Some(word) =
                    ["sleep", "timeout"].iter().find(|word| program == format!("(\"{word}\")"))
                {
                    found.push(((*word).to_owned(), line));
                } else if CALLS.contains(&&*name) && is_called {
                    found.push((name, line));
                } else if CLOCKS.contains(&&*name) && ahead == "::now" {
                    found.push((format!("{name}::now"), line));
                } else if name == "mod" && matches!(tokens.get(n + 2), Some(TokenTree::Punct(_))) {
                    modules.extend(next.map(ToString::to_string));
                }
            }
            TokenTree::Literal(literal) if counts => {
                let line = literal.span().start().line;
                found.extend(words(&literal.to_string()).map(|word| (word.to_owned(), line)));
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

/// Commands of a shell that take a time, and the clock of a thread, in the text of a program.
fn words(literal: &str) -> impl Iterator<Item = &'static str> {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let sleeps = literal.match_indices("sleep ").any(|(at, word)| {
        let (before, rest) = (&literal[..at], &literal[at + word.len()..]);
        let before = &before[before.trim_end_matches(is_of_word).len()..];
        (matches!(before, "" | "u") || literal[..at].ends_with("\\n"))
            && rest.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '{' | '$'))
    });
    let clock = literal.contains("/schedstat");
    let timeout = literal.contains("timeout -");
    [(sleeps, "sleep of a shell"), (timeout, "timeout"), (clock, "schedstat")]
        .into_iter()
        .filter_map(|(is_there, word)| is_there.then_some(word))
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
            let of_guest = what == "sleep of a shell" && GUESTS.contains(&&*name);
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
        ("fn t() { let from = std::time::Instant::now(); }", "Instant::now"),
        ("fn t() { assert!(from.elapsed() < LIMIT, \"slow\"); }", "elapsed"),
        ("fn t() { assert!(hears.recv_timeout(SOON).is_err()); }", "recv_timeout"),
        ("fn t() { let line = format!(\"run & sleep {n}; kill $!\"); }", "sleep of a shell"),
        ("fn t() { sh(r\"sleep 0.5; echo\"); }", "sleep of a shell"),
        ("fn t() { Command::new(\"timeout\"); }", "timeout"),
        ("fn t() { Command::new(\"sleep\").arg(\"1\"); }", "sleep"),
        ("fn t() { let start = cpu_seconds(); }", "cpu_seconds"),
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
        "fn t() { halt_sleeps_until(1); let sleep = 1; self.sleep; }",
        "fn t() { event(Type::Instant, now); parameters(\"sleep\"); }",
        "fn t() { assert!(b(\"sleep\\n\") && b(\"do_sleep 1\")); }",
    ] {
        assert!(found(text, true).is_empty(), "{text}: {:?}", found(text, true));
    }
    assert_eq!(find_in("#[cfg(test)] mod one; mod two; #[cfg(test)] mod three {}", false).1, ["one"]);
}
