//! Debian's kernel with more memory than lies below 4 GiB.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cli::trapline;
use tempfile::TempDir;
use trapline_session::trapline_emu::{PAGE, PhysMem};
use trapline_session::{Compression, Condition, DumpFile, Ending, GuestBuilder, Limits};
use trapline_tests::boot::LINUX_LIMIT;
use trapline_tests::guest;
use trapline_tests::linux::{KERNELS, Linux, QUICK};

const READY: &str = "the guest is ready";
const SCRIPT: &str = "mount -t proc proc /proc\ngrep 'System RAM' /proc/iomem\ngrep MemTotal /proc/meminfo\n\
                      echo the guest is ready\npoweroff -f\n";
/// Where the fourth gigabyte is, as Linux prints it. QEMU puts it there too.
const HIGH: &str = "100000000-13fffffff : System RAM";

fn cloud() -> (&'static Linux, String) {
    let linux = KERNELS.iter().find(|linux| linux.flavour == "cloud-amd64").unwrap();
    let kernel = guest("linux-cloud-amd64");
    (linux, kernel)
}

fn image(folder: &Path, linux: &Linux) -> String {
    linux.image(folder, &[], &[], SCRIPT).unwrap().display().to_string()
}

/// Kilobytes that the kernel says it has.
fn total(console: &str) -> u64 {
    let line = console.lines().find_map(|line| line.trim().strip_prefix("MemTotal:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

#[test]
fn the_memory_above_4_gib_is_the_guests_and_probes_do_not_show_in_it() {
    let folder = TempDir::new().unwrap();
    let (here, (linux, kernel)) = (folder.path(), cloud());
    let initrd = image(here, linux);
    let run = |console: &str, more: &[&str]| {
        let mut args =
            vec!["run", &kernel, "--initrd", &initrd, "--append", QUICK, "--mem", "4G", "--digest"];
        args.extend(["--console", console, "-q"]);
        args.extend(more);
        let ran = trapline(here, &args);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let digest = ran.err.lines().find(|line| line.starts_with("digest")).map(str::to_owned);
        (std::fs::read_to_string(here.join(console)).unwrap(), digest.unwrap(), ran.out)
    };
    let (console, digest, _) = run("plain", &[]);
    assert!(console.contains(HIGH) && console.contains("00100000-bfffffff : System RAM"), "{console}");
    assert!((3_900_000..4 << 20).contains(&total(&console)), "{console}");
    let (_, probed, hits) = run("probed", &["-n", "fbt::vfs_*:entry { @ = count(); }"]);
    assert!(hits.trim().parse::<u64>().unwrap() > 100, "{hits}");
    assert_eq!(probed, digest);
    let qemu = Command::new("qemu-system-x86_64")
        .args(["-accel", "tcg", "-m", "4096", "-display", "none", "-no-reboot", "-kernel", &kernel])
        .args(["-initrd", &initrd, "-append", &format!("console=ttyS0 {QUICK}"), "-serial", "file:qemu"])
        .current_dir(here)
        .stdin(Stdio::null())
        .status()
        .unwrap_or_else(|error| panic!("qemu-system-x86_64: {error}; run scripts/bootstrap"));
    let qemu = (qemu, std::fs::read_to_string(here.join("qemu")).unwrap());
    assert!(qemu.0.success() && qemu.1.contains(HIGH), "{}", qemu.1);
}

#[test]
fn a_dump_has_the_memory_above_4_gib() {
    let folder = TempDir::new().unwrap();
    let (here, (linux, kernel)) = (folder.path(), cloud());
    let initrd = image(here, linux);
    let guest = GuestBuilder::image(&kernel).initrd(PathBuf::from(initrd)).append(QUICK).memory(4 << 30);
    let mut session = guest.start().unwrap();
    let ending = session.run_until(&Condition::end().or_console(READY), &Limits::insns(LINUX_LIMIT));
    assert_eq!(ending, Ending::Until(READY.to_owned()));
    let mut file = BufWriter::new(std::fs::File::create(here.join("vmcore")).unwrap());
    session.vmcore().write(&mut file, Compression::Zlib).unwrap();
    drop(file);
    let output = Command::new("makedumpfile")
        .args(["--dump-dmesg", "-f", "vmcore", "dmesg"])
        .current_dir(here)
        .output()
        .unwrap_or_else(|error| panic!("makedumpfile: {error}; run scripts/bootstrap"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Found by an outsider: only the first 65,536 pages were counted.
    let info = trapline(here, &["dump", "vmcore", "--info"]).out;
    let line =
        info.lines().find(|line| line.contains(" of them stored (")).unwrap_or_else(|| panic!("{info}"));
    let (pages, ways) = line.split_once(" of them stored (").unwrap();
    let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
    let pages: u64 = pages.rsplit(' ').next().unwrap().parse().unwrap();
    let sum: u64 = ways.split(", ").filter_map(number).sum();
    assert!(pages > 1 << 19 && sum == pages, "{line}");
    let messages = std::fs::read_to_string(here.join("dmesg")).unwrap();
    assert!(messages.contains("Run /init") && messages.as_bytes() == session.log().unwrap(), "{messages}");
    let (dump, ram) = (DumpFile::open(&here.join("vmcore")).unwrap(), session.core().ram());
    let (mut one, mut other) = ([0; PAGE as usize], [0; PAGE as usize]);
    let mut used = 0;
    for paddr in (4 << 30..5 << 30).step_by(PAGE as usize) {
        assert!(dump.read(paddr, &mut one) && ram.read(paddr, &mut other), "{paddr:#x}");
        assert!(one == other, "{paddr:#x}");
        used += u32::from(one.iter().any(|byte| *byte != 0));
    }
    assert!(used > 1000, "{used} pages above 4 GiB are not zero");
    assert!(!dump.read(3 << 30, &mut one) && !ram.read(3 << 30, &mut other));
}

#[test]
fn a_snapshot_and_a_recording_with_memory_above_4_gib_end_as_the_run_did() {
    let folder = TempDir::new().unwrap();
    let (here, (linux, kernel)) = (folder.path(), cloud());
    let initrd = image(here, linux);
    let guest = ["run", &kernel, "--initrd", &initrd, "--append", QUICK, "--mem", "4G"];
    let run = |more: &[&str], code: i32| {
        let common = ["--console", "none", "-q", "--digest"];
        let ran = trapline(here, &[&guest[..], &common, more].concat());
        assert_eq!(ran.code, code, "{}", ran.err);
        ran.err.lines().find(|line| line.starts_with("digest")).map(str::to_owned)
    };
    let probes = ["-n", "fbt::vfs_*:entry { @ = count(); }"];
    let whole = run(&[&probes[..], &["--record", "run.tlr"]].concat(), 0);
    run(&[&probes[..], &["--limit-insns", "300M", "--save", "saved"]].concat(), 124);
    assert!(whole.is_some());
    assert_eq!(run(&["--restore", "saved"], 0), whole);
    let replay = trapline(here, &["replay", "run.tlr", "--verify", "-q"]);
    assert_eq!(replay.code, 0, "{}{}", replay.out, replay.err);
}
