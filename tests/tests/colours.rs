//! Colours of data: the same bytes between sequences of colour, only where a terminal, an option or a variable asks for them.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::{Command, Stdio};

use crate::cli::{binary, folder, trapline};
use trapline_tests::root;

/// Standard output with these variables, and nothing else of the environment.
fn out(folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(binary());
    command.args(args).current_dir(folder).env_clear().envs(variables.iter().copied());
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// A text without sequences of colour; there is no other sequence in it.
fn plain(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| {
        let (codes, rest) = part.split_once('m').unwrap();
        assert!(codes.bytes().all(|byte| byte.is_ascii_digit() || byte == b';'), "{part:?}");
        text + rest
    })
}

/// Commands that print text in colours, in a folder that has what they read.
fn commands() -> (tempfile::TempDir, Vec<Vec<&'static str>>) {
    let program = "name = vmlinux\nmodtype = kernel\nmajor = 7\noffset = do_fork\nopcode = 0x55\nminor = 1\npush 8\n\
                   push r, esp\nlog mrf\npush 12\npush 16\nlog str\nexit\n";
    let here = folder(&[("p.rpn", program.as_bytes())]);
    let ok = |args: &[&str], code: i32| {
        let ran = trapline(here.path(), args);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
    };
    let record = ["record", "embedded:ia32", "-q", "--mem", "32M", "--console", "none", "--limit-insns"];
    ok(&[&record[..], &["400K", "-o", "a.tlr"]].concat(), 124);
    ok(&[&record[..], &["300K", "-o", "b.tlr"]].concat(), 124);
    let run =
        ["run", "embedded:ia32", "-q", "-p", "p.rpn", "--header", "all", "--stack=3", "-f", "raw", "-o", "t"];
    ok(&run, 0);
    std::fs::create_dir(here.path().join("cases")).unwrap();
    for case in ["golden-ia32.tlr", "golden-ia32.expect", "golden-ia32.out"] {
        let from = root().join("tests/recordings").join(case);
        std::fs::copy(from, here.path().join("cases").join(case)).unwrap();
    }
    // Records that were not kept.
    std::fs::write(here.path().join("cases/golden-ia32.out"), "other\n").unwrap();
    let lines = [
        "list embedded:ia32",
        "list embedded:ia32 fbt::do_*: -v",
        "list embedded:ia32 do_* --opcode --bytes",
        "list embedded:ia32 --processes --at insns=3M",
        "dis embedded:ia32 do_fork",
        "dis embedded:ia32 do_fork --armed -p p.rpn",
        "run embedded:ia32 -q -p p.rpn --header all",
        "run embedded:ia32 -q -p p.rpn --symbols",
        "trace cat t",
        "trace cat t --symbols",
        "diff a.tlr b.tlr",
        "diff a.tlr --mem 16M",
        "verify cases",
    ];
    let words = |line: &'static str| line.split(' ').collect::<Vec<_>>();
    let mut all: Vec<Vec<&str>> = lines.iter().copied().map(words).collect();
    all.push(vec![
        "run",
        "embedded:ia32",
        "-q",
        "--rpn",
        "fbt::do_fork: { push 1; log 1 }",
        "--header",
        "pid,name",
    ]);
    (here, all)
}

#[test]
fn colours_stand_between_the_same_bytes_and_only_where_they_are_wanted() {
    let (here, commands) = commands();
    let here = here.path();
    for args in &commands {
        let usual = out(here, args, &[]);
        assert!(!usual.is_empty() && !usual.contains('\x1b'), "{args:?}: {usual}");
        let with = |more: &[&str], variables: &[(&str, &str)]| out(here, &[args, more].concat(), variables);
        let coloured = with(&["--color", "always"], &[]);
        assert_eq!(plain(&coloured), usual, "{args:?}");
        assert!(coloured.contains('\x1b'), "{args:?} has no colours");
        assert_eq!(with(&[], &[("CLICOLOR_FORCE", "1")]), coloured, "{args:?}");
        assert_eq!(with(&["--color", "always"], &[("NO_COLOR", "1")]), coloured, "{args:?}");
        for (more, variables) in [
            (&[][..], &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")][..]),
            (&[], &[("CLICOLOR_FORCE", "0")]),
            (&["--color", "never"], &[("CLICOLOR_FORCE", "1")]),
        ] {
            assert_eq!(with(more, variables), usual, "{args:?} {more:?} {variables:?}");
        }
    }
}

#[test]
fn files_and_json_have_no_colours_unless_always() {
    let (here, _) = commands();
    let here = here.path();
    let run = ["run", "embedded:ia32", "-q", "-p", "p.rpn", "--header", "all"];
    let usual = out(here, &run, &[]);
    let file = |more: &[&str]| {
        let written = out(here, &[&run[..], &["-o", "records"], more].concat(), &[("CLICOLOR_FORCE", "1")]);
        assert_eq!(written, "");
        std::fs::read_to_string(here.join("records")).unwrap()
    };
    assert_eq!(file(&[]), usual);
    let coloured = file(&["--color", "always"]);
    assert!(coloured.contains('\x1b'));
    assert_eq!(plain(&coloured), usual);
    let json = [&run[..], &["-f", "json", "--color", "always"]].concat();
    assert!(!out(here, &json, &[]).contains('\x1b'));
    assert!(!out(here, &["list", "embedded:ia32", "-f", "json", "--color", "always"], &[]).contains('\x1b'));
}

#[test]
fn a_terminal_has_colours_unless_the_environment_says_otherwise() {
    let shown = |variables: &[(&str, &str)]| {
        let line = format!("{} dis embedded:ia32 halt -q", binary().display());
        let mut script = Command::new("script");
        script.args(["-qefc", &line, "/dev/null"]).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        script.env("TERM", "xterm").envs(variables.iter().copied());
        let output = script.stdin(Stdio::null()).output().unwrap();
        String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")
    };
    let usual = out(&root(), &["dis", "embedded:ia32", "halt", "-q"], &[]);
    let coloured = shown(&[]);
    assert!(coloured.contains('\x1b'), "{coloured:?}");
    assert_eq!(plain(&coloured), usual);
    for variables in [("NO_COLOR", "1"), ("CLICOLOR", "0"), ("TERM", "dumb")] {
        assert_eq!(shown(&[variables]), usual, "{variables:?}");
    }
}
