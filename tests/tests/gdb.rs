//! `trapline gdb`, driven by the real gdb: each test is a script that gdb runs in batch mode.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::cli::{binary, finish, patient, trapline};
use crate::patience::{status, until};
use trapline_session::{Condition, Ending, GuestBuilder, Limits, PlatformKind};
use trapline_tests::linux::QUICK;
use trapline_tests::{guest, guests_of, root};

/// Functions of Python that scripts use.
const PRELUDE: &str = r#"
set pagination off
set remotetimeout 1500
set confirm off
set width 0
python
def quiet(command): return gdb.execute(command, False, True)
def value(text): return int(gdb.parse_and_eval(text)) & (1 << 64) - 1
def monitor(command): return quiet('monitor ' + command).strip()
def registers(names): return [str(gdb.parse_and_eval('$' + name)) for name in names]
def symbol(): return quiet('info symbol $pc').split()[0]
def at(position):
    monitor('at ' + str(position))
    quiet('maintenance flush register-cache'); quiet('maintenance flush dcache')
end
"#;

/// What gdb prints when it runs this script with `trapline gdb ARGS --stdio` at the other end.
pub fn gdb(args: &str, script: &str) -> String {
    gdb_said(args, script).0
}

/// The same, and what it writes to standard error: what the server tells.
fn gdb_said(args: &str, script: &str) -> (String, String) {
    guests_of(args);
    let file = tempfile::NamedTempFile::new().unwrap();
    let target = format!("target remote | {} gdb {args} --stdio -q", binary().display());
    write!(file.as_file(), "{PRELUDE}\n{target}\n{script}\nkill\n").unwrap();
    let mut command = patient("gdb");
    command.args(["-nx", "-batch", "-x"]).arg(file.path()).current_dir(root());
    let ran = finish(command);
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    assert!(!ran.err.contains("Error") && !ran.out.contains("Traceback"), "{}\n{}", ran.out, ran.err);
    (ran.out, ran.err)
}

/// The text after `name` on its line.
pub fn told<'a>(out: &'a str, name: &str) -> &'a str {
    let line = out.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no line `{name} ..` in:\n{out}"))
}

/// Steps forward and back `$count` times, and compares the states.
const THERE_AND_BACK: &str = r#"
python
def there_and_back(count, names):
    seen = []
    for _ in range(count):
        seen.append(registers(names))
        quiet('stepi')
    different = 0
    for state in reversed(seen):
        quiet('reverse-stepi')
        different += state != registers(names)
    return different
end
"#;

fn embedded(name: &str, names: &str, steps: u32) {
    let out = gdb(
        &format!("embedded:{name} --mem 32M"),
        &format!(
            r#"{THERE_AND_BACK}
break *do_fork
continue
python
print('stopped', symbol())
print('callers', ' '.join(line.split(' in ')[-1].split()[0] for line in quiet('backtrace 3').splitlines()))
before = monitor('digest')
print('different', there_and_back({steps}, '{names}'.split()))
print('same', before == monitor('digest'))
end
delete
watch *(int*)&current_task
continue
continue
python
after = value('*(int*)&current_task')
quiet('reverse-continue')
print('undone', value('*(int*)&current_task') != after)
print('writer', symbol())
quiet('stepi')
print('done', value('*(int*)&current_task') == after)
end
delete
reverse-continue
python
print('begin', value('$pc') == 0x10000c or monitor('info').startswith('at 0 '))
end
python
at(2000000)
print(monitor('digest'))
end
"#
        ),
    );
    assert_eq!(told(&out, "stopped"), "do_fork", "{out}");
    assert!(told(&out, "callers").starts_with("do_fork do_syscall"), "{out}");
    let what = ["different", "same", "undone", "done", "begin"].map(|name| told(&out, name));
    assert_eq!(what, ["0", "True", "True", "True", "True"], "{out}");
    assert!(out.contains("No more reverse-execution history"), "{out}");
    assert!(["schedule", "switch_to", "__switch_to"].contains(&told(&out, "writer")), "{out}");
    let mut plain = GuestBuilder::embedded(name).memory(32 << 20).start().unwrap();
    assert_eq!(plain.run_until(&Condition::end(), &Limits::insns(2_000_000)), Ending::Limit);
    assert_eq!(told(&out, "digest"), plain.digest().to_string(), "{out}");
}

#[test]
fn gdb_goes_a_thousand_steps_there_and_back_on_x86_64() {
    embedded("x86_64", "pc sp rbp rax rbx rcx rdx rsi rdi r8 r12 eflags cr2 cr3", 1_000);
}

#[test]
fn gdb_goes_there_and_back_on_ia32() {
    embedded("ia32", "pc sp ebp eax ebx ecx edx esi edi eflags cr2 cr3", 100);
}

#[test]
fn gdb_debugs_one_program_of_the_embedded_guest() {
    let out = gdb(
        "embedded:ia32 --mem 32M --user appln",
        r#"
python
print('cpl', value('$cs') & 3)
print('file', gdb.current_progspace().filename)
first = registers(['pc', 'sp', 'eax'])
for _ in range(3000):
    quiet('stepi')
    assert value('$cs') & 3 == 3
for _ in range(100):
    quiet('reverse-stepi')
    assert value('$cs') & 3 == 3
quiet('reverse-continue')
print('again', first == registers(['pc', 'sp', 'eax']))
end
continue
python print('end', monitor('info').replace('\n', ' | '))
"#,
    );
    assert_eq!(told(&out, "cpl"), "3", "{out}");
    assert_eq!(told(&out, "again"), "True", "{out}");
}

/// Hits in other processes stop nothing, and no command shows one of those: gdb would take its registers and memory for those
/// of the process. `schedule` runs in seven processes.
#[test]
fn gdb_sees_one_process_alone() {
    let folder = tempfile::tempdir().unwrap();
    let asks = folder.path().join("asks.rpn");
    let text = std::fs::read_to_string(root().join("tests/field/exit-1/asks.rpn")).unwrap();
    std::fs::write(&asks, text.replace("do_fork", "schedule")).unwrap();
    let stops = r#"
seen = set()
def look():
    seen.add((gdb.selected_thread().ptid[1], len(gdb.selected_inferior().threads())))
def stops():
    for _ in range(6):
        quiet('continue')
        look()
    for _ in range(3):
        quiet('reverse-continue')
        look()
stops()
"#;
    let (out, err) = gdb_said(
        "embedded:ia32 --mem 32M --user ping",
        &format!(
            r#"
python first = int(monitor('info').split()[1])
monitor probe fbt::schedule:entry
python
{stops}
for n in range(0, 400000, 20000):
    said = monitor('at %d' % (first + n))
    monitor('here')
    quiet('reverse-stepi')
    look()
    if 'another process runs there' in said: print('told', 'ping' in said or 'process 5' in said)
print('all', seen)
end
monitor noprobe
monitor probe fbt::schedule:entry /pid == 6/
python quiet('monitor at %d' % first); quiet('monitor here'); quiet('reverse-stepi')
continue
"#
        ),
    );
    assert_eq!(told(&out, "all"), "{(5, 1)}", "{out}");
    assert_eq!(told(&out, "told"), "True", "{out}");
    assert!(err.contains("process 5 ends here"), "{out}{err}");
    let args = format!("embedded:ia32 --mem 32M --user ping -p {}", asks.display());
    let out = gdb(&args, &format!("python\n{stops}\nprint('all', seen)\nend"));
    assert_eq!(told(&out, "all"), "{(5, 1)}", "{out}");
}

#[test]
fn gdb_stops_at_probes_both_ways_and_writes_only_to_a_live_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.tlr");
    let mut record = patient(binary());
    record.args(["record", "embedded:ia32", "-q", "--limit-insns", "3M", "-o"]).arg(&file);
    assert_eq!(finish(record).code, 124);
    let script = r#"
monitor probe fbt::do_fork:entry
continue
python print('first', symbol(), monitor('info').split()[1])
continue
reverse-continue
python print('second', symbol(), monitor('info').split()[1])
"#;
    let live =
        gdb("embedded:ia32", &format!("{script}\nset var $eax = 7\npython print('eax', value('$eax'))"));
    let recorded = gdb(&file.display().to_string(), script);
    for out in [&live, &recorded] {
        assert!(told(out, "first").starts_with("do_fork "), "{out}");
        assert_eq!(told(out, "first"), told(out, "second"), "{out}");
    }
    assert_eq!(told(&live, "first"), told(&recorded, "first"));
    assert_eq!(told(&live, "eax"), "7");
    let refused = gdb(
        &file.display().to_string(),
        "python\ntry: quiet('set var $eax = 7')\nexcept gdb.error as error: print('refused', error)\nend",
    );
    assert!(told(&refused, "refused").contains("a recording cannot be changed"), "{refused}");
}

#[test]
fn predicates_of_probes_hold_and_all_probes_at_a_place_are_named() {
    let (out, err) = gdb_said(
        "embedded:ia32",
        r#"
monitor probe fbt::do_fork:entry /pid == 99/
continue
python print('none', monitor('info').replace('\n', ' | '))
monitor at 0
monitor probe fbt::do_fork:entry /pid == 1/
monitor probe fbt::do_fork:entry
continue
python print('first', symbol(), monitor('info').split()[1])
stepi
reverse-continue
python
print('again', symbol(), monitor('info').split()[1])
print('insert', monitor('insert /etc/hostname'))
print('dump', monitor('dump'))
print('fraction', monitor('at 1.5M'))
print('more', monitor('info x'))
print('end', monitor('at end').split()[0])
end
"#,
    );
    assert!(out.contains("No more reverse-execution history"), "{out}");
    assert!(!told(&out, "none").starts_with("at 268998 "), "{out}");
    assert!(told(&out, "first").starts_with("do_fork "), "{out}");
    assert_eq!(told(&out, "first"), told(&out, "again"), "{out}");
    // Two of the three, both ways; the predicate of the first one does not hold.
    assert_eq!(err.lines().filter(|line| line.starts_with("hit of ")).count(), 4, "{err}");
    assert!(told(&out, "insert").contains("closed to debuggers"), "{out}");
    assert!(told(&out, "dump").contains("closed to debuggers"), "{out}");
    assert!(told(&out, "fraction").contains("is not a position"), "{out}");
    assert!(told(&out, "more").contains("takes nothing after it"), "{out}");
    assert_eq!(told(&out, "end"), "at", "{out}");
}

#[test]
fn probes_that_are_no_longer_wanted_stop_nothing_and_nothing_is_executed_again() {
    let out = gdb(
        "embedded:ia32",
        r#"
monitor probe fbt::do_fork:entry
continue
python
print('first', symbol())
print('inserted', monitor('query').count('do_fork'))
def run(): return [monitor('digest')] + [line for line in monitor('info').splitlines() if not line.startswith('stops')]
before = run()
print('none', monitor('noprobe'))
print('same', before == run())
print('listed', 'stops at hits' in monitor('info'))
print('stays', monitor('query').count('do_fork'))
end
tbreak *do_exit
continue
python
print('second', symbol())
quiet('reverse-continue')
print('back', monitor('info').split()[1])
print('again', monitor('probe fbt::do_fork:entry'))
end
continue
python print('third', symbol())
"#,
    );
    assert_eq!(told(&out, "first"), "do_fork", "{out}");
    assert_eq!(told(&out, "none"), "stops at no probes any more", "{out}");
    assert_eq!((told(&out, "same"), told(&out, "listed")), ("True", "False"), "{out}");
    assert_ne!(told(&out, "inserted"), "0", "{out}");
    // Without the program, the run would be another one, which is executed from its beginning.
    assert_eq!(told(&out, "stays"), told(&out, "inserted"), "{out}");
    assert_eq!((told(&out, "second"), told(&out, "back")), ("do_exit", "0"), "{out}");
    assert!(told(&out, "again").starts_with("stops at hits of"), "{out}");
    assert_eq!(told(&out, "third"), "do_fork", "{out}");
}

#[test]
fn gdb_follows_a_jump_to_another_task_and_comes_back_from_a_crash() {
    let out = gdb(
        "embedded:ia32",
        r#"
define at
  monitor at $arg0
  monitor here
  reverse-stepi
end
break *do_fork
continue
python before = gdb.selected_thread().ptid
at 100
python
print('moved', monitor('info').split()[1], gdb.selected_thread().ptid != before)
there = registers(['pc', 'sp', 'eax'])
end
stepi
reverse-stepi
python print('same', there == registers(['pc', 'sp', 'eax']))
monitor at 4000000
info threads
continue
python
print('on', monitor('info').split()[1])
try: quiet('set $eflags = 0')
except gdb.error as error: print('flags', error)
end
delete
at 0
monitor nmi
continue
set var *(int*)0x100000 = 0
monitor step
reverse-stepi
python print('returned', monitor('info').split()[0])
"#,
    );
    assert_eq!(told(&out, "moved"), "100 True", "{out}");
    assert_eq!(told(&out, "same"), "True", "{out}");
    assert!(told(&out, "flags").contains("a system flag of eflags cannot be written"), "{out}");
    assert_eq!(told(&out, "returned"), "at", "{out}");
}

#[test]
fn a_read_watchpoint_passes_over_writes() {
    let out = gdb(
        "embedded:ia32",
        r#"
rwatch *(int*)&current_task
continue
python
print('at', monitor('info').split()[1])
gdb.execute('delete')
monitor('at 0')
print('read', monitor('continue to read current_task:4').split()[1])
monitor('at 0')
print('write', monitor('continue to write current_task:4').split()[1])
end
"#,
    );
    let [at, read, write] = ["at", "read", "write"].map(|name| told(&out, name).parse::<u64>().unwrap());
    assert_eq!(at, read, "{out}");
    assert_ne!(read, write, "{out}");
}

#[test]
fn gdb_sees_physical_memory_tasks_and_the_system_registers() {
    let out = gdb(
        "embedded:x86_64 --mem 32M",
        r#"
break *do_fork
continue
python
at_pc = quiet('x/4xb do_fork').split(':')[1].split()
quiet('maintenance packet Qqemu.PhyMemMode:1'); quiet('maintenance flush dcache')
print('same', at_pc == quiet('x/4xb (char*)do_fork - 0xffffffff80000000').split(':')[1].split())
quiet('maintenance packet Qqemu.PhyMemMode:0'); quiet('maintenance flush dcache')
print('threads', quiet('info threads').count('Thread'))
print('running', [line for line in quiet('info threads').splitlines() if line.startswith('*')][0])
print('system', hex(value('$cr0')), hex(value('$efer')))
end
"#,
    );
    assert_eq!(told(&out, "same"), "True", "{out}");
    assert!(told(&out, "running").contains("appln, running"), "{out}");
    assert_eq!(told(&out, "system"), "0x80010011 0xd01", "{out}");
}

/// A server for this guest at a port of its own, and its address.
pub fn server(guest: &[&str]) -> (Child, String) {
    let mut server = Command::new(binary());
    server.arg("gdb").args(guest).args(["--listen", "127.0.0.1:0"]).current_dir(root());
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("gdb -ex 'target remote ").unwrap().trim_end_matches('\'');
    (server, address.to_owned())
}

/// Sends a packet, and reads what comes up to the end of the next one, or of the connection.
fn exchange(stream: &mut TcpStream, body: &str) -> String {
    let sum = body.bytes().fold(0u8, u8::wrapping_add);
    stream.write_all(format!("${body}#{sum:02x}").as_bytes()).unwrap();
    receive(stream)
}

/// What comes up to the end of the next packet, or of the connection.
fn receive(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let is_whole = |read: &[u8]| read.contains(&b'$') && read.iter().rev().nth(2) == Some(&b'#');
    while !is_whole(&read) {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => read.push(byte[0]),
            _ => break,
        }
    }
    String::from_utf8(read).unwrap()
}

/// The bytes of digits, up to the first that is none.
fn unhex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2).map_while(|pair| std::str::from_utf8(pair).ok());
    pairs.map_while(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

/// What debuggers and editors do that restart their session: the new connection comes before the old one has gone.
#[test]
fn a_debugger_that_reconnects_waits_for_its_old_connection_to_go() {
    let (mut server, address) = server(&["embedded:ia32"]);
    let mut old = TcpStream::connect(&address).unwrap();
    let moved = exchange(&mut old, "s");
    assert!(moved.contains("$T05"), "{moved}");
    let digest = exchange(&mut old, "qRcmd,646967657374");
    assert!(receive(&mut old).ends_with("$OK#9a"));
    let guest = GuestBuilder::embedded("ia32").start().unwrap();
    let of = |name: &str| guest.symbols().sole(name).unwrap().addr;
    for set in [format!("Z0,{:x},1", of("do_fork")), format!("Z2,{:x},4", of("current_task"))] {
        let answer = exchange(&mut old, &set);
        assert!(answer.ends_with("$OK#9a"), "{set}: {answer}");
    }
    // The server sees it while the old one is there: a thread of its own waits with it.
    let threads = || status(server.id(), "Threads").parse::<u32>().unwrap();
    let before = threads();
    let mut new = TcpStream::connect(&address).unwrap();
    until("the new connection waits", || threads() > before);
    drop(old);
    let answer = exchange(&mut new, "qRcmd,646967657374");
    assert_eq!(answer, digest);
    assert!(receive(&mut new).ends_with("$OK#9a"));
    // The breakpoint and the watchpoint of the old one stop nothing: what comes first is the line that tells of the run's end.
    let told = exchange(&mut new, "c");
    assert!(told.contains("$O"), "{told}");
    let line = String::from_utf8(unhex(told.split("$O").nth(1).unwrap())).unwrap();
    assert!(line.starts_with("the end of the run: "), "{line}");
    exchange(&mut new, "k");
    assert_eq!(server.wait().unwrap().code(), Some(0));
    let mut said = String::new();
    server.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!said.contains("turned away"), "{said}");
}

#[test]
fn a_port_serves_one_debugger_after_the_other() {
    let (mut server, address) = server(&["embedded:ia32"]);
    let gdb = |more: &[&str]| {
        let mut command = patient("gdb");
        command.args(["-nx", "-batch", "-ex", &format!("target remote {address}")]);
        for text in more {
            command.args(["-ex", text]);
        }
        finish(command).out
    };
    let first = gdb(&["break *do_fork", "continue", "detach"]);
    assert!(first.contains("Breakpoint 1"), "{first}");
    // While one is served, another one is told so and turned away.
    let held = TcpStream::connect(&address).unwrap();
    let mut told = String::new();
    TcpStream::connect(&address).unwrap().read_to_string(&mut told).unwrap();
    assert!(told.contains("another debugger is connected"), "{told}");
    drop(held);
    let second = gdb(&["x/i $pc", "kill"]);
    assert!(second.contains("<do_fork>"), "{second}");
    assert_eq!(server.wait().unwrap().code(), Some(0));
    let mut said = String::new();
    server.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("a second debugger was turned away") && said.contains("has detached"), "{said}");
}

#[test]
fn guest_gnumach_is_debugged_by_gdb() {
    let out = gdb(
        ".guests/gnumach --platform minimal --cmdline console=com0",
        &format!(
            r#"{THERE_AND_BACK}
break *vm_page_bootstrap
continue
python
print('stopped', symbol(), hex(value('$pc')))
print('different', there_and_back(20, 'pc sp ebp eax eflags'.split()))
here = monitor('info').split()[1]
print('digest', here, monitor('digest').split()[1])
end
"#
        ),
    );
    assert!(told(&out, "stopped").starts_with("vm_page_bootstrap"), "{out}");
    assert_eq!(told(&out, "different"), "0", "{out}");
    let (at, digest) = told(&out, "digest").split_once(' ').unwrap();
    let guest = GuestBuilder::image(&guest("gnumach"));
    let guest = guest.platform(PlatformKind::Minimal).memory(256 << 20).cmdline("console=com0");
    let mut plain = guest.start().unwrap();
    assert_eq!(plain.run_until(&Condition::end(), &Limits::insns(at.parse().unwrap())), Ending::Limit);
    assert_eq!(digest, plain.digest().to_string());
}

/// Debian's cloud kernel, as an argument.
pub fn linux() -> String {
    format!(".guests/linux-cloud-amd64 --initrd .guests/initramfs-amd64.cpio.gz --append '{QUICK}'")
}

/// Debian's cloud kernel: the kernel's own function, and then a process of it.
#[test]
fn guest_linux_is_debugged_by_gdb() {
    let out = gdb(
        &linux(),
        &format!(
            r#"{THERE_AND_BACK}
break *kernel_init
continue
python
print('stopped', symbol())
print('callers', quiet('backtrace 2').count('#'))
print('different', there_and_back(20, 'pc sp rbp rax eflags'.split()))
print('threads', quiet('info threads').count('Thread'))
end
delete
watch *(unsigned long*)&jiffies_64
continue
python
after = value('*(unsigned long*)&jiffies_64')
quiet('reverse-continue')
print('before', after - value('*(unsigned long*)&jiffies_64'), symbol())
here = monitor('info').split()[1]
print('digest', here, monitor('digest').split()[1])
end
"#
        ),
    );
    assert!(told(&out, "stopped").starts_with("kernel_init"), "{out}");
    assert_eq!(told(&out, "different"), "0", "{out}");
    assert!(told(&out, "threads").parse::<u32>().unwrap() >= 2, "{out}");
    assert!(told(&out, "before").starts_with("1 "), "{out}");
    let (at, digest) = told(&out, "digest").split_once(' ').unwrap();
    let initrd = PathBuf::from(guest("initramfs-amd64.cpio.gz"));
    let guest = GuestBuilder::image(&guest("linux-cloud-amd64"));
    let mut plain = guest.initrd(initrd).append(QUICK).start().unwrap();
    assert_eq!(plain.run_until(&Condition::end(), &Limits::insns(at.parse().unwrap())), Ending::Limit);
    assert_eq!(digest, plain.digest().to_string());
}

#[test]
fn guest_linux_shows_one_process_to_gdb() {
    let out = gdb(
        &format!("{} --user /bin/busybox", linux()),
        r#"
python
print('file', gdb.current_progspace().filename)
print('entry', value('$pc') == int(quiet('info files').split('Entry point: ')[1].split()[0], 16))
first = registers(['pc', 'sp', 'rax'])
for _ in range(300):
    quiet('stepi')
    assert value('$cs') & 3 == 3
quiet('reverse-continue')
print('again', first == registers(['pc', 'sp', 'rax']))
end
"#,
    );
    assert!(told(&out, "file").contains("busybox"), "{out}");
    assert_eq!((told(&out, "entry"), told(&out, "again")), ("True", "True"), "{out}");
}

/// `exit 1` of a handler stops the run, without any breakpoint, and leaves no mark in it.
#[test]
fn exit_1_of_a_handler_stops_the_run_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("p.rpn");
    let text = "name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x55\nmaxhits = 3\npush 1\nlog 1\nexit 1\n";
    std::fs::write(&program, text).unwrap();
    let recording = folder.path().join("run.tlr");
    let args = ["record", "embedded:ia32", "--mem", "32M", "-q", "-o", recording.to_str().unwrap()];
    assert_eq!(trapline(&root(), &args).code, 0);
    for run in ["embedded:ia32 --mem 32M", recording.to_str().unwrap()] {
        let (out, err) = gdb_said(
            &format!("{run} -p {}", program.display()),
            r#"
python
seen = []
for _ in range(3):
    quiet('continue'); seen.append((symbol(), monitor('info').split()[1]))
print('functions', [function for function, _ in seen])
for position in (1, 0):
    quiet('reverse-continue'); print('same', monitor('info').split()[1] == seen[position][1])
end
continue
continue
continue
python
print(monitor('digest'))
end
"#,
        );
        assert_eq!(told(&out, "functions"), "['do_fork', 'do_fork', 'do_fork']", "{out}{err}");
        assert_eq!(out.matches("same True").count(), 2, "{out}");
        assert!(err.contains("`exit 1` of a handler asks for a debugger"), "{out}{err}");
        let plain = trapline(&root(), &["run", "embedded:ia32", "--mem", "32M", "-q", "--digest"]);
        let digest = plain.err.lines().find_map(|line| line.strip_prefix("digest ")).unwrap();
        assert!(out.contains(digest), "{out}");
    }
}
