//! Debian's kernels run the stress script on a PC: each check prints the same as under qemu, and the script's `poweroff`
//! switches the machine off. The minimal platform is `guest_linux_transparency`'s.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::trapline;
use trapline_tests::linux::{QUICK, stress_oracle, stress_part};
use trapline_tests::root;

/// Since 6.12, Linux can forbid a process to write to its read-only memory by /proc/self/mem, as the script does; Debian's 7.2 does
/// by default.
const MAY_WRITE: &str = "proc_mem.force_override=always";

/// Boots a kernel with its stress initramfs, and compares what the script says.
fn passes_on_a_pc(flavour: &str) {
    let (kernel, initrd) = (format!(".guests/linux-{flavour}"), format!(".guests/stress-{flavour}.cpio.gz"));
    let machine =
        ["run", &kernel, "--initrd", &initrd, "--append", "panic=-1", "--append", QUICK, "--platform", "pc"];
    let more: &[&str] = if flavour.starts_with("testing") { &["--append", MAY_WRITE] } else { &[] };
    let ran = trapline(&root(), &[&machine[..], more, &["--limit-insns", "100G"]].concat());
    assert_eq!(ran.code, 0, "{flavour}: {}{}", ran.out, ran.err);
    assert_eq!(stress_part(&ran.out), Some(stress_oracle().unwrap()), "{flavour}: {}{}", ran.out, ran.err);
    assert!(ran.err.contains("the guest powered off"), "{flavour}: {}", ran.err);
}

#[test]
fn guest_linux_686_passes_the_stress_script_at_length() {
    passes_on_a_pc("686");
}

#[test]
fn guest_linux_amd64_passes_the_stress_script_at_length() {
    passes_on_a_pc("amd64");
}

#[test]
fn guest_linux_5_10_686_passes_the_stress_script_at_length() {
    passes_on_a_pc("5.10-686");
}

#[test]
fn guest_linux_5_10_amd64_passes_the_stress_script_at_length() {
    passes_on_a_pc("5.10-amd64");
}

#[test]
fn guest_linux_5_10_cloud_amd64_passes_the_stress_script_at_length() {
    passes_on_a_pc("5.10-cloud-amd64");
}

#[test]
fn guest_linux_6_12_amd64_passes_the_stress_script_at_length() {
    passes_on_a_pc("6.12-amd64");
}

#[test]
fn guest_linux_6_12_cloud_amd64_passes_the_stress_script_at_length() {
    passes_on_a_pc("6.12-cloud-amd64");
}

#[test]
fn guest_linux_testing_cloud_amd64_passes_the_stress_script_at_length() {
    passes_on_a_pc("testing-cloud-amd64");
}
