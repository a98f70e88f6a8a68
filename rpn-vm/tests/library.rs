//! The library's procedures are all in the conformance tables (`conformance/library.txt`) and clean.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use std::collections::BTreeSet;
use std::path::Path;

use trapline_rpn::{LIBRARY, parse};

#[test]
fn every_procedure_of_the_library_has_a_case_and_no_warning() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/library.txt");
    let cases = std::fs::read_to_string(path).unwrap();
    let called: BTreeSet<&str> = cases.lines().filter_map(|l| l.trim().strip_prefix("call ")).collect();
    let mut all = String::from("name = t\nmodtype = kernel\nvars = 9\noffset = 0\nopcode = 1\nexit\n");
    for (name, text) in LIBRARY {
        for procedure in text.lines().filter_map(|l| l.strip_prefix("proc ")) {
            assert!(called.contains(procedure), "{name}: no case calls {procedure}");
        }
        all.push_str(&format!("#include <trapline/{name}>\n"));
    }
    let program = parse("library", &all).unwrap_or_else(|d| panic!("{d}"));
    assert!(program.warnings.list.is_empty(), "{}", program.warnings);
    assert!(program.procs.len() >= 20);
}
