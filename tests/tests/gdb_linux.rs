//! `trapline gdb` on Linux: modules, libraries, pages that are not in memory, system calls, and Ctrl-C while a process sleeps.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::cli::{binary, finish, patient};
use crate::gdb::{gdb, linux, told};
use crate::guest_linux_pid::GUEST;
use crate::patience::until;
use trapline_gdb::{Debuggee, Gone, NoCommands, framed, serve};
use trapline_providers::TargetProcess;
use trapline_session::{GuestBuilder, Meter, Timeline};
use trapline_tests::linux::{Linux, QUICK};
use trapline_tests::{guest, root};

const KERNEL: &str = ".guests/linux-cloud-amd64";

/// Debian's cloud kernel, as an argument, with an initramfs of this script and these modules.
fn scripted(folder: &std::path::Path, modules: &[&str], script: &str) -> String {
    let initrd = Linux::of("cloud-amd64").unwrap().image(folder, modules, &[], script).unwrap();
    format!("{KERNEL} --initrd {} --append '{QUICK}'", initrd.display())
}

/// gdb stops where a module is in place and has not run, sets a breakpoint in it, and is told when it is removed. What it
/// then asks for is done, although the stop that the news has taken the place of was not shown.
#[test]
fn guest_linux_modules_stop_gdb_before_they_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = gdb(
        &scripted(folder.path(), &["dummy"], "insmod /dummy.ko\nrmmod dummy\nsleep 1000\n"),
        r#"
set stop-on-solib-events 1
set breakpoint pending on
break dummy_setup
continue
python
def icount(): return int(monitor('info').split()[1])
loaded = icount()
print('stopped', symbol())
print('known', 'dummy.ko' in quiet('info sharedlibrary'))
print('placed', quiet('info breakpoints').count('dummy_setup'), 'PENDING' in quiet('info breakpoints'))
end
continue
python
print('runs', symbol())
quiet('delete')
quiet('break *do_exit')
quiet('continue')
print('still', 'dummy.ko' in quiet('info sharedlibrary'))
quiet('delete')
quiet('break *free_module')
quiet('continue')
print('removes', symbol())
quiet('delete')
before = loaded - 3000000
monitor('at %d' % before); monitor('here')
quiet('reverse-stepi')
print('gone', 'dummy.ko' in quiet('info sharedlibrary'))
quiet('stepi')
print('steps', icount() - before)
monitor('at %d' % (loaded + 10)); monitor('here')
quiet('reverse-stepi')
print('there', 'dummy.ko' in quiet('info sharedlibrary'))
monitor('at %d' % (loaded + 500))
quiet('reverse-stepi')
print('back', icount() - loaded)
# Where a module that gdb knows already is about to run, nothing stops.
monitor('at %d' % (loaded - 1)); monitor('here')
quiet('reverse-stepi')
print('knows', 'dummy.ko' in quiet('info sharedlibrary'))
quiet('break *do_exit')
quiet('continue')
print('passes', symbol())
end
"#,
    );
    assert!(out.contains("Stopped due to shared library event"), "{out}");
    let mut loaded =
        out.lines().filter_map(|line| line.trim().strip_prefix("Inferior loaded target:/lib/modules/"));
    assert!(loaded.any(|path| path.starts_with("ffffffff") && path.ends_with("/dummy.ko")), "{out}");
    assert_eq!((told(&out, "stopped"), told(&out, "known")), ("do_init_module", "True"), "{out}");
    assert_eq!(told(&out, "placed"), "1 False", "{out}");
    assert_eq!((told(&out, "runs"), told(&out, "still")), ("dummy_setup", "True"), "{out}");
    assert!(told(&out, "removes").starts_with("free_module"), "{out}");
    assert_eq!((told(&out, "gone"), told(&out, "there")), ("False", "True"), "{out}");
    assert_eq!((told(&out, "steps"), told(&out, "back")), ("1", "499"), "{out}");
    assert_eq!((told(&out, "knows"), told(&out, "passes")), ("True", "do_exit"), "{out}");
}

/// A module that is removed and loaded elsewhere keeps its breakpoints, and those in its `__init` functions are met. Linux says where
/// its functions are.
#[test]
fn guest_linux_modules_that_are_loaded_again_keep_their_breakpoints() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t proc p /proc\nfor n in 1 2; do\ninsmod /dummy.ko\n\
                  grep -w dummy_setup /proc/kallsyms\nrmmod dummy\n\
                  [ $n = 1 ] && insmod /loop.ko\ndone\necho both have run\nsleep 1000\n";
    let out = gdb(
        &scripted(folder.path(), &["dummy", "loop"], script),
        r#"
set breakpoint pending on
break dummy_setup
break dummy_init_module
break loop_init
python
for _ in range(5):
    quiet('continue')
    print('stop', symbol(), '%x' % value('$pc'))
quiet('delete')
quiet('break do_exit')
while 'both have run' not in monitor('console'): quiet('continue')
print('left', 'dummy.ko' in quiet('info sharedlibrary'), 'loop.ko' in quiet('info sharedlibrary'))
for line in monitor('console').splitlines():
    if '[dummy]' in line: print('linux', line.split()[2].split('[')[0], line.split()[0])
end
"#,
    );
    let lines = |name: &str| -> Vec<(&str, &str)> {
        let own = out.lines().filter_map(|line| line.strip_prefix(name)?.trim().split_once(' '));
        own.collect()
    };
    let stops = lines("stop");
    let names: Vec<&str> = stops.iter().map(|(name, _)| *name).collect();
    // Its other name is dummy_init_module.
    assert_eq!(names, ["init_module", "dummy_setup", "loop_init", "init_module", "dummy_setup"], "{out}");
    let told: Vec<_> = stops.iter().filter(|(name, _)| *name == "dummy_setup").copied().collect();
    assert_eq!(lines("linux"), told, "{out}");
    assert_ne!(told[0], told[1], "it was loaded at one place: {out}");
    assert_eq!(lines("left"), [("False", "True")], "{out}");
}

/// gdb 13 and later keep libraries apart by the number of their list in the dynamic linker.
#[test]
fn guest_linux_libraries_have_the_number_of_their_list() {
    let out = gdb(
        &format!("{KERNEL} --initrd {} --append '{QUICK}' --user /bin/pid", GUEST.initrd()),
        r#"
break main
continue
python
import xml.etree.ElementTree as ElementTree
print('at', symbol())
shown = [line.split()[-1].removeprefix('target:') for line in quiet('info sharedlibrary').splitlines() if '.so' in line]
text, more = b'', True
while more:
    answer = gdb.selected_inferior().connection.send_packet('qXfer:libraries-svr4:read::%x,fff' % len(text))
    text, more = text + answer[1:], answer[:1] == b'm'
libraries = list(ElementTree.fromstring(text.decode()))
print('shown', *sorted(shown))
print('told', *sorted(library.get('name') for library in libraries))
print('lists', *sorted(set(str(library.get('lmid')) for library in libraries)))
end
"#,
    );
    assert_eq!(told(&out, "at"), "main", "{out}");
    assert!(told(&out, "shown").contains("libc.so.6") && told(&out, "shown").contains("ld-linux"), "{out}");
    assert_eq!(told(&out, "shown"), told(&out, "told"), "{out}");
    assert_eq!(told(&out, "lists"), "0x0", "{out}");
}

/// At the first instruction of a program, next to nothing of it is in memory. gdb gets all of its code and constants, and
/// nothing in place of what the program may have written.
#[test]
fn guest_linux_pages_that_are_not_in_memory_are_read_from_the_file_at_length() {
    let out = gdb(
        &format!("{} --user /bin/busybox", linux()),
        r#"
python
import subprocess
path = '.guests/busybox-amd64'
file = open(path, 'rb').read()
process = gdb.selected_inferior()
fixed = whole = absent = written = 0
for line in subprocess.check_output(['readelf', '-lW', path], text=True).splitlines():
    words = line.split()
    if words[:1] != ['LOAD']: continue
    offset, address, _, size, memory = (int(word, 16) for word in words[1:6])
    writable = 'W' in ''.join(words[6:-1])
    end = address + (memory if writable else size)
    for page in range(address & ~4095, end, 4096):
        low, high = max(page, address), min(page + 4096, end)
        if writable:
            written += 1
            try: process.read_memory(low, high - low)
            except gdb.MemoryError: absent += 1
            continue
        fixed += 1
        there = process.read_memory(low, high - low).tobytes()
        whole += there == file[offset + low - address:offset + high - address]
    if not writable:
        there = process.read_memory(address, size).tobytes()
        assert there == file[offset:offset + size]
print('fixed', whole == fixed, fixed > 400)
print('written', absent > 0, written)
end
"#,
    );
    assert_eq!(told(&out, "fixed"), "True True", "{out}");
    assert!(told(&out, "written").starts_with("True "), "{out}");
}

/// The calls that `catch syscall` tells are those that the kernel's functions see, by the names that gdb gives to their
/// numbers, each followed by its return.
#[test]
fn guest_linux_system_calls_of_a_process_are_caught() {
    let folder = tempfile::tempdir().unwrap();
    let guest = scripted(folder.path(), &[], "echo one\nsleep 1\necho two\n");
    let initrd = folder.path().join("initrd.gz").display().to_string();
    let out = gdb(
        &format!("{guest} --user /bin/busybox"),
        r#"
python
def icount(): return int(monitor('info').split()[1])
end
catch syscall
python
events = []
for _ in range(60):
    quiet('continue')
    events.append((icount(), value('$rax'), value('$pc')))
    print('event', *events[-1], value('$cs') & 3)
    if len(events) % 2: assert quiet('x/i $pc').split()[-1] == 'syscall', quiet('x/i $pc')
calls = events[::2]
last = events[-2]
quiet('reverse-continue')
print('back', icount() == last[0])
quiet('reverse-continue')
print('again', icount() == calls[-2][0])
quiet('delete')
quiet('catch syscall write')
quiet('continue')
print('write', value('$rax'), icount())
print('text', gdb.selected_inferior().read_memory(value('$rsi'), value('$rdx')).tobytes())
quiet('stepi')
print('wrote', value('$rax'))
quiet('delete')
monitor('at 0')
end
"#,
    );
    let said = |what: &str| -> Vec<String> {
        let after = |line: &str| Some(line.split_once(what)?.1.split_once(')')?.0.to_owned());
        out.lines().filter(|line| line.starts_with("Catchpoint 1 (")).filter_map(after).take(30).collect()
    };
    let (calls, returns) = (said("(call to syscall "), said("(returned from syscall "));
    assert_eq!((calls.len(), &calls), (30, &returns), "{out}");
    let line = |line: &str| -> Vec<u64> { line.split(' ').map(|word| word.parse().unwrap()).collect() };
    let events: Vec<Vec<u64>> =
        out.lines().filter_map(|text| text.strip_prefix("event ")).map(line).collect();
    for (name, pair) in calls.iter().zip(events.chunks(2)) {
        let [[called, _, at, 3], [returned, _, behind, 3]] = [&pair[0][..], &pair[1][..]] else {
            panic!("{pair:?}")
        };
        assert!(called < returned && at + 2 == *behind, "{name} {pair:?}");
    }
    assert_eq!((told(&out, "back"), told(&out, "again")), ("True", "True"), "{out}");
    // The first one that writes is `echo`, and 1 is the number of write.
    assert!(told(&out, "write").starts_with("1 "), "{out}");
    assert_eq!((told(&out, "text"), told(&out, "wrote")), (r"b'one\n'", "4"), "{out}");
    let clause = r#"syscall:::entry /pid == 1/ { printf("%s", probefunc); }"#;
    let mut command = patient(binary());
    command
        .args(["run", KERNEL, "--initrd", &initrd, "--append", QUICK, "-q", "-n", clause, "--until", "two"]);
    command.current_dir(root());
    let kernel = finish(command).out;
    let seen = kernel.lines().filter_map(|line| Some(line.split_once(":entry ")?.1.trim().to_owned()));
    // sys_newuname and the like are the calls without `new`.
    let seen: Vec<String> =
        seen.take(30).map(|name| name.strip_prefix("new").unwrap_or(&name).to_owned()).collect();
    assert_eq!(calls, seen);
}

/// Where the server knows of no system calls, gdb refuses to catch them before it lets the run go on, and a script goes on.
#[test]
fn catch_syscall_where_it_is_not_supported_is_refused_at_once() {
    for guest in ["embedded:ia32", "embedded:x86_64", "embedded:ia32 --user appln"] {
        let out = gdb(
            guest,
            r#"
python
before = monitor('info').splitlines()[0]
for kind in ['syscall', 'syscall 4']:
    try: quiet('catch ' + kind)
    except gdb.error as error: print('refused', kind, error)
answer = gdb.selected_inferior().connection.send_packet('QCatchSyscalls:1')
print('answer', answer)
print('stays', before == monitor('info').splitlines()[0])
quiet('stepi')
print('goes on', before != monitor('info').splitlines()[0])
end
"#,
        );
        assert_eq!(out.matches("is not supported on this architecture").count(), 2, "{out}");
        assert_eq!(told(&out, "answer"), "None", "{out}");
        assert_eq!((told(&out, "stays"), told(&out, "goes on")), ("True", "True"), "{out}");
    }
}

/// Bytes of the code that a process has translated: of its memory that can be written and executed (proc(5), `smaps`).
fn translated(pid: u32) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let of_map = |map: &str| {
        let resident = map.lines().find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix(" kB"));
        resident.map_or(0, |kib| kib.parse::<u64>().unwrap() << 10)
    };
    maps.split(" rwxp ").skip(1).map(of_map).sum()
}

/// gdb starts the server, and is ended while the server still runs to a process that never comes.
#[test]
fn guest_linux_a_server_without_gdb_looks_for_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let initrd =
        Linux::of("cloud-amd64").unwrap().image(folder.path(), &[], &[], "while true; do true; done\n");
    // Not by another program, which would have a process of its own.
    trapline_tests::turns::take().unwrap();
    let mut command = Command::new(binary());
    command.args(["gdb", KERNEL, "--initrd", &initrd.unwrap().display().to_string(), "--append", QUICK]);
    command.args(["--user", "/bin/none", "--stdio", "-q"]).current_dir(root());
    let mut server =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = server.stdin.take().unwrap();
    input.write_all(&framed(b"qSupported:swbreak+")).unwrap();
    until("the guest runs", || translated(server.id()) >= 8 << 20);
    drop(input);
    let ended = server.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!((ended.status.code(), &*said), (Some(130), ""));
}

/// A debugger that lets the run go on, and presses Ctrl-C when so many instructions have been executed.
struct Impatient {
    stage: u8,
    meter: Meter,
    until: u64,
}

impl Read for Impatient {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let bytes = match self.stage {
            0 => framed(b"c"),
            1 => {
                until("the guest runs", || self.meter.read().executed >= self.until);
                vec![3]
            }
            2 => framed(b"k"),
            _ => loop {
                std::thread::park();
            },
        };
        self.stage += 1;
        to[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

/// Ctrl-C while the process sleeps goes back to the call in which it does, without another run through all the time since.
#[test]
fn guest_linux_ctrl_c_goes_back_to_a_sleeping_process_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let linux = Linux::of("cloud-amd64").unwrap();
    let script = "while true; do true; done &\nexec sleep 100000\n";
    let initrd = linux.image(folder.path(), &[], &[], script).unwrap();
    let guest = GuestBuilder::image(&guest("linux-cloud-amd64"));
    let meter = Meter::default();
    let session = guest.initrd(initrd).append(QUICK).metered_by(&meter).start().unwrap();
    let timeline = Timeline::new(session, 512 << 20).unwrap();
    let who = TargetProcess::Name("sleep".to_owned());
    let cancel = Arc::<AtomicBool>::default();
    let mut debuggee = Debuggee::new(timeline, Box::new(NoCommands), Some(&who), cancel, false).unwrap();
    let mut more = 200_000_000;
    loop {
        let session = debuggee.timeline().session();
        let (first, before) = (session.icount(), session.core().effort());
        let mut out = Vec::new();
        let until = meter.read().executed + more;
        let debugger = Impatient { stage: 0, meter: meter.clone(), until };
        let gone = serve(&mut debuggee, debugger, &mut out, &AtomicBool::new(false));
        assert_eq!(gone, Gone::Killed);
        let out = String::from_utf8_lossy(&out).into_owned();
        assert!(out.contains("$T02"), "{out}");
        let core = debuggee.timeline().session().core();
        let (here, effort) = (core.icount(), core.effort() - before);
        assert_eq!(core.env().cpl(), 3);
        // It has come at least so far.
        let reached = debuggee.timeline().saved_at().into_iter().max().unwrap_or(0);
        let (run, slept) = (reached.saturating_sub(first), reached.saturating_sub(here));
        println!("first {first} here {here} reached {reached} effort {effort}");
        if slept < 100_000_000 {
            more *= 2;
            continue;
        }
        let mut code = [0; 2];
        assert_eq!(core.peek(core.linear_ip(), &mut code), Ok(()));
        assert_eq!(code, [0x0f, 0x05]);
        // To go through the time in which it slept once more would take as much again.
        assert!(effort < run + slept / 2, "{effort} for {run}, of which it slept {slept}");
        return;
    }
}
