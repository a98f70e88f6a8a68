//! Linux that its own code unpacks and puts at an address of its choice (KASLR): symbols, probes, tasks and dumps are where
//! the kernel is. The oracle is the guest's own `/proc/kallsyms`, whole.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, finish, patient, trapline};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::LazyLock;
use tempfile::TempDir;
use trapline_emu::symbols::Symbols;
use trapline_session::{Guest, GuestBuilder, LinuxEntry};
use trapline_tests::{guest, root};

const KERNEL: &str = "linux-cloud-amd64";
/// Without `nokaslr`.
const CMDLINE: &str = "console=ttyS0 tsc=reliable no_timer_check mitigations=off quiet";
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
echo kallsyms: $(/bin/busybox grep -v '\\[' /proc/kallsyms | /bin/busybox cut -d ' ' -f 1,3 | /bin/busybox md5sum)
echo 'kaslr: end'
/bin/busybox poweroff -f
";

static INITRD: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::copy(guest("busybox-amd64"), at("busybox")).unwrap();
    std::fs::write(at("init"), INIT).unwrap();
    let list = root().join("guest-images/initramfs/base.list").display().to_string();
    let mut newc = patient("scripts/guests/newc");
    newc.args(["--root", &at(""), &list, &at("initramfs.cpio")]).current_dir(root());
    assert_eq!(finish(newc).code, 0);
    let initrd = folder.path().join("initramfs.cpio");
    (folder, initrd)
});

/// The guest as the library opens it.
fn opened(cmdline: &str) -> Guest {
    let builder = GuestBuilder::image(&guest(KERNEL)).initrd(INITRD.1.clone());
    builder.entry(LinuxEntry::Bits64).cmdline(cmdline).open().unwrap()
}

fn run(more: &[&str]) -> Ran {
    let (kernel, initrd) = (guest(KERNEL), INITRD.1.display().to_string());
    let args =
        ["run", &kernel, "--initrd", &initrd, "--entry", "64", "--cmdline", CMDLINE, "--until", "kaslr: end"];
    let ran = trapline(&root(), &[&args[..], more].concat());
    assert_eq!(ran.code, 0, "{more:?}: {}{}", ran.out, ran.err);
    ran
}

fn address(symbols: &Symbols, name: &str) -> u64 {
    symbols.sole(name).unwrap().addr
}

#[test]
fn all_symbols_are_where_the_guest_says_that_they_are() {
    let (moved, linked) = (opened(CMDLINE), opened(&format!("{CMDLINE} nokaslr")));
    let by = address(moved.target().symbols(), "commit_creds")
        .wrapping_sub(address(linked.target().symbols(), "commit_creds"));
    assert_ne!(by, 0, "the kernel was not moved");
    assert_eq!(by % (2 << 20), 0);
    let mut listing = String::new();
    for (address, name) in Symbols::kallsyms_listing(moved.target().image().bytes()).unwrap() {
        let is_own = moved.target().symbols().all(&name).any(|symbol| symbol.addr == address);
        assert!(is_own, "{name} is not at {address:#x}");
        writeln!(listing, "{address:016x} {name}").unwrap();
    }
    let file = INITRD.0.path().join("listing");
    std::fs::write(&file, listing).unwrap();
    let mut md5 = patient("md5sum");
    md5.arg(&file);
    let sum = finish(md5).out;
    let sum = sum.split(" ").next().unwrap();
    let ran = run(&["-q"]);
    assert!(ran.out.contains(&format!("kallsyms: {sum}")), "{sum}: {}", ran.out);
    // The options that the kernel prints when it crashes, and those of the note, agree.
    let said = run(&[]).err;
    assert!(
        said.contains(&format!("KASLR: the kernel is {by:#x} bytes above its linked addresses")),
        "{said}"
    );
}

#[test]
fn probes_tasks_stacks_and_names_follow_the_kernel_and_leave_no_trace() {
    let d = "fbt::commit_creds:entry { printf(\"%s %a %a\\n\", execname, (uint64_t)`commit_creds, caller); stack(2); }";
    let (plain, with) =
        (run(&["-q", "--digest"]), run(&["-q", "--digest", "-x", "quiet", "-n", d, "--console", "none"]));
    let digest =
        |ran: &Ran| ran.err.lines().find_map(|line| line.strip_prefix("digest ").map(str::to_owned)).unwrap();
    assert_eq!(digest(&plain), digest(&with));
    let hit =
        with.out.lines().find(|line| line.contains("commit_creds")).unwrap_or_else(|| panic!("{}", with.out));
    assert!(hit.contains(" vmlinux`commit_creds vmlinux`"), "{hit}");
    let profile = run(&[
        "-q",
        "-x",
        "quiet",
        "--console",
        "none",
        "-n",
        "profile-997hz /arg0/ { @[mod(arg0)] = count(); }",
    ]);
    assert!(profile.out.contains("vmlinux"), "{}", profile.out);
    assert!(!profile.out.contains("0xffffffff"), "{}", profile.out);
}

#[test]
fn a_kernel_that_stays_is_told_of_by_nothing() {
    let linked = opened(&format!("{CMDLINE} nokaslr"));
    let loaded = GuestBuilder::image(&guest(KERNEL)).open().unwrap();
    assert_eq!(linked.notes(), loaded.notes());
    assert!(linked.target().symbols().iter().eq(loaded.target().symbols().iter()));
}
