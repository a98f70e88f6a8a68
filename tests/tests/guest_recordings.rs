//! Recordings of fetched guests: GNU Mach and Linux, replayed and queried with new probes.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::cli::{binary, trapline};
use crate::recordings::asked_later_is_as_asked_live;
use serde_json::Value;
use tempfile::TempDir;
use trapline_emu::load::Segment;
use trapline_session::GuestBuilder;
use trapline_tests::guest;
use trapline_tests::linux::{KERNELS, QUICK, unpack};

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
fn guest_gnumach_is_replayed_and_asked_at_length() {
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
fn guest_linux_with_typed_commands_is_replayed_and_asked_at_length() {
    let folder = TempDir::new().unwrap();
    let (folder, kernel, initrd) =
        (folder.path(), guest("linux-cloud-amd64"), guest("initramfs-amd64.cpio.gz"));
    let script = "on console \"/ # \" 1 type \"echo $((6*7))\\n\"\non console \"/ # \" 2 type \"exit\\n\"\n";
    std::fs::write(folder.join("type.script"), script).unwrap();
    let run = [kernel.as_str(), "--initrd", initrd.as_str(), "--append", QUICK];
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
fn guest_linux_byte_that_a_script_changes_is_named_at_length() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let (kernel, initrd) = (guest("linux-cloud-amd64"), guest("initramfs-amd64.cpio.gz"));
    let run = [
        kernel.as_str(),
        "--initrd",
        &initrd,
        "--until",
        "/ # ",
        "--limit-insns",
        "10G",
        "-q",
        "--append",
        QUICK,
    ];
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

/// Instructions of the kernel: function, offset in it, bytes, and what they become. The first, `shl eax, 10` as it becomes
/// `shl eax, 11`, is executed early in the boot, the second, `mov edi, [rdi+70h]` as it becomes `mov edi, [rdi+68h]`, by the shell.
const PATCHES: [(&str, u64, [u8; 3], [u8; 3]); 2] = [
    ("pid_idr_init", 0x18, [0xc1, 0xe0, 0x0a], [0xc1, 0xe0, 0x0b]),
    ("__x64_sys_setpgid", 8, [0x8b, 0x7f, 0x70], [0x8b, 0x7f, 0x68]),
];

#[test]
fn guest_linux_patched_instruction_is_named_at_length() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    // A bzImage has its instructions packed.
    let bzimage = KERNELS.iter().find(|linux| linux.flavour == "cloud-amd64").unwrap().kernel().unwrap();
    let vmlinux = unpack(&bzimage).unwrap();
    std::fs::write(folder.join("vmlinux"), &vmlinux).unwrap();
    let initrd = guest("initramfs-amd64.cpio.gz");
    let run = ["vmlinux", "--initrd", &initrd, "--until", "/ # ", "--limit-insns", "10G", "--append", QUICK];
    record(folder, &run, &[]);
    let kernel = GuestBuilder::image(&folder.join("vmlinux").display().to_string()).open().unwrap();
    for (function, offset, old, new) in PATCHES {
        let address = kernel.target().symbols().sole(function).unwrap().addr + offset;
        let plan = kernel.target().image().plan();
        let inside = |s: &&Segment| (s.vaddr..s.vaddr + s.file.len() as u64).contains(&address);
        let segment = plan.segments.iter().find(inside).unwrap();
        let at = segment.file.start + (address - segment.vaddr) as usize;
        assert_eq!(vmlinux[at..at + 3], old, "{function}");
        let mut patched = vmlinux.clone();
        patched[at..at + 3].copy_from_slice(&new);
        std::fs::write(folder.join("patched"), patched).unwrap();
        let ran = trapline(folder, &["diff", "r.tlr", "--image", "patched", "-f", "json"]);
        assert_eq!(ran.code, 1, "{}", ran.err);
        let found: Value = serde_json::from_str(&ran.out).unwrap();
        let point = &found["point"];
        assert_eq!(
            (&found["start"]["bytes"], &point["cause"]),
            (&1.into(), &"instruction".into()),
            "{found:#}"
        );
        assert_eq!(point["at"]["a"]["ip"], address, "{found:#}");
        assert_ne!(point["at"]["a"]["instruction"], point["at"]["b"]["instruction"], "{found:#}");
        // That is where it is executed first.
        std::fs::write(folder.join("go"), format!("continue to {address:#x}\n")).unwrap();
        let mut replay = std::process::Command::new(binary());
        replay.args(["replay", "r.tlr", "--at", "0", "-q", "--console", "none"]).current_dir(folder);
        let went = replay.stdin(std::fs::File::open(folder.join("go")).unwrap()).output().unwrap();
        let went = String::from_utf8(went.stdout).unwrap();
        let first = format!("at {} {address:#x} {function}+{offset:#x}: ", point["icount"]);
        assert!(went.contains(&first), "no `{first}` in\n{went}");
    }
}

#[test]
fn guest_linux_last_writers_are_those_of_a_watchpoint_at_length() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let (kernel, initrd) = (guest("linux-cloud-amd64"), guest("initramfs-amd64.cpio.gz"));
    let run =
        [kernel.as_str(), "--initrd", &initrd, "--until", "/ # ", "--limit-insns", "10G", "--append", QUICK];
    record(folder, &run, &[]);
    // One is written all the time, the others in the middle of the boot and only at its beginning.
    for (place, most) in [("jiffies_64:8", 20), ("pid_max:4", 3), ("saved_command_line:8", 10)] {
        let ask = ["replay", "r.tlr", "-f", "json", "--who-wrote", place, "--last", &most.to_string()];
        let asked = trapline(folder, &ask);
        assert_eq!(asked.code, 0, "{}", asked.err);
        let found: Value = serde_json::from_str(&asked.out).unwrap();
        let (low, high) = (found["low"].as_u64().unwrap(), found["high"].as_u64().unwrap());
        let program = format!(
            "name = vmlinux\nmodtype = kernel\naddress = {low:#x}:{high:#x}\nwatchpoint = w\npush 1\nlog 1\nexit\n"
        );
        std::fs::write(folder.join("w.rpn"), program).unwrap();
        let watch = ["-p", "w.rpn", "-f", "json", "--watch-unlimited", "--console", "none"];
        let ran = trapline(folder, &[&["run"], &run[..], &watch].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        let rows = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let live: Vec<u64> =
            rows.filter(|row| row["type"] == "hit").map(|row| row["icount"].as_u64().unwrap()).collect();
        let last = found["last"].as_array().unwrap();
        let last: Vec<u64> = last.iter().map(|writer| writer["position"].as_u64().unwrap() + 1).collect();
        assert!(!live.is_empty(), "{place} is never written");
        assert_eq!(last, live[live.len().saturating_sub(most)..], "{place}");
        let all = (live.len() < most).then_some(live.len());
        assert_eq!(found["count"].as_u64(), all.map(|all| all as u64), "{place}");
    }
}

#[test]
fn guest_linux_tick_makes_a_condition_true_at_length() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let (kernel, initrd) = (guest("linux-cloud-amd64"), guest("initramfs-amd64.cpio.gz"));
    record(
        folder,
        &[&kernel, "--initrd", &initrd, "--until", "/ # ", "--limit-insns", "10G", "--append", QUICK],
        &[],
    );
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

#[test]
fn guest_linux_registers_of_two_widths_are_compared_by_name() {
    let folder = TempDir::new().unwrap();
    for (kernel, file) in [("linux-cloud-amd64", "wide.tlr"), ("linux-686", "narrow.tlr")] {
        let kernel = guest(kernel);
        let record = ["record", &kernel, "--limit-insns", "1M", "-q", "--console", "none", "-o", file];
        assert_eq!(trapline(folder.path(), &record).code, 124);
    }
    let found = trapline(folder.path(), &["diff", "wide.tlr", "narrow.tlr", "-f", "json"]);
    let found: Value = serde_json::from_str(&found.out).unwrap();
    let registers = found["point"]["registers"].as_array().unwrap();
    let segments = ["es", "cs", "ss", "ds", "fs", "gs", "ldtr", "tr", "gdtr", "idtr"];
    let mut names: Vec<&str> = Vec::new();
    for register in registers {
        let name = register["name"].as_str().unwrap();
        for side in ["a", "b"] {
            let has_limit = register[side].as_str().unwrap().contains("limit");
            assert_eq!(has_limit, segments.contains(&name), "{register}");
        }
        names.push(name);
    }
    // Where both begin, their general registers are the same.
    assert!(names.contains(&"cs") && names.contains(&"efer") && !names.contains(&"r9"), "{names:?}");
}
