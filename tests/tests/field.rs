//! Cases from the field: faults that users found, as programs with the right answer.
//!
//! A case is a folder of `tests/field` with its files and a `README.md`: a title that says what is right, a paragraph
//! that begins with `How it is known: `, and blocks `console runnable` with commands and what they must print; what is
//! shown without output prints nothing. In these, `$CASE` is a copy of the folder, `$PARTS` one of what cases share, and
//! `$OUT` an empty folder, in which they run.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};

use crate::cli::{finish, patient, programs};
use crate::docs::{Block, Shown, blocks_of, commands, matches};
use trapline_tests::root;

/// The folder of what cases share.
const PARTS: &str = "parts";

/// What the cases have shown.
#[derive(Default)]
struct Outcome {
    cases: usize,
    /// What is wrong, with its case or line.
    wrong: Vec<String>,
}

/// Runs the cases.
fn run_cases(field: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    let mut folders: Vec<_> = std::fs::read_dir(field).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    for case in folders.iter().filter(|folder| !folder.ends_with(PARTS)) {
        let name = format!("{}/README.md", case.file_name().unwrap().display());
        let text = std::fs::read_to_string(case.join("README.md")).unwrap_or_default();
        outcome.cases += 1;
        outcome.wrong.extend(run_case(field, case, &name, &text));
    }
    outcome
}

/// What is wrong with a case.
fn run_case(field: &Path, case: &Path, name: &str, text: &str) -> Vec<String> {
    let follows = |begin: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(begin));
        lines.any(|rest| !rest.trim().is_empty())
    };
    let mut wrong = Vec::new();
    let mut needs = |is_there: bool, what: &str| {
        if !is_there {
            wrong.push(format!("{name}: {what}"));
        }
    };
    needs(text.starts_with("# ") && follows("# "), "no title that says what is right");
    needs(follows("How it is known: "), "does not say how the answer is known");
    needs(!text.contains(".guests"), "needs a fetched guest, and no test runs such cases");
    let is_closed = text.lines().filter(|line| line.starts_with("```")).count() % 2 == 0;
    needs(is_closed, "a block is not closed");
    let blocks = if is_closed { blocks_of(name, text) } else { Vec::new() };
    let blocks: Vec<Block> = blocks.into_iter().filter(Block::is_runnable).collect();
    needs(!blocks.is_empty(), "runs nothing");
    let begin = blocks.iter().all(Block::begins_with_a_command);
    needs(begin, "a block `console runnable` does not begin with a command");
    if begin {
        let room = tempfile::tempdir().unwrap();
        let folders = ["case", PARTS, "out"].map(|folder| room.path().join(folder));
        copy(case, &folders[0]);
        copy(&field.join(PARTS), &folders[1]);
        std::fs::create_dir(&folders[2]).unwrap();
        blocks.iter().for_each(|block| wrong.extend(run(&commands(block), &folders)));
    }
    wrong
}

/// Copies a folder, if it is there.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for path in std::fs::read_dir(from).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(&path, to).unwrap();
        }
    }
}

/// Runs commands, and says what is wrong with them.
fn run(all: &[Shown], [case, parts, out]: &[PathBuf; 3]) -> Vec<String> {
    let path = format!("{}:{}", programs(), std::env::var("PATH").unwrap_or_default());
    let mut wrong = Vec::new();
    let mut last = 0;
    for (n, shown) in all.iter().enumerate() {
        let Shown { place, command, output } = shown;
        if command == "echo $?" {
            if *output != [last.to_string()] {
                wrong.push(format!("{place}: the exit code is {last}, and {output:?} is shown"));
            }
            continue;
        }
        let mut bash = patient("bash");
        bash.args(["-euo", "pipefail", "-c", &format!("exec 2>&1\n{command}")]).current_dir(out);
        bash.env("PATH", &path).env("CASE", case).env("PARTS", parts).env("OUT", out);
        let ran = finish(bash);
        last = ran.code;
        let asked = all.get(n + 1).is_some_and(|next| next.command == "echo $?");
        let mut why: Vec<_> = difference(output, &ran.out).into_iter().collect();
        if !asked && last != 0 {
            why.insert(0, format!("ended with {last}"));
        }
        if !why.is_empty() {
            wrong.push(format!("{place}: `{command}` {}", why.join(", and ")));
        }
    }
    wrong
}

/// How what was printed differs from what is shown.
fn difference(shown: &[String], printed: &str) -> Option<String> {
    let lines: Vec<&str> = printed.lines().collect();
    if matches(shown, &lines) {
        return None;
    }
    let fits = |n: &usize| matches(&[&shown[..*n], &["...".to_owned()]].concat(), &lines);
    let at = (0..=shown.len()).rev().find(fits).unwrap_or_default();
    let differs = if let Some(missing) = shown.get(at) {
        format!("first missing line ({}): {missing}", at + 1)
    } else {
        let enough = (0..lines.len()).find(|n| matches(shown, &lines[..*n])).unwrap_or_default();
        format!("line {} is too many: {}", enough + 1, lines[enough])
    };
    Some(format!("must print\n{}\nand printed\n{printed}\n{differs}", shown.join("\n")))
}

#[test]
fn cases_from_the_field_get_their_right_answers() {
    let Outcome { cases, wrong } = run_cases(&root().join("tests/field"));
    assert!(cases >= 1);
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_case_that_proves_nothing_or_is_wrong_is_named_and_the_others_run() {
    let right =
        "# It is so\n\nHow it is known: it is.\n\n```console runnable\n$ echo a; echo b\na\n...\n```\n";
    let with = |block: &str| right.replace("$ echo a; echo b\na\n...", block);
    let planted = [
        ("right", right.to_owned(), ""),
        ("fails", with("$ false\n$ echo $?\n1"), ""),
        ("copy", with("$ echo a > $CASE/README.md; touch $PARTS/x\n$ cat $CASE/README.md\na"), ""),
        ("here", with("$ echo a > b\n$ cat $OUT/b\na\n$ test -e $OUT/Cargo.toml\n$ echo $?\n1"), ""),
        ("differs", with("$ printf 'a\\nb\\nc\\n'\na\nx\nc"), "first missing line (2): x"),
        ("longer", with("$ echo a; echo b\na"), "line 2 is too many: b"),
        ("more", with("$ printf 'a\\nb\\nc\\nd\\n'\na\n...\nc"), "line 4 is too many: d"),
        ("unseen", with("$ echo a"), "line 1 is too many: a"),
        ("both", with("$ echo a; false"), "ended with 1, and must print"),
        ("make", with("$ make lint-nothing\n$ echo $?\n2"), "must print"),
        ("variable", with("$ cat \"$CAES\" > /dev/null\n..."), "ended with 1"),
        ("code", with("$ false\n$ echo $?\n0"), "the exit code is 1"),
        ("early", with("$ false; true"), "ended with 1"),
        ("pipe", with("$ false | cat"), "ended with 1"),
        ("empty", with(""), "does not begin with a command"),
        ("nothing", right.replace("console runnable", "console"), "runs nothing"),
        ("open", right.trim_end().trim_end_matches('`').to_owned(), "a block is not closed"),
        ("untitled", right.replace("# It is so", "# "), "no title"),
        ("unknown", right.replace("known: it is.", "known: "), "how the answer is known"),
        ("guest", format!("{right}Needs `.guests/linux-686`.\n"), "needs a fetched guest"),
    ];
    let field = tempfile::tempdir().unwrap();
    std::fs::create_dir(field.path().join("without")).unwrap();
    std::fs::create_dir(field.path().join(PARTS)).unwrap();
    for (name, text, _) in &planted {
        std::fs::create_dir(field.path().join(name)).unwrap();
        std::fs::write(field.path().join(name).join("README.md"), text).unwrap();
    }
    let Outcome { cases, wrong } = run_cases(field.path());
    assert_eq!(cases, planted.len() + 1);
    for (name, _, because) in &planted {
        let of_case: Vec<_> = wrong.iter().filter(|one| one.starts_with(&format!("{name}/"))).collect();
        assert_eq!(of_case.is_empty(), because.is_empty(), "{name}: {of_case:?}");
        assert!(*name != "both" || of_case.len() == 1, "{of_case:?}");
        assert!(because.is_empty() || of_case.iter().any(|one| one.contains(because)), "{name}: {of_case:?}");
    }
    assert!(wrong.iter().any(|one| one.starts_with("without/")), "{wrong:?}");
    assert!(!field.path().join(PARTS).join("x").exists());
}
