//! Descriptions of probes, and the clauses of `-n`.

#![allow(clippy::unwrap_used, clippy::panic)]

use trapline_providers::{Clause, Description};

fn wanted(text: &str, name: [&str; 4]) -> bool {
    let d = Description::parse(text).unwrap();
    d.provider(name[0]) && d.module(name[1]) && d.function(name[2]) && d.name(name[3])
}

#[test]
fn fields_are_filled_from_the_right() {
    let fork = ["fbt", "vmlinux", "do_fork", "entry"];
    for yes in ["entry", "do_fork:entry", "vmlinux::entry", "fbt:::", ":::", "fbt:vmlinux:do_fork:entry", "*"]
    {
        assert!(wanted(yes, fork), "{yes}");
    }
    for no in ["do_fork", "vmlinux:entry", "pid:::", "return", "fbt::do_fork:return", "::DO_FORK:"] {
        assert!(!wanted(no, fork), "{no}");
    }
}

#[test]
fn globs_are_those_of_dtrace() {
    let fork = ["fbt", "vmlinux", "do_fork", "entry"];
    for yes in ["fbt::do_*:e?try", "::[a-d]o_fork:", "::[!e-z]o_fork:", r"::do\_fork:", "f*:*:*k:*"] {
        assert!(wanted(yes, fork), "{yes}");
    }
    for no in ["::[!a-d]o_fork:", "::do_?:", r"::do_\*:", "::fork:"] {
        assert!(!wanted(no, fork), "{no}");
    }
    assert!(wanted(r"::a\:\:b:", ["p", "m", "a::b", "n"]));
}

#[test]
fn an_invalid_description_is_refused_in_a_sentence() {
    let sentence = |text: &str| Description::parse(text).unwrap_err().to_string();
    insta::assert_snapshot!(
        ["a:b:c:d:e", "", "fbt::[a:entry", "fbt:: do", r"fbt::do\", "fbt::\u{1b}:"].map(sentence).join("\n")
    );
    assert_eq!(
        sentence(&"x".repeat(1025)),
        "invalid probe specifier: with three colons it has 1028 bytes; at most 1024 are allowed"
    );
}

#[test]
fn a_clause_has_descriptions_a_predicate_and_a_handler() {
    let clause =
        Clause::parse("fbt::a*:entry, fbt::{b,c}:return / push arg, 0 / { push ret; log 1 }").unwrap();
    assert_eq!(clause.descriptions, ["fbt::a*:entry", "fbt::{b,c}:return"]);
    assert_eq!(clause.predicate, ["push arg, 0"]);
    assert_eq!(clause.handler.unwrap(), ["push ret", "log 1"]);
    let bare = Clause::parse(" entry ").unwrap();
    assert_eq!((bare.descriptions, bare.handler), (vec!["entry".to_owned()], None));
    assert_eq!(Clause::parse("entry{}").unwrap().handler, Some(Vec::new()));
    assert_eq!(Clause::parse("entry/dup 1/").unwrap().predicate, ["dup 1"]);
}

#[test]
fn an_invalid_clause_is_refused_in_a_sentence() {
    let sentence = |text: &str| Clause::parse(text).unwrap_err().to_string();
    let wrong = [
        "",
        "{ log 1 }",
        "a,,b",
        "e / push 1",
        "e / /",
        "e { log 1",
        "e / push 1 / x",
        "e { } y",
        "e { vars = 3 }",
    ];
    insta::assert_snapshot!(wrong.map(sentence).join("\n"));
    assert_eq!(sentence(&"x".repeat(65_537)), "a clause has 65537 bytes; at most 65536 are allowed");
}

#[test]
fn the_source_is_an_ordinary_program() {
    let clause = Clause::parse("entry / push arg, 0 / { inc lv, 2; push gv, 0; log 1 }").unwrap();
    insta::assert_snapshot!(clause.source("vmlinux", 6));
    assert!(trapline_rpn::parse("-n", &clause.source("vmlinux", 6)).is_ok());
    insta::assert_snapshot!(Clause::parse("entry").unwrap().source("vmlinux", 2));
}

#[test]
fn a_module_may_be_a_path() {
    let clause =
        Clause::parse("pid$target:/bin/busybox:main:entry,pid1:/lib/x.so::/ push 1 / { log 1 }").unwrap();
    assert_eq!(clause.descriptions, ["pid$target:/bin/busybox:main:entry", "pid1:/lib/x.so::"]);
    assert_eq!(clause.predicate, ["push 1"]);
    let clause = Clause::parse("fbt:::/ push 0 / { exit }").unwrap();
    assert_eq!(
        (clause.descriptions, clause.predicate),
        (vec!["fbt:::".to_owned()], vec!["push 0".to_owned()])
    );
}
