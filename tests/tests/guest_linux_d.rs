//! D programs that name types and symbols of a Linux kernel, checked against what the kernel's BTF and its console say.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;
use std::sync::Arc;

use trapline_d::{Compiled, Compiler, Error, Model, Options};
use trapline_emu::symbols::Btf;
use trapline_session::{Condition, GuestBuilder, GuestTypes, Limits, Observer};
use trapline_tests::root;

const KERNEL: &str = ".guests/linux-cloud-amd64";
const INITRD: &str = ".guests/initramfs-amd64.cpio.gz";

fn guest() -> GuestBuilder {
    let path = |name: &str| root().join(name);
    GuestBuilder::image(path(KERNEL).to_str().unwrap()).initrd(path(INITRD))
}

fn compiled(target: &Arc<trapline_providers::Target>, text: &str) -> Result<Compiled, Error> {
    let types = GuestTypes::new(Arc::clone(target));
    let mut compiler = Compiler::new(Model::Lp64, Options::default()).with_types(Arc::new(types));
    compiler.add(text.as_bytes(), &[b"d".to_vec()], &|_| None)?;
    compiler.finish()
}

/// Standard output of a program that runs on the kernel, from the console's text on.
fn shown(begin_at: Option<&str>, program: &str) -> String {
    let mut command = Command::new(crate::cli::binary());
    command.current_dir(root()).args(["dtrace", "--guest", KERNEL, "--initrd", INITRD]);
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

/// Keeps nothing.
struct Nobody;

impl Observer for Nobody {
    type Error = std::convert::Infallible;
}

#[test]
fn guest_linux_d_programs_with_types_leave_the_guest_as_it_is() {
    let course = |text: Option<&str>| {
        let mut session = guest().start().unwrap();
        if let Some(text) = text {
            let compiled = compiled(session.target(), text).unwrap();
            assert!(compiled.clauses.iter().all(|clause| clause.handler.observe_only()), "{text}");
            session.insert_d("d", &compiled, false).unwrap();
        }
        let end = Condition::console("/ # ");
        let _ = session.run(&mut trapline_session::Script::default(), &end, &Limits::none(), &mut Nobody);
        (session.digest().to_string(), session.icount())
    };
    let program = "fbt::do_filp_open:entry { @[curthread->comm, stringof(args[1]->name)] = count(); } \
                   fbt::wake_up_new_task:entry { print(*args[0]); trace(args[0]->mm->owner->comm); }";
    assert_eq!(course(None), course(Some(program)));
}
