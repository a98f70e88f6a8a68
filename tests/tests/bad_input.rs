//! Bad input: one clear sentence on standard error, nothing on standard output, and the right exit code.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::cli::{Ran, folder, kernel_probe, trapline};
use trapline_emu::load::Image;
use trapline_tests::fetched;

const GUEST: &str = "embedded:ia32";

/// A run that fails before anything is printed.
fn refused(folder: &Path, args: &[&str], code: i32) -> String {
    let ran = trapline(folder, args);
    assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args:?}: {}", ran.err);
    ran.err
}

/// The image `bytes` is refused with exit code 7 and this sentence.
fn bad_image(bytes: &[u8], sentence: &str) {
    let folder = folder(&[("image", bytes)]);
    assert_eq!(
        refused(folder.path(), &["run", "image"], 7),
        format!("trapline: error: cannot load image: {sentence}\n")
    );
}

/// The probe program `text` is refused with exit code 3 and this diagnosis.
fn bad_probe(text: &str, diagnosis: &str) {
    let folder = folder(&[("p.rpn", text.as_bytes())]);
    assert_eq!(refused(folder.path(), &["run", GUEST, "-p", "p.rpn"], 3), diagnosis);
}

fn vmlinux() -> Vec<u8> {
    trapline_guests::IA32.image.to_vec()
}

#[test]
fn missing_image() {
    let folder = folder(&[]);
    let text = "trapline: error: cannot read nothere: No such file or directory\n";
    assert_eq!(refused(folder.path(), &["run", "nothere"], 7), text);
    assert_eq!(refused(folder.path(), &["list", "nothere"], 7), text);
}

#[test]
fn empty_image() {
    bad_image(b"", "the image is empty (0 bytes)");
}

#[test]
fn foreign_image() {
    bad_image(b"\0#!/", "this is no ELF, Multiboot, bzImage or gzip file: it begins with 00 23 21 2f");
    bad_image(b"#!/bin/sh\n", "this is a script; in a Linux guest, type its name (docs/script.md)");
}

#[test]
fn image_of_the_wrong_class() {
    let mut image = vmlinux();
    image[4] = 2;
    bad_image(&image, "the ELF machine is 3 (386) in a 64-bit file; it must be 62 (x86-64)");
    image[4] = 9;
    bad_image(&image, "the ELF class is 9; it must be 1 (32-bit) or 2 (64-bit)");
}

/// One sentence, whatever its content.
fn one_sentence(ran: &Ran, what: &str) {
    assert_eq!((ran.code, ran.out.as_str()), (7, ""), "{what}: {}", ran.err);
    assert!(ran.err.starts_with("trapline: error: cannot load cut: "), "{what}: {}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{what}: {}", ran.err);
    assert!(ran.err.len() < 400, "{what}: {}", ran.err);
}

#[test]
fn embedded_image_truncated_at_every_4_kib() {
    let image = vmlinux();
    for len in (0..image.len()).step_by(4096) {
        let folder = folder(&[("cut", &image[..len])]);
        one_sentence(&trapline(folder.path(), &["run", "cut"]), &format!("{len} bytes"));
    }
}

#[test]
fn guest_image_truncated_at_every_4_kib() {
    for name in ["gnumach", "gnumach.gz"] {
        let image = fetched(name).unwrap();
        assert!(Image::parse(&image, name).is_ok());
        // In this process, which saves a minute. Unpacking is slow, so fewer positions of a gzip file are tried.
        let step = if name == "gnumach" { 4096 } else { 64 << 10 };
        for len in (0..image.len()).step_by(step) {
            let error = Image::parse(&image[..len], name).expect_err("a truncated image").to_string();
            assert!(!error.is_empty() && !error.contains('\n') && error.len() < 300, "{len} bytes: {error}");
        }
        for len in (0..image.len()).step_by(image.len() / 8) {
            let folder = folder(&[("cut", &image[..len])]);
            one_sentence(&trapline(folder.path(), &["run", "cut"]), &format!("{name}, {len} bytes"));
        }
    }
}

/// The embedded kernel with one field of its first program header replaced.
fn with_program_header(field: usize, value: u32) -> Vec<u8> {
    let mut image = vmlinux();
    let at = u32::from_le_bytes(image[28..32].try_into().unwrap()) as usize + field;
    image[at..at + 4].copy_from_slice(&value.to_le_bytes());
    image
}

#[test]
fn hostile_program_headers() {
    const OFFSET: usize = 4;
    const PADDR: usize = 12;
    const FILE_SIZE: usize = 16;
    const MEM_SIZE: usize = 20;
    let mut images = vec![
        ("offset", with_program_header(OFFSET, 0xffff_f000)),
        ("file size", with_program_header(FILE_SIZE, 0xffff_ffff)),
        ("memory size below file size", with_program_header(MEM_SIZE, 1)),
        ("wrapping", with_program_header(MEM_SIZE, 0xffff_ffff)),
        ("low memory", with_program_header(PADDR, 0)),
        ("overlap", with_program_header(PADDR, 0x10_2000)),
    ];
    for (what, at, bytes) in [
        ("table outside the file", 28, 0xffff_fff0u32.to_le_bytes()),
        ("entry outside", 24, 0x1234u32.to_le_bytes()),
        // e_phentsize and e_phnum.
        ("entry size", 42, [8, 0, 2, 0]),
        ("no segment", 42, [32, 0, 0, 0]),
        ("too many", 42, [32, 0, 0xff, 0xff]),
    ] {
        let mut image = vmlinux();
        image[at..at + 4].copy_from_slice(&bytes);
        images.push((what, image));
    }
    for (what, image) in images {
        let folder = folder(&[("cut", &image)]);
        one_sentence(&trapline(folder.path(), &["run", "cut"]), what);
    }
}

#[test]
fn image_larger_than_memory() {
    let folder = folder(&[]);
    assert_eq!(
        refused(folder.path(), &["run", GUEST, "--mem", "1M"], 2),
        "trapline: error: cannot build the machine: the image needs physical memory up to 0x152034, but the machine \
         has 0x100000 bytes of RAM\n"
    );
}

#[test]
fn unknown_symbol_names_near_misses() {
    bad_probe(
        &kernel_probe("offset = do_frok", "0x55"),
        "p.rpn:4:10: error: unknown symbol `do_frok` in \"vmlinux\"\n  offset = do_frok\n           ^^^^^^^\n  \
         help: did you mean `do_fork`?\n",
    );
    let folder = folder(&[]);
    assert_eq!(
        refused(folder.path(), &["list", GUEST, "do_frok"], 2),
        "trapline: error: no function of embedded:ia32 matches `do_frok`; did you mean `do_fork`?\n"
    );
}

#[test]
fn opcode_mismatch_shows_both_bytes() {
    bad_probe(
        &kernel_probe("offset = do_fork", "0x83"),
        "p.rpn:4:10: error: opcode = 0x83, but the byte at do_fork (0xc0100f91) is 0x55 (55: `push ebp`)\n  \
         offset = do_fork\n           ^^^^^^^\n  help: the program may have been written for another \
         file; opcode = 0x55 matches this one\n",
    );
}

#[test]
fn offset_inside_an_instruction() {
    bad_probe(
        &kernel_probe("offset = do_fork + 2", "0xe5"),
        "p.rpn:4:10: error: do_fork+0x2 (0xc0100f93) lies inside the instruction `mov ebp,esp` (89 e5), which begins \
         at do_fork+0x1 (0xc0100f92) and ends before do_fork+0x3 (0xc0100f94)\n  offset = do_fork + 2\n           \
         ^^^^^^^^^^^\n  help: the nearest instructions begin at do_fork+0x1 (0xc0100f92) and do_fork+0x3 \
         (0xc0100f94)\n",
    );
}

#[test]
fn unmapped_address() {
    bad_probe(
        &kernel_probe("address = 0x10", "0x55"),
        "p.rpn:4:11: error: 0x10 is not in vmlinux, which has the addresses 0xc0100000..0xc01025dc, \
         0xc0103000..0xc01037a9, 0xc0104000..0xc0152034\n  address = 0x10\n            ^^^^\n",
    );
}

#[test]
fn address_that_is_not_executable() {
    bad_probe(
        &kernel_probe("offset = current_task", "0x55"),
        "p.rpn:4:10: error: current_task (0xc0104284) is not executable: it lies in the section .data of vmlinux\n  \
         offset = current_task\n           ^^^^^^^^^^^^\n",
    );
}

#[test]
fn unknown_module() {
    bad_probe(
        "name = aplpn\nmajor = 1\noffset = main\nopcode = 0x55\nminor = 1\nexit\n",
        "p.rpn:1:8: error: no user module `aplpn`; the known ones are `appln`\n  name = aplpn\n         ^^^^^\n  help: \
         add the program with --module FILE, or with --file /PATH/IN/GUEST=FILE if the guest has it; name = must be its name\n",
    );
}

#[test]
fn malformed_program_shows_file_line_column_and_caret() {
    let text = kernel_probe("offset = do_fork", "0x55").replace("push pid", "psh pid");
    let diagnosis =
        "p.rpn:7:1: error: unknown instruction `psh`\n  psh pid\n  ^^^\n  help: did you mean `push`?\n";
    bad_probe(&text, diagnosis);
    let folder = folder(&[("p.rpn", text.as_bytes()), ("noise.rpn", b"\xff\xfe")]);
    let explains = "trapline: `trapline check --explain CODE` explains unknown-instruction\n";
    assert_eq!(refused(folder.path(), &["check", "p.rpn"], 3), format!("{diagnosis}{explains}"));
    assert_eq!(
        refused(folder.path(), &["check", "noise.rpn"], 7),
        "trapline: error: noise.rpn is not text: byte 0 is not UTF-8\n"
    );
}

#[test]
fn every_error_of_a_program_is_shown() {
    let text =
        kernel_probe("offset = do_fork", "0x55").replace("push pid\nlog 1", "psh pid\njmp nowhere\nlog lv");
    let folder = folder(&[("p.rpn", text.as_bytes())]);
    let said = refused(folder.path(), &["check", "p.rpn"], 3);
    let places: Vec<&str> = said.lines().filter(|line| line.starts_with("p.rpn:")).collect();
    assert!(places.len() >= 2, "{said}");
    assert!(
        places[0].starts_with("p.rpn:7:1: error: ") && places[1].starts_with("p.rpn:8:1: error: "),
        "{said}"
    );
}

/// A value that clap refuses.
fn bad_option(option: &str, value: &str, shown: &str, why: &str) {
    let folder = folder(&[]);
    let said = refused(folder.path(), &["run", GUEST, option, value], 2);
    assert_eq!(said.lines().next().unwrap(), format!("error: invalid value '{value}' for '{shown}': {why}"));
}

#[test]
fn bad_options() {
    let no_number =
        |text: &str| format!("`{text}` is not a number; write 1500000, 1_500_000, 0x16e360, 1500K or 2M");
    bad_option("--mem", "12Q", "--mem <SIZE>", &no_number("12Q"));
    bad_option(
        "--mem",
        "100",
        "--mem <SIZE>",
        "guest memory of 100 bytes is not possible; use 1M to 32G, in multiples of 4K",
    );
    bad_option("--mem", "", "--mem <SIZE>", &no_number(""));
    bad_option(
        "--header",
        "pid,shoe",
        "--header <ITEMS>",
        "unknown header item `shoe`: the items are cpu, name, pid, uid, cs, eip, ss, esp, tsc, all, none",
    );
    bad_option("--limit-insns", "x", "--limit-insns <N>", &no_number("x"));
    for (option, shown) in [("--limit-insns", "--limit-insns <N>"), ("--stop-after", "--stop-after <N>")] {
        bad_option(option, "0", shown, "0 has no effect here; use a number of at least 1");
    }
    let range = |most: u64| format!("0 is out of range; use a number from 1 to {most}");
    bad_option("--max-steps", "0", "--max-steps <N>", &range(u32::MAX.into()));
    bad_option("--stack", "0", "--stack [<DEPTH>]", &range(256));
}

#[test]
fn memory_that_no_host_gives() {
    let folder = folder(&[]);
    let said = refused(folder.path(), &["run", GUEST, "--mem", "999999G"], 2);
    assert!(said.starts_with("trapline: error: cannot build the machine: guest memory of "), "{said}");
    assert_eq!(said.lines().count(), 1);
}

#[test]
fn output_that_cannot_be_written() {
    let folder = folder(&[("p.rpn", kernel_probe("offset = do_fork", "0x55").as_bytes())]);
    let run = |more: &[&str]| {
        let mut args = vec!["run", GUEST, "-p", "p.rpn"];
        args.extend(more);
        refused(folder.path(), &args, 7)
    };
    let missing = "trapline: error: cannot write nothere/out: No such file or directory\n";
    assert_eq!(run(&["-o", "nothere/out"]), missing);
    assert_eq!(run(&["--console", "nothere/out"]), missing);
    assert_eq!(
        run(&["-o", "/dev/full"]),
        "trapline: error: cannot write /dev/full: No space left on device\n"
    );
}

#[test]
fn until_that_never_comes_ends_at_the_limit() {
    let folder = folder(&[]);
    let args = ["run", GUEST, "--console", "none", "--until", "NEVER", "--limit-insns", "100000"];
    let ran = trapline(folder.path(), &args);
    assert_eq!(ran.code, 124);
    assert_eq!(ran.err, "trapline: the instruction limit was reached after 100000 instructions\n");
}

#[test]
fn until_that_comes_ends_there() {
    let folder = folder(&[]);
    let ran =
        trapline(folder.path(), &["run", GUEST, "--until", "appln: main at", "--limit-insns", "1000000"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.ends_with("appln: main at"), "{}", ran.out);
}

/// An ELF32 kernel of this code, loaded and entered at 1 MiB.
fn kernel(code: &[u8]) -> Vec<u8> {
    const HEADERS: u32 = 52 + 32;
    const BASE: u32 = 0x10_0000;
    let size = code.len() as u32;
    let mut elf = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let half = |elf: &mut Vec<u8>, values: &[u16]| values.iter().for_each(|v| elf.extend(v.to_le_bytes()));
    let word = |elf: &mut Vec<u8>, values: &[u32]| values.iter().for_each(|v| elf.extend(v.to_le_bytes()));
    half(&mut elf, &[2, 3]);
    word(&mut elf, &[1, BASE, 52, 0, 0]);
    half(&mut elf, &[52, 32, 1, 40, 0, 0]);
    word(&mut elf, &[1, HEADERS, BASE, BASE, size, size, 5, 4]);
    elf.extend(code);
    elf
}

#[test]
fn a_guest_that_crashes() {
    // ud2, with no IDT: #UD, #DF, and the end.
    let folder = folder(&[("crash", &kernel(&[0x90, 0x0f, 0x0b])), ("halt", &kernel(&[0xfa, 0xf4]))]);
    let crash = trapline(folder.path(), &["run", "crash"]);
    assert_eq!((crash.code, crash.out.as_str()), (4, ""), "{}", crash.err);
    let mut lines = crash.err.lines();
    let sentence = lines.next().unwrap();
    assert!(
        sentence.starts_with("trapline: the guest crashed: triple fault at 0x100001 (exceptions 6, "),
        "{sentence}"
    );
    assert!(sentence.ends_with(" after 1 instruction"), "{sentence}");
    assert!(lines.any(|line| line.contains("ip=00100001")), "a state report: {}", crash.err);
    let json = trapline(folder.path(), &["run", "crash", "-f", "json"]);
    assert_eq!(json.code, 4);
    assert!(json.out.lines().last().unwrap().contains("\"exit\":4"), "{}", json.out);
    assert_eq!(trapline(folder.path(), &["run", "halt"]).code, 0);
}

#[test]
fn a_guest_in_a_mode_that_is_not_supported() {
    // mov eax, cr0; and al, 0xfe; mov cr0, eax; nop: real mode.
    let real = kernel(&[0x0f, 0x20, 0xc0, 0x24, 0xfe, 0x0f, 0x22, 0xc0, 0x90, 0x90, 0xf4]);
    // V86: push eflags with VM, and iret to it.
    let v86 = kernel(&[
        0x6a, 0, 0x6a, 0, 0x6a, 0, 0x6a, 0, 0x6a, 0, 0x68, 0, 0x10, 0, 0, 0x68, 2, 0, 2, 0, 0x6a, 0, 0x6a, 0,
        0xcf,
    ]);
    // The boot loader sets up no stack: use one at 2 MiB.
    let with_stack = |code: &[u8]| {
        let mut all = vec![0xbc, 0, 0, 0x20, 0];
        all.extend(&code[52 + 32..]);
        kernel(&all)
    };
    let folder = folder(&[("real", &with_stack(&real)), ("v86", &with_stack(&v86))]);
    for (file, what) in [("real", "real mode"), ("v86", "virtual-8086 mode")] {
        let ran = trapline(folder.path(), &["run", file, "--limit-insns", "1000"]);
        assert_eq!(ran.code, 4, "{file}: {}", ran.err);
        let sentence = ran.err.lines().next().unwrap();
        assert!(
            sentence.starts_with(&format!("trapline: the machine cannot go on: it does not support {what}, which the guest entered at CS:IP ")),
            "{file}: {sentence}"
        );
    }
}

#[test]
fn a_guest_that_says_it_crashed() {
    let folder = folder(&[]);
    let ran =
        trapline(folder.path(), &["run", GUEST, "--console", "none", "--crash-on", "general protection"]);
    assert_eq!(ran.code, 4);
    let sentence = "trapline: the guest crashed: the console showed \"general protection\" after ";
    assert!(ran.err.starts_with(sentence), "{}", ran.err);
}

#[test]
fn nothing_to_do() {
    let folder = folder(&[]);
    assert!(refused(folder.path(), &["run"], 2).contains("<IMAGE>"));
    assert!(refused(folder.path(), &["frobnicate"], 2).contains("unrecognized subcommand 'frobnicate'"));
    assert_eq!(
        refused(folder.path(), &["run", "embedded:pdp11"], 2),
        "trapline: error: there is no embedded guest \"pdp11\"; there are embedded:ia32 and embedded:x86_64\n"
    );
}

#[test]
fn invalid_disks() {
    let folder = folder(&[("odd.img", &[0; 700]), ("empty.img", &[])]);
    let refuse = |more: &[&str], code| refused(folder.path(), &[&["run", GUEST], more].concat(), code);
    let pc = |image| refuse(&["--platform", "pc", "--disk", image], 7);
    let size = "is not possible: the size must be a multiple of 512, and not 0\n";
    assert_eq!(pc("odd.img"), format!("trapline: error: odd.img: a disk of 700 bytes {size}"));
    assert_eq!(pc("empty.img"), format!("trapline: error: empty.img: a disk of 0 bytes {size}"));
    assert_eq!(pc("."), "trapline: error: cannot read .: not a regular file\n");
    assert_eq!(pc("no.img"), "trapline: error: cannot read no.img: No such file or directory\n");
    let none = "needs --platform pc: the minimal platform has no such device\n";
    for options in [&["--virtio-console"][..], &["--virtio-rng"], &["--fw-cfg", "opt/odd=odd.img"]] {
        let said = refuse(&[&["--platform", "minimal"], options].concat(), 2);
        assert_eq!(said, format!("trapline: error: {} {none}", options[0]));
    }
    let said = refuse(&["--platform", "mac"], 2);
    assert!(said.starts_with("error: invalid value 'mac' for '--platform <NAME>'"), "{said}");
}
