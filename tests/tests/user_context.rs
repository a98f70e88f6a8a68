//! `u` registers in kernel code: their values when the current task left ring 3, and after it returns.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, trapline};
use trapline_tests::linux::{KERNELS, QUICK};
use trapline_tests::root;

/// At each system call number 5, getpid.
const LIE: &str = "name = vmlinux\nmodtype = kernel\noffset = do_syscall\nopcode = 0x55
push u, eax
push 5
sub
jnz other
push 4242
pop u, eax
push u, eax
log 1
exit
other: abort
";

fn run(guest: &str, text: &str, more: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lie.rpn");
    std::fs::write(&path, text).unwrap();
    let image = format!("embedded:{guest}");
    let mut args = vec!["run", &image, "--limit-insns", "100000000", "-p", path.to_str().unwrap()];
    args.extend(more);
    let ran = trapline(&root(), &args);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    ran
}

#[test]
fn a_task_finds_what_a_handler_put_into_its_context() {
    for guest in ["ia32", "x86_64"] {
        let ran = run(guest, LIE, &["--stats", "--console", "stdio"]);
        let all = ran.out + &ran.err;
        assert!(all.contains("appln: main at ") && all.contains(", pid 4242, "), "{guest}\n{all}");
        assert!(all.contains("appln: child is pid 4242"), "{guest}\n{all}");
        // The kernel's own record of the pid is unchanged.
        assert!(all.contains("general protection: pid 2 "), "{guest}\n{all}");
        let none = all.lines().find(|l| l.starts_with("no_user_context")).unwrap();
        assert!(none.ends_with(" 0"), "{none}");
    }
}

#[test]
fn a_context_that_is_not_there_is_counted_and_nothing_is_written() {
    // Before any task has been in ring 3.
    let early =
        "name = vmlinux\nmodtype = kernel\noffset = vortex_init\nopcode = 0x55\npush 7\npop u, ebx\nexit\n";
    let plain = run("ia32", LIE.replace("pop u, eax\n", "").as_str(), &["--digest", "--console", "none"]);
    let ran = run("ia32", early, &["--stats", "--digest", "--console", "none"]);
    let digest = |ran: &Ran| ran.err.lines().find(|l| l.starts_with("digest")).unwrap().to_owned();
    assert_eq!(digest(&ran), digest(&plain));
    let none = ran.err.lines().find(|l| l.starts_with("no_user_context")).unwrap();
    assert!(none.ends_with(" 1"), "{none}");
}

/// The registers of a task are its own after other tasks have run, and entered the kernel, in between.
#[test]
fn a_task_of_linux_keeps_its_user_registers_over_a_switch() {
    let program = "fbt::do_nanosleep:entry { self->ip = uregs[R_PC]; self->sp = uregs[R_SP]; }
        fbt::do_nanosleep:return /self->ip/ {
            printf(\"%s %d %x\\n\", execname, self->ip == uregs[R_PC] && self->sp == uregs[R_SP], self->ip);
            self->ip = 0;
        }";
    let script = "while :; do :; done &\nwhile :; do cat /proc/uptime; done > /dev/null &\nmount -t proc proc /proc\n\
                  for n in 1 2 3 4 5; do sleep 0.05; done\npoweroff -f\n";
    for flavour in ["cloud-amd64", "686"] {
        let linux = KERNELS.iter().find(|linux| linux.flavour == flavour).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let initrd = linux.image(folder.path(), &[], &[], script).unwrap().display().to_string();
        let kernel = root().join(".guests").join(format!("linux-{flavour}")).display().to_string();
        let mut args = vec!["run", &kernel, "--initrd", &initrd, "--append", QUICK, "--console", "none"];
        args.extend(["-q", "-x", "quiet", "--stats", "-n", program]);
        let ran = trapline(folder.path(), &args);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        let sleeps: Vec<&str> = ran.out.lines().filter(|line| line.starts_with("sleep ")).collect();
        assert!(sleeps.len() >= 5, "{flavour}: {}", ran.out);
        assert!(sleeps.iter().all(|line| line.starts_with("sleep 1 ")), "{flavour}: {sleeps:?}");
    }
}
