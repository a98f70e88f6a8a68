//! The documents are correct: their commands run and print the shown output, their probe programs compile, and their
//! links lead to existing files.
//!
//! A block ```` ```console runnable ```` holds commands after `$
//! ` and, if shown, their output, standard error included. `...` matches any lines, or within a line any text. `make` is not run: its target must exist.
//! Blocks `console hour` and `text keys` are run by `first_hour`. A block ```` ```rpn ````
//! is a probe program, or instructions of one.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::cli::{finish, patient, programs};
use trapline_rpn::{AnySymbol, Program, TABLE, Width, parse};
use trapline_tests::built::fuzzer;
use trapline_tests::root;

/// A fenced block of a document.
pub struct Block {
    document: String,
    line: usize,
    info: String,
    lines: Vec<String>,
}

/// All files under a folder, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// The documents, by their path in the repository.
fn documents() -> Vec<(String, String)> {
    let root = root();
    let mut paths = vec![root.join("README.md")];
    paths.extend(
        files(&root.join("docs")).into_iter().filter(|path| path.extension().is_some_and(|e| e == "md")),
    );
    let name = |path: &Path| path.strip_prefix(&root).unwrap().display().to_string();
    paths.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

fn blocks() -> Vec<Block> {
    documents().iter().flat_map(|(document, text)| blocks_of(document, text)).collect()
}

/// The fenced blocks of a text; `document` is its name in messages.
pub fn blocks_of(document: &str, text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (line, content) in text.lines().enumerate() {
        match (content.strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => found.push(block),
            (Some(info), None) => {
                let (document, info) = (document.to_owned(), info.to_owned());
                open = Some(Block { document, line: line + 1, info, lines: Vec::new() });
            }
            (None, Some(mut block)) => {
                block.lines.push(content.to_owned());
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{document}: a block is not closed");
    found
}

/// A command and the output that the document shows.
pub struct Shown {
    pub place: String,
    pub command: String,
    pub output: Vec<String>,
}

/// The blocks `console` of a document that also have this word.
pub fn console(document: &str, word: &str) -> Vec<Block> {
    let info = format!("console {word}");
    blocks().into_iter().filter(|block| block.document == document && block.info == info).collect()
}

/// Commands, each with keys and what the first line of the screen then ends with: the blocks `text keys` of a document.
pub fn keys(document: &str) -> Vec<(String, Vec<(String, String)>)> {
    let all = blocks().into_iter().filter(|block| block.document == document && block.info == "text keys");
    let row = |line: &String| {
        let (key, shown) = line.split_once(' ').unwrap_or((line, ""));
        (key.to_owned(), shown.trim().to_owned())
    };
    let with_command = |block: Block| {
        let (command, keys) = block.lines.split_first().unwrap();
        (command.strip_prefix("$ ").unwrap().to_owned(), keys.iter().map(row).collect())
    };
    all.map(with_command).collect()
}

pub fn commands(block: &Block) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    for (n, line) in block.lines.iter().enumerate() {
        let place = format!("{}:{}", block.document, block.line + n + 1);
        if let Some(command) = line.strip_prefix("$ ") {
            found.push(Shown { place, command: command.to_owned(), output: Vec::new() });
            continue;
        }
        let last = found.last_mut().unwrap_or_else(|| panic!("{place}: output without a command"));
        match line.strip_prefix("> ") {
            Some(more) if last.output.is_empty() => last.command.push_str(&format!("\n{more}")),
            _ => last.output.push(line.clone()),
        }
    }
    found
}

/// Whether `text` is `pattern` with any text for each `...`.
fn line_matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once("...") {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let mut ends = (0..=rest.len()).filter(|&at| rest.is_char_boundary(at));
            ends.any(|at| line_matches(after, &rest[at..]))
        }),
    }
}

/// Whether `lines` are `patterns` with any lines for each `...`.
pub fn matches(patterns: &[String], lines: &[&str]) -> bool {
    match (patterns.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((p, rest)), _) if p.trim() == "..." => (0..=lines.len()).any(|n| matches(rest, &lines[n..])),
        (Some((p, rest)), Some((line, more))) => line_matches(p, line) && matches(rest, more),
        _ => false,
    }
}

/// The targets of the Makefile.
fn targets() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let rules = text.lines().filter(|line| !line.starts_with(['\t', '#', '.', ' ']) && !line.contains(":="));
    rules.filter_map(|line| line.split_once(':')).map(|(target, _)| target.to_owned()).collect()
}

fn run(shown: &Shown) -> i32 {
    if let Some(target) = shown.command.strip_prefix("make ") {
        let target = target.split(' ').next().unwrap();
        assert!(targets().contains(target), "{}: make has no target {target}", shown.place);
        return 0;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let folder = programs();
    let mut bash = patient("bash");
    bash.args(["-o", "pipefail", "-c", &format!("exec 2>&1\n{}", shown.command)]);
    bash.current_dir(root()).env("PATH", format!("{folder}:{path}"));
    let ran = finish(bash);
    let lines: Vec<&str> = ran.out.lines().collect();
    let right = shown.output.is_empty() || matches(&shown.output, &lines);
    assert!(right, "{}: `{}` printed\n{}", shown.place, shown.command, ran.out);
    ran.code
}

impl Block {
    /// Whether its commands are run.
    pub fn is_runnable(&self) -> bool {
        let mut words = self.info.split(' ');
        matches!(words.next(), Some("console" | "sh")) && words.any(|word| word == "runnable")
    }

    /// Whether its first line is a command.
    pub fn begins_with_a_command(&self) -> bool {
        self.lines.first().is_some_and(|line| line.starts_with("$ "))
    }

    /// Whether its commands use a guest that `make guests` fetches.
    fn needs_guests(&self) -> bool {
        self.lines.iter().any(|line| line.starts_with("$ ") && line.contains(".guests/"))
    }

    /// Runs its commands, and compares what they print and end with; how many there are.
    fn run(&self) -> usize {
        let mut last = 0;
        let all = commands(self);
        for (n, shown) in all.iter().enumerate() {
            if shown.command == "echo $?" {
                assert_eq!(shown.output, [last.to_string()], "{}", shown.place);
                continue;
            }
            last = run(shown);
            let asked = all.get(n + 1).is_some_and(|next| next.command == "echo $?");
            assert!(asked || last == 0, "{}: `{}` ended with {last}", shown.place, shown.command);
        }
        all.len()
    }
}

/// Runs the marked blocks, those that need a fetched guest or the others.
fn run_blocks(fetched: bool) -> usize {
    let mut count = 0;
    for block in blocks().iter().filter(|block| block.is_runnable() && block.needs_guests() == fetched) {
        let fuzzes = block.lines.iter().any(|line| line.contains("trapline") && line.contains(" fuzz "));
        // Only `make test` builds the fuzzer.
        if !fuzzes || fuzzer().is_some() {
            count += block.run();
        }
    }
    count
}

#[test]
fn commands_do_what_the_documents_show() {
    assert!(run_blocks(false) >= 10);
}

#[test]
fn guest_commands_do_what_the_documents_show() {
    assert!(run_blocks(true) >= 1);
}

/// A block as a program. A block that is not a whole program is the body of a handler.
fn program(block: &Block) -> Program {
    let text = block.lines.join("\n");
    let whole = block.lines.iter().any(|line| line.trim_start().starts_with("name"));
    let text = if whole {
        text
    } else {
        format!(
            "name = vmlinux\nmodtype = kernel\nmajor = 1\nvars = 8\ngvars = 8\noffset = do_fork\nopcode = 0x55\n\
             minor = 1\n{text}\n"
        )
    };
    let place = format!("{}:{}", block.document, block.line);
    parse(&place, &text).unwrap_or_else(|error| panic!("{place}:\n{error}"))
}

#[test]
fn every_probe_program_compiles() {
    let all: Vec<Block> = blocks().into_iter().filter(|block| block.info == "rpn").collect();
    assert!(all.len() >= 15, "{}", all.len());
    for block in &all {
        let program = program(block);
        let narrow = program.link(Width::W32, &AnySymbol);
        let wide = program.link(Width::W64, &AnySymbol);
        assert!(narrow.is_ok() || wide.is_ok(), "{}:{}: {:?}", block.document, block.line, narrow.err());
        let shown = program.warnings.to_string();
        assert!(program.warnings.list.is_empty(), "{}:{}:\n{shown}", block.document, block.line);
    }
}

#[test]
fn the_language_page_has_an_example_of_every_instruction_that_is_executed() {
    let mut shown: BTreeSet<String> = BTreeSet::new();
    for block in blocks().iter().filter(|block| block.info == "rpn") {
        for line in &block.lines {
            let code = line.split("//").next().unwrap();
            let words: Vec<&str> = code.split([' ', ',', '\t']).filter(|word| !word.is_empty()).collect();
            shown.extend((1..=words.len()).map(|n| words[..n].join(" ")));
        }
    }
    for row in TABLE {
        let fixed: Vec<&str> = row.form.split([' ', ',']).filter(|w| !w.is_empty() && *w != "%").collect();
        assert!(shown.contains(&fixed.join(" ")), "`{}` has no example", row.form);
    }
}

#[test]
fn the_readme_or_the_book_leads_to_every_document() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    assert!(readme.contains("(docs/SUMMARY.md)"));
    for path in files(&root().join("docs")) {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let below = name.strip_prefix("docs/").unwrap();
        let of_the_book = matches!(below, "SUMMARY.md" | "book/book.toml");
        let linked = readme.contains(&format!("({name})")) || summary.contains(&format!("({below})"));
        assert!(linked || of_the_book, "neither README.md nor docs/SUMMARY.md has a link to {name}");
        if below.ends_with(".md") && !of_the_book {
            assert!(summary.contains(&format!("({below})")), "docs/SUMMARY.md has no link to {name}");
        }
    }
}

#[test]
fn links_lead_to_files() {
    for (document, text) in documents() {
        let folder = root().join(&document).parent().unwrap().to_path_buf();
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let path = link.split('#').next().unwrap();
            if !link.contains("://") && !path.is_empty() {
                assert!(folder.join(path).exists(), "{document}: {link} leads nowhere");
            }
        }
    }
}
