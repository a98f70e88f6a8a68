//! docs/book/first-hour.md as a newcomer follows it: every step as printed, in its order, in one shell, which begins with a clone of
//! this repository. The keys of the terminal UI are typed on a terminal.
//!
//! What `make demo` builds in ten minutes is built already: in the clone, Cargo is a script that runs the program of this build.
//! The guests that `make guests` fetches are those that this tree has.

use std::path::Path;
use std::process::Command;

use crate::cli::{binary, finish, patient};
use crate::docs::{commands, console, keys, matches};
use crate::terminal::Terminal;
use trapline_tests::{guest, root};

const PAGE: &str = "docs/book/first-hour.md";

/// A file that can be executed.
fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Cargo with all that is needed built already: `cargo build` puts the program where a build puts it.
fn cargo(program: &Path) -> String {
    format!(
        "#!/bin/sh\n[ \"$1\" = build ] || exit 2\nmkdir -p target/release\nln -sf {} target/release/\n",
        program.display()
    )
}

/// The steps up to here, in one shell, each with its output in a file of its own.
fn typed(folder: &Path, steps: &[crate::docs::Shown]) -> String {
    let mut text = "set -o pipefail\n".to_owned();
    for (n, step) in steps.iter().enumerate() {
        let (out, code) = (folder.join(format!("out-{n}")), folder.join(format!("code-{n}")));
        text.push_str(&format!("{{ {}\n}} > {} 2>&1\n", step.command, out.display()));
        text.push_str(&format!("echo $? > {}\n", code.display()));
        // The guests of the tree, before they would be fetched.
        if step.command == "cd trapline" {
            text.push_str(&format!("cp -al {} .guests\n", root().join(".guests").display()));
        }
    }
    text
}

#[test]
fn guest_the_first_hour_works_as_printed() {
    guest("VERSIONS");
    let folder = tempfile::tempdir_in(root().join("target")).unwrap();
    let is_clone = Command::new("git").arg("-C").arg(root()).args(["rev-parse", "--git-dir"]).output();
    assert!(
        is_clone.is_ok_and(|output| output.status.success()),
        "this tree is no clone: `git init && git add -A && git commit -m all` makes one of it"
    );
    let shim = folder.path().join("cargo");
    script(&shim, &cargo(&binary()));
    let steps: Vec<_> = console(PAGE, "hour").iter().flat_map(commands).collect();
    let said = [
        "git clone",
        "make demo",
        "trapline list",
        "trapline run",
        "quantize",
        "trapline record",
        "trapline profile",
    ];
    for word in said {
        assert!(steps.iter().any(|step| step.command.contains(word)), "{PAGE} has no step with {word}");
    }
    let mut bash = patient("bash");
    bash.args(["-c", &typed(folder.path(), &steps)]).current_dir(folder.path());
    bash.env("TRAPLINE", root()).env("CARGO", &shim).env_remove("MAKEFLAGS");
    let ran = finish(bash);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for (n, step) in steps.iter().enumerate() {
        let read = |what: &str| std::fs::read_to_string(folder.path().join(format!("{what}-{n}"))).unwrap();
        let (out, code) = (read("out"), read("code"));
        assert_eq!(code, "0\n", "{}: `{}` printed\n{out}", step.place, step.command);
        let lines: Vec<&str> = out.lines().collect();
        let right = step.output.is_empty() || matches(&step.output, &lines);
        assert!(right, "{}: `{}` printed\n{out}", step.place, step.command);
    }
    let blocks = keys(PAGE);
    assert_eq!(blocks.len(), 1);
    for (command, keys) in blocks {
        let words: Vec<&str> = command.strip_prefix("trapline ").unwrap().split(' ').collect();
        let mut terminal = Terminal::in_folder(&folder.path().join("trapline"), &words);
        // Before, keys that go to hits are refused.
        terminal.shows("the run is listed to its end");
        let (last, keys) = keys.split_last().unwrap();
        assert!(keys.iter().any(|(key, _)| key == "S"), "{PAGE} has no step back");
        for (key, wanted) in keys {
            terminal.press(key);
            let head = |shown: &str| shown.lines().next().is_some_and(|line| line.ends_with(&**wanted));
            terminal.shows_that(wanted, |shown| head(shown) && !shown.contains("  going "));
        }
        terminal.press(&last.0);
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(0), "{}", screen.screen().contents());
    }
}
