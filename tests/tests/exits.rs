//! Requests of handlers to the host: core files by `exit 3`, services by `callk`.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use crate::cli::{Ran, trapline};
use trapline_rpn::services::{self, SERVICES};

/// Runs a program on an embedded guest, in `folder`.
fn run(folder: &Path, guest: &str, program: &str, more: &[&str]) -> Ran {
    std::fs::write(folder.join("p.rpn"), program).unwrap();
    let guest = format!("embedded:{guest}");
    let mut args = vec!["run", guest.as_str(), "-p", "p.rpn", "--digest"];
    args.extend(more);
    trapline(folder, &args)
}

fn digest(ran: &Ran) -> String {
    let line =
        ran.err.lines().find(|line| line.starts_with("digest ")).unwrap_or_else(|| panic!("{}", ran.err));
    line.to_owned()
}

/// A probe on a function of the guest's kernel or program.
fn probe(modtype: &str, function: &str, body: &str) -> String {
    let name = if modtype == "user" { "appln" } else { "vmlinux" };
    format!("name = {name}\nmodtype = {modtype}\noffset = {function}\nopcode = 0x55\n{body}\n")
}

#[test]
fn exit_3_leaves_a_core_file_that_gdb_unwinds_and_the_process_goes_on() {
    for guest in ["ia32", "x86_64"] {
        let folder = tempfile::tempdir().unwrap();
        let program = probe("user", "swap", "maxhits = 1\nexit 3");
        let ran = run(folder.path(), guest, &program, &[]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.err.contains("core.1: process 2 (appln) at 0x"), "{}", ran.err);
        let quiet = run(folder.path(), guest, &program.replace("exit 3", "exit"), &[]);
        assert_eq!(digest(&ran), digest(&quiet), "taking a core file does not affect the run");

        let module = trapline_guests::find(guest).unwrap().modules[0].1;
        std::fs::write(folder.path().join("appln"), module).unwrap();
        let gdb = Command::new("gdb")
            .args(["-nx", "-batch", "-ex", "bt", "-ex", "info symbol $pc", "appln", "core.1"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&gdb.stdout).into_owned();
        let frames: Vec<&str> = said.lines().filter(|line| line.starts_with('#')).collect();
        let order = [" swap (", " child (", " main ("];
        // gdb shows the first frame once more when it opens the file.
        for (frame, function) in frames[frames.len() - 3..].iter().zip(order) {
            assert!(frame.contains(function), "{said}");
        }
        assert!(said.contains("swap in section .text"), "{said}");
    }
}

#[test]
fn core_files_are_bounded_and_the_rest_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let program = probe("user", "work", "exit 3");
    let ran = run(folder.path(), "ia32", &program, &["--max-cores", "2"]);
    assert!(folder.path().join("core.2").is_file() && !folder.path().join("core.3").exists());
    assert!(ran.err.contains("`exit 3` wrote no core file, because --max-cores was reached"), "{}", ran.err);
    let first = std::fs::read(folder.path().join("core.1")).unwrap();
    let ran = run(folder.path(), "ia32", &program, &["--max-cores", "1"]);
    assert!(ran.err.contains("core.3: process "), "{}", ran.err);
    assert_eq!(first, std::fs::read(folder.path().join("core.1")).unwrap(), "none is overwritten");
    assert_eq!(first, std::fs::read(folder.path().join("core.3")).unwrap(), "the same run, the same bytes");
}

#[test]
fn a_core_file_that_cannot_be_written_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(folder.path(), "ia32", &probe("user", "swap", "exit 3"), &["--core-dir", "nowhere"]);
    assert_eq!(ran.code, 2);
    assert_eq!(ran.err, "trapline: error: --core-dir nowhere: there is no such folder; make it first\n");
}

#[test]
fn exit_1_says_where_a_debugger_stops() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(folder.path(), "ia32", &probe("kernel", "do_fork", "push 7\nlog 1\nexit 1"), &[]);
    assert!(
        ran.err.contains("`exit 1` asked for a debugger: `trapline gdb -p FILE` stops there"),
        "{}",
        ran.err
    );
    assert_eq!(ran.out.lines().next(), Some("DProbes(0,0) 07000000"), "{}", ran.out);
}

#[test]
fn stop_ends_the_run_when_the_instruction_has_completed() {
    let folder = tempfile::tempdir().unwrap();
    let stop = format!(
        "inc lv, 0\npush lv, 0\nlog 1\npush lv, 0\npush 3\nsub\njnz on\npush {}\ncallk\non: exit",
        services::STOP
    );
    let program = probe("kernel", "do_fork", &stop).replace("modtype", "vars = 1\nmodtype");
    let ran = run(folder.path(), "ia32", &program, &["-f", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let records = ran.out.lines().filter(|line| line.contains("\"type\":\"hit\"")).count();
    assert_eq!(records, 3, "{}", ran.out);
    assert!(ran.out.contains("a handler of p.rpn stopped the run"), "{}", ran.out);
    // The probed instruction is `push ebp`: an unprobed run as long has the same digest.
    let end: serde_json::Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    let insns = end["insns"].to_string();
    let plain = trapline(
        folder.path(),
        &["run", "embedded:ia32", "--limit-insns", &insns, "--digest", "--console", "none"],
    );
    assert_eq!(digest(&plain), format!("digest {}", end["digest"].as_str().unwrap()));
}

#[test]
fn a_frozen_channel_keeps_what_it_has_until_it_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    // Of the hits 1 to 6: after the second the channel is frozen, and with the fifth it resumes.
    let body = format!(
        "inc lv, 0\npush lv, 0\nlog 1\npush lv, 0\npush 2\nsub\njnz five\npush {}\ncallk\nexit\n\
         five: push lv, 0\npush 5\nsub\njnz on\npush {}\ncallk\non: exit",
        services::FREEZE,
        services::RESUME
    );
    let program = probe("kernel", "do_fork", &body).replace("modtype", "vars = 1\nmodtype");
    let ran = run(folder.path(), "ia32", &program, &[]);
    let logged: Vec<&str> = ran.out.lines().filter_map(|line| line.strip_prefix("DProbes(0,0) 0")).collect();
    assert_eq!(logged[..3], ["1000000", "2000000", "5000000"], "{}", ran.out);
    assert!(
        ran.err.contains("a hit left no record, because the channel was frozen (2 times)"),
        "{}",
        ran.err
    );
}

/// The elements that `log` wrote after its prefix, little-endian.
fn elements(line: &str, word: usize) -> Vec<u64> {
    let bytes: Vec<u8> =
        (0..line.len() / 2).map(|n| u8::from_str_radix(&line[2 * n..2 * n + 2], 16).unwrap()).collect();
    assert_eq!(bytes[0], 7, "{line}");
    bytes[3..].chunks(word).map(|c| c.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))).collect()
}

#[test]
fn the_kernel_stack_and_its_symbols_can_be_logged() {
    for (guest, word) in [("ia32", 4), ("x86_64", 8)] {
        let folder = tempfile::tempdir().unwrap();
        let body = format!("maxhits = 1\npush 8\npush {}\ncallk\nlog", services::KERNEL_STACK);
        let ran = run(folder.path(), guest, &probe("kernel", "swap_out", &body), &[]);
        let line = ran.out.lines().next().unwrap().rsplit(' ').next().unwrap();
        let frames = elements(line, word);
        assert!(frames.len() >= 2, "{frames:x?}");
        // Each frame's name by the service, and by the kernel's symbol table.
        let image = trapline_guests::find(guest).unwrap().image;
        let symbols = trapline_emu::symbols::Symbols::from_elf(image, "vmlinux").unwrap();
        for address in frames {
            let ip = if word == 4 { "eip" } else { "rip" };
            let body = format!(
                "maxhits = 1\npush {address:#x}\npush {}\ncallk\nlog\nlog 1\npush r, {ip}\nlog 1",
                services::SYMBOL
            );
            let ran = run(folder.path(), guest, &probe("kernel", "swap_out", &body), &[]);
            let line = ran.out.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned();
            let at = symbols.at(address).unwrap();
            let chunks = at.symbol.name.len().div_ceil(word);
            let end = 2 * (3 + chunks * word);
            let name: Vec<u8> =
                elements(&line[..end], word).iter().flat_map(|e| e.to_le_bytes()[..word].to_vec()).collect();
            let name = String::from_utf8(name).unwrap();
            assert_eq!(name.trim_end_matches('\0'), &*at.symbol.name, "{line}");
            let offset = elements(&format!("070000{}", &line[end..end + 2 * word]), word);
            assert_eq!(offset, [at.offset], "{line}");
        }
    }
}

#[test]
fn every_service_says_what_it_does_and_no_number_is_used_twice() {
    let mut numbers: Vec<u64> = SERVICES.iter().map(|s| s.number).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), SERVICES.len());
    let manual = std::fs::read_to_string(trapline_tests::root().join("docs/probe-language.md")).unwrap();
    for service in SERVICES {
        let row =
            format!("| {} | `{}` | `{}` | {} |", service.number, service.name, service.stack, service.does);
        assert!(manual.contains(&row), "docs/probe-language.md lacks:\n{row}");
    }
}
