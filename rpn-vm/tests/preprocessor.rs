//! Runs the tables in `preprocessor/*.txt`: text in, preprocessed text or findings out.
//!
//! A case is `== name`, the source, `--`, and what comes out: text without its marks and blank lines, then one
//! line `CODE LINE:COL message` for each finding and ` note ...` for each of its notes. `-D` lines before the
//! source define macros.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use std::path::Path;

use trapline_rpn::{Loader, NoFiles, ParseOptions, parse, parse_with, preprocess};

/// Files that the cases include.
struct Files;

const FILES: &[(&str, &str)] = &[
    ("one.rpn", "one\n"),
    ("guard.rpn", "#ifndef GUARD\n#define GUARD\nguarded\n#include \"guard.rpn\"\n#endif\n"),
    ("once.rpn", "#pragma once\nonce\n#include \"once.rpn\"\n"),
    (
        "count.rpn",
        "#if N < 3\n#define COUNT(n) n\nN\n#undef N\n#define N 3\n#include \"count.rpn\"\n#endif\n",
    ),
    ("open.rpn", "#if 1\nopen\n"),
    ("bad.rpn", "fine\n#define BROKEN(x) x\nBROKEN\nBROKEN(1, 2)\n"),
    ("outer.rpn", "\n#include \"bad.rpn\"\n"),
    ("forever.rpn", "#include \"forever.rpn\"\n"),
];

impl Loader for Files {
    fn load(&mut self, path: &str, _: &str) -> Result<(String, String), String> {
        let found = FILES.iter().find(|(name, _)| *name == path);
        found
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .ok_or_else(|| "no such file".to_owned())
    }
}

fn run(source: &str) -> String {
    let (mut options, mut text) = (ParseOptions::default(), String::new());
    for line in source.lines() {
        match line.strip_prefix("-D ") {
            Some(define) => {
                let (key, value) = define.split_once('=').unwrap_or((define, "1"));
                options.defines.push((key.to_owned(), value.to_owned()));
            }
            None => text.push_str(&format!("{line}\n")),
        }
    }
    let done = preprocess("t", &text, &options, &mut Files);
    let shown = |line: &&str| !line.trim().is_empty() && !line.starts_with("# ");
    let mut out: String = done.text.lines().filter(shown).map(|l| format!("{}\n", l.trim())).collect();
    for found in &done.found.list {
        let place = if found.file == "t" { String::new() } else { format!("{}:", found.file) };
        out.push_str(&format!("{} {place}{}:{} {}\n", found.code, found.line, found.col, found.message));
        out.extend(found.notes.iter().map(|note| format!(" note {note}\n")));
        out.extend(found.help.iter().map(|help| format!(" help {help}\n")));
    }
    out
}

#[test]
fn every_case_of_the_tables_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preprocessor");
    let mut wrong = String::new();
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for case in text.split("\n== ").skip(1) {
            let (name, body) = case.split_once('\n').unwrap();
            let (source, expected) = body.split_once("\n--\n").unwrap_or_else(|| panic!("{name}: no `--`"));
            let (got, expected) = (run(source), expected.trim_end());
            count += 1;
            if got.trim_end() != expected {
                wrong.push_str(&format!("== {name}\n{expected}\n-- but\n{got}\n"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 40, "{count}");
}

#[test]
fn preprocessed_text_compiles_to_the_same_program_at_the_same_lines() {
    let text = "#define SITE do_fork + 0x10\n#define TWICE(x) x + x\nname = t\nmodtype = kernel\n\n\n\n\n\n\n\n\n\n\n\n\
                offset = SITE\nopcode = 0x55\n#include <trapline/cstring.rpn>\npush TWICE(\n  3)\n/* a\n b */ log 1\n\
                push 9\npush r, esp\ncall cstr_log\n";
    let options = ParseOptions::default();
    let direct = parse_with("t.rpn", text, &options, &mut NoFiles).unwrap_or_else(|d| panic!("{d}"));
    let done = preprocess("t.rpn", text, &options, &mut NoFiles);
    assert!(done.found.list.is_empty());
    let again = parse("t.i", &done.text).unwrap_or_else(|d| panic!("{}\n{d}", done.text));
    assert_eq!(direct.to_source(), again.to_source());
    let lines = |p: &trapline_rpn::Program| -> Vec<(String, u32)> {
        let routines = p.probes.iter().map(|p| &p.handler).chain(&p.procs);
        let spans = routines.flat_map(|r| r.body.iter().map(|i| i.span));
        spans.map(|s| p.sources.presumed(s)).map(|(f, l)| (f.to_owned(), l)).collect()
    };
    assert_eq!(lines(&direct), lines(&again));
    // Preprocessing is idempotent.
    assert_eq!(preprocess("t.i", &done.text, &options, &mut NoFiles).text, done.text);
}

#[test]
fn a_finding_in_preprocessed_text_names_the_original_place() {
    let errors = parse("t.i", "# 40 \"orig.rpn\"\npsh 1\n").unwrap_err();
    let found = errors.list.iter().find(|d| d.code == "unknown-instruction").unwrap();
    assert_eq!((found.file.as_str(), found.line, found.source.as_str()), ("orig.rpn", 40, "psh 1"));
}

#[test]
fn a_finding_names_the_macros_and_includes_it_came_from() {
    let text =
        "#define INNER eay\n#define OUTER(ctx) push ctx, INNER\nname = t\noffset = 0\nopcode = 1\nOUTER(r)\n";
    let errors = parse("t", text).unwrap_err();
    let shown = errors.to_string();
    let expected = "t:6:1: error: unknown register `eay`\n  OUTER(r)\n  ^^^^^\n  \
        note: in expansion of macro `OUTER`, defined at t:2:9\n  \
        note: in expansion of macro `INNER`, defined at t:1:9\n  help: did you mean `eax`?";
    assert_eq!(shown, expected);
}

#[test]
fn the_cost_of_macros_and_includes_is_bounded() {
    let mut chain = String::from("#define M0\n#define D0 1\n#define F0(x) x\n");
    for n in 1..200 {
        let m = n - 1;
        chain.push_str(&format!(
            "#define M{n} M{m} M{m}\n#define D{n} D{m} + D{m}\n#define F{n}(x) F{m}(F{m}(x))\n"
        ));
    }
    let nested = format!("{}1{}", "F0(".repeat(5000), ")".repeat(5000));
    let parens = format!("#if {}1{}\n#endif", "(".repeat(30_000), ")".repeat(30_000));
    let not = format!("#if {}1\n#endif", "!".repeat(60_000));
    for line in ["M199", "D199", "F199(1)", "M199 D199 F199(F199(1))", &nested, &parens, &not] {
        let many = format!("{chain}{}", format!("{line}\n").repeat(5));
        let done = preprocess("t", &many, &ParseOptions::default(), &mut NoFiles);
        assert!(!done.found.list.is_empty(), "{}", &line[..line.len().min(30)]);
        assert!(
            done.found.list.iter().all(|d| ["macro-limit", "bad-condition"].contains(&d.code)),
            "{}",
            done.found
        );
        assert!(done.text.len() < 100_000);
    }
}
