//! Faults in handlers, as DTrace reports them: the message of each kind, the count of each probe, and no effect on other
//! handlers.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, trapline};
use trapline_tests::root;

/// Handlers that fail: the clause, and the message after the probe's name.
const FAILING: [(&str, &str); 4] = [
    ("{ push 0x10; push mem, u8; log 1 }", "invalid address (0x10) in action #2 at RPN offset 9"),
    ("{ push 1; push 0; div; log 1 }", "divide-by-zero in action #3 at RPN offset 18"),
    ("{ push 99; callk; log 1 }", "illegal operation (INVALID_OPERAND) in action #2 at RPN offset 9"),
    (
        "/ push 0xfffffff0; push mem, u32 / { log 1 }",
        "invalid address (0xfffffff0) in action #2 at RPN offset 9",
    ),
];

fn run(clauses: &[String], more: &[&str]) -> Ran {
    let mut args = vec!["run", "embedded:ia32", "--digest", "--console", "none"];
    clauses.iter().for_each(|clause| args.extend(["--rpn", clause]));
    args.extend(more);
    let ran = trapline(&root(), &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran
}

fn digest(ran: &Ran) -> &str {
    ran.err.lines().find(|line| line.starts_with("digest ")).unwrap()
}

#[test]
fn each_kind_of_fault_has_its_sentence_each_probe_its_count_and_the_others_go_on() {
    let plain = run(&[], &[]);
    let good = "fbt::do_fork:entry,fbt::do_exit:entry".to_owned();
    let alone = run(std::slice::from_ref(&good), &[]);
    let (forks, exits) = (6, alone.out.lines().count() - 6);
    for (failing, sentence) in FAILING {
        // Before and after the working one, at its site and elsewhere.
        let both = format!("fbt::do_fork:entry,fbt::do_exit:entry {failing}");
        let clauses = [both.clone(), good.clone(), both];
        let ran = run(&clauses, &["--stats"]);
        let errors: Vec<&str> = ran.err.lines().filter(|line| line.contains("error on enabled")).collect();
        assert_eq!(errors.len(), 4, "once a probe: {}", ran.err);
        for (number, probe) in [(1, "33: fbt:vmlinux:do_fork"), (2, "31: fbt:vmlinux:do_exit")] {
            let wanted =
                format!("trapline: error on enabled probe ID {number} (ID {probe}:entry): {sentence}");
            assert!(errors.contains(&&*wanted), "{wanted}\n{}", ran.err);
        }
        for (probe, count) in [("33 (fbt:vmlinux:do_fork", forks), ("31 (fbt:vmlinux:do_exit", exits)] {
            // Two of the three clauses fail, and their errors are counted together.
            let total = format!("trapline: {} errors on probe ID {probe}:entry)", 2 * count);
            assert_eq!(ran.err.lines().filter(|line| *line == total).count(), 1, "{total}\n{}", ran.err);
        }
        let all = format!("{:20} {}", "exceptions", 2 * (forks + exits));
        assert!(ran.err.lines().any(|line| line == all), "{all}\n{}", ran.err);
        // A failing handler leaves a record without data.
        let whole: Vec<&str> = ran.out.lines().filter(|line| line.len() > 80).collect();
        assert_eq!(whole, alone.out.lines().collect::<Vec<_>>(), "{failing}");
        assert_eq!(digest(&ran), digest(&plain), "{failing}: the guest noticed");
    }
}

#[test]
fn a_probe_that_failed_once_is_not_counted_and_one_that_never_failed_not_mentioned() {
    let clause = "fbt::do_fork:entry { inc lv, 0; push lv, 0; push 2; sub; jz bad; exit; bad: push 0x10; push mem, u8 }";
    let ran = run(&[clause.replace("bad: ", "bad:; "), "fbt::do_exit:entry".to_owned()], &[]);
    let errors: Vec<&str> = ran.err.lines().filter(|line| line.contains("error")).collect();
    assert_eq!(errors.len(), 1, "{}", ran.err);
    assert!(
        errors[0].contains("fbt:vmlinux:do_fork:entry): invalid address (0x10) in action #"),
        "{errors:?}"
    );
}

#[test]
fn a_fault_in_a_programs_handler_is_reported_with_file_and_line_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let program = crate::cli::kernel_probe("offset = do_fork", "0x55").replace("log 1", "push 0\ndiv\nlog 1");
    std::fs::write(folder.path().join("fails.rpn"), &program).unwrap();
    let line = 1 + program.lines().position(|line| line == "div").unwrap();
    let ran = trapline(folder.path(), &["run", "embedded:ia32", "--console", "none", "-p", "fails.rpn"]);
    let told: Vec<&str> = ran.err.lines().filter(|line| line.contains("error")).collect();
    let first = format!(
        "trapline: fails.rpn:{line}: error on probe (1,1): divide-by-zero in action #3 at RPN offset 10"
    );
    assert_eq!(told, [&*first, "trapline: 6 errors on probe (1,1) of fails.rpn"], "{}", ran.err);
}

#[test]
fn the_name_of_a_file_does_not_control_the_terminal() {
    let ran = trapline(&root(), &["check", "no\u{1b}[31m\u{7}such.rpn"]);
    assert_eq!(ran.err, "trapline: error: cannot read no?[31m?such.rpn: No such file or directory\n");
}
