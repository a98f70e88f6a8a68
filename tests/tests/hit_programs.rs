//! Programs that count hits, run on the embedded guest: each leaves the records that the manual defines.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::trapline;
use trapline_tests::root;

/// Runs a program of `hit_programs/`; its records, and the digest line.
fn run(program: &str, more: &[&str]) -> (Vec<String>, String) {
    let file = format!("tests/tests/hit_programs/{program}.rpn");
    let ran = trapline(&root(), &[&["run", "embedded:ia32", "-p", &file, "--digest"], more].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let digest = ran.err.lines().find(|line| line.starts_with("digest ")).unwrap().to_owned();
    (ran.out.lines().filter(|line| line.starts_with("DProbes")).map(str::to_owned).collect(), digest)
}

#[test]
fn programs_leave_as_many_records_as_the_manual_says() {
    let plain = trapline(&root(), &["run", "embedded:ia32", "--digest"]);
    let plain = plain.err.lines().find(|line| line.starts_with("digest ")).unwrap().to_owned();
    let cases = [
        // A loop whose only probe is taken out at its first hit, by `maxhits` and by its handler.
        ("maxhits", 1),
        ("remove", 1),
        // HLT in ring 3 faults, and the kernel skips it: four hits, and no retry.
        ("ignore_faulting", 3),
        ("maxhits_faulting", 1),
    ];
    for (program, records) in cases {
        let (found, digest) = run(program, &[]);
        assert_eq!(found.len(), records, "{program}: {found:?}");
        assert_eq!(digest, plain, "{program}");
    }
}

#[test]
fn questions_of_a_script_change_no_count() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    let lines: String = (0..40).map(|n| format!("at insns={} query\n", 100_000 + 7 * n)).collect();
    std::fs::write(&script, lines).unwrap();
    let asked = run("maxhits", &["--script", &script.display().to_string()]);
    assert_eq!(asked, run("maxhits", &[]));
}

#[test]
fn stop_after_counts_hits_that_leave_a_record() {
    let clauses = ["--rpn", "fbt:::entry / push 0 / { exit }", "-n", "fbt::do_fork:entry"];
    let ran =
        trapline(&root(), &[&["run", "embedded:ia32", "-q", "--stop-after", "2"], &clauses[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.out.lines().filter(|line| line.contains("do_fork:entry")).count(), 2, "{}", ran.out);
}

#[test]
fn a_clause_may_ask_for_hits_whose_instruction_faults() {
    // HLT faults each time; without the statement none of its hits leaves a record.
    let hits = |handler: &str| {
        let clause = format!("pid*:appln:forbidden:15 {{ {handler} }}");
        let ran = trapline(&root(), &["run", "embedded:ia32", "-q", "--rpn", &clause]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out.lines().filter(|line| line.contains("forbidden")).count()
    };
    assert_eq!(hits("exit"), 0);
    assert_eq!(hits("logonfault = no; exit"), 0);
    assert_eq!(hits("logonfault = yes; exit"), 4);
}
