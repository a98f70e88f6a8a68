//! The same output on other hosts: `trapline` on CPUs that qemu's user mode emulates, and with other choices of the C library
//! among its functions. On them, the engine generates other instructions, and the library copies, compares and computes in
//! other ways.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;

use crate::cli::{Ran, binary, finish, folder, patient, trapline};
use trapline_tests::{guest, root};

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    /// A CPU of qemu's: `Nehalem` has no AVX, no BMI and no fast strings, `qemu64` even less; `max` has all that qemu knows.
    Cpu(&'static str),
    /// glibc without the functions for these features of the CPU.
    Without(&'static str),
}

const NEHALEM: Host = Host::Cpu("Nehalem");
const MAX: Host = Host::Cpu("max");
/// No vectors of more than 128 bits and no fast strings; then all but the widest vectors.
const PLAIN: Host =
    Host::Without("-AVX2,-AVX,-FMA,-FMA4,-ERMS,-FSRM,-BMI2,-AVX512F,-AVX512VL,-AVX512BW,-SSE4_2,-SSSE3");
const NARROW: Host = Host::Without("-AVX512F,-AVX512VL,-AVX512BW,-ERMS");
const ALL: [Host; 5] = [Host::Cpu("qemu64"), NEHALEM, MAX, PLAIN, NARROW];

/// The name of the variable, and the value that leaves functions out.
fn tunables(without: &str) -> (&'static str, String) {
    ("GLIBC_TUNABLES", format!("glibc.cpu.hwcaps={without}"))
}

impl Host {
    fn command(self) -> Command {
        match self {
            Self::Cpu(cpu) => {
                let mut command = patient("qemu-x86_64");
                command.args(["-cpu", cpu]).arg(binary());
                command
            }
            Self::Without(features) => {
                let (name, value) = tunables(features);
                let mut command = patient(binary());
                command.env(name, value);
                command
            }
        }
    }

    /// Runs `trapline ARGS` there.
    fn run(self, args: &[&str]) -> Ran {
        let mut command = self.command();
        command.args(args).current_dir(root()).env_remove("RUST_BACKTRACE");
        finish(command)
    }

    /// Runs it here and there.
    fn is_the_same(self, code: i32, args: &[&str]) {
        let here = trapline(&root(), args);
        assert_eq!(here.code, code, "{}", here.err);
        let there = self.run(args);
        assert_eq!(there.err, here.err, "{self:?}: {args:?}");
        assert_eq!((there.code, there.out), (here.code, here.out), "{self:?}: {args:?}");
    }
}

#[test]
fn the_demo_is_the_same() {
    for host in [NEHALEM, MAX, PLAIN] {
        for guest in ["ia32", "x86_64"] {
            host.is_the_same(0, &["demo", "--manual", guest]);
        }
    }
}

/// Otherwise the next tests compare a run with itself.
#[test]
fn the_library_takes_other_functions_without_these_features() {
    let source = "#include <stdio.h>\n#include <string.h>\n\
                  int main(void) { printf(\"%p %p %p\\n\", (void *)memcpy, (void *)memset, (void *)strlen); }\n";
    let folder = folder(&[("names.c", source.as_bytes())]);
    let program = folder.path().join("names");
    let mut gcc = patient("gcc");
    gcc.args(["-fno-builtin", "-static", "-no-pie", "-o"]).arg(&program).arg(folder.path().join("names.c"));
    assert_eq!(finish(gcc).code, 0);
    let chosen = |without: Option<&str>| {
        let mut command = patient(&program);
        command.envs(without.map(tunables));
        finish(command).out
    };
    let Host::Without(features) = PLAIN else { panic!() };
    assert_ne!(chosen(Some(features)), chosen(None));
}

/// Every recording gives its digests, records and console there too.
fn the_recordings_are_verified(hosts: &[Host]) {
    let here = trapline(&root(), &["verify", "tests/recordings"]);
    assert!(here.code == 0 && here.out.lines().count() >= 30, "{}{}", here.out, here.err);
    for host in hosts {
        let there = host.run(&["verify", "tests/recordings"]);
        assert_eq!((there.code, &there.out), (0, &here.out), "{host:?}: {}", there.err);
    }
}

#[test]
fn the_recordings_are_verified_with_other_functions_of_the_library() {
    the_recordings_are_verified(&[PLAIN, NARROW]);
}

#[test]
fn the_recordings_are_verified_on_other_hosts_at_length() {
    the_recordings_are_verified(&ALL);
}

/// A boot of Linux with probes: records, console, and a digest of all that the guest has.
fn linux(host: Host, kernel: &str, initrd: &str, instructions: &str) {
    let initrd = format!(".guests/{initrd}.cpio.gz");
    let kernel = format!(".guests/{kernel}");
    let run = ["run", &kernel, "--initrd", &initrd, "--limit-insns", instructions, "--digest"];
    let probes = ["-n", "fbt::*alloc_pages*:entry", "-n", "fbt::vfs_*:return", "-f", "json"];
    host.is_the_same(124, &[&run[..], &probes].concat());
}

#[test]
fn guest_linux_amd64_is_the_same_without_newer_instructions_at_length() {
    linux(NEHALEM, "linux-cloud-amd64", "initramfs-amd64", "200000000");
}

#[test]
fn guest_linux_686_is_the_same_with_newer_instructions_at_length() {
    linux(MAX, "linux-686", "initramfs-i386", "120000000");
}

/// Whole boots, of which `guest_linux_transparency.rs` compares this host with recorded digests. qemu would take an hour for each.
#[test]
fn guest_linux_boots_are_the_same_with_other_functions_of_the_library_at_length() {
    for (flavour, initrd, cpu) in [
        ("686", "initramfs-i386", "ia32"),
        ("amd64", "initramfs-amd64", "x86-64"),
        ("cloud-amd64", "initramfs-amd64", "x86-64"),
    ] {
        let (kernel, initrd) = (guest(&format!("linux-{flavour}")), guest(&format!("{initrd}.cpio.gz")));
        let run = [
            "run", &kernel, "--initrd", &initrd, "--mem", "256M", "--cpu", cpu, "--until", "/ # ", "--digest",
        ];
        for host in [PLAIN, NARROW] {
            host.is_the_same(0, &run);
        }
    }
}
