//! Comments and documents refer only to existing files and headings of the repository.
//!
//! Checked are the names of Markdown, Rust, TOML, TSV, Python and shell files, wherever they occur, and every path that
//! begins with a folder of the repository. Names of C files and headers are not checked: they belong to guests and the
//! engine. A heading is checked where it is quoted after its document: docs/records.md, "Text".

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;
use trapline_house::root;

/// Endings of names that are checked without a folder.
const OURS: &[&str] = &["md", "rs", "toml", "tsv", "py", "sh"];

/// Folders that hold no text of ours: results, fetched guests, found inputs.
const SKIPPED: &[&str] = &["target", ".git", ".guests", "corpus", "snapshots"];

/// Names that documents use for files of the reader.
const EXAMPLES: &[&str] = &["/visit.py", "/.config/trapline/keys.toml"];

/// Paths of all files and folders, from the top.
fn everything(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if SKIPPED.contains(&name.as_str()) && name != "corpus" && name != "snapshots" {
            continue;
        }
        found.insert(path.strip_prefix(root()).unwrap().to_string_lossy().into_owned());
        if path.is_dir() && !path.is_symlink() && !SKIPPED.contains(&name.as_str()) {
            everything(&path, found);
        }
    }
}

/// The text of a line that may refer to files: a comment, or all of a document.
fn prose<'a>(path: &str, line: &'a str) -> Option<&'a str> {
    match Path::new(path).extension().and_then(|e| e.to_str()) {
        Some("md") => Some(line),
        Some("rs" | "c" | "h" | "S") => line.split_once("//").map(|(_, comment)| comment),
        Some("toml") => line.split_once('#').map(|(_, comment)| comment),
        None if path.starts_with("scripts/") || path == "Makefile" => {
            line.split_once('#').map(|(_, comment)| comment)
        }
        _ => None,
    }
}

/// Names and paths in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let part = |c: char| c.is_ascii_alphanumeric() || "_./+-".contains(c);
    text.split(move |c| !part(c)).map(|word| word.trim_end_matches('.')).filter(|word| !word.is_empty())
}

/// Whether a name used in the file `from` exists: from the top, from a folder above `from`, or as the end of a path.
fn is_there(name: &str, from: &str, all: &BTreeSet<String>) -> bool {
    let name = name.trim_end_matches('/');
    let plain = name.trim_start_matches("./").trim_start_matches("../");
    let above = Path::new(from).ancestors().skip(1);
    above.map(|folder| folder.join(plain)).any(|path| all.contains(path.to_str().unwrap()))
        || all.iter().any(|path| path.strip_suffix(plain).is_some_and(|rest| rest.ends_with('/')))
}

/// The names in a line that do not exist in the repository.
fn missing<'a>(from: &'a str, text: &'a str, all: &'a BTreeSet<String>) -> impl Iterator<Item = &'a str> {
    let tops: BTreeSet<&str> = all.iter().filter(|path| !path.contains('/')).map(String::as_str).collect();
    names(text).filter(move |name| {
        let path = Path::new(name);
        let ours = path.extension().and_then(|e| e.to_str()).is_some_and(|e| OURS.contains(&e))
            && path.file_stem().is_some_and(|stem| stem.to_str() != Some(""));
        let first = name.split('/').next().unwrap();
        let foreign = path.extension().is_none_or(|e| e == "c" || e == "h");
        let inside = name.contains('/') && tops.contains(first) && !foreign;
        (ours || inside) && !EXAMPLES.contains(name) && !is_there(name, from, all)
    })
}

fn all() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    everything(&root(), &mut all);
    assert!(all.len() > 300, "{}", all.len());
    all
}

/// Every file with its text, if it is text.
fn texts(all: &BTreeSet<String>) -> impl Iterator<Item = (&String, String)> {
    let files = all.iter().filter(|path| !path.starts_with("tests/house/tests/references"));
    files.filter_map(|path| std::fs::read_to_string(root().join(path)).ok().map(|text| (path, text)))
}

#[test]
fn comments_and_documents_refer_to_files_that_are_there() {
    let (all, mut wrong) = (all(), Vec::new());
    for (path, text) in texts(&all) {
        for (n, line) in text.lines().enumerate() {
            let Some(prose) = prose(path, line) else { continue };
            wrong.extend(missing(path, prose, &all).map(|name| format!("{path}:{}: {name}", n + 1)));
        }
    }
    assert!(wrong.is_empty(), "{} references lead nowhere:\n{}", wrong.len(), wrong.join("\n"));
}

/// The text with its comment marks and line breaks taken out, so that a reference may continue on the next line.
fn joined(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim().trim_start_matches(['/', '!', '#']).trim());
    lines.collect::<Vec<_>>().join(" ")
}

#[test]
fn headings_that_are_quoted_are_there() {
    let (all, mut wrong, mut checked) = (all(), Vec::new(), 0);
    for (path, text) in texts(&all) {
        if !path.ends_with(".rs") {
            continue;
        }
        for rest in joined(&text).split("docs/").skip(1) {
            let Some((document, rest)) = rest.split_once(".md, \"") else { continue };
            if document.contains(' ') {
                continue;
            }
            let heading = rest.split('"').next().unwrap();
            let document =
                std::fs::read_to_string(root().join(format!("docs/{document}.md"))).unwrap_or_default();
            let found = document
                .lines()
                .any(|line| line.starts_with('#') && line.trim_start_matches('#').trim() == heading);
            checked += 1;
            if !found {
                wrong.push(format!("{path}: {heading}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 10, "{checked}");
}

#[test]
fn a_reference_that_leads_nowhere_is_found() {
    let all =
        ["docs", "docs/records.md", "emu", "emu/src", "emu/src/lib.rs", "README.md", "tests", "tests/oracle"];
    let all = all.iter().map(ToString::to_string).collect();
    let wrong = |text: &'static str| missing("emu/src/lib.rs", text, &all).collect::<Vec<_>>();
    for good in
        ["see docs/records.md.", "`lib.rs`", "[x](../README.md)", "kernel/fork.c, sys/sdt.h", "e.g. a.b"]
    {
        assert!(wrong(good).is_empty(), "{good}");
    }
    assert_eq!(wrong("see rpn.md 4"), ["rpn.md"]);
    assert_eq!(wrong("`docs/other.md`"), ["docs/other.md"]);
    assert_eq!(wrong("tests/oracle/gone.txt"), ["tests/oracle/gone.txt"]);
    assert_eq!(wrong("in gone.rs."), ["gone.rs"]);
}
