//! Hardware task switches, with paging on: the kernel of `tests/kernels/tasks.c` prints what each leaves, here and under qemu.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{folder, trapline};
use crate::hobby_kernels::{build, under_qemu};

/// The exit code that qemu makes of the value 10h.
const ENDED: i32 = 33;
/// The rows of the new task's faults that differ, and what qemu prints.
const DIFFERENCES: [(&str, &str, &str); 2] = [
    // A fault in the new task is one before its first instruction (SDM volume 3, 8.3); qemu names the instruction that
    // switched, in the old task.
    ("in task 98, at its begin 1", "in task 98, at its begin 0", ""),
    // An absent stack segment is #SS (SDM volume 3, table 8-1).
    ("vector c, error 48", "vector b, error 48", "absent stack"),
];

fn as_under_qemu(line: &str) -> String {
    let differs = |line: String, (ours, theirs, row): &(&str, &str, &str)| match line.starts_with(row) {
        true => line.replace(ours, theirs),
        false => line,
    };
    DIFFERENCES.iter().fold(line.to_owned(), differs)
}

#[test]
fn tasks_are_switched_as_under_qemu_where_that_is_as_the_manual_says() {
    let folder = folder(&[]);
    let folder = folder.path();
    let sources = ["32", "MULTIBOOT", "elf32", "tasks", "tasks.c", "tasks.S"];
    build(folder, &sources);
    let theirs = under_qemu(folder, &["-kernel", "tasks"]);
    assert_eq!(theirs.code, ENDED, "{}", theirs.err);
    for cpu in ["ia32", "x86-64"] {
        let ours = trapline(folder, &["run", "tasks", "--cpu", cpu, "--mem", "64M"]);
        assert_eq!(ours.code, ENDED, "{cpu}: {}{}", ours.out, ours.err);
        let lines: Vec<String> = ours.out.lines().map(as_under_qemu).collect();
        assert_eq!(lines, theirs.out.lines().collect::<Vec<_>>(), "{cpu}");
        assert_eq!(ours.out.matches("at its begin 1").count(), 16, "{cpu}: {}", ours.out);
    }
    // qemu knows neither the trap that a TSS asks for nor RF in a saved state.
    build(folder, &[&sources[..], &["--", "ALONE"]].concat());
    let alone = trapline(folder, &["run", "tasks", "--mem", "64M"]);
    let trap = "vector 1, in task 98, space 1, at its begin 1, cs 8, sp 8ff0";
    for shown in [trap, "  dr6 8000\n", "  resume flag 1\n"] {
        assert!(alone.out.contains(shown), "{shown}: {}", alone.out);
    }
}
