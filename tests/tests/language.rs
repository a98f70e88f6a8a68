//! Probe programs whose result dprobes.lang(8) gives, on an embedded guest.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, trapline};
use trapline_tests::root;

/// A program with a probe on `do_fork`, run until its first hit.
fn run(header: &str, place: &str, handler: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let program = format!("name = vmlinux\nmodtype = kernel\n{header}{place}\nopcode = 0x55\n{handler}\n");
    std::fs::write(folder.path().join("p.rpn"), program).unwrap();
    trapline(
        folder.path(),
        &["run", "embedded:ia32", "-p", "p.rpn", "--stop-after", "1", "--console", "none"],
    )
}

fn logged(header: &str, handler: &str) -> String {
    let ran = run(header, "offset = do_fork", handler);
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.out.trim_end().to_owned()
}

#[test]
fn plp_takes_back_what_a_failed_log_left_and_nothing_before_it() {
    let handler = "push 0x11\nlog 1\nsx full\npush 3\npush 2\nlog 2\nux\nexit\nfull: push plp\npop lp\nexit";
    assert_eq!(logged("logmax = 10\nexcpt_mask = 0x1fff\n", handler), "DProbes(0,0) 11000000");
}

#[test]
fn dup_pushes_as_often_as_it_says() {
    assert_eq!(logged("", "push 7\ndup 1024\nlog 4\nexit"), format!("DProbes(0,0) {}", "07000000".repeat(4)));
}

#[test]
fn seg2lin_takes_the_offset_from_the_top_and_the_selector_from_under_it() {
    // The base of the kernel's data segment is 0.
    assert_eq!(logged("", "push r, ds\npush 0x1234\nseg2lin\nlog 1\nexit"), "DProbes(0,0) 34120000");
    let swapped = run("", "offset = do_fork", "push 0\npush r, ds\nseg2lin\nlog 1\nexit");
    assert!(swapped.err.contains("(SEG_FAULT) in action #3"), "{}", swapped.err);
}

/// A 64-bit kernel runs 32-bit programs, whose segments have bases.
#[test]
fn seg2lin_takes_the_base_of_a_descriptor_in_64_bit_code_too() {
    // Selector 0x10 gets the descriptor of a data segment with base 0x090523c0; 0x08 is 64-bit code, whose base is 0.
    let descriptor =
        "push r, gdtr\npop lv, 0\npush lv, 0\npush 0x10\nadd\npush 0x09cff30523c0ffff\npop mem, u64";
    let handler = format!(
        "{descriptor}\npush 0x10\npush 0x10\nseg2lin\nlog 1\npush r, cs\npush 5\nseg2lin\nlog 1\nexit"
    );
    let folder = tempfile::tempdir().unwrap();
    let program =
        format!("name = vmlinux\nmodtype = kernel\nvars = 1\noffset = do_fork\nopcode = 0x55\n{handler}\n");
    std::fs::write(folder.path().join("p.rpn"), program).unwrap();
    let arguments = ["run", "embedded:x86_64", "-p", "p.rpn", "--stop-after", "1", "--console", "none"];
    let ran = trapline(folder.path(), &arguments);
    assert_eq!(ran.out, "DProbes(0,0) d0230509000000000500000000000000\n", "{}", ran.err);
}

#[test]
fn check_and_run_say_the_same_of_a_range_for_a_breakpoint() {
    let place = "address = do_fork:do_fork+3";
    let ran = run("", place, "exit");
    let warning = "p.rpn:3:19: warning: the second address has no effect on a breakpoint probe: the probe is at the first";
    assert!((ran.code, ran.err.lines().next()) == (0, Some(warning)), "{}", ran.err);
    assert_eq!(ran.out, "DProbes(0,0)\n");
    let folder = tempfile::tempdir().unwrap();
    let program = format!("name = vmlinux\nmodtype = kernel\n{place}\nopcode = 0x55\nexit\n");
    std::fs::write(folder.path().join("p.rpn"), program).unwrap();
    let checked = trapline(folder.path(), &["check", "p.rpn"]);
    assert!(checked.code == 0 && (checked.out + &checked.err).contains(warning));
}

#[test]
fn a_selector_that_the_cpu_refuses_is_a_fault_of_pop_r() {
    let handler = "sx bad\npush 0xfff0\npop r, fs\nux\nexit\nbad: log 2\nexit";
    assert_eq!(logged("", handler), "DProbes(0,0) 02000000f0ff0000");
}

#[test]
fn an_error_in_a_handler_on_the_command_line_names_its_place_in_the_clause() {
    let check = |clause: &str| {
        let ran = trapline(&root(), &["run", "embedded:ia32", "--rpn", clause]);
        assert_eq!(ran.code, 3, "{}", ran.err);
        ran.err.lines().next().unwrap().split(' ').next().unwrap().to_owned()
    };
    assert_eq!(check("fbt::do_fork:entry { push 1; pish 2; log 1 }"), "--rpn:1:30:");
    assert_eq!(check("fbt::do_fork:entry\n/ push 1; pish 2 /\n{ log 1 }"), "--rpn:2:11:");
    assert_eq!(check("fbt::do_fork:entry {\n  push 1; log 1\n  pish 2\n}"), "--rpn:3:3:");
    // A hexadecimal index declares its variable as a decimal one does.
    let ran = trapline(
        &root(),
        &["run", "embedded:ia32", "--stop-after", "1", "-q", "--rpn", "fbt::do_fork:entry { inc lv, 0x2 }"],
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
}
