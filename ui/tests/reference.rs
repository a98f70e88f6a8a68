//! `trapline reference`: the pages of docs/book/reference are what it prints.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

#[test]
fn the_pages_of_the_book_are_what_the_tables_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/book/reference");
    for topic in ["rpn", "d", "options", "exit-codes", "errors", "keys"] {
        let ran = Command::new(env!("CARGO_BIN_EXE_trapline")).args(["reference", topic]).output().unwrap();
        assert_eq!(ran.status.code(), Some(0), "{topic}");
        let page = String::from_utf8(ran.stdout).unwrap();
        let file = format!("docs/book/reference/{topic}.md");
        let kept = std::fs::read_to_string(folder.join(format!("{topic}.md"))).unwrap_or_default();
        assert!(page == kept, "{file} is out of date; run: trapline reference {topic} > {file}");
    }
}
