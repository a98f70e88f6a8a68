//! Small kernels of our own, built here from `tests/kernels`: they print and end as under qemu, whichever protocol boots them.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::cli::{Ran, finish, folder, patient, trapline};
use trapline_tests::root;

/// The exit code that qemu makes of the value 42.
const ENDED: i32 = 85;

/// Builds a kernel: bits, protocol, format, name and sources, then definitions after `--`.
pub fn build(folder: &Path, arguments: &[&str]) {
    let mut command = patient(root().join("tests/kernels/build"));
    command.args(arguments).current_dir(folder);
    let ran = finish(command);
    assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.err);
}

/// Runs a kernel under qemu; its console on standard output.
pub fn under_qemu(folder: &Path, arguments: &[&str]) -> Ran {
    let mut command = patient("qemu-system-x86_64");
    command.args(["-M", "pc", "-m", "64", "-cpu", "Nehalem", "-display", "none", "-serial", "stdio"]);
    command.args(["-no-reboot", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
    command.args(arguments).current_dir(folder);
    finish(command)
}

fn run(folder: &Path, arguments: &[&str]) -> Ran {
    trapline(folder, &[&["run"], arguments, &["--mem", "64M"]].concat())
}

#[test]
fn a_64_bit_kernel_in_multiboot_elf32_runs_as_under_qemu() {
    let folder = folder(&[("data", b"hello\n")]);
    let folder = folder.path();
    build(folder, &["64", "MULTIBOOT", "elf32", "k", "boot.c"]);
    let ours = run(folder, &["k", "--cmdline", "one two", "--module", "data some words"]);
    let theirs = under_qemu(folder, &["-kernel", "k", "-append", "one two", "-initrd", "data some words"]);
    assert_eq!((ours.code, theirs.code), (ENDED, ENDED), "{}", ours.err);
    assert_eq!(ours.out, theirs.out);
    assert!(ours.out.ends_with("boot: end\n"), "{}", ours.out);
    assert!(ours.err.contains("the guest wrote 0x2a to the debug-exit port"), "{}", ours.err);
}

#[test]
fn a_pvh_kernel_runs_as_under_qemu_in_both_widths() {
    let folder = folder(&[("data", b"hello\n")]);
    let folder = folder.path();
    for format in ["elf64", "elf32"] {
        build(folder, &["64", "PVH", format, "k", "boot.c"]);
        let ours = run(folder, &["k", "--cmdline", "one two", "--module", "data"]);
        let theirs = under_qemu(folder, &["-kernel", "k", "-append", "one two", "-initrd", "data"]);
        assert_eq!((ours.code, theirs.code), (ENDED, ENDED), "{format}: {}", ours.err);
        assert_eq!(ours.out, theirs.out, "{format}");
        assert!(ours.out.ends_with("boot: end\n"), "{format}: {}", ours.out);
    }
}

/// `tests/oracle/multiboot2.txt` is what the kernel prints when GRUB boots it under qemu (`scripts/qemu-oracle multiboot2`). The
/// order of what it is told may differ.
#[test]
fn a_multiboot_2_kernel_is_told_what_grub_tells_it() {
    let folder = folder(&[("data", b"hello\n")]);
    let folder = folder.path();
    let grub = std::fs::read_to_string(root().join("tests/oracle/multiboot2.txt")).unwrap();
    for format in ["elf64", "elf32"] {
        build(folder, &["64", "MULTIBOOT2", format, "k", "boot.c"]);
        let ran = run(folder, &["k", "--cmdline", "one two", "--module", "data some words"]);
        assert_eq!(ran.code, ENDED, "{format}: {}", ran.err);
        // A section header of ELF64 has 64 bytes; qemu's ACPI has no root pointer of the second version.
        let size = if format == "elf64" { "sections: 64 bytes" } else { "sections: 40 bytes" };
        let grub = grub.replace("sections: 40 bytes", size);
        let mut ours: Vec<&str> =
            ran.out.lines().filter(|line| *line != "acpi root pointer 15: RSD").collect();
        let mut theirs: Vec<&str> = grub.lines().collect();
        assert_eq!(ours.len() + 1, ran.out.lines().count(), "{format}");
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours, theirs, "{format}");
    }
}

#[test]
fn the_cpu_is_chosen_by_need_and_by_option() {
    let folder = folder(&[]);
    let folder = folder.path();
    build(folder, &["64", "MULTIBOOT", "elf32", "k", "boot.c"]);
    assert_eq!(run(folder, &["k", "--cpu", "x86-64", "-q"]).code, ENDED);
    // Without long mode: no EFER.
    let refused = run(folder, &["k", "--cpu", "ia32"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("triple fault"), "{}", refused.err);
    build(folder, &["64", "PVH", "elf64", "k", "boot.c"]);
    let refused = run(folder, &["k", "--cpu", "ia32"]);
    assert_eq!(
        (refused.code, refused.err.as_str()),
        (2, "trapline: error: k is a 64-bit image, which --cpu ia32 cannot run; use --cpu x86-64\n")
    );
}

#[test]
fn a_script_types_on_the_keyboard_and_the_text_screen_is_shown() {
    // h, Shift with 1, Enter: pressed and released.
    const CODES: &str = "23 a3 2a 02 82 aa 1c 9c";
    let folder = folder(&[("keys.script", b"at insns=100000 type keyboard \"h!\\n\"\n")]);
    let folder = folder.path();
    build(folder, &["32", "MULTIBOOT", "elf32", "k", "keys.c"]);
    let script = ["k", "--script", "keys.script", "-q"];
    let screen = run(folder, &[&script[..], &["--console", "vga"]].concat());
    assert_eq!((screen.code, screen.err.as_str()), (1, format!("{CODES}\n").as_str()));
    let serial = run(folder, &[&script[..], &["--console", "com1.txt"]].concat());
    assert_eq!(serial.code, 1, "{}", serial.err);
    let text = std::fs::read_to_string(folder.join("com1.txt")).unwrap();
    assert_eq!(text, format!("{CODES} \n"));
    std::fs::write(folder.join("keys.script"), "at insns=100000 type keyboard \"\\xe9\"\n").unwrap();
    let refused = run(folder, &script);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("no key of the keyboard types the character 0xe9"), "{}", refused.err);
}
