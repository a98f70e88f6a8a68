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

/// A kernel, and how it is entered.
struct Kernel {
    flavour: &'static str,
    arch: &'static str,
    entry: (LinuxEntry, &'static str),
    /// Digits of an address.
    digits: usize,
}

const CLOUD: Kernel =
    Kernel { flavour: "cloud-amd64", arch: "amd64", entry: (LinuxEntry::Bits64, "64"), digits: 16 };
/// Kernels of 32 bits: two levels of page tables, and PAE.
const NARROW: [Kernel; 2] = [
    Kernel { flavour: "686", arch: "i386", entry: (LinuxEntry::Bits32, "32"), digits: 8 },
    Kernel { flavour: "686-pae", arch: "i386", entry: (LinuxEntry::Bits32, "32"), digits: 8 },
];
/// Without `nokaslr`.
const CMDLINE: &str = "console=ttyS0 tsc=reliable no_timer_check mitigations=off quiet";
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
echo kallsyms: $(/bin/busybox grep -v '\\[' /proc/kallsyms | /bin/busybox cut -d ' ' -f 1,3 | /bin/busybox md5sum)
echo 'kaslr: end'
/bin/busybox poweroff -f
";

static INITRDS: LazyLock<[(TempDir, PathBuf); 2]> = LazyLock::new(|| ["amd64", "i386"].map(initrd));

fn initrd(arch: &str) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::copy(guest(&format!("busybox-{arch}")), at("busybox")).unwrap();
    std::fs::write(at("init"), INIT).unwrap();
    let list = root().join("guest-images/initramfs/base.list").display().to_string();
    let mut newc = patient("scripts/guests/newc");
    newc.args(["--root", &at(""), &list, &at("initramfs.cpio")]).current_dir(root());
    assert_eq!(finish(newc).code, 0);
    let initrd = folder.path().join("initramfs.cpio");
    (folder, initrd)
}

impl Kernel {
    fn file(&self) -> String {
        guest(&format!("linux-{}", self.flavour))
    }

    fn initrd(&self) -> &'static PathBuf {
        &INITRDS[usize::from(self.arch == "i386")].1
    }

    /// The guest as the library opens it.
    fn opened(&self, cmdline: &str) -> Guest {
        let builder = GuestBuilder::image(&self.file()).initrd(self.initrd().clone());
        builder.entry(self.entry.0).cmdline(cmdline).open().unwrap()
    }

    fn run(&self, more: &[&str]) -> Ran {
        let (kernel, initrd) = (self.file(), self.initrd().display().to_string());
        let args = ["run", &kernel, "--initrd", &initrd, "--entry", self.entry.1, "--cmdline", CMDLINE];
        let ran = trapline(&root(), &[&args[..], &["--until", "kaslr: end"], more].concat());
        assert_eq!(ran.code, 0, "{more:?}: {}{}", ran.out, ran.err);
        ran
    }
}

fn address(symbols: &Symbols, name: &str) -> u64 {
    symbols.sole(name).unwrap().addr
}

/// All symbols are where the guest says that they are.
fn symbols_follow(kernel: &Kernel) {
    let (moved, linked) = (kernel.opened(CMDLINE), kernel.opened(&format!("{CMDLINE} nokaslr")));
    let by = address(moved.target().symbols(), "commit_creds")
        .wrapping_sub(address(linked.target().symbols(), "commit_creds"));
    assert_ne!(by, 0, "the kernel was not moved");
    assert_eq!(by % (2 << 20), 0);
    let mut listing = String::new();
    for (address, name) in Symbols::kallsyms_listing(moved.target().image().bytes()).unwrap() {
        let is_own = moved.target().symbols().all(&name).any(|symbol| symbol.addr == address);
        assert!(is_own, "{name} is not at {address:#x}");
        writeln!(listing, "{address:0digits$x} {name}", digits = kernel.digits).unwrap();
    }
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("listing");
    std::fs::write(&file, listing).unwrap();
    let mut md5 = patient("md5sum");
    md5.arg(&file);
    let sum = finish(md5).out;
    let sum = sum.split(" ").next().unwrap();
    let ran = kernel.run(&[]);
    assert!(ran.out.contains(&format!("kallsyms: {sum}")), "{sum}: {}", ran.out);
    // The options that the kernel prints when it crashes, and those of the note, agree.
    let told = format!("KASLR: the kernel is {by:#x} bytes above its linked addresses");
    assert!(ran.err.contains(&told), "{}", ran.err);
}

/// Probes, tasks, stacks, names and samples follow the kernel, and leave no trace; so do the lists of a dump.
fn views_follow(kernel: &Kernel) {
    let d = "fbt::commit_creds:entry { printf(\"%s %a %a\\n\", execname, (uint64_t)`commit_creds, caller); stack(2); }";
    let plain = kernel.run(&["-q", "--digest"]);
    let with = kernel.run(&["-q", "--digest", "-x", "quiet", "-n", d, "--console", "none"]);
    let digest =
        |ran: &Ran| ran.err.lines().find_map(|line| line.strip_prefix("digest ").map(str::to_owned)).unwrap();
    assert_eq!(digest(&plain), digest(&with));
    let hit =
        with.out.lines().find(|line| line.contains("commit_creds")).unwrap_or_else(|| panic!("{}", with.out));
    assert!(hit.contains(" vmlinux`commit_creds vmlinux`"), "{hit}");
    let folder = TempDir::new().unwrap();
    let (script, core) = (folder.path().join("script"), folder.path().display().to_string());
    std::fs::write(&script, "on console \"kallsyms: \" dump\n").unwrap();
    let profile = kernel.run(
        &[
            &["-q", "-x", "quiet", "--console", "none", "--script", &script.display().to_string()][..],
            &["--core-dir", &core, "-n", "profile-997hz /arg0/ { @[mod(arg0)] = count(); }"],
        ]
        .concat(),
    );
    assert!(profile.out.contains("vmlinux"), "{}", profile.out);
    // The code that unpacks the kernel runs elsewhere.
    let half = if kernel.digits == 16 { "0xffffffff" } else { "0xc" };
    let unnamed = |line: &str| {
        line.trim().starts_with(half) && line.split_whitespace().next().unwrap().len() == kernel.digits + 2
    };
    assert!(!profile.out.lines().any(unnamed), "{}", profile.out);
    let dump = folder.path().join("vmcore.1").display().to_string();
    let symbols = kernel.file();
    let list = |what: &str| {
        let more: &[&str] = if kernel.digits == 8 { &["--symbols", &symbols] } else { &[] };
        trapline(&root(), &[&["-q", "dump", &dump, "--list", what], more].concat())
    };
    let (processes, stacks) = (list("processes"), list("stacks"));
    assert!(processes.out.contains("kthreadd"), "{}{}", processes.out, processes.err);
    assert!(stacks.out.contains("schedule+"), "{}{}", stacks.out, stacks.err);
}

#[test]
fn all_symbols_are_where_the_guest_says_that_they_are() {
    symbols_follow(&CLOUD);
}

#[test]
fn probes_tasks_stacks_and_names_follow_the_kernel_and_leave_no_trace() {
    views_follow(&CLOUD);
}

#[test]
fn kernels_of_32_bits_are_followed_at_length() {
    for kernel in &NARROW {
        symbols_follow(kernel);
        views_follow(kernel);
    }
}

#[test]
fn a_kernel_that_stays_is_told_of_by_nothing() {
    let linked = CLOUD.opened(&format!("{CMDLINE} nokaslr"));
    let loaded = GuestBuilder::image(&CLOUD.file()).open().unwrap();
    assert_eq!(linked.notes(), loaded.notes());
    assert!(linked.target().symbols().iter().eq(loaded.target().symbols().iter()));
}
