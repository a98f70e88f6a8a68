//! Stacks of Debian's kernels and of programs on them, compared with those that Linux, glibc and gdb find.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cli::{Ran, finish, patient, trapline, trapline_from_init};
use serde_json::Value;
use tempfile::TempDir;
use trapline_emu::load::Image;
use trapline_emu::symbols::{Btf, Symbols, UserModule};
use trapline_emu::{Machine, Stop};
use trapline_os::{KernelImage, Linux, Unwinder};
use trapline_tests::boot::{LinuxBoot, PROMPT};
use trapline_tests::linux::{KERNELS, QUICK};
use trapline_tests::{cpu_seconds, guest, root};

/// A stack record: its kind, instruction count, probe and frames.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stack {
    kind: String,
    icount: u64,
    probe: String,
    frames: Vec<String>,
    addresses: Vec<u64>,
}

/// A kernel with an initramfs that has more files, and a script that types lines at the shell's prompts.
struct Guest {
    folder: TempDir,
    kernel: String,
}

impl Guest {
    /// `files` are paths in the guest and files here.
    fn new(flavour: &str, arch: &str, files: &[(&str, PathBuf)], lines: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let mut list = String::from("dir /bin 755\ndir /lib 755\ndir /lib64 755\n");
        for (path, file) in files {
            writeln!(list, "file {path} {} 755", file.display()).unwrap();
        }
        std::fs::write(folder.path().join("list"), list).unwrap();
        let mut newc = patient(root().join("scripts/guests/newc"));
        newc.args(["list", "more.gz"]).current_dir(folder.path());
        let made = finish(newc);
        assert_eq!(made.code, 0, "{}", made.err);
        let mut initrd = trapline_tests::fetched(&format!("initramfs-{arch}.cpio.gz")).unwrap();
        initrd.extend(std::fs::read(folder.path().join("more.gz")).unwrap());
        std::fs::write(folder.path().join("initrd"), initrd).unwrap();
        let all = lines.iter().chain(&["exit"]).enumerate();
        let script: String =
            all.map(|(n, line)| format!("on console \"/ # \" {} type \"{line}\\n\"\n", n + 1)).collect();
        std::fs::write(folder.path().join("script"), script).unwrap();
        Self { folder, kernel: guest(&format!("linux-{flavour}")) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, more: &[&str]) -> Ran {
        let args = ["run", &self.kernel, "--initrd", "initrd", "--script", "script", "--console", "console"];
        let ran = trapline_from_init(self.folder.path(), &[&args[..], more].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran
    }

    fn console(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path("console")).unwrap()).replace('\r', "")
    }
}

fn stacks(out: &str) -> Vec<Stack> {
    let mut lines = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let word = lines.next().unwrap()["width"].as_u64().unwrap() as usize / 8;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    lines
        .filter(|line| line.get("frames").is_some_and(Value::is_array))
        .map(|line| Stack {
            kind: text(&line["type"]),
            icount: line["icount"].as_u64().unwrap(),
            probe: text(&line["probe"]),
            frames: line["frames"].as_array().unwrap().iter().map(text).collect(),
            addresses: rows(&line, word),
        })
        .collect()
}

/// A line of Linux, `f+0x10/0x40 [module]` without the text before it, in our form.
fn as_ours(line: &str) -> String {
    let mut words = line.split_whitespace();
    let (place, module) = (words.next().unwrap(), words.next());
    let place = place.split('/').next().unwrap();
    format!("{}`{place}", module.map_or("vmlinux", |module| module.trim_matches(['[', ']'])))
}

/// The output of `cat /proc/self/stack`.
fn proc_stack(console: &str) -> Vec<String> {
    console.lines().filter_map(|line| line.strip_prefix("[<0>] ")).map(as_ours).collect()
}

/// The stacks that ftrace has printed, from the callers of these functions on: their frames in our notation, and where.
fn ftrace_stacks(console: &str, traced: &[&str]) -> Vec<Vec<(String, u64)>> {
    let mut found: Vec<Vec<(String, u64)>> = Vec::new();
    for line in console.lines() {
        if line.ends_with("<stack trace>") {
            found.push(Vec::new());
        } else if let (Some(frame), Some(last)) = (line.strip_prefix(" => "), found.last_mut()) {
            let (frame, address) = frame.split_once(" <").unwrap_or((frame, "0"));
            let address = u64::from_str_radix(address.trim_end_matches('>'), 16).unwrap();
            last.push((as_ours(frame), address));
        }
    }
    let is_traced =
        |f: &(String, u64)| traced.iter().any(|name| f.0.starts_with(&format!("vmlinux`{name}+")));
    for stack in &mut found {
        let own = stack.iter().position(is_traced).unwrap();
        stack.drain(..=own);
    }
    found
}

#[test]
fn guest_linux_kernel_stacks_are_those_of_linux_in_interrupts_and_modules_too() {
    let module = guest("modules-cloud-amd64/loop.ko");
    let traced = ["disk_force_media_change", "scheduler_tick", "device_add_disk"];
    let filters: String =
        traced.iter().map(|f| format!("echo '{f}:stacktrace' >> set_ftrace_filter; ")).collect();
    let tracing = format!(
        "cd /sys/kernel/tracing; echo sym-offset > trace_options; echo sym-addr > trace_options; {filters} insmod /loop.ko; \
         losetup /dev/loop0 /bin/busybox; echo > set_ftrace_filter; cat trace; cd /"
    );
    let lines = ["cat /proc/self/stack", "mount -t tracefs t /sys/kernel/tracing", &tracing];
    let guest = Guest::new("cloud-amd64", "amd64", &[("/loop.ko", module.into())], &lines);
    let probes = ["stack_trace_save_tsk", traced[0], traced[1], traced[2]];
    let clause = probes.map(|f| format!("fbt::{f}:entry")).join(",");
    let ran = guest.run(&["--rpn", &clause, "-f", "json", "--stack=64"]);
    let (found, console) = (stacks(&ran.out), guest.console());

    let at = found.iter().find(|stack| stack.probe.contains("stack_trace_save_tsk")).unwrap();
    assert!(at.frames.len() >= 8 && at.frames[7] == "vmlinux`entry_SYSCALL_64_after_hwframe+0x6e", "{at:?}");
    assert_eq!(at.frames, proc_stack(&console));

    // ftrace's are a part of ours, in order.
    let said = ftrace_stacks(&console, &traced);
    let mut ours = found.iter().filter(|stack| traced.iter().any(|f| stack.probe.contains(f)));
    for stack in &said {
        let addresses: Vec<u64> = stack.iter().map(|(_, address)| *address).collect();
        assert!(ours.any(|found| found.addresses == addresses), "Linux alone has {stack:#x?}");
    }
    let with =
        |frame: &str| said.iter().filter(|stack| stack.iter().any(|(f, _)| f.starts_with(frame))).count();
    assert!(with("vmlinux`asm_sysvec_apic_timer_interrupt+") > 5, "{console}");
    assert!(with("loop`loop_configure+") >= 1 && with("loop`loop_add+") >= 8, "{console}");
    // The module's init function; its other name is init_module.
    assert!(with("loop`loop_init+") >= 8, "{console}");
    let named = |frame: &str| found.iter().filter(|s| s.frames.iter().any(|f| f.starts_with(frame))).count();
    assert!(named("loop`loop_add+") >= 8 && named("loop`init_module+") >= 8, "{found:?}");
}

/// The program of `stacks/prog.c`, and the libraries that it is linked with here.
fn program(folder: &Path) -> Vec<(&'static str, PathBuf)> {
    let prog = folder.join("prog");
    let source = root().join("tests/tests/stacks/prog.c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-fPIE", "-pie", "-fno-omit-frame-pointer", "-o"]).arg(&prog).arg(source);
    assert!(gcc.status().unwrap().success());
    let library = |name: &str| {
        let out = Command::new("gcc").arg(format!("-print-file-name={name}")).output().unwrap();
        let path = PathBuf::from(String::from_utf8(out.stdout).unwrap().trim());
        path.canonicalize().unwrap()
    };
    vec![
        ("/bin/prog", prog),
        ("/lib64/ld-linux-x86-64.so.2", PathBuf::from("/lib64/ld-linux-x86-64.so.2").canonicalize().unwrap()),
        ("/lib/libc.so.6", library("libc.so.6")),
        ("/lib/libgcc_s.so.1", library("libgcc_s.so.1")),
    ]
}

/// The addresses after a word on the console.
fn addresses(console: &str, word: &str) -> Vec<u64> {
    let line = console.lines().find_map(|line| line.strip_prefix(word)).unwrap();
    line.split_whitespace().map(|a| u64::from_str_radix(a.trim_start_matches("0x"), 16).unwrap()).collect()
}

/// The addresses of a stack record, out of its bytes (docs/records.md): modules with base, length and name, then a byte
/// and an address a frame.
fn rows(record: &Value, word: usize) -> Vec<u64> {
    let data: Vec<u8> = (0..record["data"].as_str().unwrap().len() / 2)
        .map(|n| u8::from_str_radix(&record["data"].as_str().unwrap()[2 * n..2 * n + 2], 16).unwrap())
        .collect();
    let mut at = 1;
    for _ in 0..data[0] {
        at += word;
        at += 2 + usize::from(u16::from_le_bytes([data[at], data[at + 1]]));
    }
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
    data[at..].chunks_exact(1 + word).map(|row| number(&row[1..])).collect()
}

fn user_records(out: &str) -> Vec<Value> {
    let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["type"] == "user-stack").collect()
}

#[test]
fn guest_linux_stacks_of_a_program_are_those_of_its_own_unwinder_and_of_gdb() {
    let build = TempDir::new().unwrap();
    let mut files = program(build.path());
    files.push(("/bin/bash", guest("bash-amd64").into()));
    files.push(("/bin/bash32", guest("bash-i386").into()));
    let bash = "f() { echo hi; }; f";
    let lines = ["bash", "bash32"].map(|shell| format!("{shell} -c '{bash}' | cat"));
    let guest = Guest::new("cloud-amd64", "amd64", &files, &["prog", &lines[0], &lines[1]]);
    let leaf = {
        let module = UserModule::parse(&std::fs::read(build.path().join("prog")).unwrap(), "prog").unwrap();
        module.bytes_at(module.symbol_offset("leaf").unwrap(), 1).unwrap()[0]
    };
    let source = format!("name = \"/bin/prog\"\nmodtype = user\noffset = leaf\nopcode = {leaf:#x}\nexit\n");
    std::fs::write(guest.path("leaf.rpn"), source).unwrap();
    let clause = "fbt::__x64_sys_getpgid:entry,fbt::ksys_write:entry";
    let probes = ["--rpn", clause, "-p", "leaf.rpn", "--ustack=64", "--digest"];
    let ran = guest.run(&[&probes[..], &["-f", "json"]].concat());
    let (console, records) = (guest.console(), user_records(&ran.out));
    let name = |record: &Value| record["probe"].as_str().unwrap_or_default().to_owned();

    // In the kernel: the system call's wrapper, then the frames that the program has found, except the address in
    // `leaf`.
    let kernel: Vec<&Value> = records.iter().filter(|r| name(r).contains("getpgid")).collect();
    // At the entry of `leaf`: itself, then the same.
    let user: Vec<&Value> = records.iter().filter(|r| name(r).is_empty()).collect();
    for (n, word) in ["sorting", "signal", "deep"].into_iter().enumerate() {
        let said = addresses(&console, word);
        assert!(said.len() >= 8, "{console}");
        assert_eq!(rows(kernel[n], 8)[2..], said[1..], "{word}: {}", kernel[n]);
        assert_eq!(rows(user[n], 8)[1..], said[1..], "{word}: {}", user[n]);
    }
    let frames = |record: &Value| -> Vec<String> {
        record["frames"].as_array().unwrap().iter().map(|f| f.as_str().unwrap().to_owned()).collect()
    };
    let sorting = frames(kernel[0]);
    let functions: Vec<&str> = sorting.iter().map(|f| f.split('+').next().unwrap()).collect();
    assert_eq!(functions[..3], ["libc.so.6`syscall", "prog`leaf", "prog`compare"]);
    assert!(functions.contains(&"libc.so.6`qsort_r") && functions.contains(&"prog`main"), "{sorting:?}");
    assert_eq!(frames(user[2])[0], "prog`leaf");
    assert_eq!(frames(user[2]).iter().filter(|f| f.starts_with("prog`deep+")).count(), 6);

    // bash at its `write`, as gdb sees the same file here.
    let write =
        records.iter().find(|r| name(r).contains("ksys_write") && frames(r)[0].starts_with("bash`")).unwrap();
    assert_eq!(rows(write, 8), gdb_frames("bash-amd64", bash));

    // A 32-bit program on a 64-bit kernel. Its vDSO lies elsewhere here.
    let write =
        records.iter().find(|r| frames(r).get(1).is_some_and(|frame| frame.starts_with("bash32`"))).unwrap();
    assert_eq!(rows(write, 8)[1..], gdb_frames("bash-i386", bash)[1..]);

    // The guest is unaffected, and a trace file prints the same.
    let digest = |err: &str| err.lines().find_map(|l| l.strip_prefix("digest ")).map(str::to_owned);
    let json_digest =
        serde_json::from_str::<Value>(ran.out.lines().last().unwrap()).unwrap()["digest"].clone();
    let plain = guest.run(&["--digest"]);
    assert_eq!(json_digest.as_str().map(str::to_owned), digest(&plain.err));
    guest.run(&[&probes[..], &["-f", "raw", "-o", "raw"]].concat());
    let cat = trapline(guest.folder.path(), &["trace", "cat", "raw", "-f", "json"]);
    assert_eq!(cat.code, 0, "{}", cat.err);
    let of = |out: &str| stacks(out).into_iter().map(|s| (s.kind, s.icount, s.frames)).collect::<Vec<_>>();
    assert_eq!(of(&cat.out), of(&ran.out));
}

/// The frames that gdb finds when this bash, run here, first writes.
fn gdb_frames(bash: &str, script: &str) -> Vec<u64> {
    let mut gdb = patient("gdb");
    gdb.args(["-nx", "-batch", "-ex", "catch syscall write"]);
    gdb.args(["-ex", "run", "-ex", "bt", "--args"]).arg(guest(bash)).args(["-c", script]);
    let said = finish(gdb);
    let frames = said.out.lines().filter_map(|line| line.strip_prefix('#'));
    let found: Vec<u64> = frames
        .map(|line| line.split_whitespace().nth(1).unwrap().trim_start_matches("0x"))
        .map(|address| u64::from_str_radix(address, 16).unwrap())
        .collect();
    assert!(found.len() > 8, "{}\n{}", said.out, said.err);
    found
}

#[test]
fn guest_linux_686_stacks_are_those_of_linux_and_of_gdb() {
    let bash = "f() { echo hi; }; f";
    let files = [("/bin/bash", guest("bash-i386").into())];
    let lines = ["cat /proc/self/stack", &format!("bash -c '{bash}' | cat")];
    let guest = Guest::new("686", "i386", &files, &lines);
    let clause = "fbt::stack_trace_save_tsk:entry,fbt::ksys_write:entry";
    let ran = guest.run(&["--rpn", clause, "-f", "json", "--stack=64", "--ustack=64"]);
    let found = stacks(&ran.out);
    let at = found.iter().find(|s| s.kind == "kernel-stack" && s.probe.contains("save_tsk")).unwrap();
    assert_eq!(at.frames, proc_stack(&guest.console()));
    assert!(at.frames.len() > 8);
    // The system call is made in the vDSO, which lies elsewhere here.
    let write = found.iter().find(|s| s.kind == "user-stack" && s.frames[1].starts_with("bash`")).unwrap();
    assert_eq!(write.addresses[1..], gdb_frames("bash-i386", bash)[1..]);
}

#[test]
fn guest_linux_ten_frames_of_a_kernel_take_a_small_part_of_what_its_tables_take() {
    let image = Image::parse(&trapline_tests::fetched("linux-cloud-amd64").unwrap(), "vmlinux").unwrap();
    let symbols = Symbols::from_kallsyms(&image.plan().image, "vmlinux").unwrap();
    let btf = Btf::from_vmlinux(&image.plan().image).unwrap();
    let profile = Linux::find(image.plan(), &symbols, btf.as_ref()).unwrap();
    let kernel = KernelImage::new(image.plan(), &symbols, "vmlinux");
    let mut unwinder = Unwinder::new(Some(kernel), Box::new(|_| None), Vec::new());
    let boot = LinuxBoot::shell(&KERNELS[1]).unwrap();
    let mut machine = boot.machine(PROMPT).unwrap();
    let mut stack = |machine: &Machine| unwinder.kernel_stack(machine.core(), Some(&profile), false, 11);
    while stack(&machine).len() < 11 {
        assert_eq!(machine.run(None, machine.icount() + 1_000_003), Stop::Limit, "no stack had ten frames");
    }
    let before = machine.digest();
    const TIMES: u32 = 10_000;
    let took = |work: &mut dyn FnMut()| {
        let start = cpu_seconds();
        work();
        cpu_seconds() - start
    };
    let each =
        took(&mut || (0..TIMES).for_each(|_| assert_eq!(stack(&machine).len(), 11))) / f64::from(TIMES);
    // Both are CPU time of this thread: a slow host, or other programs on it, change nothing in their relation.
    let tables = took(&mut || {
        let kernel = KernelImage::new(image.plan(), &symbols, "vmlinux");
        let mut unwinder = Unwinder::new(Some(kernel), Box::new(|_| None), Vec::new());
        assert_eq!(unwinder.kernel_stack(machine.core(), Some(&profile), false, 11).len(), 11);
    });
    println!("ten frames by ORC: {:.1} us; the tables: {:.1} us", each * 1e6, tables * 1e6);
    assert!(each < tables / 100.0, "{each} s of {tables} s");
    assert_eq!(machine.digest(), before, "reading a stack has no side effect");
}

/// Wherever a boot is interrupted, the kernel's stack is complete.
fn every_stack_is_whole(flavour: &str, arch: &str, ends: &[&str]) {
    let (kernel, initrd) = (format!(".guests/linux-{flavour}"), format!(".guests/initramfs-{arch}.cpio.gz"));
    let args = ["run", &kernel, "--initrd", &initrd, "--until", PROMPT, "--console", "none", "-f", "json"];
    let tick = ["-n", "profile:::tick-500009insn", "--stack=256", "--append", QUICK];
    let ran = trapline(&root(), &[&args[..], &tick].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let found = stacks(&ran.out);
    let ends = ends.iter().map(|end| format!("vmlinux`{end}"));
    let ends: Vec<String> = ends.collect();
    let whole = |stack: &&Stack| ends.iter().any(|end| stack.frames.last().unwrap().starts_with(end));
    let cut: Vec<&Stack> = found.iter().filter(|stack| !whole(stack)).collect();
    println!("{flavour}: {} stacks, {} cut short", found.len(), cut.len());
    assert!(found.len() > 500, "{}", found.len());
    // A retpoline jumps by a `ret` to the start of a function; Linux's unwinder fails there too.
    assert!(cut.len() <= found.len() / 200, "{cut:#?}");
}

#[test]
fn guest_linux_stacks_are_whole_wherever_a_boot_is_interrupted_at_length() {
    let ends = ["ret_from_fork", "secondary_startup_64_no_verify", "entry_SYSCALL_64_after_hwframe", "asm_"];
    every_stack_is_whole("cloud-amd64", "amd64", &ends);
    let ends = ["ret_from_fork", "startup_32_smp", "entry_SYSENTER_32", "handle_exception", "entry_INT80_32"];
    every_stack_is_whole("686", "i386", &ends);
}
