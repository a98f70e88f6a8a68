//! Every test of the workspace asserts something, itself or through a function that it calls.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use trapline_house::tests::{Test, tests};
use trapline_house::{members, root};

use crate::test_files::sources;

/// Every test of every crate. Functions are looked up by name within a crate's `src` and `tests` and the shared helpers.
pub fn all_tests() -> Vec<Test> {
    let mut all = Vec::new();
    for member in members() {
        let mut files: BTreeSet<PathBuf> = BTreeSet::new();
        for folder in ["src", "tests"].map(|folder| root().join(&member).join(folder)) {
            if folder.is_dir() {
                sources(&folder, &mut files);
            }
        }
        let inner = |file: &PathBuf| {
            members().iter().any(|other| other.len() > member.len() && file.starts_with(root().join(other)))
        };
        files.retain(|file| !inner(file));
        let own: BTreeSet<PathBuf> = files.clone();
        sources(&root().join("emu/tests/common"), &mut files);
        let found = tests(&files).unwrap_or_else(|error| panic!("{error}"));
        all.extend(found.into_iter().filter(|test| own.contains(&test.file)));
    }
    all
}

#[test]
fn every_test_reaches_an_assertion() {
    let tests = all_tests();
    assert!(tests.len() > 800, "{}", tests.len());
    let idle: Vec<String> = tests
        .iter()
        .filter(|test| !test.asserts)
        .map(|test| format!("{}: {}", test.file.display(), test.name))
        .collect();
    assert!(idle.is_empty(), "these tests assert nothing:\n{}", idle.join("\n"));
}

fn sample(text: &str) -> Test {
    let folder = tempfile::tempdir().unwrap();
    let file: &Path = &folder.path().join("sample.rs");
    std::fs::write(file, text).unwrap();
    tests(&BTreeSet::from([file.to_path_buf()])).unwrap().remove(0)
}

#[test]
fn an_assertion_is_found_where_it_is_and_nowhere_else() {
    assert!(sample("#[test] fn t() { assert_eq!(1, 1); }").asserts);
    assert!(
        sample("#[test] fn t() { help() } fn help() { deeper() } fn deeper() { assert!(true); }").asserts
    );
    assert!(sample("#[test] fn t() { Help.check() } impl Help { fn check(&self) { panic!() } }").asserts);
    assert!(sample("#[test] #[should_panic] fn t() { f() }").asserts);
    assert!(sample("#[test] fn t() { fn shared<T: Send>() {} shared::<u8>() }").asserts);
    assert!(!sample("#[test] fn t() { f(); }").asserts);
    assert!(!sample("#[test] fn t() { let text = \"assert!(false)\"; }").asserts);
    assert!(!sample("#[test] fn t() { again() } fn again() { t() }").asserts);
    assert!(sample("#[test] #[ignore] fn t() { assert!(true) }").ignored);
}
