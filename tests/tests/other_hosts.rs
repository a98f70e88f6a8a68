//! The same output on other hosts: `trapline` on CPUs that qemu's user mode emulates. On them, the engine generates
//! other instructions, and the C library copies and compares in other ways.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, binary, finish, patient, trapline};
use trapline_tests::root;

/// The first has no AVX, no BMI and no fast strings; the second has all of them that qemu knows.
const CPUS: [&str; 2] = ["Nehalem", "max"];

/// Runs `trapline ARGS` on another CPU.
fn on(cpu: &str, args: &[&str]) -> Ran {
    let mut command = patient("qemu-x86_64");
    command.args(["-cpu", cpu]).arg(binary()).args(args).current_dir(root()).env_remove("RUST_BACKTRACE");
    finish(command)
}

fn is_the_same_on(cpu: &str, code: i32, args: &[&str]) {
    let here = trapline(&root(), args);
    assert_eq!(here.code, code, "{}", here.err);
    let there = on(cpu, args);
    assert_eq!(there.err, here.err, "{cpu}: {args:?}");
    assert_eq!((there.code, there.out), (here.code, here.out), "{cpu}: {args:?}");
}

#[test]
fn the_demo_is_the_same() {
    for cpu in CPUS {
        for guest in ["ia32", "x86_64"] {
            is_the_same_on(cpu, 0, &["demo", "--manual", guest]);
        }
    }
}

/// Every recording gives its digests, records and console there too.
#[test]
fn the_recordings_are_verified_at_length() {
    for cpu in CPUS {
        let verified = on(cpu, &["verify", "tests/recordings"]);
        assert_eq!(verified.code, 0, "{cpu}: {}{}", verified.out, verified.err);
        assert_eq!(verified.out, trapline(&root(), &["verify", "tests/recordings"]).out, "{cpu}");
    }
}

/// A boot of Linux with probes: records, console, and a digest of all that the guest has.
fn linux(cpu: &str, kernel: &str, initrd: &str, instructions: &str) {
    let initrd = format!(".guests/{initrd}.cpio.gz");
    let kernel = format!(".guests/{kernel}");
    let run = ["run", &kernel, "--initrd", &initrd, "--limit-insns", instructions, "--digest"];
    let probes = ["-n", "fbt::*alloc_pages*:entry", "-n", "fbt::vfs_*:return", "-f", "json"];
    is_the_same_on(cpu, 124, &[&run[..], &probes].concat());
}

#[test]
fn guest_linux_amd64_is_the_same_without_newer_instructions_at_length() {
    linux("Nehalem", "linux-cloud-amd64", "initramfs-amd64", "200000000");
}

#[test]
fn guest_linux_686_is_the_same_with_newer_instructions_at_length() {
    linux("max", "linux-686", "initramfs-i386", "120000000");
}
