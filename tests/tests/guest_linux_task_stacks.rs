//! The stacks of tasks that do not run, against what the kernel says of itself in /proc.

use tempfile::TempDir;
use trapline_session::{Condition, Ending, GuestBuilder, Limits, TaskStack};
use trapline_tests::boot::LINUX_LIMIT;
use trapline_tests::guest;
use trapline_tests::linux::{Linux, QUICK};

/// What the guest's script says when its processes sleep.
const READY: &str = "the guest is ready";

/// A process that sleeps, and one that has ended and that its parent does not wait for.
const SCRIPT: &str = "mount -t proc proc /proc\nmount -t devtmpfs devtmpfs /dev\n\
    sh -c 'sleep 0 & exec sleep 1000' &\nsleep 1\n\
    for p in $(cd /proc; echo [0-9]*); do\n\
    case \"$(cat /proc/$p/stat)\" in\n\
    *'(sleep) S'*) echo sleeper $p; cat /proc/$p/stack;;\n\
    *'(sleep) Z'*) echo zombie $p;;\n\
    esac\ndone\necho the guest is ready\nsleep 1000\n";

fn stacks_are_those_of_proc(flavour: &str) {
    let folder = TempDir::new().unwrap();
    let linux = Linux::of(flavour).unwrap();
    let initrd = linux.image(folder.path(), &[], &[], &format!("export PATH=/bin\n{SCRIPT}")).unwrap();
    let kernel = guest(&format!("linux-{flavour}"));
    let mut session = GuestBuilder::image(&kernel).initrd(initrd).append(QUICK).start().unwrap();
    let ending = session.run_until(&Condition::end().or_console(READY), &Limits::insns(LINUX_LIMIT));
    assert_eq!(ending, Ending::Until(READY.to_owned()));
    let said = String::from_utf8_lossy(session.console()).replace('\r', "");
    let lines: Vec<&str> = said.lines().collect();
    let pid = |what: &str| -> u32 {
        let found = lines.iter().find_map(|line| line.strip_prefix(what));
        found.unwrap_or_else(|| panic!("{said}")).trim().parse().unwrap()
    };
    let (sleeper, zombie) = (pid("sleeper "), pid("zombie "));
    let stacks = session.stacks(64);
    let of = |pid: u32| -> &TaskStack { stacks.iter().find(|stack| stack.pid == pid).unwrap() };
    assert!(of(zombie).ended && of(zombie).frames.is_empty(), "{flavour}: {:?}", of(zombie));
    assert!(stacks.iter().all(|stack| stack.pid == zombie || !stack.ended), "{flavour}");
    let symbols: Vec<&str> =
        of(sleeper).frames.iter().map(|frame| frame.symbol.as_deref().unwrap_or("-")).collect();
    // `[<0>] function+0x12/0x34`
    let own = lines.iter().skip_while(|line| !line.starts_with("sleeper ")).skip(1);
    let own = own.map_while(|line| line.strip_prefix("[<0>] "));
    let own: Vec<&str> = own.map(|line| line.rsplit_once('/').unwrap().0).collect();
    assert!(own.len() > 3 && symbols.ends_with(&own), "{flavour}: {symbols:#?} {own:#?}");
    // The rest is that of the scheduler, which the kernel leaves out.
    let rest = symbols.len() - own.len();
    assert!(symbols[0].starts_with("__schedule+") && rest < 4, "{flavour}: {symbols:#?}");
}

#[test]
fn guest_linux_a_sleeper_has_its_stack_and_a_zombie_none() {
    stacks_are_those_of_proc("cloud-amd64");
}

#[test]
fn guest_linux_a_sleeper_of_a_kernel_without_btf_has_its_stack_and_a_zombie_none() {
    stacks_are_those_of_proc("686");
}
