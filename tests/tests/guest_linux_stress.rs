//! Debian's kernels run the stress script: each check prints the same as under qemu.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, trapline};
use trapline_tests::linux::{STRESS_LINES, stress_oracle, stress_part};
use trapline_tests::root;

/// An instruction limit far beyond the runs of all kernels.
const LIMIT: &str = "100000000000";

/// Boots a kernel with its stress initramfs, and compares what the script says.
fn stress(flavour: &str, more: &[&str]) -> Ran {
    let (kernel, initrd) = (format!(".guests/linux-{flavour}"), format!(".guests/stress-{flavour}.cpio.gz"));
    let mut args = vec!["run", kernel.as_str(), "--initrd", initrd.as_str(), "--append", "panic=-1"];
    args.extend(["--limit-insns", LIMIT]);
    args.extend(more);
    let ran = trapline(&root(), &args);
    assert_eq!(ran.code, 0, "{flavour}: {}{}", ran.out, ran.err);
    assert_eq!(stress_part(&ran.out), Some(stress_oracle().unwrap()), "{flavour}: {}{}", ran.out, ran.err);
    ran
}

/// On a PC the script's `poweroff` switches the machine off.
fn stress_to_the_end(flavour: &str) {
    let ran = stress(flavour, &["--platform", "pc"]);
    assert!(ran.err.contains("the guest powered off"), "{flavour}: {}", ran.err);
}

#[test]
fn guest_linux_686_passes_the_stress_script_on_a_pc() {
    stress_to_the_end("686");
}

#[test]
fn guest_linux_amd64_passes_the_stress_script_on_a_pc() {
    stress_to_the_end("amd64");
}

#[test]
fn guest_linux_cloud_amd64_passes_the_stress_script_on_the_minimal_platform() {
    // Without ACPI it cannot power off.
    stress("cloud-amd64", &["--platform", "minimal", "--until", STRESS_LINES.1]);
}
