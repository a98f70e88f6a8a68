//! Runs the cases of `lints.txt`: the findings of each lint, and where it must give none.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use trapline_rpn::parse;

#[test]
fn every_case_of_the_table_holds() {
    let mut wrong = String::new();
    let mut count = 0;
    for case in include_str!("lints.txt").split("\n== ").skip(1) {
        let (name, body) = case.split_once('\n').unwrap();
        let (code, expected) = body.split_once("--\n").unwrap();
        let (header, code) = match code.split_once("++\n") {
            Some((header, code)) => (header, code),
            None => ("", code),
        };
        let text = format!(
            "name = t\nmodtype = kernel\nvars = 4\n{header}#line 1\noffset = 0\nopcode = 1\n#line 1\n{code}"
        );
        let program = parse("t", &text).unwrap_or_else(|d| panic!("{name}\n{d}"));
        let found = &program.warnings.list;
        let got: String = found.iter().map(|d| format!("{} {} {}\n", d.line, d.code, d.message)).collect();
        count += 1;
        if got.trim() != expected.trim() {
            wrong.push_str(&format!("== {name}\n{}\n-- but\n{got}\n", expected.trim()));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 40, "{count}");
}
