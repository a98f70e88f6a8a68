//! The table of codes is authoritative: its wrong examples give their code and print as in the snapshot, its right ones
//! give no finding, and no source file names a code outside it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::common::TestHost;
use trapline_rpn::{
    AnySymbol, CODES, CodeRow, Diagnostics, FileLoader, Loader, ParseOptions, Severity, Stage, Termination,
    Vars, Vm, Width, code_by_name, near_code, parse_with,
};

/// The file itself under the name `self.rpn`, and files that include more and more files.
struct Files(String);

impl Loader for Files {
    fn load(&mut self, path: &str, from: &str) -> Result<(String, String), String> {
        match path {
            "self.rpn" => Ok((path.to_owned(), self.0.clone())),
            "deeper.rpn" => Ok((format!("{from}+"), "#include \"deeper.rpn\"\n".to_owned())),
            _ => Err("no such file".to_owned()),
        }
    }
}

/// An example as a program: an incomplete one becomes the body of a handler.
fn program(text: &str) -> String {
    let whole = text.lines().any(|l| l.starts_with("name =") || l.starts_with("offset ="));
    if whole {
        return format!("{text}\n");
    }
    format!(
        "name = vmlinux\nmodtype = kernel\nvars = 8\ngvars = 8\noffset = do_fork\nopcode = 0x55\n{text}\n"
    )
}

/// The findings of a program, including those of linking for a 32-bit guest.
fn findings(text: &str, defines: &[(&str, &str)]) -> Diagnostics {
    let defines = defines.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let options = ParseOptions { defines, ..ParseOptions::default() };
    match parse_with("t.rpn", text, &options, &mut Files(text.to_owned())) {
        Err(found) => found,
        Ok(program) => {
            let symbols = BTreeMap::from([("do_fork".to_owned(), 1u64), ("main".to_owned(), 2)]);
            program.link(Width::W32, &symbols).err().unwrap_or(program.warnings)
        }
    }
}

/// The findings of a row's wrong example. Some examples cannot be written in a table.
fn wrong(row: &CodeRow) -> Diagnostics {
    match row.name {
        "too-long" => findings(&program(&format!("// {}", "x".repeat(70_000))), &[]),
        "bad-define" => findings(&program("exit"), &[("3", "x")]),
        _ => findings(&program(row.wrong), &[]),
    }
}

/// The cases of codes from other stages are in those stages' tests.
#[test]
fn codes_of_other_stages_have_their_cases_in_those_stages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let (arming, script) = (
        text(
            "providers/tests/snapshots/providers__codes__every_code_of_arming_has_a_case_that_gives_it.snap",
        ),
        text("ui/tests/cli.rs"),
    );
    for row in CODES.iter().filter(|row| !here(row)) {
        let has = match row.stage {
            Stage::Script => script.contains(row.wrong),
            _ => arming.contains(&format!("== {}\n", row.name)),
        };
        assert!(has, "`{}` has no case", row.name);
    }
}

fn here(row: &CodeRow) -> bool {
    matches!(row.stage, Stage::Compile | Stage::Link)
}

#[test]
fn every_code_has_a_case_that_gives_it() {
    let mut shown = String::new();
    for row in CODES.iter().filter(|row| here(row)) {
        let mut found = wrong(row);
        assert!(found.list.iter().any(|d| d.code == row.name), "{}:\n{found}", row.name);
        for one in &mut found.list {
            assert_eq!(code_by_name(one.code).unwrap().severity, one.severity, "{}", one.code);
            one.source.truncate(100);
        }
        shown.push_str(&format!("== {}\n{found}\n", row.name));
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn every_right_example_is_right() {
    for row in CODES.iter().filter(|row| row.stage != Stage::Script) {
        let found = findings(&program(row.right), &[]);
        assert!(found.list.is_empty(), "{}:\n{found}", row.name);
    }
}

#[test]
fn every_row_is_complete_and_unique() {
    let names: BTreeSet<&str> = CODES.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), CODES.len());
    for row in CODES {
        assert!(row.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", row.name);
        assert!(row.title.len() <= 70 && !row.title.ends_with('.'), "{}", row.title);
        assert!(
            row.explanation.ends_with('.') && !row.wrong.is_empty() && !row.right.is_empty(),
            "{}",
            row.name
        );
    }
    assert_eq!(near_code("unknown-instuction"), Some("unknown-instruction"));
    assert_eq!(near_code("nothing like it"), None);
}

/// The table itself, and the table of the names of DTrace's probes.
const NOT_READ: [&str; 2] = ["codes/table.rs", "system/table.rs"];

/// All Rust sources of the crates that make findings.
fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut open: Vec<PathBuf> =
        ["rpn-vm/src", "providers/src", "ui/src"].iter().map(|f| root.join(f)).collect();
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()));
        } else if path.extension().is_some_and(|e| e == "rs")
            && !NOT_READ.iter().any(|end| path.ends_with(end))
        {
            found.push(path);
        }
    }
    found
}

/// The string literals of a source that look like a code: two words or more with hyphens.
fn hyphenated(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines().filter(|l| !l.trim_start().starts_with("//")) {
        for (n, piece) in line.split('"').enumerate() {
            let word = |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_lowercase());
            if n % 2 == 1 && piece.contains('-') && piece.split('-').all(word) {
                found.push(piece.to_owned());
            }
        }
    }
    found
}

/// Literals of the sources that look like codes but are not.
const OTHERS: &[&str] = &[
    "observe-only",
    "exit-codes",
    "apply-ppdf",
    "divide-by-zero",
    "output-file",
    "tick-ms",
    "d-script",
    "sub-buffer",
    "sub-buffers",
    "trapline-fuzz",
    "cpu-model",
    "virtio-devices",
    "dtrace-failed",
];

#[test]
fn no_source_names_a_code_that_is_not_in_the_table_and_every_code_is_named() {
    let mut named: BTreeSet<String> = BTreeSet::new();
    let (mut words, mut all) = (BTreeMap::new(), String::new());
    for path in sources() {
        let text = std::fs::read_to_string(&path).unwrap();
        for code in hyphenated(&text) {
            words.insert(code.clone(), path.clone());
            named.insert(code);
        }
        all.push_str(&text);
    }
    let unknown: Vec<_> =
        words.iter().filter(|(w, _)| code_by_name(w).is_none() && !OTHERS.contains(&w.as_str())).collect();
    assert!(unknown.is_empty(), "not in the table of codes: {unknown:?}");
    for row in CODES {
        assert!(all.contains(&format!("\"{}\"", row.name)), "nothing gives `{}`", row.name);
    }
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn careful_programs_give_no_warning() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = files(&root.join("examples"), "rpn");
    all.extend(files(&root.join("docs"), "rpn"));
    let mut checked = 0;
    for path in all {
        let text = std::fs::read_to_string(&path).unwrap();
        if !text.contains("opcode =") {
            continue;
        }
        let name = path.display().to_string();
        let program = parse_with(&name, &text, &ParseOptions::default(), &mut FileLoader::default());
        let program = program.unwrap_or_else(|d| panic!("{d}"));
        assert!(program.warnings.list.is_empty(), "{name}\n{}", program.warnings);
        // A program may name registers that only one of the widths has.
        assert!(
            [Width::W32, Width::W64].iter().any(|width| program.link(*width, &AnySymbol).is_ok()),
            "{name}"
        );
        checked += 1;
    }
    assert!(checked >= 7);
}

#[test]
fn lints_agree_with_the_interpreter() {
    let cases = [
        ("endless-loop", "push 300\nagain: loop again", 4u16),
        ("endless-loop", "again: push 1\nros 1\njmp again", 4),
        ("endless-loop", "push 30\nouter: push 30\ninner: loop inner\nros 1\nloop outer", 4),
        ("log-pointer", "push 8\npop lp", 0x40),
        ("log-pointer", "push 1\nlog 1\npush 100\npop lp", 0x40),
    ];
    for (code, text, x_field) in cases {
        let text = program(text);
        let parsed = parse_with("t", &text, &ParseOptions::default(), &mut Files(String::new())).unwrap();
        assert!(parsed.warnings.list.iter().any(|d| d.code == code), "{text}{}", parsed.warnings);
        assert!(parsed.warnings.list.iter().all(|d| d.severity == Severity::Warning));
        let linked = parsed.link(Width::W64, &AnySymbol).unwrap();
        let mut vm = Vm::new();
        let out = vm.run(&linked.probes[0].handler, &mut TestHost::default(), Vars::default());
        assert_eq!((out.termination, vm.unhandled().x_field()), (Termination::Exception, x_field), "{text}");
    }
}
