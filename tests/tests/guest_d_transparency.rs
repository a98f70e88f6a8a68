//! Thirty D programs on every guest: digest, instruction count and console are those of the run without them. Each program
//! runs alone on the embedded guests; on the other guests all of them share a boot.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::convert::Infallible;
use std::path::PathBuf;

use trapline_session::{
    Command, Condition, DSource, Guest, GuestBuilder, Limits, Observer, Probing, Script, Session,
};
use trapline_tests::boot::LINUX_LIMIT;
use trapline_tests::guest;
use trapline_tests::linux::QUICK;

/// Aggregations, stacks, strings, memory, faults, speculation, variables, time. `HOT` is called often and its first
/// argument is a number or an address; `RARE` is called sometimes; the first argument of `POINTER` is an address.
const PROGRAMS: [&str; 30] = [
    "fbt:::entry { @[probefunc] = count(); }",
    "fbt::HOT:entry { @q = quantize(arg0); @s = sum(arg0); @a = avg(arg0); }",
    "fbt::HOT:entry { @ = lquantize(arg0 & 1023, 0, 1024, 64); }",
    "fbt::HOT:entry { @ = llquantize(arg0 & 0xfffff, 2, 0, 20, 4); }",
    "fbt::HOT:entry { @d = stddev(arg0 & 0xffff); @m = min(arg0); @x = max(arg0); }",
    "fbt::RARE:entry { @[stack()] = count(); }",
    "fbt::HOT:entry { @[stack(3), execname, pid] = count(); }",
    "fbt::RARE:entry { @[ustack()] = count(); }",
    "fbt::HOT:entry { @[ustack(2), probefunc] = count(); }",
    "fbt::RARE:entry { stack(5); ustack(5); printf(\"%s %d %a\\n\", execname, tid, caller); }",
    "fbt::HOT:entry { @[caller, ucaller, stackdepth, ustackdepth] = count(); }",
    "fbt::HOT:entry { this->x = strjoin(probefunc, execname); @[substr(this->x, 2), strlen(this->x), \
     index(this->x, \"a\"), strchr(this->x, 'e')] = count(); }",
    "fbt::POINTER:entry { @[stringof((char *)arg0)] = count(); } ERROR { @e[arg4] = count(); }",
    "fbt::POINTER:entry { p = (char *)copyin(arg0, 32); @[p[0], p[31]] = count(); }",
    "fbt::RARE:entry { trace(*(long *)0x10); } ERROR { @[arg4, arg5] = count(); }",
    "fbt::HOT:entry { x = *(long *)(arg0 + 0x7000000); n++; } ERROR { @[arg4] = count(); }",
    "fbt::POINTER:entry { x = **(long **)arg0; n++; } ERROR { @[arg4] = count(); }",
    "fbt::RARE:entry { tracemem((void *)caller, 16); tracemem((void *)arg0, 32); }",
    "fbt::RARE:entry { self->s = speculation(); } fbt::HOT:entry /self->s/ { speculate(self->s); trace(arg0); } \
     fbt::RARE:return /self->s/ { commit(self->s); self->s = 0; }",
    "fbt::RARE:entry { self->s = speculation(); } fbt::HOT:entry /self->s/ { speculate(self->s); stack(); } \
     fbt::RARE:return /self->s/ { discard(self->s); self->s = 0; }",
    "fbt::HOT:entry { self->t = timestamp; } fbt::HOT:return /self->t/ { @ = quantize(timestamp - self->t); self->t = 0; }",
    "fbt::HOT:entry { a[arg0] = icount; } fbt::HOT:return { @[arg1 > 0] = count(); }",
    "fbt::HOT:entry { n[execname, pid]++; names[n[execname, pid]] = probefunc; }",
    "fbt::HOT:entry { @[execname] = count(); } tick-1ms { printa(\"%s %@d\\n\", @); clear(@); } END { trunc(@); }",
    "profile-997us { @f[func(arg0)] = count(); @u[usym(arg1)] = count(); @s[sym(caller)] = count(); }",
    "fbt::RARE:entry { p = (char *)alloca(64); bcopy((void *)caller, p, 16); @[p[3], p[15]] = count(); }",
    "fbt::RARE:entry { trace(1 / (arg0 - arg0)); } ERROR { @[arg4] = count(); }",
    "fbt::RARE:entry { @[copyinstr(ucaller)] = count(); } ERROR { @e[arg4] = count(); }",
    "fbt::RARE:entry { printf(\"%s %d %s\", basename(\"/a/b\"), rand(), strtok(\"a,b\", \",\")); \
     @[cleanpath(strjoin(dirname(\"/a/b\"), execname))] = count(); }",
    "BEGIN { n = 0; } fbt::HOT:entry { n++; } fbt::RARE:entry { print(n); trace(walltimestamp); trace(hit); } \
     END { trace(n); }",
];

/// Providers that Linux has.
const OF_LINUX: [&str; 3] = [
    "syscall::: { @[probefunc, probename] = count(); }",
    "proc::: { @p[probename] = count(); } io::: { @i[probename] = count(); }",
    "sched::: { @s[probename, execname] = count(); }",
];

/// The functions of a guest that stand for `HOT`, `RARE` and `POINTER`.
type Functions = [&'static str; 3];

const EMBEDDED: Functions = ["kmalloc", "do_fork", "kfree"];
const MACH: Functions = ["pmap_enter", "kmem_cache_init", "vm_page_insert"];
const LINUX: Functions = ["kfree", "wake_up_new_task", "dput"];

fn program(text: &str, [hot, rare, pointer]: Functions) -> String {
    text.replace("HOT", hot).replace("RARE", rare).replace("POINTER", pointer)
}

/// An observer that drops all records.
struct Discard;

impl Observer for Discard {
    type Error = Infallible;
}

/// What must be equal with and without programs.
fn course(guest: &Guest, until: &Condition, programs: &[String]) -> (String, u64, String) {
    let mut session = guest.start(Probing::default()).unwrap();
    for program in programs {
        let inserted = session.apply(Command::D(DSource::clauses(program)));
        inserted.unwrap_or_else(|error| panic!("{program}: {error}"));
    }
    assert!(programs.is_empty() || session.observe_only());
    let Ok(_) = session.run(&mut Script::default(), until, &Limits::insns(LINUX_LIMIT), &mut Discard);
    assert!(programs.is_empty() || all_hit(&session, programs));
    let console = String::from_utf8_lossy(session.console()).into_owned();
    (session.digest().to_string(), session.icount(), console)
}

/// Whether the probes of each program have been hit.
fn all_hit(session: &Session, programs: &[String]) -> bool {
    let ends = session.d_ends();
    assert_eq!(ends.len(), programs.len());
    session.stats().hits >= programs.len() as u64
}

fn together(builder: &GuestBuilder, until: &str, functions: Functions, more: &[&str]) {
    trapline_tests::turns::take().unwrap();
    let (guest, until) = (builder.open().unwrap(), Condition::console(until));
    let programs: Vec<String> = PROGRAMS.iter().chain(more).map(|text| program(text, functions)).collect();
    let plain = course(&guest, &until, &[]);
    assert!(course(&guest, &until, &programs) == plain, "the guest noticed the programs");
}

fn linux(kernel: &str, initrd: &str) {
    let initrd = PathBuf::from(guest(initrd));
    let guest = GuestBuilder::image(&guest(kernel)).initrd(initrd).append(QUICK);
    together(&guest, "/ # ", LINUX, &OF_LINUX);
}

#[test]
fn embedded_guests_notice_none_of_thirty_d_programs() {
    for name in ["ia32", "x86_64"] {
        let guest = GuestBuilder::embedded(name).memory(32 << 20).open().unwrap();
        let plain = course(&guest, &Condition::end(), &[]);
        for text in PROGRAMS {
            let program = program(text, EMBEDDED);
            assert!(course(&guest, &Condition::end(), &[program]) == plain, "{name}: {text}");
        }
    }
}

#[test]
fn guest_gnumach_does_not_notice_thirty_d_programs_at_length() {
    let image = guest("gnumach");
    let guest = GuestBuilder::image(&image).cmdline("console=com0");
    together(&guest, "db>", MACH, &[]);
}

#[test]
fn guest_linux_686_does_not_notice_thirty_d_programs() {
    linux("linux-686", "initramfs-i386.cpio.gz");
}

#[test]
fn guest_linux_amd64_does_not_notice_thirty_d_programs_at_length() {
    linux("linux-amd64", "initramfs-amd64.cpio.gz");
}

#[test]
fn guest_linux_cloud_amd64_does_not_notice_thirty_d_programs_at_length() {
    linux("linux-cloud-amd64", "initramfs-amd64.cpio.gz");
}
