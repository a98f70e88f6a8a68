//! Recordings of fetched guests: GNU Mach and Linux, replayed and queried with new probes.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::cli::trapline;
use crate::recordings::asked_later_is_as_asked_live;
use serde_json::Value;
use tempfile::TempDir;
use trapline_tests::root;

fn guest(name: &str) -> String {
    root().join(".guests").join(name).display().to_string()
}

fn record(folder: &Path, run: &[&str], more: &[&str]) {
    let ran = trapline(folder, &[&["record", "-o", "r.tlr", "-q", "--console", "live"], run, more].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
}

/// Replays `r.tlr`, with every checkpoint and the console the same.
fn replays(folder: &Path) {
    let again = trapline(folder, &["replay", "r.tlr", "--verify", "--console", "later"]);
    assert_eq!(again.code, 0, "{}", again.err);
    let console = |name: &str| std::fs::read(folder.join(name)).unwrap();
    assert!(console("live") == console("later") && !console("live").is_empty());
}

#[test]
fn guest_gnumach_is_replayed_and_asked() {
    let folder = TempDir::new().unwrap();
    let (folder, kernel) = (folder.path(), guest("gnumach"));
    let run = [kernel.as_str(), "--cmdline", "console=com0", "--until", "db>", "--limit-insns", "3G"];
    record(folder, &run, &["-n", "fbt::kalloc:entry"]);
    replays(folder);
    for asked in
        [&["-n", "fbt::vm_map_enter:", "--stack"][..], &["--rpn", "fbt::cnputc:entry { push arg, 0; log 1 }"]]
    {
        asked_later_is_as_asked_live(folder, &run, asked, &["json"]);
    }
}

#[test]
fn guest_linux_with_typed_commands_is_replayed_and_asked() {
    let folder = TempDir::new().unwrap();
    let (folder, kernel, initrd) =
        (folder.path(), guest("linux-cloud-amd64"), guest("initramfs-amd64.cpio.gz"));
    let script = "on console \"/ # \" 1 type \"echo $((6*7))\\n\"\non console \"/ # \" 2 type \"exit\\n\"\n";
    std::fs::write(folder.join("type.script"), script).unwrap();
    let run = [kernel.as_str(), "--initrd", initrd.as_str()];
    record(folder, &run, &["--script", "type.script"]);
    replays(folder);
    let size = std::fs::metadata(folder.join("r.tlr")).unwrap().len();
    assert!(size <= 64 << 10, "the recording has {size} bytes");
    let run = [&run[..], &["--script", "type.script"]].concat();
    for asked in [
        &["-n", "fbt::do_exit:entry"][..],
        &["-n", "fbt::kernel_clone:entry", "--header", "pid,name", "--stack", "4"],
    ] {
        asked_later_is_as_asked_live(folder, &run, asked, &["json"]);
    }
}

#[test]
fn guest_linux_byte_that_a_script_changes_is_named() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let (kernel, initrd) = (guest("linux-cloud-amd64"), guest("initramfs-amd64.cpio.gz"));
    let run = [kernel.as_str(), "--initrd", &initrd, "--until", "/ # ", "--limit-insns", "10G", "-q"];
    let program = "name = vmlinux\nmodtype = kernel\noffset = kernel_init\nopcode = 0xe8\nmaxhits = 1\n\
         push print_fatal_signals\npush 1\npop mem, u8\nexit\n";
    std::fs::write(folder.join("w.rpn"), program).unwrap();
    std::fs::write(folder.join("s"), "at insns=1M insert w.rpn\n").unwrap();
    for (file, more) in [("a.tlr", &[][..]), ("b.tlr", &["--script", "s"])] {
        let quiet = ["record", "-o", file, "--console", "none"];
        let ran = trapline(folder, &[&quiet, &run[..], more].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    let ran = trapline(folder, &["diff", "a.tlr", "b.tlr"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    for text in [" kernel_init: nop ", " print_fatal_signals  a 00  b 01", "at 1000000: insert w.rpn"] {
        assert!(ran.out.contains(text), "`{text}` is not in\n{}", ran.out);
    }
}

#[test]
fn guest_linux_tick_makes_a_condition_true() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let (kernel, initrd) = (guest("linux-cloud-amd64"), guest("initramfs-amd64.cpio.gz"));
    record(folder, &[&kernel, "--initrd", &initrd, "--until", "/ # ", "--limit-insns", "10G"], &[]);
    let ask = |args: &[&str]| -> Value {
        let asked = trapline(folder, &[&["replay", "r.tlr", "-f", "json"], args].concat());
        assert_eq!(asked.code, 0, "{}", asked.err);
        serde_json::from_str(&asked.out).unwrap()
    };
    let written = ask(&["--who-wrote", "jiffies_64:8", "--last", "1"]);
    let writer = &written["last"][0];
    let bytes = writer["new"].as_str().unwrap().split(' ').rev().collect::<String>();
    let position = writer["position"].as_u64().unwrap();
    let (from, to) = ((position - 200_000).to_string(), (position + 100).to_string());
    let condition = format!("u64[jiffies_64] >= 0x{bytes} && cr3 != 0");
    let found = ask(&["--when", &condition, "--from", &from, "--to", &to]);
    assert_eq!((&found["count"], &found["held"]), (&1.into(), &false.into()), "{found:#}");
    for field in ["position", "ip", "symbol", "instruction", "pid", "task"] {
        assert_eq!(found["last"][0][field], writer[field], "{found:#}");
    }
}
