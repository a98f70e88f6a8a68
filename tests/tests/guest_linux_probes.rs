//! Probes of every kind in one boot of Debian's Linux: the records agree with the guest's own output, and the guest is
//! unaffected.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::cli::{trapline, trapline_from_init};
use serde_json::Value;
use tempfile::TempDir;
use trapline_tests::linux::{KERNELS, Linux};
use trapline_tests::{guest, root};

/// The guest's script. `ran`, `forker` and the kernel's report of the crash name process ids.
const SCRIPT: &str = "\
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for i in 1 2 3; do /bin/busybox sh -c 'echo ran $$'; done
/bin/busybox sh -c 'echo forker $$; (exit 3) & wait'
/bin/busybox sh -c 'sleep 0; echo $(cat /proc/$$/comm) is $$'
/crash
/changed
/changed
insmod /loop.ko
echo loops $(ls -d /sys/block/loop* | wc -l)
rmmod loop
insmod /loop.ko max_loop=3
echo loops $(ls -d /sys/block/loop* | wc -l)
sha256sum /bin/busybox /changed
poweroff -f
";

/// An address that nothing has mapped.
const BAD: u32 = 0x1234_5678;

/// The program's one page, readable, writable and executable.
struct Page {
    wide: bool,
    code: Vec<u8>,
}

/// Where the code begins in the file.
const CODE: usize = 0x100;

impl Page {
    fn new(wide: bool) -> Self {
        Self { wide, code: Vec::new() }
    }

    fn base(&self) -> u32 {
        if self.wide { 0x40_0000 } else { 0x804_8000 }
    }

    fn put(mut self, code: &[u8]) -> Self {
        self.code.extend_from_slice(code);
        self
    }

    /// `mov byte [base + at], value`.
    fn store(self, at: u32, value: u8) -> Self {
        let to = (self.base() + at).to_le_bytes();
        let code: &[u8] = if self.wide { &[0xc6, 0x04, 0x25] } else { &[0xc6, 0x05] };
        self.put(code).put(&to).put(&[value])
    }

    /// `call base + at`.
    fn call(self, at: u32) -> Self {
        let next = CODE + self.code.len() + 5;
        self.put(&[0xe8]).put(&at.wrapping_sub(next as u32).to_le_bytes())
    }

    /// `exit(0)`.
    fn exit(self) -> Self {
        let wide: &[u8] = &[0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05];
        let code = if self.wide { wide } else { &[0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80] };
        self.put(code)
    }

    /// The ELF file: its header, one program header, the code.
    fn elf(self) -> Vec<u8> {
        let (base, size) = (u64::from(self.base()), 0x400u64);
        let entry = base + CODE as u64;
        let mut file = vec![0x7f, b'E', b'L', b'F', if self.wide { 2 } else { 1 }, 1, 1];
        file.resize(16, 0);
        let word = |value: u64| value.to_le_bytes()[..if self.wide { 8 } else { 4 }].to_vec();
        let half = |value: u16| value.to_le_bytes().to_vec();
        let (header, program) = if self.wide { (64, 56) } else { (52, 32) };
        for field in [half(2), half(if self.wide { 62 } else { 3 }), vec![1, 0, 0, 0]] {
            file.extend(field);
        }
        for value in [entry, header, 0] {
            file.extend(word(value));
        }
        file.extend([0; 4]);
        for value in [header as u16, program, 1, 0, 0, 0] {
            file.extend(half(value));
        }
        let rwx = vec![7, 0, 0, 0];
        file.extend([1, 0, 0, 0]);
        if self.wide {
            file.extend(&rwx);
        }
        for value in [0, base, base, size, size] {
            file.extend(word(value));
        }
        if !self.wide {
            file.extend(rwx);
        }
        file.extend(word(0x1000));
        file.resize(CODE, 0);
        file.extend(self.code);
        file.resize(size as usize, 0);
        file
    }
}

/// Where `changed` has the function that is probed.
const TARGET: u32 = 0x200;

/// Calls its function as the file has it, then with its page changed elsewhere, then with the function itself changed.
fn changed(wide: bool) -> Vec<u8> {
    let page = Page::new(wide).call(TARGET).store(0x300, 1).call(TARGET);
    let page = page.store(TARGET, 0x90).store(TARGET + 1, 0x90).call(TARGET).exit();
    let mut file = page.elf();
    // push bp; pop bp; ret.
    file[TARGET as usize..TARGET as usize + 3].copy_from_slice(&[0x55, 0x5d, 0xc3]);
    file
}

/// Loads from an unmapped address.
fn crash(wide: bool) -> Vec<u8> {
    let code: &[u8] = if wide { &[0x8b, 0x04, 0x25] } else { &[0xa1] };
    Page::new(wide).put(code).put(&BAD.to_le_bytes()).exit().elf()
}

/// A boot: the console's text, and its records.
struct Boot {
    console: String,
    hits: Vec<Value>,
    end: Value,
}

fn boot(folder: &Path, linux: &Linux, more: &[&str]) -> Boot {
    let kernel = guest(&format!("linux-{}", linux.flavour));
    let mut args = vec!["run", kernel.as_str(), "--initrd", "initrd.gz", "--console", "console"];
    args.extend(["-f", "json", "--stats"]);
    args.extend(more);
    let ran = if linux.arch == "i386" { trapline_from_init(folder, &args) } else { trapline(folder, &args) };
    let console = String::from_utf8_lossy(&std::fs::read(folder.join("console")).unwrap()).replace('\r', "");
    assert_eq!(ran.code, 0, "{}\n{console}", ran.err);
    let mut lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = lines.pop().unwrap();
    lines.retain(|line| line["type"] == "hit");
    Boot { console, hits: lines, end }
}

/// A hit: pid, name of the task, and the words that were logged.
type Hit = (u64, String, Vec<u64>);

impl Boot {
    /// The hits of the probe point with these codes.
    fn of(&self, linux: &Linux, major: u64, minor: u64) -> Vec<Hit> {
        let digits = if linux.arch == "i386" { 8 } else { 16 };
        let word = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).unwrap();
            u64::from_str_radix(digits, 16).unwrap().swap_bytes() >> (64 - 4 * digits.len())
        };
        let hit = |hit: &Value| {
            let data = hit["data"].as_str().unwrap().as_bytes().chunks(digits).map(word).collect();
            (hit["pid"].as_u64().unwrap(), hit["name"].as_str().unwrap().to_owned(), data)
        };
        self.hits.iter().filter(|hit| hit["major"] == major && hit["minor"] == minor).map(hit).collect()
    }

    /// The numbers after a word at the start of a console line.
    fn numbers(&self, word: &str) -> Vec<u64> {
        let lines = self.console.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        lines.map(|number| number.trim().parse().unwrap()).collect()
    }

    /// The process that the kernel says was killed for this address.
    fn crashed(&self) -> u64 {
        let mark = format!("]: segfault at {BAD:x} ip ");
        let line = self.console.lines().find_map(|line| line.split_once(&mark)).unwrap().0;
        line.rsplit_once("crash[").unwrap().1.parse().unwrap()
    }
}

/// The man page's `do_fork`: pid, task and name of the forking process.
fn forks(linux: &Linux, boot: &Boot) {
    let hits = boot.of(linux, 2, 1);
    let named: BTreeSet<(u64, &str)> = hits.iter().map(|(pid, name, _)| (*pid, name.as_str())).collect();
    // The 686 kernel runs from its first process on, which forks; the thread that forks kernel threads has done so.
    let from_boot: &[(u64, &str)] = &[(2, "kthreadd")];
    let threads = if linux.arch == "i386" { &[][..] } else { from_boot };
    for (pid, name) in [(1, "init")].iter().chain(threads).copied() {
        assert!(named.contains(&(pid, name)), "{named:?}");
    }
    // One fork of the shell that says its number, two of the one that says its name.
    let forker = boot.numbers("forker")[0];
    let own: Vec<&Hit> = hits.iter().filter(|(pid, ..)| *pid == forker).collect();
    assert_eq!(own.len(), 1, "{hits:?}");
    let named = boot.numbers("busybox is")[0];
    let own: Vec<&Hit> = hits.iter().filter(|(pid, ..)| *pid == named).collect();
    assert_eq!(own.len(), 2, "{hits:?}");
    assert!(own.iter().all(|(_, name, _)| name == "busybox"), "{hits:?}");
    // The log is the stack from its top: the task, then the pid; one task for one pid.
    let tasks: BTreeSet<(u64, u64)> = hits.iter().map(|(_, _, words)| (words[1], words[0])).collect();
    let pids: BTreeSet<u64> = tasks.iter().map(|(pid, _)| *pid).collect();
    assert!(hits.iter().all(|(pid, _, words)| words.len() == 2 && words[1] == *pid), "{hits:?}");
    assert_eq!(tasks.len(), pids.len(), "{tasks:x?}");
    let kernel = if linux.arch == "i386" { 0xc000_0000 } else { 0xffff_8000_0000_0000 };
    assert!(tasks.iter().all(|(_, task)| *task >= kernel), "{tasks:x?}");
}

/// Each process that runs busybox, once for each program that it begins.
fn programs(linux: &Linux, boot: &Boot) {
    let hits = boot.of(linux, 3, 1);
    let said = [boot.numbers("ran"), boot.numbers("forker"), boot.numbers("busybox is"), vec![1]].concat();
    assert_eq!(said.len(), 6, "{}", boot.console);
    for pid in said {
        assert_eq!(hits.iter().filter(|(own, ..)| *own == pid).count(), 1, "{pid}: {hits:?}");
    }
    assert!(!hits.iter().any(|(pid, ..)| *pid == boot.crashed()), "{hits:?}");
    let sums: Vec<&str> = boot.console.lines().filter(|line| line.ends_with("  /bin/busybox")).collect();
    let file = guest(&format!("busybox-{}", linux.arch));
    let sum = Command::new("sha256sum").arg(file).output().unwrap();
    assert_eq!(sums, [format!("{}  /bin/busybox", String::from_utf8_lossy(&sum.stdout[..64]))]);
}

/// The module's probes: at its start, and for each device, at both loads.
fn module(linux: &Linux, boot: &Boot) {
    let devices: Vec<u64> = boot.of(linux, 5, 1).into_iter().map(|(_, _, words)| words[0]).collect();
    let loops = boot.numbers("loops");
    assert_eq!(loops.len(), 2, "{}", boot.console);
    assert_eq!(devices, loops.into_iter().flat_map(|n| 0..n).collect::<Vec<u64>>());
    let starts = boot.of(linux, 5, 2);
    assert!(starts.len() == 2 && starts.iter().all(|(_, name, _)| name == "insmod"), "{starts:?}");
}

fn records_what_the_guest_says(linux: &Linux) {
    let folder = TempDir::new().unwrap();
    let wide = linux.arch != "i386";
    std::fs::write(folder.path().join("changed"), changed(wide)).unwrap();
    std::fs::write(folder.path().join("crash"), crash(wide)).unwrap();
    linux.image(folder.path(), &["loop"], &["changed", "crash"], SCRIPT).unwrap();
    let header = "name = \"/changed\"\nmodtype = user\nmajor = 6\n";
    let program = format!("{header}offset = {TARGET}\nopcode = 0x55\nminor = 1\npush pid\nlog 1\nexit\n");
    std::fs::write(folder.path().join("changed.rpn"), program).unwrap();
    let examples = ["kernel_clone", "busybox", "loop", "page_fault"]
        .map(|name| root().join(format!("examples/linux/{name}.rpn")).display().to_string());
    let mut more = vec!["--header", "pid,name", "-p", "changed.rpn"];
    more.extend(examples.iter().flat_map(|path| ["-p", path.as_str()]));
    if wide {
        // The known copy of the guest's file is another build, equal at the probe.
        let mut other = changed(wide);
        other[0x3f0] ^= 1;
        std::fs::write(folder.path().join("other"), other).unwrap();
        more.extend(["--file", "/changed=other"]);
    } else {
        more.extend(["-D", "OPCODE=0x55", "-D", "rdi=eax", "-D", "rip=eip"]);
    }
    let plain = boot(folder.path(), linux, &[]);
    let probed = boot(folder.path(), linux, &more);
    assert_eq!(probed.console, plain.console, "{} noticed its probes", linux.flavour);
    for field in ["digest", "insns"] {
        assert_eq!(probed.end[field], plain.end[field], "{} noticed its probes", linux.flavour);
    }
    forks(linux, &probed);
    programs(linux, &probed);
    module(linux, &probed);
    // Of all page faults just one is for the address, and that in the process that the kernel names.
    let bad = probed.of(linux, 4, 1).into_iter().filter(|(_, _, words)| words[0] == u64::from(BAD));
    assert_eq!(
        bad.map(|(pid, name, _)| (pid, name)).collect::<Vec<_>>(),
        [(probed.crashed(), "crash".into())]
    );
    // As the file has it, and with its page changed elsewhere; not with another instruction. Twice run.
    let own: Vec<u64> = probed.of(linux, 6, 1).into_iter().map(|(pid, ..)| pid).collect();
    assert!(own.len() == 4 && own[0] == own[1] && own[2] == own[3] && own[1] < own[2], "{own:?}");
    println!("{}: {}", linux.flavour, probed.end["stats"]);
    // The page of busybox; the file's page of `changed`, and a changed one in each of its processes.
    let stats = &probed.end["stats"];
    assert_eq!((&stats["pages_by_mapping"], &stats["pages_by_content"]), (&4.into(), &0.into()));
}

#[test]
fn guest_linux_686_probes_record_what_the_guest_says_at_length() {
    records_what_the_guest_says(&KERNELS[0]);
}

#[test]
fn guest_linux_cloud_amd64_probes_record_what_the_guest_says() {
    records_what_the_guest_says(&KERNELS[1]);
}
