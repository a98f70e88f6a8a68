//! Cases from the field: faults that users found, as programs with the right answer.
//!
//! A case is a folder of `tests/field` with its files and a `README.md`: a title that says what is right, a paragraph
//! that begins with `How it is known: `, and blocks `console runnable` with commands and what they must print. In these,
//! `$CASE` is the folder, `$PARTS` the folder of what cases share, and `$OUT` an empty one.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::docs::{Block, blocks_of};
use trapline_tests::root;

/// The folder of what cases share.
const PARTS: &str = "parts";

/// Runs the cases that need a fetched guest, or the others; how many there are, and what went wrong with which.
fn run_cases(fetched: bool) -> (usize, Vec<String>) {
    let field = root().join("tests/field");
    let mut count = 0;
    let mut wrong = Vec::new();
    let mut folders: Vec<_> = std::fs::read_dir(&field).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    for case in folders.iter().filter(|folder| !folder.ends_with(PARTS)) {
        let readme = case.join("README.md");
        let name = readme.strip_prefix(root()).unwrap().display().to_string();
        let text = std::fs::read_to_string(&readme).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(text.starts_with("# "), "{name} has no title that says what is right");
        assert!(text.contains("\nHow it is known: "), "{name} does not say how the answer is known");
        let blocks: Vec<Block> = blocks_of(&name, &text).into_iter().filter(Block::is_runnable).collect();
        assert!(!blocks.is_empty(), "{name} runs nothing");
        if blocks.iter().any(Block::needs_guests) != fetched {
            continue;
        }
        count += 1;
        let out = tempfile::tempdir().unwrap();
        let parts = field.join(PARTS);
        let variables: [(&str, &Path); 3] = [("CASE", case), ("PARTS", &parts), ("OUT", out.path())];
        let run = || {
            for block in &blocks {
                block.run(&variables);
            }
        };
        if std::panic::catch_unwind(run).is_err() {
            wrong.push(name);
        }
    }
    (count, wrong)
}

#[test]
fn cases_from_the_field_get_their_right_answers() {
    let (count, wrong) = run_cases(false);
    assert!(count >= 1);
    assert!(wrong.is_empty(), "wrong, for the reasons above: {wrong:?}");
}

#[test]
fn guest_cases_from_the_field_get_their_right_answers() {
    let (_, wrong) = run_cases(true);
    assert!(wrong.is_empty(), "wrong, for the reasons above: {wrong:?}");
}
