//! Static probes of a kernel by their names: listed, enabled, refused with the reason. The kernel is compiled here.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::trapline;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use trapline_emu::load::ElfView;
use trapline_providers::sdt::{CallSites, Domain};
use trapline_tests::root;

const SOURCE: &str = r#"
#include <trapline/probe.h>
__asm__(".section .text.first,\"ax\"\n.long 0x1badb002, 0, -0x1badb002\n.text\n");
void __dtrace_probe_vm__page__out(long, long);
__attribute__((noipa)) void __dtrace_probe_mine(void) { }
__attribute__((noinline)) long work(long n, const char *s)
{
	TRAPLINE_PROBE_ns(begin, n * -2, s);
	__dtrace_probe_vm__page__out(n, 70);
	return n + 1;
}
__attribute__((noinline)) void ours(void) { __dtrace_probe_mine(); __asm__ volatile("nop"); }
void last(long n);
__asm__(".text\n.globl last\n.type last,@function\nlast: jmp __dtrace_probe_tail\n.size last, . - last");
volatile long result;
char stack[4096] __attribute__((aligned(16)));
void begin(void)
{
	for (long i = 1; i <= 3; i++) {
		result += work(i, "text");
		last(i);
	}
	ours();
	for (;;)
		__asm__ volatile("cli; hlt");
}
__asm__(".globl _start\n_start: mov $stack + 4096, %esp\ncall begin\n");
"#;

/// The kernel as linked.
fn kernel(folder: &Path) -> PathBuf {
    std::fs::write(folder.join("kernel.c"), SOURCE).unwrap();
    let path = folder.join("kernel");
    let flags = "-m32 -O2 -fno-inline -mgeneral-regs-only -ffreestanding -nostdlib -static -no-pie -fno-pic \
                 -fno-stack-protector -fcf-protection=none -fno-asynchronous-unwind-tables -Wl,-q \
                 -Wl,--unresolved-symbols=ignore-all -Wl,-Ttext-segment=0x100000 -Wl,-z,noexecstack -Wl,--build-id=none";
    let include = root().join("guest-images/include");
    let out = Command::new("gcc")
        .args(flags.split_whitespace())
        .args(["-I", include.to_str().unwrap(), "-o", path.to_str().unwrap()])
        .arg(folder.join("kernel.c"))
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    path
}

/// The same, prepared by a loader that supports such probes.
fn load(path: &Path) {
    let mut file = std::fs::read(path).unwrap();
    CallSites::read(&ElfView::parse(&file).unwrap(), Domain::Kernel).unwrap().load_into(&mut file);
    std::fs::write(path, file).unwrap();
}

/// A file `kernel` with static probes that a loader has prepared.
pub fn loaded_kernel(folder: &Path) {
    load(&kernel(folder));
}

#[test]
fn static_probes_of_a_kernel_are_listed_with_their_sites_and_refusals_with_the_reason() {
    let folder = TempDir::new().unwrap();
    let path = kernel(folder.path());
    let list = |spec: &str| trapline(folder.path(), &["list", "kernel", spec, "-v", "-q"]);
    let raw = list("sdt:::tail");
    assert!(raw.out.contains("a call that was not replaced by a loader"), "{}\n{}", raw.out, raw.err);
    let refused = trapline(folder.path(), &["run", "kernel", "-n", "sdt:::tail", "-q"]);
    assert!(
        refused.code != 0 && refused.err.contains("a lock nop site has five one-byte NOPs"),
        "{}",
        refused.err
    );

    load(&path);
    let all = list("sdt:::");
    let lines: Vec<String> =
        all.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let names: Vec<&str> =
        lines.iter().filter_map(|line| line.split_once(" sdt ")).map(|(_, name)| name).collect();
    assert_eq!(names, ["kernel last tail", "kernel work begin", "kernel work vm-page-out"], "{}", all.out);
    for wanted in [
        "last+0x0 lock nop, tail call",
        " lock nop",
        "pointer of a macro-declared probe, visible to the guest (integer n * -2, string s)",
        "__dtrace_probe_mine: the file defines this function; a probe is a call to one that does not exist",
    ] {
        assert!(lines.iter().any(|line| line.ends_with(wanted)), "{wanted}\n{}", all.out);
    }
    assert!(lines.last().unwrap().starts_with("refused in kernel: the probe site at 0x10"), "{}", all.out);
}

/// The bytes that fetches see at the site of a probe: those of the patch, and no other of the call.
#[test]
fn a_static_probe_that_is_given_as_offset_is_shown_armed_where_its_prefix_is() {
    let folder = TempDir::new().unwrap();
    loaded_kernel(folder.path());
    let text = "name = kernel\nmodtype = kernel\noffset = \"sdt:::vm-page-out\"\nopcode = 0x90\nexit\n";
    std::fs::write(folder.path().join("p.rpn"), text).unwrap();
    let dis = trapline(folder.path(), &["dis", "kernel", "work", "-p", "p.rpn", "--armed"]);
    assert_eq!(dis.code, 0, "{}", dis.err);
    assert!(!dis.err.contains("outside this function"), "{}", dis.err);
    let rows: Vec<Vec<&str>> =
        dis.out.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let at = rows.iter().position(|row| row.contains(&"lock")).unwrap();
    assert!(rows[at].join(" ").contains(" 90 nop f0 lock nop emulated"), "{}", dis.out);
    assert!(rows[at].join(" ").ends_with("<- p.rpn:3"), "{}", dis.out);
    // The five bytes of the call are NOPs, and this is the second of them.
    let nops = |row: &Vec<&str>| row.get(2..4) == Some(&["90", "nop"][..]);
    let first = (0..=at).rev().take_while(|n| nops(&rows[*n])).last().unwrap();
    assert_eq!(at - first, 1, "{}", dis.out);
    assert!(rows[first..first + 5].iter().all(nops), "{}", dis.out);
    assert_eq!(rows.iter().filter(|row| row.join(" ").contains(" int3")).count(), 0, "{}", dis.out);
}

#[test]
fn static_probes_of_a_kernel_fire_by_their_names() {
    let folder = TempDir::new().unwrap();
    loaded_kernel(folder.path());
    let specs = "sdt:::vm-page-out { push arg, 1; push arg, 0; log 2 }";
    let run = trapline(
        folder.path(),
        &[
            "run",
            "kernel",
            "--rpn",
            specs,
            "--rpn",
            "sdt:::tail { push arg, 0; log 1 }",
            "--rpn",
            "sdt:::begin { push arg, 0; log 1 }",
            "-q",
        ],
    );
    assert_eq!(run.code, 0, "{}", run.err);
    let mut wanted = Vec::new();
    for n in 1..=3u32 {
        let word =
            |value: u32| value.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        wanted.push(format!("DProbes(0,0) probe=sdt:kernel:work:begin {}", word((2 * n).wrapping_neg())));
        wanted.push(format!("DProbes(0,0) probe=sdt:kernel:work:vm-page-out {}{}", word(n), word(70)));
        wanted.push(format!("DProbes(0,0) probe=sdt:kernel:last:tail {}", word(n)));
    }
    assert_eq!(run.out.lines().collect::<Vec<_>>(), wanted, "{}", run.err);
}
