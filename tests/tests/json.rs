//! docs/book/reference/json.md against what the commands print with `-f json`: every field is in the tables, has the type given there,
//! and is there unless the tables say when.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use crate::cli::{finish, folder, patient, trapline};
use serde_json::{Map, Value};
use trapline_tests::root;

/// A row of a table.
struct Field {
    types: String,
    always: bool,
}

/// Fields by the kind of line, and by their name.
type Lines = BTreeMap<String, BTreeMap<String, Field>>;

/// The tables, by the headings above them.
fn tables() -> BTreeMap<String, Lines> {
    let text = std::fs::read_to_string(root().join("docs/book/reference/json.md")).unwrap();
    let mut tables: BTreeMap<String, Lines> = BTreeMap::new();
    let mut heading = String::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            heading = title.to_owned();
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if cells.len() != 6 || cells[1] == "Line" || cells[1].starts_with("---") {
            continue;
        }
        let field = Field { types: cells[3].to_owned(), always: cells[4].is_empty() };
        let lines = tables.entry(heading.clone()).or_default();
        lines.entry(cells[1].to_owned()).or_default().insert(cells[2].to_owned(), field);
    }
    // A row of `..` stands for the rows of hits.
    for lines in tables.values_mut() {
        let hits: Vec<(String, String, bool)> = match lines.get("hit") {
            Some(hit) => hit.iter().map(|(name, f)| (name.clone(), f.types.clone(), f.always)).collect(),
            None => continue,
        };
        for fields in lines.values_mut() {
            if fields.remove("..").is_some() {
                for (name, types, always) in &hits {
                    fields.insert(name.clone(), Field { types: types.clone(), always: *always });
                }
            }
        }
    }
    tables
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        "hex" => value.as_str().is_some_and(|text| {
            text.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
        }),
        _ => panic!("json.md names the type {name}"),
    }
}

fn check(place: &str, fields: &BTreeMap<String, Field>, object: &Map<String, Value>) {
    for (name, value) in object.iter().filter(|(name, _)| *name != "type") {
        let field = fields.get(name).unwrap_or_else(|| panic!("{place}: `{name}` is not in json.md"));
        let right = field.types.split(" or ").any(|one| is(value, one));
        assert!(right, "{place}: `{name}` is {value}, and not {}", field.types);
    }
    for (name, _) in fields.iter().filter(|(_, field)| field.always) {
        assert!(object.contains_key(name), "{place}: `{name}` is missing");
    }
}

/// Commands with the heading of their table. They run in one folder, one after the other.
const COMMANDS: &[(&str, &str, &str)] = &[
    (
        "run, record, replay, trace cat",
        "run embedded:ia32 -p EXAMPLES/man/1-appln.rpn --header all --stats --stack --ustack",
        "header hit user-stack end",
    ),
    ("run, record, replay, trace cat", "run embedded:ia32 -n fbt::do_fork: --stop-after 3", "header hit end"),
    ("run, record, replay, trace cat", "run embedded:ia32 -s d.d", "header d aggregation end"),
    (
        "run, record, replay, trace cat",
        "run embedded:ia32 -p EXAMPLES/stack-trace.rpn",
        "header hit stack-trace end",
    ),
    (
        "run, record, replay, trace cat",
        "run embedded:ia32 -p fault.rpn --stack=2",
        "header hit kernel-stack end",
    ),
    (
        "run, record, replay, trace cat",
        "run embedded:ia32 -p EXAMPLES/man/2-do_fork.rpn --templates EXAMPLES/templates/man.dir",
        "header hit end",
    ),
    (
        "run, record, replay, trace cat",
        "record embedded:ia32 -p EXAMPLES/man/7b-user.rpn -o a.tlr",
        "header hit end",
    ),
    ("list", "list embedded:ia32 do_* --opcode --bytes", "header function end"),
    ("list", "list embedded:x86_64 fbt::do_*: -v", "header probe end"),
    ("dis", "dis embedded:ia32 do_fork --armed", "header instruction end"),
    ("check", "check EXAMPLES/man/1-appln.rpn", "header program end"),
    ("check", "check bad.rpn", "header finding end"),
    ("check", "check bad.d", "header finding end"),
    ("check --explain", "check --explain list", "code"),
    ("diff", "diff a.tlr --append more", "diff"),
    ("replay --info", "replay a.tlr --info", "recording"),
    ("replay --who-wrote", "replay a.tlr --who-wrote current_task --last 2", "writers"),
    ("replay --calls", "replay a.tlr --calls do_fork", "calls"),
    ("replay --when", "replay a.tlr --when eax==0 --to 100000", "when"),
    ("top", "top embedded:ia32 --insns 1000 --every 1ms", "header top end"),
    ("profile", "profile embedded:ia32 --insns 1000 --by function", "header row end"),
    ("profile", "profile embedded:ia32 --insns 1000 --by module", "header row end"),
    ("profile", "profile embedded:ia32 --by process --exact *", "header row end"),
    ("profile", "profile embedded:ia32 --by function --exact fnv1a*", "header row end"),
    ("dti list", "dti list embedded:dti", ""),
    ("dti show", "dti show embedded:dti 3c59x", ""),
    ("dump --info", "dump vmcore --info", ""),
];

#[test]
fn json_lines_have_the_fields_that_the_reference_lists() {
    let tables = tables();
    let folder = folder(&[
        ("d.d", b"fbt::do_fork:entry { trace(arg0); @[execname] = count(); @q = quantize(arg1); stack(); }"),
        ("bad.d", b"BEGIN { trace(x) }"),
        ("bad.rpn", b"name = vmlinux\nmodtype = kernel\nmajor = 1\noffset = do_fork\nopcode = 0x55\nminor = 1\nfoo\n"),
        (
            "fault.rpn",
            b"name = vmlinux\nmodtype = kernel\nmajor = 1\noffset = do_fork\nopcode = 0x55\nminor = 1\npush 0\npush mem, u8\nlog 1\nexit\n",
        ),
    ]);
    let dumped = trapline(folder.path(), &["dump", "embedded:ia32", "--at", "3M", "-q", "-o", "vmcore"]);
    assert_eq!(dumped.code, 0, "{}", dumped.err);
    let examples = root().join("examples").display().to_string();
    let mut seen: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (heading, line, kinds) in COMMANDS {
        let words = line.replace("EXAMPLES", &examples);
        let mut command = patient(crate::cli::binary());
        command.args(words.split(' ')).args(["-q", "-f", "json"]).current_dir(folder.path());
        let ran = finish(command);
        assert!(!ran.out.is_empty(), "{line}: {}", ran.err);
        let mut shown: Vec<String> = Vec::new();
        for (n, text) in ran.out.lines().enumerate() {
            let object: Map<String, Value> = serde_json::from_str(text).unwrap();
            let kind = object.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
            let place = format!("{line}, line {}, {kind}", n + 1);
            let fields = tables[*heading].get(&kind).unwrap_or_else(|| panic!("{place}: not in json.md"));
            check(&place, fields, &object);
            if !shown.contains(&kind) {
                shown.push(kind);
            }
        }
        assert_eq!(shown.join(" "), *kinds, "{line}: {}", ran.err);
        seen.entry(heading).or_default().extend(shown);
    }
    for (heading, lines) in &tables {
        for kind in lines.keys().filter(|kind| *kind != "drops") {
            let shown = seen.get(heading.as_str()).is_some_and(|seen| seen.contains(kind));
            assert!(shown, "json.md, {heading}: no command of this test prints a line `{kind}`");
        }
    }
}
