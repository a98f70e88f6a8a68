//! `u` registers in kernel code: their values when the current task left ring 3, and after it returns.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, trapline};
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
