//! Debian's kernels with dti.ko: what the guest's own files have, its crash dump and the reader on the host have, too.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::process::Command;

use super::cli::{Ran, folder, trapline};
use sha2::{Digest, Sha256};
use trapline_tests::guest;
use trapline_tests::linux::{QUICK, drivers_image};

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
    let initrd = drivers_image(here, flavour, TEST).unwrap();
    let run = |args: &[&str]| -> Ran { trapline(here, args) };
    let kernel = guest(&format!("linux-{flavour}"));
    let crashed = run(&[
        "run",
        &kernel,
        "--initrd",
        initrd.to_str().unwrap(),
        "--append",
        QUICK,
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
        "fbt::misc_open:entry { @[dti(\"sample\", 4, \"written by D\")] = count(); dti(\"none\", 4, \"\"); } \
         dti:sample::event / arg2 == 512 / { @long[arg0] = count(); } dti:::event { @all[probemod] = count(); } \
         END { printa(\"512 bytes at %d: %@d\\n\", @long); printa(\"%s: %@d\\n\", @all); }",
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
    let out = &crashed.out;
    assert!(out.lines().any(|line| line.trim_start().starts_with("0 ")), "{out}");
    // Each write of the loop has a text and the data; ticks of the timer come in between.
    assert!(out.contains("512 bytes at 7: "), "{out}");
    let count = |name: &str| -> Option<u64> {
        out.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))?.parse().ok())
    };
    assert!(count("sample").is_some_and(|count| count > 400) && count("open").is_some(), "{out}");
}

/// The bytes that a handler has logged, by the line of its record in JSON.
fn logged(line: &str) -> Option<Vec<u8>> {
    let hex = line.split("\"data\":\"").nth(1)?.split('"').next()?;
    (0..hex.len() / 2).map(|n| u8::from_str_radix(hex.get(2 * n..2 * n + 2)?, 16).ok()).collect()
}

/// The provider: its probes are counted, filtered and shown, and the run ends at a pattern. The guest does not notice.
fn probes_fire_for_records(flavour: &str) {
    let folder = folder(&[]);
    let here = folder.path();
    let (kernel, initrd) = (guest(&format!("linux-{flavour}")), guest(&format!("dti-{flavour}.cpio.gz")));
    let guest = [kernel.as_str(), "--initrd", &initrd];
    let quick = ["--append", QUICK];
    let run = |more: &[&str]| -> Ran {
        let how = ["--console", "none", "-q", "-f", "json", "--digest"];
        trapline(here, &[&["run"], &guest[..], &quick, &how, more].concat())
    };
    let list = trapline(here, &[&["list"], &guest[..], &["dti:::", "-v"]].concat());
    for name in ["sample", "open"] {
        let line = list.out.lines().find(|line| line.contains(&format!(" {name} "))).unwrap_or_default();
        assert!(line.contains(" dti ") && line.ends_with("dti_log event"), "{}{}", list.out, list.err);
    }
    // The run ends at "y step 3", the end of the text of the third early step. It is not in the channel then.
    let rpn = "dti:sample::event { push arg, 0; log 1; push arg, 2; log 1; push arg, 1; push 12; add; push mem, u64; \
               push 0x3320706574732079; sub; jnz out; push 1; callk; out: exit }";
    let ended = run(&["--limit-insns", "40G", "--rpn", rpn, "--save", "saved"]);
    let logged: Vec<Vec<u8>> = ended.out.lines().filter_map(logged).collect();
    // Priority and length.
    assert_eq!(logged.len(), 4, "{}{}", ended.out, ended.err);
    let word = logged[0].len() / 2;
    let numbers = |data: &[u8]| [data[0], data[word]];
    let numbers: Vec<[u8; 2]> = logged.iter().map(|data| numbers(data)).collect();
    assert_eq!(numbers, [[5, 13], [6, 20], [6, 20], [6, 20]]);
    let shown =
        trapline(here, &[&["dti", "show"], &guest[..], &quick, &["--restore", "saved", "-q"]].concat());
    let texts: Vec<&str> =
        shown.out.lines().filter_map(|line| Some(line.split_once("  ")?.1.trim_start())).collect();
    assert!(texts.len() == 3 && texts[2].ends_with("early step 2"), "{}{}", shown.out, shown.err);
    if !more().is_empty() {
        // Without the probe, the guest has the same state there.
        let end = ended.out.lines().last().unwrap_or_default();
        let number = |name: &str| end.split(&format!("\"{name}\":")).nth(1)?.split([',', '}']).next();
        let (insns, digest) = (number("insns").unwrap(), number("digest").unwrap());
        let plain = run(&["--limit-insns", insns]);
        assert!(digest.len() == 34 && plain.out.contains(digest), "{insns} {digest}: {}", plain.out);
    }
}

/// The kernels of which the boot takes several times as long: TRAPLINE_DTI_ALL=1 adds them.
fn more() -> &'static [&'static str] {
    if std::env::var_os("TRAPLINE_DTI_ALL").is_some() { &["686", "amd64"] } else { &[] }
}

#[test]
fn guest_linux_drivers_trace_and_the_records_survive_a_panic() {
    drivers_trace_and_the_records_survive("cloud-amd64");
    for flavour in more() {
        drivers_trace_and_the_records_survive(flavour);
    }
}

#[test]
fn guest_linux_probes_fire_for_the_records_of_drivers() {
    probes_fire_for_records("cloud-amd64");
    for flavour in more() {
        probes_fire_for_records(flavour);
    }
}
