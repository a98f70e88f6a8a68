//! `syscall`, `proc`, `sched` and `io` on Linux, and D's typed arguments of them. What D programs count and add up is
//! computed a second time here, from raw records of the kernel's functions.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tempfile::TempDir;
use trapline_tests::linux::{KERNELS, Linux, QUICK};
use trapline_tests::{guest, root};

use crate::cli::{Ran, trapline, trapline_from_init};

const PROMPT: &str = "/ # ";

fn cloud() -> &'static Linux {
    &KERNELS[1]
}

/// Where the records of a run begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Boot,
    FirstProcess,
}

/// Runs to the prompt. The cloud kernel boots fast enough to be traced from its boot on where tests ask for it.
fn run(linux: &Linux, from: From, args: &[&str]) -> Ran {
    let kernel = format!(".guests/linux-{}", linux.flavour);
    let initrd = format!(".guests/initramfs-{}.cpio.gz", linux.arch);
    let own = ["run", &kernel, "--initrd", &initrd, "--until", PROMPT, "--console", "none", "-q"];
    let ran = match from {
        From::Boot => trapline(&root(), &[&own[..], &["--append", QUICK], args].concat()),
        From::FirstProcess => trapline_from_init(&root(), &[&own[..], args].concat()),
    };
    assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
    ran
}

fn objects(ran: &Ran) -> Vec<Value> {
    ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The raw records of handlers, each of which is a `--rpn`.
fn raw(linux: &Linux, from: From, handlers: &[&str], more: &[&str]) -> Vec<Value> {
    let handlers = handlers.iter().flat_map(|handler| ["--rpn", *handler]);
    let args: Vec<&str> = ["-f", "json"].into_iter().chain(handlers).chain(more.iter().copied()).collect();
    let all = objects(&run(linux, from, &args));
    assert_eq!(all.last().unwrap()["lost"], 0);
    all
}

/// The entries of an aggregation of a D program: its keys as text, and the value.
fn aggregation(all: &[Value], name: &str) -> BTreeMap<String, Value> {
    let found = all.iter().find(|object| object["type"] == "aggregation" && object["name"] == name);
    let entries = found.map(|object| object["entries"].as_array().unwrap().clone()).unwrap_or_default();
    let key = |entry: &Value| {
        let keys = entry["keys"].as_array().cloned().unwrap_or_default();
        let shown: Vec<String> =
            keys.iter().map(|key| key.as_str().map_or(key.to_string(), str::to_owned)).collect();
        shown.join(" ")
    };
    entries.iter().map(|entry| (key(entry), entry["value"].clone())).collect()
}

fn counts(all: &[Value], name: &str) -> BTreeMap<String, u64> {
    aggregation(all, name).into_iter().map(|(key, value)| (key, value.as_u64().unwrap())).collect()
}

fn d(linux: &Linux, from: From, program: &str) -> Vec<Value> {
    objects(&run(linux, from, &["-f", "json", "-n", program]))
}

/// The words of a record's data.
fn words(hit: &Value, size: usize) -> Vec<u64> {
    let data = hit["data"].as_str().unwrap();
    let bytes: Vec<u8> =
        (0..data.len() / 2).map(|n| u8::from_str_radix(&data[2 * n..2 * n + 2], 16).unwrap()).collect();
    let word = |chunk: &[u8]| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    bytes.chunks(size).map(word).collect()
}

fn function(hit: &Value) -> &str {
    hit["probe"].as_str().unwrap_or_default().split(':').nth(2).unwrap_or_default()
}

fn hits(all: &[Value]) -> impl Iterator<Item = &Value> {
    all.iter().filter(|object| object["type"] == "hit")
}

#[test]
fn guest_linux_d_adds_up_the_time_on_the_processor_at_length() {
    let program = "sched:::on-cpu { self->ts = timestamp; } \
                   sched:::off-cpu /self->ts/ { @[execname] = sum(timestamp - self->ts); self->ts = 0; }";
    for (linux, from, least) in [(cloud(), From::Boot, 10), (&KERNELS[0], From::FirstProcess, 4)] {
        let all = raw(
            linux,
            from,
            &["fbt::{__switch_to_asm,finish_task_switch.isra.0}:entry { push task; log 1 }"],
            &["--header", "name,tsc"],
        );
        let (mut since, mut sums) = (BTreeMap::new(), BTreeMap::<String, u64>::new());
        for hit in hits(&all) {
            let (task, now) =
                (words(hit, if linux.arch == "i386" { 4 } else { 8 })[0], hit["tsc"].as_u64().unwrap());
            if function(hit) != "__switch_to_asm" {
                since.insert(task, now);
            } else if let Some(then) = since.remove(&task) {
                *sums.entry(hit["name"].as_str().unwrap().to_owned()).or_default() += now - then;
            }
        }
        assert!(sums.len() > least, "{sums:?}");
        assert_eq!(counts(&d(linux, from, program), "@"), sums, "{}", linux.flavour);
    }
}

/// The bucket of a value: the greatest power of two that is not greater.
fn bucket(value: u64) -> String {
    if value == 0 { "0".to_owned() } else { (1u64 << value.ilog2()).to_string() }
}

type Histogram = BTreeMap<String, u64>;

fn histograms(all: &[Value]) -> BTreeMap<String, Histogram> {
    let of = |value: Value| {
        let buckets = value.as_array().unwrap().clone();
        let one = |own: &Value| (own["bucket"].as_str().unwrap().to_owned(), own["count"].as_u64().unwrap());
        buckets.iter().map(one).collect()
    };
    aggregation(all, "@").into_iter().map(|(key, value)| (key, of(value))).collect()
}

#[test]
fn guest_linux_d_counts_sizes_by_stack_at_length() {
    let all = raw(cloud(), From::Boot, &["fbt::__kmalloc:entry { push arg, 0; log 1 }"], &["--stack=3"]);
    let mut expected: BTreeMap<String, Histogram> = BTreeMap::new();
    for pair in all.windows(2).filter(|pair| pair[0]["type"] == "hit") {
        let frames = pair[1]["frames"].as_array().unwrap();
        let frame = |frame: &Value| frame.as_str().unwrap().to_owned();
        let callers: Vec<String> = frames.iter().map(frame).take(2).collect();
        let stack = std::iter::once("vmlinux`__kmalloc".to_owned()).chain(callers);
        let stack = serde_json::to_string(&stack.collect::<Vec<_>>()).unwrap();
        let own = expected.entry(stack).or_default();
        *own.entry(bucket(words(&pair[0], 8)[0])).or_default() += 1;
    }
    assert!(expected.len() > 100, "{}", expected.len());
    let found = histograms(&d(cloud(), From::Boot, "fbt::__kmalloc:entry { @[stack(3)] = quantize(arg0); }"));
    assert_eq!(found, expected);
}

#[test]
fn guest_linux_d_counts_instructions_of_page_faults() {
    let all = raw(cloud(), From::FirstProcess, &["fbt::handle_mm_fault: { push task; log 1 }"], &[]);
    let (mut since, mut expected) = (BTreeMap::new(), Histogram::new());
    for hit in hits(&all) {
        let (task, now) = (words(hit, 8)[0], hit["icount"].as_u64().unwrap());
        if hit["probe"].as_str().unwrap().ends_with(":entry") {
            since.insert(task, now);
        } else if let Some(then) = since.get(&task) {
            *expected.entry(bucket(now - then)).or_default() += 1;
        }
    }
    assert!(expected.values().sum::<u64>() > 100, "{expected:?}");
    let program = "fbt::handle_mm_fault:entry { self->t = icount } \
                   fbt::handle_mm_fault:return /self->t/ { @ = quantize(icount - self->t); }";
    assert_eq!(
        histograms(&d(cloud(), From::FirstProcess, program)).into_values().collect::<Vec<_>>(),
        [expected]
    );
}

/// Entries and returns of system calls, computed from raw records: by name; by name and error number.
struct Calls {
    entries: BTreeMap<String, u64>,
    returns: BTreeMap<String, u64>,
}

/// The kernel's name of the system call that a function handles.
fn call_name(function: &str) -> Option<&str> {
    let prefixes = [
        "__x64_sys_",
        "__ia32_compat_sys_ia32_",
        "__ia32_compat_sys_",
        "__ia32_sys_ia32_",
        "__ia32_sys_",
        "__do_sys_",
    ];
    prefixes.iter().find_map(|prefix| function.strip_prefix(prefix))
}

fn raw_calls(linux: &Linux) -> Calls {
    let wide = linux.arch == "amd64";
    let size = if wide { 8 } else { 4 };
    let (dispatch, sp, number, value) =
        if wide { ("x64_sys_call", "rsp", 0x78, 0x50) } else { ("ia32_sys_call", "esp", 0x2c, 0x18) };
    let number = format!("push arg, 0; push {number}; add; push mem, u32; log 1");
    let value = format!("push arg, 0; push {value}; add; push mem, u32; log 1");
    let handlers = [
        format!("fbt::{dispatch}:entry {{ push arg, 1; log 1 }}"),
        "fbt::{__x64_sys_*,__ia32_sys_*,__ia32_compat_sys_*,__do_sys_*}:entry { push 0; log 1 }".to_owned(),
        format!(
            "fbt::syscall_exit_to_user_mode:entry {{ {number}; {value}; push r, {sp}; push mem, u{0}; log 1 }}",
            size * 8
        ),
    ];
    let handlers: Vec<&str> = handlers.iter().map(String::as_str).collect();
    let all = raw(linux, From::FirstProcess, &handlers, &[]);
    let listed =
        trapline(&root(), &["list", &format!(".guests/linux-{}", linux.flavour), "ret_from_fork", "-q"]);
    let mut child = listed.out.split_whitespace();
    let start = u64::from_str_radix(child.next().unwrap().trim_start_matches("0x"), 16).unwrap();
    let end = start + child.next().unwrap().parse::<u64>().unwrap();
    let (mut names, mut last) = (BTreeMap::new(), None);
    let (mut entries, mut returns) = (BTreeMap::<String, u64>::new(), BTreeMap::<String, u64>::new());
    for hit in hits(&all) {
        let own = function(hit);
        if own == dispatch {
            last = Some(words(hit, size)[0] as u32);
        } else if own == "syscall_exit_to_user_mode" {
            let words = words(hit, size);
            let (number, value, caller) = (words[0] as u32, words[1] as u32 as i32, words[2]);
            let Some(name) = names.get(&number) else { continue };
            let forked = matches!(name, &("clone" | "clone3" | "fork" | "vfork"));
            if !(start..end).contains(&caller) || forked {
                let errno = if (-4095..0).contains(&value) { -value } else { 0 };
                *returns.entry(format!("{name} {errno}")).or_default() += 1;
            }
        // The function after the dispatch handles the call; others are called by handlers.
        } else if let Some(number) = last.take() {
            let name = call_name(own).unwrap();
            names.insert(number, name);
            *entries.entry(name.to_owned()).or_default() += 1;
        }
    }
    Calls { entries, returns }
}

#[test]
fn guest_linux_system_calls_are_those_of_the_raw_records() {
    let program = "syscall:::entry { @e[probefunc] = count(); } syscall:::return { @r[probefunc, errno] = count(); } \
                   syscall:::return /arg0 != arg1 || (errno != 0) != ((int)arg0 < 0 && (int)arg0 >= -4095)/ { @bad = count(); }";
    for linux in &KERNELS {
        let Calls { entries, returns } = raw_calls(linux);
        assert!(entries.len() > 20 && returns.len() > 20, "{entries:?}");
        assert!(returns.keys().any(|key| key == "openat 6"), "{returns:?}");
        let all = d(linux, From::FirstProcess, program);
        assert_eq!(counts(&all, "@e"), entries, "{}", linux.flavour);
        assert_eq!(counts(&all, "@r"), returns, "{}", linux.flavour);
        assert!(counts(&all, "@bad").is_empty());
    }
}

/// System calls in the first window between two calls of sync are shown by their names, those in the second by their numbers, those
/// of 32-bit programs too, but for rt_sigreturn, whose number the kernel clears; only then does the guest say what it has traced.
const TRACED: &str = "\
export PATH=/bin T=/sys/kernel/tracing
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tracefs tracefs $T
work() { cat /proc/version /none > /dev/null 2>&1; ( sh -c 'exit 3' | cat; kill -9 $$ ) & wait; sleep 0; ls / > /dev/null; }
echo 1 > $T/events/syscalls/enable
sync
work
sync
echo 0 > $T/events/syscalls/enable
awk '/sys_sync -> /{ on++; next } /sys_sync\\(/{ if (on) exit } on && /: sys_[a-z0-9_]* -> /' $T/trace | sed 's/.*: sys_/name /' > /names
echo > $T/trace
echo 1 > $T/events/raw_syscalls/sys_exit/enable
sync
work
/narrow cat /proc/version /none > /dev/null 2>&1
/narrow sh -c '( exit 3 ) & wait; ls /none' > /dev/null 2>&1
sync
echo 0 > $T/events/raw_syscalls/sys_exit/enable
awk '/NR 162 = 0/{ if (on) exit; on++; next } on && !/NR -1 /' $T/trace | sed 's/.*sys_exit: NR .* = /value /' > /values
sort /names | uniq -c
sort /values | uniq -c
echo traced: end
";

/// The returns of system calls, of programs of both widths, and of new tasks, are those that the guest's own tracer shows. The
/// kernels before 7 leave through one function.
#[test]
fn guest_linux_returns_of_system_calls_are_those_of_ftrace_at_length() {
    let program = "int w; syscall:::return /w == 2/ { @name[probefunc, arg0] = count(); } \
                   syscall:::return /w == 6/ { @value[(int64_t)arg0] = count(); } \
                   syscall::sync:entry, syscall::sync:return { w++; }";
    for flavour in ["6.12-cloud-amd64", "testing-cloud-amd64"] {
        let linux = Linux::of(flavour).unwrap();
        let folder = TempDir::new().unwrap();
        std::fs::copy(guest("busybox-i386"), folder.path().join("narrow")).unwrap();
        let image = linux.image(folder.path(), &[], &["narrow"], TRACED).unwrap().display().to_string();
        let kernel = guest(&format!("linux-{flavour}"));
        let args = ["run", &kernel, "--initrd", &image, "--append", QUICK, "--until", "traced: end", "-q"];
        let ran = trapline(
            folder.path(),
            &[&args[..], &["--console", "console", "-f", "json", "-n", program]].concat(),
        );
        let console = std::fs::read_to_string(folder.path().join("console")).unwrap();
        assert_eq!(ran.code, 0, "{flavour}: {}{console}", ran.err);
        let (mut names, mut values) = (BTreeMap::new(), BTreeMap::new());
        for line in console.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match *words {
                [count, "name", name, "->", value] => {
                    let value = u64::from_str_radix(value.trim_start_matches("0x"), 16).unwrap();
                    names.insert(format!("{name} {}", value.cast_signed()), count.parse::<u64>().unwrap());
                }
                [count, "value", value] => {
                    values.insert(value.to_owned(), count.parse::<u64>().unwrap());
                }
                _ => {}
            }
        }
        assert!(names.len() > 20 && values.len() > 20, "{flavour}: {console}");
        let all = objects(&ran);
        let own: BTreeMap<String, u64> = counts(&all, "@name");
        let own: BTreeMap<String, u64> = own
            .into_iter()
            .map(|(key, count)| {
                let (name, value) = key.split_once(' ').unwrap();
                let value: i128 = value.parse().unwrap();
                (format!("{name} {}", value as i64), count)
            })
            .collect();
        assert_eq!(own, names, "{flavour}");
        assert_eq!(counts(&all, "@value"), values, "{flavour}");
    }
}

/// Names of files that programs open, with the names of the programs.
fn opened(all: &[Value]) -> Vec<String> {
    let texts = all.iter().filter(|object| object["type"] == "d");
    texts.map(|object| object["parts"][0]["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn guest_linux_openat_shows_program_and_path() {
    let untyped = "syscall::openat:entry { printf(\"%s %s\", execname, copyinstr(arg1)); }";
    for linux in &KERNELS[..2] {
        let (function, offset) =
            if linux.arch == "amd64" { ("__x64_sys_openat", 0x68) } else { ("__ia32_sys_openat", 4) };
        let word = if linux.arch == "amd64" { "u64" } else { "u32" };
        let handler = format!(
            "fbt::{function}:entry {{ push 200; push arg, 0; push {offset}; add; push mem, {word}; log str }}"
        );
        let all = raw(linux, From::FirstProcess, &[&handler], &["--header", "name"]);
        let text = |hit: &Value| {
            let data = words(hit, 1);
            let text: Vec<u8> = data[3..].iter().map(|byte| *byte as u8).collect();
            format!("{} {}", hit["name"].as_str().unwrap(), String::from_utf8(text).unwrap())
        };
        let expected: Vec<String> = hits(&all).map(text).collect();
        assert!(expected.iter().any(|line| line == "sh /dev/tty"), "{expected:?}");
        assert_eq!(opened(&d(linux, From::FirstProcess, untyped)), expected, "{}", linux.flavour);
        // The 686 kernel has no types.
        if linux.arch == "amd64" {
            let typed =
                "syscall::openat:entry { printf(\"%s %s\", execname, copyinstr((uintptr_t)args[1])); }";
            assert_eq!(opened(&d(linux, From::FirstProcess, typed)), expected);
        }
    }
}

/// How often probes have fired.
fn fired(linux: &Linux, clauses: &[(&str, &str)]) -> BTreeMap<String, u64> {
    let program: Vec<String> =
        clauses.iter().map(|(probe, name)| format!("{probe} {{ @[\"{name}\"] = count(); }}")).collect();
    counts(&d(linux, From::FirstProcess, &program.join(" ")), "@")
}

#[test]
fn guest_linux_processes_and_threads_are_those_of_the_tracepoints() {
    let views = [
        ("proc:::lwp-create", "sched_process_fork"),
        ("proc:::lwp-exit", "sched_process_exit"),
        ("proc:::exec-success", "sched_process_exec"),
        ("proc:::signal-send", "signal_generate"),
        ("sched:::off-cpu", "sched_switch"),
    ];
    for linux in &KERNELS[1..] {
        let points = views.map(|(_, point)| (format!("sdt::*:{point}"), point));
        let points: Vec<(&str, &str)> = points.iter().map(|(probe, name)| (probe.as_str(), *name)).collect();
        assert_eq!(fired(linux, &views), fired(linux, &points), "{}", linux.flavour);
    }
}

#[test]
fn guest_linux_processes_begin_execute_and_end() {
    let program = "proc:::create { printf(\"create\"); } proc:::start { printf(\"start %d\", pid); } \
                   proc:::exec { printf(\"exec %d %s\", pid, stringof(args[0])); } \
                   proc:::exec-success { printf(\"success %d %s\", pid, execname); } \
                   proc:::exec-failure { printf(\"failure %d %d\", pid, args[0]); } \
                   proc:::exit { printf(\"exit %d %d\", pid, args[0]); } \
                   syscall::exit_group:entry { printf(\"asked %d 1\", pid); } \
                   syscall::execve:return /errno/ { printf(\"refused %d %d\", pid, errno); }";
    for (linux, from, least) in [(cloud(), From::Boot, 20), (&KERNELS[0], From::FirstProcess, 3)] {
        let lines = opened(&d(linux, from, program));
        let of = |word: &str| -> Vec<&str> {
            let own = lines.iter().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
            own.collect()
        };
        let created = lines.iter().filter(|line| *line == "create").count();
        // Each new process begins; each process that asks to end does, once; each failure has its error number.
        let started: BTreeSet<&str> = of("start").into_iter().collect();
        assert!(started.len() > least && started.len() == of("start").len(), "{lines:?}");
        assert!((started.len()..started.len() + 2).contains(&created), "{created} {}", started.len());
        // The kernel itself executes programs too, which are not there.
        let failed: Vec<&str> =
            of("failure").into_iter().filter(|line| of("refused").contains(line)).collect();
        assert_eq!(of("refused"), failed, "{}", linux.flavour);
        assert!(of("failure").iter().any(|line| line.ends_with(" 2")));
        let asked: BTreeSet<&str> = of("asked").into_iter().collect();
        let ended: BTreeSet<&str> = of("exit").into_iter().collect();
        assert!(ended.is_superset(&asked) && ended.len() == of("exit").len(), "{asked:?} {ended:?}");
        assert!(of("exec").contains(&"1 /init"), "{:?}", of("exec"));
        assert_eq!(of("exec").len(), of("success").len() + of("failure").len());
    }
}

#[test]
fn guest_linux_a_process_is_the_progeny_of_its_ancestors() {
    // Threads of the kernel descend from process 2, programs from process 1.
    let program = "proc:::exec-success,sched:::on-cpu,syscall::exit_group:entry \
                   { @[progenyof(pid), progenyof(ppid), progenyof(4711), progenyof(1) + progenyof(2) + (pid == 0)] = count(); \
                     @who[curthread->mm == NULL, progenyof(1)] = count(); }";
    let all = d(cloud(), From::FirstProcess, program);
    let kinds = counts(&all, "@");
    assert!(kinds.len() == 1 && kinds["1 1 0 1"] > 20, "{kinds:?}");
    let who = counts(&all, "@who");
    assert!(who["0 1"] > 10 && who["1 0"] > 1 && !who.contains_key("0 0"), "{who:?}");
}

#[test]
fn guest_linux_translated_arguments_are_those_of_the_task() {
    let program = "proc:::create { @bad[\"parent\"] = sum(args[0]->pr_ppid != pid); pids[args[0]->pr_pid] = 1; } \
                   proc:::start { @bad[\"pid\"] = sum(!pids[pid]); \
                       @bad[\"self\"] = sum(curpsinfo->pr_pid != pid || curlwpsinfo->pr_lwpid != tid || curpsinfo->pr_ppid != ppid); \
                       @bad[\"name\"] = sum(stringof(curpsinfo->pr_fname) != execname); } \
                   sched:::off-cpu { next = args[0]->pr_addr; } \
                   sched:::on-cpu /next/ { @bad[\"next\"] = sum(next != (uintptr_t)curthread); \
                       @bad[\"cpu\"] = sum(curcpu->cpu_id != 0); @n[\"on\"] = count(); } \
                   sched:::enqueue { @bad[\"state\"] = sum(args[0]->pr_state == SZOMB || args[2]->cpu_id != cpu); } \
                   proc:::signal-send /args[2] == SIGCHLD/ { @n[\"signals\"] = count(); } \
                   proc:::exec-success { printf(\"%s\", curpsinfo->pr_psargs); }";
    let all = d(cloud(), From::FirstProcess, program);
    let bad = counts(&all, "@bad");
    assert!(bad.len() == 7 && bad.values().all(|count| *count == 0), "{bad:?}");
    assert!(counts(&all, "@n").values().all(|count| *count > 3), "{:?}", counts(&all, "@n"));
    let arguments = opened(&all);
    assert!(arguments.iter().any(|line| line == "mount -t proc proc /proc"), "{arguments:?}");
}

#[test]
fn guest_linux_files_of_a_process_have_paths() {
    let program = "syscall::write:entry { @[execname, fds[arg0].fi_pathname, fds[arg0].fi_oflags & O_ACCMODE] = sum(arg2); } \
                   syscall::write:entry { @c[execname] = sum(arg2); }";
    let all = d(cloud(), From::FirstProcess, program);
    let files = counts(&all, "@");
    assert!(files.keys().any(|key| key.contains("/dev/console") || key.contains("/console")), "{files:?}");
    assert_eq!(files.values().sum::<u64>(), counts(&all, "@c").values().sum::<u64>());
}

#[test]
fn guest_linux_io_shows_device_block_and_size() {
    io_is_shown(&["virtio_ring", "virtio", "virtio_mmio", "virtio_blk"], &[]);
}

#[test]
fn guest_linux_io_of_a_disk_on_the_pci_bus_is_the_same() {
    let modules = [
        "virtio_ring",
        "virtio",
        "virtio_pci_legacy_dev",
        "virtio_pci_modern_dev",
        "virtio_pci",
        "virtio_blk",
    ];
    io_is_shown(&modules, &["--virtio", "pci"]);
}

/// Runs a guest that loads these modules and moves some blocks, on a machine with these options.
fn io_is_shown(modules: &[&str], options: &[&str]) {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("disk.img"), vec![7u8; 1 << 20]).unwrap();
    let loading: String = modules.iter().map(|module| format!("insmod /{module}.ko\n")).collect();
    let script = "export PATH=/bin\nmount -t devtmpfs devtmpfs /dev\n".to_owned()
        + &loading
        + "echo io: begin\n\
                  dd if=/dev/vda iflag=direct of=/dev/null bs=4096 skip=3 count=2 2>/dev/null\n\
                  dd if=/dev/zero of=/dev/vda oflag=direct bs=1024 seek=9 count=1 conv=notrunc 2>/dev/null\n\
                  echo io: end\npoweroff -f\n";
    let initrd = cloud().image(folder.path(), modules, &[], &script).unwrap().display().to_string();
    let kernel = guest("linux-cloud-amd64");
    let program = "io:::start /execname == \"dd\"/ { printf(\"%s %d:%d %d+%d %s\", args[1]->dev_statname, \
                       args[1]->dev_major, args[1]->dev_minor, args[0]->b_blkno, args[0]->b_bcount, \
                       args[0]->b_flags & B_WRITE ? \"W\" : \"R\"); started[arg0] = 1; @n[\"start\"] = count(); } \
                   io:::done /started[arg0]/ { started[arg0] = 0; @n[\"done\"] = count(); } \
                   io:::done /args[0]->b_error/ { @n[\"error\"] = count(); }";
    let args = ["run", &kernel, "--initrd", &initrd, "--until", "io: end", "--disk", "disk.img"];
    let ran = trapline(
        folder.path(),
        &[&args[..], options, &["--console", "none", "-q", "-f", "json", "-n", program]].concat(),
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    let all = objects(&ran);
    let lines = opened(&all);
    for line in ["vda 254:0 24+4096 R", "vda 254:0 32+4096 R", "vda 254:0 16+4096 W"] {
        assert!(lines.iter().any(|own| own == line), "{line}: {lines:?}");
    }
    let n = counts(&all, "@n");
    assert_eq!(n["start"], n["done"]);
    assert!(!n.contains_key("error"));
}

#[test]
fn guest_linux_what_a_kernel_lacks_is_refused_with_the_reason() {
    let refused = |kernel: &str, what: &str| {
        let ran = trapline(&root(), &["list", kernel, what]);
        assert_ne!(ran.code, 0, "{what}: {}", ran.out);
        ran.err
    };
    let cloud = ".guests/linux-cloud-amd64";
    assert!(refused(cloud, "sched:::sleep").contains("has no place in Linux; use sched:::off-cpu"));
    assert!(
        refused(cloud, "syscall::umount2:entry")
            .contains("the kernel's name of the system call umount2 is umount")
    );
    assert!(refused(cloud, "syscall::opennat:entry").contains("does not match any probes"));
    assert!(refused("embedded:ia32", "syscall::open:entry").contains("syscall has probes for Linux only"));
    assert!(refused(".guests/gnumach", "proc:::create").contains("proc has probes for Linux only"));
}

/// A 32-bit program whose vectors and times are laid out in its own way.
const NARROW: &str = r#"
static int call(int number, int a, int b, int c) {
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}
void _start(void) {
    struct { const char *base; int length; } vector[1] = { { "narrow\n", 7 } };
    int time[2] = { 0, 12345 };
    call(162, (int)time, 0, 0);
    call(146, 1, (int)vector, 1);
    call(1, 0, 0, 0);
}
"#;

/// Structs of 32-bit programs were shown by the layout that the kernel's own have: an `iov_base` of two words.
#[test]
fn guest_linux_structs_of_a_32_bit_program_are_not_read_by_the_layout_of_64_bits() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("user.c"), NARROW).unwrap();
    let flags =
        "-m32 -O1 -static -nostdlib -ffreestanding -fno-pic -no-pie -fno-stack-protector -o user user.c";
    let compiled =
        std::process::Command::new("gcc").args(flags.split(' ')).current_dir(folder.path()).status();
    assert!(compiled.unwrap().success());
    let initrd = cloud().image(folder.path(), &[], &["user"], "/user\npoweroff -f\n").unwrap();
    let (kernel, initrd) = (guest("linux-cloud-amd64"), initrd.display().to_string());
    let mut args = vec!["run", &kernel, "--initrd", &initrd, "--append", QUICK, "--console", "none", "-q"];
    args.extend(["--header", "name", "-n", "syscall::writev:entry,syscall::nanosleep*:entry"]);
    let ran = trapline_from_init(folder.path(), &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let of = |call: &str| ran.out.lines().find(|line| line.contains(call) && line.contains("name=user"));
    let (write, pause) = (of("syscall:vmlinux:writev").unwrap(), of("syscall:vmlinux:nanosleep").unwrap());
    assert!(write.contains("vec=0x") && !write.contains("iov_base"), "{write}");
    assert!(pause.contains("rqtp=0x") && !pause.contains("tv_nsec"), "{pause}");
}
