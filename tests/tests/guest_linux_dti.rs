//! Debian's kernels with dti.ko: what the guest's own files have, its crash dump and the reader on the host have, too.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};
use std::process::Command;

use super::cli::{Ran, folder, trapline};
use sha2::{Digest, Sha256};
use trapline_tests::root;

/// What the guest does with the drivers. It prints sizes and digests of what it has read, then crashes.
const TEST: &str = "
insmod /lib/dti_sample.ko
insmod /lib/dti_open.ko
echo level $(cat sample/level)
echo 7 > sample/level
echo level $(cat sample/level)
for i in $(seq 1 200); do echo \"record $i of the sample\" > /dev/dti_sample; done
echo 'outside: now'
echo level $(cat open/level)
echo 9 > sample/level || echo refused
head -c 5000 /dev/zero > /dev/dti_sample
usleep 100000
echo -1 > sample/level
echo -1 > open/level
cat sample/data0 > /tmp/sample
cat open/data0 > /tmp/open
for name in sample open; do echo $name $(wc -c < /tmp/$name) $(sha256sum < /tmp/$name); done
echo again $(wc -c < sample/data0)
echo 1 > sample/reset_consumed
echo reset $(sha256sum < sample/data0)
echo c > /proc/sysrq-trigger
";

fn file(name: &str) -> String {
    let path = root().join(".guests").join(name);
    assert!(path.exists(), "{}: run `make guests` first", path.display());
    path.display().to_string()
}

/// The initramfs with /test.
fn initrd(here: &Path, flavour: &str) -> PathBuf {
    std::fs::write(here.join("test"), TEST).unwrap();
    std::fs::write(here.join("list"), "file /test test 644\n").unwrap();
    let mut newc = Command::new(root().join("scripts/guests/newc"));
    newc.args(["--root", ".", "list", "added.cpio.gz"]).current_dir(here);
    assert!(newc.status().unwrap().success());
    let mut image = std::fs::read(file(&format!("dti-{flavour}.cpio.gz"))).unwrap();
    image.extend(std::fs::read(here.join("added.cpio.gz")).unwrap());
    std::fs::write(here.join("initrd"), image).unwrap();
    here.join("initrd")
}

/// The words behind this one on the console.
fn words<'c>(console: &'c str, first: &str) -> Vec<Vec<&'c str>> {
    let lines = console.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|words| words.first() == Some(&first)).map(|words| words[1..].to_vec()).collect()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn drivers_trace_and_the_records_survive(flavour: &str) {
    let folder = folder(&[("script", b"on console \"outside: now\" dti level open 5\n")]);
    let here = folder.path();
    let initrd = initrd(here, flavour);
    let run = |args: &[&str]| -> Ran { trapline(here, args) };
    let kernel = file(&format!("linux-{flavour}"));
    let crashed = run(&[
        "run",
        &kernel,
        "--initrd",
        initrd.to_str().unwrap(),
        "--script",
        "script",
        "--console",
        "console",
        "--limit-insns",
        "40G",
        "--dump-on-crash",
        "vmcore",
        "--dti-on-crash",
        "channels",
        // The first write of the loop is one by D, too.
        "-w",
        "-n",
        "fbt::misc_open:entry { @[dti(\"sample\", 4, \"written by D\")] = count(); dti(\"none\", 4, \"\"); }",
    ]);
    assert_eq!(crashed.code, 4, "{}", crashed.err);
    let console = String::from_utf8_lossy(&std::fs::read(here.join("console")).unwrap()).into_owned();
    assert_eq!(words(&console, "level"), [["6"], ["7"], ["5"]], "{console}");
    assert_eq!(words(&console, "again"), [["0"]], "{console}");
    assert!(console.contains("write error: Invalid argument") && console.contains("refused"), "{console}");
    let raw = |name: &str| {
        let args = ["dti", "show", "vmcore", name, "--view", "raw", "--cpu", "0"];
        let output = Command::new(super::cli::binary()).args(args).current_dir(here).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    for name in ["sample", "open"] {
        let read = &words(&console, name)[0];
        let ours = raw(name);
        assert_eq!((read[0], read[1]), (&*ours.len().to_string(), &*digest(&ours)), "{name}: {console}");
        assert!(std::fs::read(here.join("channels").join(name).join("data0")).unwrap() == ours);
        assert!(ours.len() > 1000, "{name}: {}", ours.len());
    }
    assert_eq!(words(&console, "reset")[0][0], digest(&raw("sample")), "{console}");
    let shown = run(&["dti", "show", "vmcore"]).out;
    // The ring has been entered again: the first records are gone, those of the end are there.
    assert!(!shown.contains("sample: begin") && shown.contains("record 200 of the sample"), "{shown}");
    assert!(shown.contains("write of 4096 bytes") && shown.contains("written by D"), "{shown}");
    let list = run(&["dti", "list", "vmcore"]).out;
    let sample = list.lines().find(|line| line.starts_with("sample")).unwrap_or_default();
    assert!(sample.contains("channel  -1 off") && sample.contains("8 x 2048"), "{list}");
    assert!(crashed.err.contains("records not written to none: there is no such channel"), "{}", crashed.err);
    assert!(crashed.out.lines().any(|line| line.trim_start().starts_with("0 ")), "{}", crashed.out);
}

/// The boot of 686 takes three times as long: TRAPLINE_DTI_686=1 adds it.
#[test]
fn guest_linux_drivers_trace_and_the_records_survive_a_panic() {
    drivers_trace_and_the_records_survive("cloud-amd64");
    if std::env::var_os("TRAPLINE_DTI_686").is_some() {
        drivers_trace_and_the_records_survive("686");
    }
}
