//! examples/questions: the README.md of each folder has a question, commands (in a block `sh`) and the output that they give (in a
//! block `text`), in which `...` stands for any lines, or within a line for any text.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{finish, patient, programs};
use crate::docs::matches;
use trapline_tests::root;

#[test]
fn each_example_answers_its_question() {
    let mut folders: Vec<_> = std::fs::read_dir(root().join("examples/questions"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.sort();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", programs());
    let mut run = 0;
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        assert!(readme.lines().next().unwrap().ends_with('?'), "{name}: README.md begins with a question");
        let block = |kind: &str| {
            let (_, rest) = readme.split_once(&format!("\n```{kind}\n")).unwrap();
            &rest[..=rest.find("\n```\n").unwrap()]
        };
        let mut bash = patient("bash");
        let text =
            format!("exec 2>&1\ntemporary=$(mktemp -d)\ntrap 'rm -rf $temporary' EXIT\n{}", block("sh"));
        bash.args(["-e", "-o", "pipefail", "-c", &text]).current_dir(folder).env("PATH", &path);
        let ran = finish(bash);
        let expected: Vec<String> = block("text").lines().map(str::to_owned).collect();
        let lines: Vec<&str> = ran.out.lines().collect();
        assert!(
            ran.code == 0 && matches(&expected, &lines),
            "{name} ended with {} and printed\n{}",
            ran.code,
            ran.out
        );
        run += 1;
    }
    assert!(run >= 38, "{run}");
}
