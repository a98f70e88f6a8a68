//! `u` registers in kernel code: their values when the current task left ring 3, and after it returns.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, trapline};
use trapline_tests::linux::{KERNELS, QUICK};
use trapline_tests::{guest, root};

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
fn guest_linux_a_task_keeps_its_user_registers_over_a_switch() {
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
        let kernel = guest(&format!("linux-{flavour}"));
        let mut args = vec!["run", &kernel, "--initrd", &initrd, "--append", QUICK, "--console", "none"];
        args.extend(["-q", "-x", "quiet", "--stats", "-n", program]);
        let ran = trapline(folder.path(), &args);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        let sleeps: Vec<&str> = ran.out.lines().filter(|line| line.starts_with("sleep ")).collect();
        assert!(sleeps.len() >= 5, "{flavour}: {}", ran.out);
        assert!(sleeps.iter().all(|line| line.starts_with("sleep 1 ")), "{flavour}: {sleeps:?}");
    }
}

/// Sleeps and yields, each 20 times in each of four tasks, with the process's number in R15, and prints how often that was
/// another number afterwards.
const SLEEPERS: &str = r#"
static long call(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
static long kept(long n, void *a, long value) {
    long after;
    __asm__ volatile("mov %[value], %%r15; mov %[value], %%r14; syscall; mov %%r15, %[after]"
        : [after] "=r"(after), "+a"(n) : [value] "d"(value), "D"(a), "S"(0L)
        : "rcx", "r11", "r14", "r15", "memory");
    return after;
}
static void print(const char *name, long value) {
    char text[] = "          ";
    int at = sizeof text - 2;
    do text[at--] = '0' + value % 10; while ((value /= 10) > 0);
    long length = 0;
    while (name[length]) length++;
    call(1, 1, (long)name, length);
    call(1, 1, (long)text + at, sizeof text - 1 - at);
}
void _start(void) {
    for (int n = 0; n < 4; n++) {
        if (call(57, 0, 0, 0) != 0) continue;
        long pid = call(39, 0, 0, 0), slept = 0, yielded = 0, time[2] = {0, 1000000};
        for (int i = 0; i < 20; i++) {
            slept += kept(35, time, pid) != pid;
            yielded += kept(24, 0, pid) != pid;
        }
        print("sleeper", pid);
        print(" slept", slept);
        print(" yielded", yielded);
        call(1, 1, (long)"\n", 1);
        call(60, 0, 0, 0);
    }
    for (int n = 0; n < 4; n++) call(61, -1, 0, 0);
    call(60, 0, 0, 0);
}
"#;

/// Yields 20 times with 1 in EDI, through the vDSO, which enters by SYSENTER, and exits with the number of changes.
const BY_SYSENTER: &str = r#"
__attribute__((naked)) void _start(void) { __asm__("mov %esp, %eax; push %eax; call begin"); }
static unsigned sysinfo;
static int kept(void) {
    int n = 158, after;
    __asm__ volatile("mov $1, %%edi; call *%[entry]; mov %%edi, %[after]"
        : "+a"(n), [after] "=d"(after) : [entry] "m"(sysinfo) : "edi", "memory");
    return after;
}
void begin(unsigned *stack) {
    int changed = 0;
    unsigned *at = stack + 1 + *stack + 1;
    while (*at) at++;
    for (at++; *at; at += 2) if (*at == 32) sysinfo = at[1];
    for (int n = 0; n < 20; n++) changed += kept() != 1;
    __asm__ volatile("int $0x80" : : "a"(1), "b"(changed));
}
"#;

/// Runs a program of this source on a kernel, and `program` as RPN; what is on the console, and what was recorded.
fn in_linux(flavour: &str, source: &str, rpn: &str) -> Ran {
    let linux = KERNELS.iter().find(|linux| linux.flavour == flavour).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("user.c"), source).unwrap();
    let width = if flavour == "686" { "-m32" } else { "-m64" };
    let plain =
        ["-O1", "-static", "-nostdlib", "-ffreestanding", "-fno-pic", "-no-pie", "-fno-stack-protector"];
    let compiled = std::process::Command::new("gcc")
        .args(plain)
        .args([width, "-fcf-protection=none", "-fomit-frame-pointer", "-o", "user", "user.c"])
        .current_dir(folder.path())
        .status()
        .unwrap();
    assert!(compiled.success());
    let script = "/user\necho user: $?\npoweroff -f\n";
    let initrd = linux.image(folder.path(), &[], &["user"], script).unwrap().display().to_string();
    let kernel = guest(&format!("linux-{flavour}"));
    let mut args = vec!["run", &kernel, "--initrd", &initrd, "--append", QUICK, "--console", "stdio"];
    args.extend(["-q", "--stats", "--header", "name", "-o", "records", "--rpn", rpn]);
    let mut ran = trapline(folder.path(), &args);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    ran.err += &std::fs::read_to_string(folder.path().join("records")).unwrap();
    ran
}

/// The numbers after a name in a line.
fn after(line: &str, name: &str) -> u64 {
    line.split(name).nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap().parse().unwrap()
}

/// Found by an outsider: the task that entered ring 3 next had it, and a second one of the same handler was lost.
#[test]
fn guest_linux_a_register_changed_before_a_switch_of_tasks_is_the_tasks_own() {
    let rpn = "fbt::do_nanosleep:entry { push pid; push 1; and; jz even; push 6; pop u, r14; push 0x7777; pop u, r15; \
               push u, r15; log 1; exit; even: abort; }";
    let ran = in_linux("cloud-amd64", SLEEPERS, rpn);
    let sleepers: Vec<&str> = ran.out.lines().filter(|line| line.starts_with("sleeper ")).collect();
    assert_eq!(sleepers.len(), 4, "{}", ran.out);
    for line in sleepers {
        let odd = after(line, "sleeper ") % 2 == 1;
        assert_eq!((after(line, "slept "), after(line, "yielded ")), (if odd { 20 } else { 0 }, 0), "{line}");
    }
    let records: Vec<&str> = ran.err.lines().filter(|line| line.contains("name=user")).collect();
    assert_eq!(records.len(), 40, "{}", ran.err);
    assert!(records.iter().all(|line| line.ends_with(" 7777000000000000")), "{records:?}");
}

/// Found by an outsider: what the kernel saves of such a task is not what the CPU had.
#[test]
fn guest_linux_a_task_that_entered_by_sysenter_finds_a_changed_register() {
    let ran = in_linux("686", BY_SYSENTER, "fbt::do_sched_yield:entry { push 0x7777; pop u, edi; exit }");
    assert!(ran.out.lines().any(|line| line.trim_end() == "user: 20"), "{}", ran.out);
}

/// Found by an outsider: they were 0 as soon as the task had given its memory back.
#[test]
fn guest_linux_a_task_that_exits_still_has_its_user_registers() {
    let rpn = "fbt::exit_mm_release:entry,fbt::exit_files:entry { push u, rip; log 1; exit }";
    let ran = in_linux("cloud-amd64", SLEEPERS, rpn);
    let mut records: Vec<&str> = ran.err.lines().filter(|line| line.contains("name=user")).collect();
    assert_eq!(records.len(), 10, "{}", ran.err);
    records.iter_mut().for_each(|line| *line = line.rsplit(' ').next().unwrap_or_default());
    assert!(records.iter().all(|ip| ip.len() == 16 && *ip != "0000000000000000"), "{records:?}");
}
