//! `trapline man`: a page for the program and for each command, which says what the help says.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;

fn man(words: &[&str]) -> (Option<i32>, String, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_trapline")).arg("man").args(words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

/// The commands that a page lists.
fn commands(page: &str) -> Vec<String> {
    let listed = page.lines().filter_map(|line| line.strip_prefix("trapline\\-")?.strip_suffix("(1)"));
    listed.map(|name| name.replace("\\-", "-")).collect()
}

#[test]
fn every_command_has_a_page() {
    let (code, page, _) = man(&[]);
    assert_eq!(code, Some(0));
    assert!(page.contains(".TH TRAPLINE 1") && page.contains("Exit codes:"), "{page}");
    let names = commands(&page);
    assert!(names.len() > 12 && names.iter().any(|name| name == "tui"), "{names:?}");
    for name in names.iter().filter(|name| *name != "help") {
        let (code, page, err) = man(&[name]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{name}");
        let title = format!(".TH TRAPLINE-{} 1", name.to_uppercase());
        assert!(page.contains(&title) && page.contains(".SH SYNOPSIS"), "{title}: {page}");
        // roff takes a line that begins with a point or an apostrophe for a request.
        let requests = page.lines().filter_map(|line| line.strip_prefix('.'));
        for request in requests {
            let word = request.split(' ').next().unwrap();
            assert!(
                ["TH", "SH", "TP", "SS", "RS", "RE", "br", "sp", "PP", "IP", "ie", "el"].contains(&word),
                "{name}: .{request}"
            );
        }
    }
    assert!(man(&["trace", "cat"]).1.contains(".TH TRAPLINE-TRACE-CAT 1"));
}

#[test]
fn the_page_of_the_terminal_ui_has_every_action() {
    let page = man(&["tui"]).1;
    let keys = page.split_once(".SH KEYS").unwrap().1.replace("\\-", "-");
    for entry in trapline_tui::TABLE {
        assert!(keys.contains(&format!(", {})", entry.id)), "{}: {keys}", entry.id);
    }
    assert!(!man(&["run"]).1.contains(".SH KEYS"));
}

/// Formatters of manual pages, with options for printing what is wrong in a page.
const FORMATTERS: &[&[&str]] =
    &[&["mandoc", "-T", "lint", "-W", "error"], &["groff", "-man", "-Tutf8", "-wall", "-Z"]];

#[test]
fn all_pages_are_written_into_a_folder_and_formatters_accept_them() {
    let folder = tempfile::tempdir().unwrap();
    let (code, out, err) = man(&["--all", folder.path().to_str().unwrap()]);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "", ""));
    let pages: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(pages.len() > 20, "{pages:?}");
    for page in &pages {
        let name = page.file_stem().unwrap().to_str().unwrap();
        let words: Vec<&str> = name.split('-').skip(1).collect();
        assert_eq!(std::fs::read_to_string(page).unwrap(), man(&words).1, "{name}");
    }
    for formatter in FORMATTERS {
        let (program, options) = formatter.split_first().unwrap();
        let ran = Command::new(program).args(options).args(&pages).output();
        let ran = ran.unwrap_or_else(|error| panic!("{program}: {error}; install it: scripts/bootstrap"));
        let lint = if *program == "mandoc" { ran.stdout } else { ran.stderr };
        assert_eq!(String::from_utf8_lossy(&lint), "", "{program}");
    }
}

#[test]
fn an_unknown_command_is_told_with_those_that_exist() {
    let (code, _, err) = man(&["rnu"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("`trapline` has no command `rnu`; use one of run, record, "), "{err}");
    assert!(man(&["run", "x"]).2.contains("`run` has no command `x`; it has no commands"));
}
