//! D programs that name types and symbols of a Linux kernel, checked against what the kernel's BTF and its console say.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;
use std::sync::Arc;

use trapline_d::{Compiled, Compiler, Error, Model, Options};
use trapline_emu::symbols::Btf;
use trapline_session::{Command as Insert, Condition, DSource, GuestBuilder, GuestTypes, Limits};
use trapline_tests::linux::QUICK;
use trapline_tests::{guests_of, root};

const KERNEL: &str = ".guests/linux-cloud-amd64";
const INITRD: &str = ".guests/initramfs-amd64.cpio.gz";

fn guest() -> GuestBuilder {
    guests_of(KERNEL);
    guests_of(INITRD);
    let path = |name: &str| root().join(name);
    GuestBuilder::image(path(KERNEL).to_str().unwrap()).initrd(path(INITRD)).append(QUICK)
}

fn compiled(target: &Arc<trapline_providers::Target>, text: &str) -> Result<Compiled, Error> {
    let types = GuestTypes::new(Arc::clone(target));
    let mut compiler = Compiler::new(Model::Lp64, Options::default()).with_types(Arc::new(types));
    compiler.add(text.as_bytes(), &[b"d".to_vec()], &|_| None)?;
    compiler.finish()
}

/// `trapline ARGS`.
fn program(args: &[&str]) -> Command {
    args.iter().for_each(|arg| guests_of(arg));
    let mut command = Command::new(crate::cli::binary());
    command.current_dir(root()).args(args);
    command
}

/// Standard output of a program that runs on the kernel, from the console's text on.
fn shown(begin_at: Option<&str>, program: &str) -> String {
    let mut command = self::program(&["dtrace", "--guest", KERNEL, "--initrd", INITRD]);
    if let Some(text) = begin_at {
        command.args(["--begin-at", text]);
    }
    let output = command.args(["-q", "-n", program]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn guest_linux_types_of_d_are_those_of_btf() {
    let guest = guest().open().unwrap();
    let btf = Btf::from_vmlinux(&guest.target().image().plan().image).unwrap().unwrap();
    let comm = btf.member("task_struct", "comm").unwrap();
    let depth = btf.member("task_struct", "se.load.weight").unwrap();
    let program = format!(
        "BEGIN {{ printf(\"%d %d %d %s %d %s\", \
         sizeof(struct task_struct) == {}, offsetof(struct task_struct, comm) == {}, \
         (uint64_t)&((struct task_struct *)0)->se.load.weight == {}, \
         `init_task.comm, PIDTYPE_SID, stringof(`linux_banner)); exit(0); }}",
        btf.size_of("task_struct").unwrap(),
        comm.offset(),
        depth.offset(),
    );
    let text = shown(Some("/ # "), &program);
    assert!(text.starts_with("1 1 1 swapper/0 3 Linux version 6.1."), "{text}");
}

#[test]
fn guest_linux_arguments_of_d_have_types() {
    // What the thread says of itself is what the profile reads; a file's name is text; a tracepoint's tasks are tasks.
    let program = "fbt::do_filp_open:entry { opens++; \
                       same += stringof(curthread->comm) == execname && curthread->tgid == pid; \
                       rooted += stringof(args[1]->name) == \"/init\"; } \
                   fbt::wake_up_new_task:entry { switches++; tasks += args[0]->prio > 0 && args[0]->prio < 140; } \
                   fbt::do_filp_open:return /(long)args[1] < 0/ { failed++; } \
                   fbt::do_execveat_common*:entry /rooted > 0/ { printf(\"%d %d %d %d %d\", opens > 0, same == opens, rooted > 0, switches > 0, \
                       tasks == switches); exit(0); }";
    let text = shown(None, program);
    assert!(text.starts_with("1 1 1 1 1"), "{text}");
}

#[test]
fn guest_linux_print_shows_a_kernel_struct() {
    let program =
        "fbt::wake_up_new_task:entry { print(args[0]->se.load); print((enum pid_type)1); exit(0); }";
    let text = shown(None, program);
    assert!(text.contains("(struct load_weight) {\n"), "{text}");
    assert!(text.contains(".weight = (unsigned long)1048576,\n"), "{text}");
    assert!(text.contains("(enum pid_type)PIDTYPE_TGID"), "{text}");
}

#[test]
fn guest_linux_what_has_no_type_is_refused_with_its_tag() {
    let guest = guest().open().unwrap();
    let tag = |text: &str| compiled(guest.target(), text).map_or_else(|error| error.tag, |_| "none");
    assert_eq!(tag("BEGIN { trace(`no_such_symbol); }"), "D_IDENT_UNDEF");
    assert_eq!(tag("BEGIN { trace(`_edata); }"), "D_SYM_NOTYPES");
    assert_eq!(tag("BEGIN { trace(`init_task.no_such_member); }"), "D_TYPE_MEMBER");
    assert_eq!(tag("fbt::kmem_cache_*:entry { trace(args[0]); }"), "D_ARGS_MULTI");
    assert_eq!(tag("fbt::do_filp_open:entry { trace(args[3]); }"), "D_ARGS_IDX");
    assert_eq!(tag("BEGIN { x = curthread->parent->parent->comm; }"), "none");
}

/// What a `trapline dtrace` on the kernel gives: its output, its messages, its exit code.
fn about(arguments: &[&str]) -> (String, String, Option<i32>) {
    let mut command = program(&["dtrace", "--guest", KERNEL, "--initrd", INITRD, "-q"]);
    let output = command.args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn guest_linux_a_command_is_traced_from_its_beginning_to_its_end() {
    let program = "BEGIN { printf(\"%d\\n\", pid == $target); } \
                   fbt::vfs_write:entry /pid == $target/ { @[execname] = count(); wrote++; } \
                   fbt::do_exit:entry /pid == $target/ { printf(\"%s %d\\n\", execname, $target > 1); } \
                   END { printf(\"end %d\", wrote > 0); }";
    let (out, shown, code) = about(&["-c", "echo it's 'two  words'", "-n", program]);
    assert_eq!(code, Some(0), "{out}{shown}");
    assert!(out.starts_with("0\n") && out.contains("echo 1\n") && out.contains("end 1\n"), "{out}");
    // The output of the command, word by word as dtrace(1) starts it, is not the program's.
    assert!(shown.contains("it's 'two words'") && !shown.contains("dtrace-exit"), "{shown}");
}

/// dtrace(1): "failed to execute", and 1. Of what the shell finds and cannot become, this is known when the program has begun.
#[test]
fn guest_linux_a_command_that_cannot_be_executed_is_an_error() {
    let program = "BEGIN { printf(\"began\"); }";
    for (command, began) in [("nosuchcmd x", ""), ("/tmp", ""), ("/proc/version", ""), ("cd /", "began")] {
        let (out, shown, code) = about(&["-c", command, "-n", program]);
        assert_eq!((out.trim(), code), (began, Some(1)), "{command}: {shown}");
        assert!(shown.contains(&format!("dtrace: failed to execute {command}: ")), "{shown}");
    }
    let (_, shown, code) = about(&["-c", "false", "-n", program]);
    assert_eq!(code, Some(0), "{shown}");
}

#[test]
fn guest_linux_a_process_that_runs_is_traced_at_length() {
    let (out, shown, code) = about(&["-p", "1", "-n", "BEGIN { printf(\"%d\", $target); exit(0); }"]);
    assert_eq!((out.as_str(), code), ("1\n", Some(0)), "{shown}");
    let (_, shown, code) = about(&["-p", "4711", "-n", "BEGIN { exit(0); }"]);
    assert_eq!(code, Some(1));
    assert!(shown.contains("failed to grab pid 4711: the guest has no such process"), "{shown}");
}

/// Programs that read a kernel by its types, by bad pointers and by its stacks.
const PROGRAMS: [&str; 11] = [
    "fbt::do_filp_open:entry { @opens[curthread->comm, stringof(args[1]->name)] = count(); } \
     fbt::wake_up_new_task:entry { print(*args[0]); trace(args[0]->mm->owner->comm); }",
    "fbt::vfs_*:entry { @vfs[stack(6), execname] = count(); }",
    "fbt::handle_mm_fault:entry { self->t = icount; } \
     fbt::handle_mm_fault:return /self->t/ { @faults = quantize(icount - self->t); self->t = 0; }",
    "fbt::do_sys_openat2:entry { printf(\"%s %s\\n\", execname, copyinstr(arg1)); ustack(5); }",
    "fbt::kmem_cache_alloc:entry { trace(*(long *)(arg0 + 1)); trace(*(char *)timestamp); } ERROR { @bad[arg4] = count(); }",
    "BEGIN { spec = speculation(); } fbt::do_exit:entry { speculate(spec); printf(\"%d\", pid); } \
     fbt::do_exit:entry { commit(spec); spec = speculation(); }",
    "fbt::__schedule:entry { @who[strjoin(execname, \"!\"), substr(execname, 1, 3), strlen(execname)] = max(pid); }",
    "fbt::__kmalloc:entry { @s[stack(3)] = lquantize(arg0, 0, 4096, 64); @l = llquantize(arg0, 2, 0, 12, 4); @d = stddev(arg0); }",
    "tick-10ms { @uids[pid] = avg(uid); printa(@uids); clear(@uids); n++; a[n] = timestamp; a[n - 3] = 0; }",
    "sdt::sched:sched_switch { @switches[execname, pid] = count(); } \
     tracepoint::sched:sched_switch { @never[args[1]->comm, args[2]->comm] = count(); } \
     END { printa(\"%s %d %@d\\n\", @switches); printa(@never); }",
    "syscall:::entry { @calls[execname, probefunc] = count(); } \
     syscall::openat:entry { printf(\"%s %s %d\\n\", execname, copyinstr(arg1), errno); } \
     proc:::exec-success { printf(\"%s %d\\n\", curpsinfo->pr_psargs, ppid); } \
     sched:::off-cpu { @next[args[1]->pr_fname] = count(); } syscall::write:entry { @paths[fds[arg0].fi_pathname] = sum(arg2); }",
];

#[test]
fn guest_linux_d_programs_leave_the_guest_as_it_is() {
    let course = |programs: &[&str]| {
        let mut session = guest().start().unwrap();
        for program in programs {
            let inserted = session.apply(Insert::D(DSource::clauses(program)));
            inserted.unwrap_or_else(|why| panic!("{program}: {why}"));
        }
        session.run_until(&Condition::console("/ # "), &Limits::none());
        assert!(programs.is_empty() || session.observe_only());
        assert!(session.stats().hits >= programs.len() as u64, "{}", session.stats().hits);
        (session.digest().to_string(), session.icount(), session.console().to_vec())
    };
    assert!(course(&PROGRAMS) == course(&[]), "the guest noticed the programs");
}

#[test]
fn guest_linux_a_recording_made_with_d_programs_verifies_at_length() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("r.tlr").display().to_string();
    let run = |args: &[&str]| {
        let output = program(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let program = PROGRAMS.join("\n").replace("BEGIN {", "BEGIN { @first = count();");
    let live = run(&[
        &["record", KERNEL, "--initrd", INITRD, "--append", QUICK, "--until", "/ # ", "-q"],
        &["-o", &file, "-n", &program][..],
    ]
    .concat());
    assert!(live.lines().count() > 100, "{live}");
    assert!(run(&["replay", &file, "--verify", "-q"]) == live);
    // The same asked of the past: another program, and this one.
    assert!(run(&["replay", &file, "--verify", "-q", "-n", &program]) == live);
}

/// Records of probes without a handler: text of the file that a run with these descriptions has left, and its JSON.
fn without_a_handler(
    folder: &std::path::Path,
    descriptions: &str,
) -> (String, Vec<serde_json::Value>, String) {
    let file = folder.join("t.trace");
    let file = file.to_str().unwrap();
    let run = |args: &[&str]| {
        let mut command = program(&["run", KERNEL, "--initrd", INITRD, "--append", QUICK]);
        command.args(["--until", "/ # ", "--digest"]);
        let output = command.args(args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{error}");
        error.lines().find(|line| line.contains("digest")).unwrap().to_owned()
    };
    let digest = run(&["-n", descriptions, "--header", "name", "-f", "raw", "-o", file]);
    assert_eq!(digest, run(&["--console", "none"]), "the guest noticed its probes");
    let cat = |format: &str| {
        let output = program(&["trace", "cat", file, "-f", format]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let objects = cat("json").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (cat("text"), objects, digest)
}

#[test]
fn guest_linux_probes_without_a_handler_show_typed_arguments() {
    let folder = tempfile::TempDir::new().unwrap();
    let probes = "syscall::openat:,syscall::write:entry,fbt::kernel_clone:,fbt::wake_up_new_task:entry,\
                  fbt::do_filp_open:entry,proc:::create,fbt::schedule:return";
    let (text, objects, _) = without_a_handler(folder.path(), probes);
    for shown in [
        "name=init probe=syscall:vmlinux:openat:entry openat(dfd=-100, filename=\"/init\", flags=O_RDONLY",
        "name=init probe=syscall:vmlinux:openat:return openat() = 3\n",
        "name=sh probe=syscall:vmlinux:write:entry write(fd=1, buf=\"/ # \\033[6n\", count=8)\n",
        " {flags=CLONE_VM|CLONE_FS|CLONE_UNTRACED, pidfd=NULL, ",
        "probe=fbt:vmlinux:kernel_clone:return kernel_clone() = 1\n",
        " {pid=1, comm=\"swapper/0\", ..})\n",
        "probe=proc:vmlinux:wake_up_new_task:create create(process=0x",
        " {pr_pid=1, pr_fname=\"swapper/0\", ..})\n",
        " {name=\"/init\", ..}, op=0x",
        "probe=fbt:vmlinux:schedule:return schedule() returns\n",
    ] {
        assert!(text.contains(shown), "{shown} is not in\n{}", text.get(..4000).unwrap_or(&text));
    }
    let opened = objects.iter().find(|object| object["probe"] == "syscall:vmlinux:openat:entry").unwrap();
    assert_eq!(opened["args"][0], serde_json::json!({"name": "dfd", "type": "int", "value": -100}));
    assert_eq!(opened["args"][1]["value"]["text"], "/init");
    let returned =
        objects.iter().find(|object| object["probe"] == "fbt:vmlinux:kernel_clone:return").unwrap();
    assert_eq!(returned["returns"], serde_json::json!({"type": "pid_t", "value": 1}));
}
