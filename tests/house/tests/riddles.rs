//! Phrases that make a reader guess stay out of messages, comments, documents and expected output.
//!
//! Each phrase is listed with its replacement. A match counts anywhere, in upper or lower case.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use trapline_house::root;

/// A phrase, and what to write instead.
const RIDDLES: &[(&str, &str)] = &[
    ("would be right", "tell the user what to do: `use ..`, `write ..`, `it must be ..`"),
    ("what is none", "name the thing: `the refused entries`"),
    ("and is none", "name the thing: `the refused entries`"),
    ("whoever", "name who: the caller, the reader, the owner"),
    ("what there is", "name the thing: the files, the target, the devices"),
    ("what stands", "name the thing: the bytes there, the text before it"),
    ("stands behind", "`follows`, `comes after`"),
    ("in vain", "say what fails"),
    ("is of before", "`is stale`"),
    ("who has it", "name who: all processes that map it"),
    ("the guest's to see", "`visible to the guest`"),
    ("written over;", "`overwritten`"),
    ("is no ppdf", "`is not a PPDF file`"),
    ("thousand million", "`billion`"),
    ("nobody can tell", "say what is unknown"),
    ("nobody knows", "say what is unknown"),
    ("nobody asks", "name who would ask, or leave it out"),
    ("nobody listens", "`no probe is enabled`"),
    ("nobody notices", "say what is unaffected: the guest, its digest"),
    ("nobody else", "say who alone: `only the owner`"),
    ("nobody executes", "`is not executed`"),
    ("somebody", "name who, or use the passive: `when it is read`"),
    ("gone back to", "`restored`"),
    ("gone on from", "`restored`, `resumed`"),
    ("one behind the other", "`one after the other`"),
    ("at one go", "`at once`"),
    ("cannot be had", "`cannot be allocated`, `is not available`"),
    ("what it is of", "name the relation: `its role in the guest`"),
    ("what is known of", "name the thing: `the known files`"),
    ("what became of", "`the result of`, `the fate of`"),
    ("has come in", "`the input so far`"),
    ("been told of", "`was reported to`, `was announced to`"),
    ("one a line", "`one per line`"),
    ("a module a subject", "`one module per subject`"),
    ("as far as it goes", "`up to its end`"),
    ("of its like", "name the kind"),
];

/// Endings of the files that are read.
const READ: &[&str] = &["rs", "md", "snap", "rpn", "S", "c", "h", "sh", "toml"];

/// Folders that hold no text of ours, and this file.
const SKIPPED: &[&str] = &["target", ".git", ".guests", "corpus", "riddles.rs"];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if SKIPPED.contains(&path.file_name().unwrap().to_string_lossy().as_ref()) || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| READ.contains(&e.to_string_lossy().as_ref())) {
            found.push(path);
        }
    }
}

#[test]
fn messages_comments_and_documents_hold_no_riddles() {
    let mut all = Vec::new();
    files(&root(), &mut all);
    assert!(all.len() > 500, "{} files", all.len());
    let mut found = Vec::new();
    for path in all {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        for (at, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            for (phrase, instead) in RIDDLES.iter().filter(|(phrase, _)| line.contains(phrase)) {
                let name = path.strip_prefix(root()).unwrap().display();
                found.push(format!("{name}:{}: \"{phrase}\": {instead}", at + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
