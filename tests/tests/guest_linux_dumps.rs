//! Crash dumps of Debian's Linux kernels, as the tools for them read them: makedumpfile, vmcore-dmesg, gdb; and dumps that
//! qemu and makedumpfile write, as we read them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::cli::trapline;
use super::dumps::{assert_lists, listed, ran, tool, write};
use super::patience::until;
use tempfile::TempDir;
use trapline_session::trapline_emu::{PAGE, PhysMem};
use trapline_session::{
    Compression, Condition, DumpFile, DumpFormat, Ending, GuestBuilder, Limits, Session, Timeline, Wanted,
};
use trapline_tests::boot::LINUX_LIMIT;
use trapline_tests::guest;
use trapline_tests::linux::{Linux, QUICK};

/// What a kernel says when it is about to start the first program.
const INIT: &str = "Run /init as init process";
/// What the guest's script says when its processes sleep.
const READY: &str = "the guest is ready";

/// A kernel with a module and some processes.
fn booted(folder: &Path, linux: &Linux) -> Session {
    let script = format!(
        "mount -t proc proc /proc\nmount -t devtmpfs devtmpfs /dev\ninsmod /dummy.ko\nsleep 1000 &\nsleep 1\n\
         ps -o pid,comm\ncat /proc/modules\necho {READY}\nsleep 1000\n"
    );
    let initrd = linux.image(folder, &["dummy"], &[], &script).unwrap();
    let kernel = guest(&format!("linux-{}", linux.flavour));
    let mut session = GuestBuilder::image(&kernel).initrd(initrd).append(QUICK).start().unwrap();
    let ending = session.run_until(&Condition::end().or_console(READY), &Limits::insns(LINUX_LIMIT));
    assert_eq!(ending, Ending::Until(READY.to_owned()));
    session
}

/// Asserts that the lists of a dump have what the guest itself has printed: its processes and its module.
fn assert_said_by_the_guest(here: &Path, live: &Session) {
    let said = String::from_utf8_lossy(live.console()).replace('\r', "");
    let (_, said) = said.split_once("PID   COMMAND\n").unwrap();
    let (tasks, modules) = said.split_once("dummy ").unwrap();
    let list = |what: &str| ran(here, &["-q", "dump", "vmcore", "--list", what]).out;
    let processes = list("processes");
    let mut found = 0;
    for (pid, name) in tasks.lines().filter_map(|line| line.trim().split_once(' ')) {
        // What a worker works at stands after its name.
        let is = |line: &str| {
            let mut words = line.split_whitespace();
            words.next() == Some(pid) && words.nth(2).is_some_and(|word| name.trim().starts_with(word))
        };
        assert!(name.trim() == "ps" || processes.lines().any(is), "{pid} {name}: {processes}");
        found += 1;
    }
    assert!(found > 20, "{said}");
    let words: Vec<&str> = modules.lines().next().unwrap().split_whitespace().collect();
    let (size, address) = (words[0], words[4]);
    let own = list("modules");
    let line = own.lines().find(|line| line.split_whitespace().nth(3) == Some("dummy")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!((words[0], words[1]), (address, size), "{modules}");
}

/// Whether both dumps have this memory, where both have it.
fn assert_same_memory(one: &Path, other: &Path, size: u64) -> u64 {
    let (one, other) = (DumpFile::open(one).unwrap(), DumpFile::open(other).unwrap());
    let (mut a, mut b) = ([0; PAGE as usize], [0; PAGE as usize]);
    let mut compared = 0;
    for paddr in (0..size).step_by(PAGE as usize) {
        if one.read(paddr, &mut a) && other.read(paddr, &mut b) {
            assert!(a == b, "{paddr:#x}");
            compared += 1;
        }
    }
    compared
}

/// makedumpfile of a kernel's own architecture, which reads no other's dumps.
fn makedumpfile(folder: &Path, linux: &Linux, args: &[&str]) -> String {
    if linux.arch != "i386" {
        return tool(folder, "makedumpfile", args);
    }
    let (ld, libraries) = (guest("i386/ld-linux.so.2"), guest("i386"));
    let program = guest("i386/makedumpfile");
    tool(folder, "qemu-i386", &[&[ld.as_str(), "--library-path", &libraries, &program], args].concat())
}

/// Filtered and compressed by makedumpfile: what is left is what we have written, and has the same lists.
fn filtered_dumps_are_read(here: &Path, linux: &Linux, session: &Session, messages: &str) {
    for (n, how) in [&["-d", "31", "-c"][..], &["-d", "0", "-l"], &["-d", "31", "-E"]].iter().enumerate() {
        let file = format!("filtered.{n}");
        makedumpfile(here, linux, &[how, &["-f", "vmcore", &file][..]].concat());
        let compared = assert_same_memory(&here.join("vmcore"), &here.join(&file), 256 << 20);
        assert!(compared > 5_000, "{how:?}: {compared} pages");
        let list = |what: &str| ran(here, &["-q", "dump", &file, "--list", what]);
        assert_eq!(list("console").out, messages, "{how:?}");
        let (tasks, live) = (list("processes"), listed(session, &Wanted::Processes));
        // Debian 12's makedumpfile takes descriptors of tasks from 6.12 on for pages of programs, and leaves them out.
        let is_newer = ["6.12-", "testing-"].iter().any(|version| linux.flavour.starts_with(version));
        if is_newer && how.contains(&"-c") {
            let begin = "trapline: not all tasks of the guest are known: the link at 0x";
            assert!(tasks.err.starts_with(begin), "{}", tasks.err);
            // Paths of programs may be missing too. A page that is left out may hold no more than the link of the last task.
            let named = |line: &str| line.split_whitespace().take(4).map(str::to_owned).collect::<Vec<_>>();
            let (found, all) = (tasks.out.lines().map(named), live.lines().map(named));
            let (found, all): (Vec<_>, Vec<_>) = (found.collect(), all.collect());
            assert!((10..=all.len()).contains(&found.len()) && all.starts_with(&found), "{}", tasks.out);
        } else {
            assert_eq!((tasks.err.as_str(), tasks.out), ("", live), "{how:?}");
        }
    }
}

fn the_tools_of_crash_dumps_read(flavour: &str) {
    let linux = Linux::of(flavour).unwrap();
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let session = booted(here, linux);
    write(&session, &here.join("vmcore"), Compression::None);
    let wide = linux.arch != "i386";
    assert_lists(here, "vmcore", &session, &[]);
    assert_said_by_the_guest(here, &session);
    // A kernel of 32 bits has no types in memory. What its file shows is the same.
    if !wide {
        assert_lists(here, "vmcore", &session, &["--symbols", &guest(&format!("linux-{}", linux.flavour))]);
    }
    // The kernel's messages, by three readers.
    makedumpfile(here, linux, &["--dump-dmesg", "-f", "vmcore", "dmesg"]);
    let messages = std::fs::read_to_string(here.join("dmesg")).unwrap();
    let version = match linux.flavour.split_once('-') {
        Some(("testing", _)) => "Linux version ".to_owned(),
        Some((version, _)) if version.contains('.') => format!("Linux version {version}."),
        _ => "Linux version 6.1.".to_owned(),
    };
    assert!(messages.contains(&version) && messages.contains(INIT), "{messages}");
    assert_eq!(tool(here, "vmcore-dmesg", &["vmcore"]), messages);
    // For these the dump of any kernel suffices.
    assert_eq!(ran(here, &["dump", "vmcore", "--list", "console"]).out, messages);
    assert_eq!(session.log().unwrap(), messages.as_bytes());
    filtered_dumps_are_read(here, linux, &session, &messages);
    // What we compress, it reads.
    write(&session, &here.join("vmcore.zlib"), Compression::Zlib);
    write(&session, &here.join("vmcore.zstd"), Compression::Zstd);
    // Of a 32-bit kernel it does not even read its own.
    if wide {
        makedumpfile(here, linux, &["--dump-dmesg", "-f", "vmcore.zlib", "again"]);
        assert!(std::fs::read_to_string(here.join("again")).unwrap() == messages);
    }
    for file in ["vmcore.zlib", "vmcore.zstd"] {
        assert_eq!(assert_same_memory(&here.join("vmcore"), &here.join(file), 256 << 20), 65_440);
        assert_eq!(DumpFile::open(&here.join(file)).unwrap().info().format, DumpFormat::Compressed);
    }
    assert_lists(here, "vmcore.zstd", &session, &[]);
    programs_read(here, &session, wide);
    // gdb sees the CPU where it was, and its code at the kernel's addresses.
    let info = DumpFile::open(&here.join("vmcore")).unwrap().info();
    let ip = info.cpus[0].0.ip;
    let pc = format!("{ip:#x}");
    let shown = tool(here, "gdb", &["-nx", "-batch", "-c", "vmcore", "-ex", "x/i $pc", "-ex", "p/x $cs"]);
    assert!(shown.contains(&format!("=> {pc}:")) && !shown.contains("(bad)"), "{shown}");
    let selector = if linux.arch == "i386" { "0x60" } else { "0x10" };
    assert!(shown.contains(&format!("= {selector}")), "{shown}");
}

/// D and RPN programs see in a dump what they see of the machine.
fn programs_read(here: &Path, session: &Session, has_types: bool) {
    let profile = session.processes();
    let current = session.stacks(64).into_iter().find(|stack| stack.running).unwrap();
    let d = |clause: &str| ran(here, &["-q", "dump", "vmcore", "-n", clause]).out;
    let out = d("BEGIN { printf(\"%s %d %d\\n\", execname, pid, tid); @[execname] = count(); stack(); }");
    let own = format!("{} {} {}\n", current.name, current.tgid, current.pid);
    assert!(out.contains(&own), "{out}");
    for frame in current.frames.iter().take(10).filter_map(|frame| frame.symbol.as_deref()) {
        assert!(out.contains(frame.split('+').next().unwrap()), "{frame}: {out}");
    }
    assert!(profile.iter().any(|task| task.name == current.name && task.pid == current.pid));
    let rpn = ["-q", "dump", "vmcore", "--rpn", "BEGIN { push pid; log 1 }", "-f", "json"];
    let out = ran(here, &rpn).out;
    assert!(out.lines().count() >= 3 && out.contains("\"type\":\"end\""), "{out}");
    let out = ran(here, &["-q", "list", "vmcore", "do_sys_open*"]).out;
    assert!(out.contains("do_sys_openat2"), "{out}");
    let out = ran(here, &["-q", "list", "vmcore", "fbt::vfs_read:entry"]).out;
    assert!(out.contains("vfs_read"), "{out}");
    if has_types {
        let out = d("BEGIN { print(*(struct task_struct *)curthread); printf(\"%d\", `jiffies > 0); }");
        assert!(out.contains("(struct task_struct) {") && out.contains(".comm = "), "{out}");
    }
}

#[test]
fn guest_linux_amd64_dumps_are_read_by_makedumpfile_and_gdb_at_length() {
    the_tools_of_crash_dumps_read("cloud-amd64");
}

#[test]
fn guest_linux_686_dumps_are_read_by_makedumpfile_and_gdb_at_length() {
    the_tools_of_crash_dumps_read("686");
}

#[test]
fn guest_linux_dumps_of_debian_11_are_read_by_makedumpfile_and_gdb_at_length() {
    the_tools_of_crash_dumps_read("5.10-amd64");
    the_tools_of_crash_dumps_read("5.10-cloud-amd64");
    the_tools_of_crash_dumps_read("5.10-686");
}

#[test]
fn guest_linux_dumps_of_debian_13_are_read_by_makedumpfile_and_gdb_at_length() {
    the_tools_of_crash_dumps_read("6.12-amd64");
    the_tools_of_crash_dumps_read("6.12-cloud-amd64");
}

#[test]
fn guest_linux_dumps_of_debian_testing_are_read_by_makedumpfile_and_gdb_at_length() {
    the_tools_of_crash_dumps_read("testing-cloud-amd64");
}

/// Expressions over the first process, which is `T`.
const EXPRESSIONS: [&str; 32] = [
    "T->pid",
    "T->prio",
    "T->flags & 0xffff",
    "T->comm[1]",
    "T->in_execve + T->no_cgroup_migration",
    "T->sched_reset_on_fork",
    "T->mm->map_count",
    "T->mm->start_code",
    "T->mm->end_code - T->mm->start_code",
    "T->mm->start_stack >> 12",
    "T->mm->mm_users.counter",
    "T->mm->pgd",
    "&T->mm->pgd[1]",
    "T->mm->exe_file->f_path.dentry->d_iname[2]",
    "T->mm->exe_file->f_inode->i_size % 1000",
    "T->files->fdt->max_fds * 2",
    "T->files->fdt->fd[1]",
    "T->files->fdt->fd[1]->f_flags",
    "T->files->fd_array[0]->f_inode->i_mode",
    "(unsigned char)T->files->fd_array[2]->f_inode->i_ino",
    "T->fs->umask ^ -1",
    "T->real_parent->pid == 0 && T->real_parent->comm[0] == 's'",
    "T->real_parent->children.next",
    "T->signal->nr_threads",
    "T->signal->rlim[7].rlim_cur",
    "T->cred->uid.val",
    "T->se.load.weight",
    "T->nsproxy->uts_ns->name.release[0]",
    "&T->tasks.next->prev",
    "((struct list_head *)&T->tasks)->next",
    "*(unsigned int *)((char *)T + (unsigned long)&((struct task_struct *)0)->pid)",
    "sizeof(struct task_struct) + sizeof T->comm",
];

/// The types are those of the kernel's BTF, for gdb by way of pahole and gcc.
fn expressions_are_what_gdb_reads(flavour: &str) {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let session = booted(here, Linux::of(flavour).unwrap());
    write(&session, &here.join("vmcore"), Compression::None);
    std::fs::write(here.join("vmlinux"), &session.target().image().plan().image).unwrap();
    // Of tags of newer kernels, which are no types, pahole says that it does not know them.
    let said = tool(here, "pahole", &["-F", "btf", "--compile", "vmlinux"]);
    let header: Vec<&str> = said.lines().filter(|line| !line.starts_with("BTF: idx: ")).collect();
    std::fs::write(here.join("types.c"), header.join("\n")).unwrap();
    tool(here, "gcc", &["-g", "-w", "-fno-eliminate-unused-debug-types", "-c", "types.c"]);
    let first =
        session.profile().unwrap().tasks(session.core()).into_iter().find(|task| task.pid == 1).unwrap();
    let asked =
        EXPRESSIONS.map(|text| text.replace('T', &format!("((struct task_struct *){:#x})", first.task)));
    let script: Vec<String> =
        asked.iter().map(|text| format!("printf \"%#lx\\n\", (unsigned long)({text})")).collect();
    std::fs::write(here.join("script"), script.join("\n")).unwrap();
    let theirs = tool(here, "gdb", &["-nx", "-batch", "-c", "vmcore", "-x", "script", "types.o"]);
    let theirs: Vec<&str> = theirs.lines().filter(|line| line.starts_with("0x") || *line == "0").collect();
    assert_eq!(theirs.len(), asked.len(), "{theirs:?}");
    let timeline = Timeline::new(session, 64 << 20).unwrap();
    for (text, theirs) in asked.iter().zip(theirs) {
        let number = u64::from_str_radix(theirs.trim_start_matches("0x"), 16).unwrap();
        // A sum is a number, wherever the value is.
        let text = format!("0 + (unsigned long)({text})");
        let printed = timeline.print(&text).map_err(|error| format!("{text}: {error}")).unwrap();
        assert_eq!(printed.lines().join("\n"), format!("{text} = {number:#x}"));
    }
    // What they name, as a person sees it.
    let shown = |text: &str| timeline.print(text).unwrap().lines().join("\n");
    let task = format!("((struct task_struct *){:#x})", first.task);
    assert!(shown(&format!("{task}->comm")).contains(&format!("= \"{}\"  char [16] at 0x", first.name)));
    let all = shown(&task);
    assert!(
        all.lines().any(|line| line.starts_with("  .pid = 1  ")) && all.contains(".mm = 0xffff"),
        "{all}"
    );
    let refused = timeline.print(&format!("{task}->nothing")).unwrap_err();
    assert!(refused.to_string().contains("nothing is not a member of struct task_struct"), "{refused}");
}

#[test]
fn guest_linux_expressions_are_what_gdb_reads_from_a_dump() {
    expressions_are_what_gdb_reads("cloud-amd64");
}

#[test]
fn guest_linux_expressions_of_other_releases_are_what_gdb_reads_at_length() {
    expressions_are_what_gdb_reads("5.10-amd64");
    expressions_are_what_gdb_reads("6.12-cloud-amd64");
}

#[test]
fn guest_linux_a_panic_is_dumped_with_its_message() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    // There is no root file system, so the kernel panics.
    let kernel = guest("linux-cloud-amd64");
    let ran = trapline(
        here,
        &["run", &kernel, "--append", QUICK, "--console", "none", "--dump-on-crash", "vmcore"],
    );
    assert_eq!(ran.code, 4, "{}", ran.err);
    assert!(ran.err.contains("the guest was given no initial RAM disk (--initrd)"), "{}", ran.err);
    let messages = tool(here, "vmcore-dmesg", &["vmcore"]);
    assert!(messages.contains("Kernel panic - not syncing: VFS: Unable to mount root fs"), "{messages}");
    // A run that does not crash leaves no file.
    let ran = trapline(here, &["run", "embedded:ia32", "--limit-insns", "1M", "--dump-on-crash", "none"]);
    assert_eq!((ran.code, here.join("none").exists()), (124, false), "{}", ran.err);
}

fn cores_of_qemu_are_read(flavour: &str) {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let linux = Linux::of(flavour).unwrap();
    let script = format!("insmod /dummy.ko\nsleep 1000 &\necho {READY}\nsleep 1000\n");
    let initrd = linux.image(here, &["dummy"], &[], &script).unwrap();
    // The kernel is at a random address.
    let mut qemu = Command::new("qemu-system-x86_64")
        .args(["-M", "pc", "-m", "128", "-nodefaults", "-display", "none", "-monitor", "stdio"])
        .args(["-serial", "file:serial", "-kernel", &guest(&format!("linux-{flavour}"))])
        .args(["-append", "console=ttyS0", "-initrd"])
        .arg(initrd)
        .current_dir(here)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut monitor = qemu.stdin.take().unwrap();
    until("qemu boots", || {
        assert!(qemu.try_wait().unwrap().is_none(), "qemu has ended");
        std::fs::read(here.join("serial")).is_ok_and(|text| String::from_utf8_lossy(&text).contains(READY))
    });
    let commands =
        "stop\ndump-guest-memory core\ndump-guest-memory -z core.z\npmemsave 0 0x8000000 memory\nquit\n";
    monitor.write_all(commands.as_bytes()).unwrap();
    drop(monitor);
    assert!(qemu.wait().unwrap().success());
    let list = |file: &str, what: &str, more: &[&str]| {
        ran(here, &[&["-q", "dump", file, "--list", what], more].concat()).out
    };
    // What the kernel has sent to the console is in its log, in the same order.
    let messages = list("core", "console", &[]);
    let serial = String::from_utf8_lossy(&std::fs::read(here.join("serial")).unwrap()).into_owned();
    let mut logged = messages.lines();
    for line in serial.lines().map(str::trim_end).filter(|line| line.starts_with("[ ")) {
        assert!(logged.any(|other| other.trim_end() == line), "{line}: {messages}");
    }
    let processes = list("core", "processes", &[]);
    assert!(processes.contains("swapper/0") && processes.contains("/bin/busybox"), "{processes}");
    assert!(list("core", "modules", &[]).contains("dummy"));
    assert!(list("core", "stacks", &[]).contains("schedule+"));
    for (file, more) in [("core", &[][..]), ("core.z", &[]), ("memory", &["--raw"])] {
        assert_eq!(list(file, "console", more), messages, "{file}");
        assert_eq!(list(file, "processes", more), processes, "{file}");
    }
}

#[test]
fn guest_linux_a_core_of_qemu_and_an_image_of_its_memory_have_the_same_lists_at_length() {
    cores_of_qemu_are_read("cloud-amd64");
}

#[test]
fn guest_linux_cores_of_qemu_of_other_releases_have_the_same_lists_at_length() {
    cores_of_qemu_are_read("5.10-cloud-amd64");
    cores_of_qemu_are_read("6.12-cloud-amd64");
    cores_of_qemu_are_read("testing-cloud-amd64");
}
