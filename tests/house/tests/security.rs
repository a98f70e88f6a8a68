//! The tests that SECURITY.md names exist, and the fuzz targets too.

use std::collections::BTreeSet;
use trapline_house::root;

use crate::tests_can_fail::all_tests;

#[test]
fn security_md_names_tests_that_exist() {
    let text = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let mut known: BTreeSet<String> = all_tests().into_iter().map(|test| test.name).collect();
    let targets = std::fs::read_dir(root().join("tests/fuzz/corpus")).unwrap();
    known.extend(
        targets.map(|archive| archive.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()),
    );
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let named: Vec<&str> = rows
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    assert!(named.len() > 20, "{named:?}");
    for name in named {
        assert!(known.contains(name), "SECURITY.md names `{name}`, which is no test");
    }
}
