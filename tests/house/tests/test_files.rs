//! Every test file is compiled: with one binary per crate, a file without its `mod` line would never run.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use trapline_house::{Crate, members, root};

/// Adds every Rust file below a folder.
pub fn sources(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.insert(path.canonicalize().unwrap());
        }
    }
}

#[test]
fn every_file_of_a_tests_folder_is_a_module_of_its_binary() {
    let mut checked = 0;
    for folder in members().iter().map(|member| root().join(member)) {
        let binary = folder.join("tests/main.rs");
        if !binary.is_file() {
            continue;
        }
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert!(manifest.contains("autotests = false"), "{}: a second binary", folder.display());
        let made = Crate::read(&binary).unwrap_or_else(|error| panic!("{error}"));
        let compiled: BTreeSet<PathBuf> =
            made.files().iter().map(|file| file.canonicalize().unwrap()).collect();
        let mut there = BTreeSet::new();
        sources(&folder.join("tests"), &mut there);
        let left: Vec<_> = there.difference(&compiled).collect();
        assert!(left.is_empty(), "not in the tree of {}: {left:#?}", binary.display());
        checked += there.len();
    }
    assert!(checked > 80, "only {checked} files looked at");
}
