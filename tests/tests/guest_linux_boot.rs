//! Debian's kernels from the loader to the end of the machine: shells that answer typed commands, devices, crashes.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use crate::cli::{Ran, trapline, trapline_from_init};
use tempfile::TempDir;
use trapline_tests::linux::{KERNELS, Linux, SHELL_BANNER};
use trapline_tests::{guest, root};

fn cloud() -> &'static Linux {
    KERNELS.iter().find(|linux| linux.flavour == "cloud-amd64").unwrap()
}

/// A script that types a line at each prompt of the shell.
fn typing(lines: &[&str]) -> String {
    let line = |(n, line): (usize, &&str)| format!("on console \"/ # \" {} type \"{line}\\n\"\n", n + 1);
    lines.iter().enumerate().map(line).collect()
}

/// Boots a kernel with an initrd under a script. The console's text is the output.
fn boot(folder: &Path, linux: &Linux, initrd: &str, script: &str, more: &[&str]) -> Ran {
    run(trapline, folder, linux, initrd, script, more)
}

/// Runs a guest with a script, from its boot or from its first process on.
fn run(
    how: fn(&Path, &[&str]) -> Ran,
    folder: &Path,
    linux: &Linux,
    initrd: &str,
    script: &str,
    more: &[&str],
) -> Ran {
    std::fs::write(folder.join("s.script"), script).unwrap();
    let kernel = guest(&format!("linux-{}", linux.flavour));
    let mut args = vec!["run", kernel.as_str(), "--initrd", initrd, "--script", "s.script"];
    args.extend(["--console", "console", "--limit-insns", "20000000000"]);
    args.extend(more);
    let mut ran = how(folder, &args);
    if let Ok(console) = std::fs::read(folder.join("console")) {
        ran.out = String::from_utf8_lossy(&console).into_owned();
    }
    ran
}

/// The same with the shell.
fn shell(linux: &Linux, lines: &[&str], more: &[&str]) -> Ran {
    shell_of(trapline, linux, lines, more)
}

/// The same, from the first process on.
fn begun_shell(linux: &Linux, lines: &[&str], more: &[&str]) -> Ran {
    shell_of(trapline_from_init, linux, lines, more)
}

fn shell_of(how: fn(&Path, &[&str]) -> Ran, linux: &Linux, lines: &[&str], more: &[&str]) -> Ran {
    let folder = TempDir::new().unwrap();
    let initrd = guest(&format!("initramfs-{}.cpio.gz", linux.arch));
    run(how, folder.path(), linux, &initrd, &typing(lines), more)
}

/// The shell answers, and its end ends the run.
fn answers(linux: &Linux, more: &[&str]) -> Ran {
    let ran = shell(linux, &["echo $((6*7))", "uname -m", "exit"], more);
    let machine = if linux.arch == "i386" { "i686" } else { "x86_64" };
    assert_eq!(ran.code, 0, "{} {more:?}: {}\n{}", linux.flavour, ran.err, ran.out);
    assert!(ran.out.contains(SHELL_BANNER), "{}", ran.out);
    assert!(ran.out.contains("echo $((6*7))\r\n42\r\n"), "{}", ran.out);
    assert!(ran.out.contains(&format!("uname -m\r\n{machine}\r\n")), "{}", ran.out);
    ran
}

#[test]
fn guest_linux_686_boots_to_a_shell_that_answers_and_powers_off() {
    let ran = answers(&KERNELS[0], &[]);
    assert!(ran.err.contains("the guest powered off after "), "{}", ran.err);
}

#[test]
fn guest_linux_amd64_boots_to_a_shell_that_answers_and_powers_off() {
    let ran = answers(&KERNELS[2], &[]);
    assert!(ran.err.contains("the guest powered off after "), "{}", ran.err);
}

#[test]
fn guest_linux_boots_with_any_of_its_interrupt_controllers_and_without_acpi_at_length() {
    for switch in ["noapic", "nolapic", "acpi=off", "noapic nolapic acpi=off"] {
        let ran = answers(cloud(), &["--append", switch]);
        let power = if switch.contains("acpi=off") { "halted" } else { "powered off" };
        assert!(ran.err.contains(&format!("the guest {power} after ")), "{switch}: {}", ran.err);
    }
}

#[test]
fn guest_linux_on_the_minimal_platform_halts_in_the_end() {
    // Without this, the kernel's message about its clock interrupts the typed text.
    let ran = answers(cloud(), &["--platform", "minimal", "--append", "quiet"]);
    assert!(ran.err.contains("the guest halted after "), "{}", ran.err);
}

#[test]
fn guest_linux_the_same_typing_gives_the_same_digest() {
    let run = || shell(cloud(), &["cat /proc/cpuinfo", "exit"], &["--digest"]);
    let (one, other) = (run(), run());
    assert!(one.out.contains("model name\t: Trapline virtual CPU"), "{}", one.out);
    assert!(one.err.contains("digest "), "{}", one.err);
    assert_eq!(one, other);
}

#[test]
fn guest_linux_reboot_is_a_clean_end_at_length() {
    for (more, how) in
        [(&["--append", "reboot=k"][..], "keyboard controller"), (&["--append", "reboot=a"], "0xcf9")]
    {
        let ran = begun_shell(cloud(), &["reboot -f"], more);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.err.contains("the guest asked for a reset"), "{}", ran.err);
        assert!(ran.err.contains(how), "{}", ran.err);
    }
}

#[test]
fn guest_linux_panic_ends_the_run_with_the_console_tail() {
    for (more, last) in [(&[][..], "]---"), (&["--append", "panic=-1"], "Kernel Offset: disabled")] {
        let ran = begun_shell(cloud(), &["echo c > /proc/sysrq-trigger"], more);
        assert_eq!(ran.code, 4, "{}", ran.err);
        let sentence = "the guest crashed: kernel panic: sysrq triggered crash after ";
        assert!(ran.err.contains(sentence), "{}", ran.err);
        let (_, tail) = ran.err.split_once("trapline: the console's last lines:\n").unwrap();
        assert!(tail.lines().any(|line| line.starts_with("  [") && line.contains(last)), "{tail}");
    }
}

#[test]
fn guest_linux_text_of_a_panic_that_a_program_prints_is_none() {
    let text = "echo Kernel panic - not syncing: no; echo '---[ end Kernel panic ]---'";
    let ran = begun_shell(cloud(), &[text, "exit"], &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("the guest powered off after "), "{}", ran.err);
}

/// An initramfs with busybox, modules of a kernel and this script as `/init`.
fn image(folder: &Path, linux: &Linux, modules: &[&str], script: &str) -> String {
    linux.image(folder, modules, &[], script).unwrap().display().to_string()
}

const MOUNTS: &str = "export PATH=/bin\nmount -t proc proc /proc\nmount -t sysfs sysfs /sys\n\
                      mount -t devtmpfs devtmpfs /dev\n";

const INSMOD: &str = "insmod /virtio_ring.ko\ninsmod /virtio.ko\ninsmod /virtio_mmio.ko\n";

#[test]
fn guest_linux_reads_and_writes_a_disk_whose_image_stays_as_it_is() {
    let folder = TempDir::new().unwrap();
    let disk = folder.path().join("disk.img");
    let mut bytes = vec![0u8; 1 << 20];
    bytes[..6].copy_from_slice(b"first\n");
    bytes[512 * 100..512 * 100 + 8].copy_from_slice(b"sector C");
    std::fs::write(&disk, &bytes).unwrap();
    let script = format!(
        "{MOUNTS}{INSMOD}insmod /virtio_blk.ko\nhead -n 1 /dev/vda\n\
         dd if=/dev/vda bs=512 skip=100 count=1 2>/dev/null | head -c 8; echo\n\
         echo written by the guest | dd of=/dev/vda bs=512 seek=7 conv=fsync 2>/dev/null\n\
         echo 3 > /proc/sys/vm/drop_caches\ndd if=/dev/vda bs=512 skip=7 count=1 2>/dev/null | head -n 1\n\
         blockdev --getsize64 /dev/vda\nsha256sum /dev/vda\npoweroff -f\n"
    );
    let initrd =
        image(folder.path(), cloud(), &["virtio_ring", "virtio", "virtio_mmio", "virtio_blk"], &script);
    let ran = boot(folder.path(), cloud(), &initrd, "", &["--disk", "disk.img"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.err, ran.out);
    let (_, said) = ran.out.split_once("first\r\n").unwrap_or_else(|| panic!("{}", ran.out));
    // The kernel's own messages come between.
    let lines = said.lines().map(|line| line.trim_end_matches('\r')).filter(|line| !line.starts_with('['));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines[..3], ["sector C", "written by the guest", "1048576"], "{said}");
    assert_eq!(std::fs::read(&disk).unwrap(), bytes);
    bytes[512 * 7..512 * 7 + 21].copy_from_slice(b"written by the guest\n");
    std::fs::write(folder.path().join("expected"), &bytes).unwrap();
    let sum = Command::new("sha256sum").arg(folder.path().join("expected")).output().unwrap();
    assert_eq!(lines[3][..64], String::from_utf8_lossy(&sum.stdout)[..64]);
}

#[test]
fn guest_linux_answers_what_is_typed_at_the_virtio_console() {
    let folder = TempDir::new().unwrap();
    let script = format!(
        "{MOUNTS}{INSMOD}insmod /virtio_console.ko\n(echo 'hvc asks'; read answer; \
         echo \"hvc heard $answer\") < /dev/hvc0 > /dev/hvc0\npoweroff -f\n"
    );
    let initrd =
        image(folder.path(), cloud(), &["virtio_ring", "virtio", "virtio_mmio", "virtio_console"], &script);
    let typed = "on console \"hvc asks\" type hvc0 \"six words\\n\"\n";
    let ran = boot(folder.path(), cloud(), &initrd, typed, &["--virtio-console"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.err, ran.out);
    assert!(ran.out.contains("hvc heard six words"), "{}", ran.out);
    let ran = boot(folder.path(), cloud(), &initrd, typed, &[]);
    let sentence = "trapline: error: the machine has no virtio console; --virtio-console adds one\n";
    assert_eq!((ran.code, ran.err.as_str()), (2, sentence));
}

#[test]
fn guest_linux_boots_with_little_and_with_much_memory_at_length() {
    let ran = answers(&KERNELS[0], &["--mem", "64M"]);
    assert!(ran.err.contains("the guest powered off after "), "{}", ran.err);
    let ran = answers(cloud(), &["--mem", "2G"]);
    assert!(ran.out.contains("[mem 0x0000000000100000-0x000000007fffffff] usable"), "{}", ran.out);
}

/// The loader unpacks it there; the decompressor, which would choose another address, is not run.
#[test]
fn guest_linux_lies_where_it_was_linked_whatever_its_command_line_says_at_length() {
    for linux in &KERNELS[..2] {
        let folder = TempDir::new().unwrap();
        let initrd = guest(&format!("initramfs-{}.cpio.gz", linux.arch));
        let probe = root().join("examples/linux/kernel_clone.rpn").display().to_string();
        let without = "console=ttyS0 tsc=reliable no_timer_check";
        let more = ["--cmdline", without, "-p", &probe, "--header", "pid,name", "-o", "records"];
        let typed = typing(&["grep ' kernel_clone$' /proc/kallsyms", "exit"]);
        let ran = boot(folder.path(), linux, &initrd, &typed, &more);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let address =
            ran.out.lines().find_map(|line| line.trim_end().strip_suffix(" T kernel_clone")).unwrap();
        let image = guest(&format!("linux-{}", linux.flavour));
        let listed = trapline(folder.path(), &["list", &image, "kernel_clone", "-q"]).out;
        assert!(listed.starts_with(&format!("0x{address} ")), "{address}: {listed}");
        let records = std::fs::read_to_string(folder.path().join("records")).unwrap();
        for of in ["name=init pid=1 ", "name=kthreadd pid=2 "] {
            assert!(records.contains(of), "{}: {records}", linux.flavour);
        }
    }
}

#[test]
fn guest_linux_with_too_little_memory_says_so() {
    let ran = shell(cloud(), &[], &["--mem", "64M"]);
    assert_eq!(ran.code, 4, "{}", ran.err);
    let sentence = "the guest crashed: kernel panic: System is deadlocked on memory after ";
    assert!(ran.err.contains(sentence), "{}", ran.err);
}
