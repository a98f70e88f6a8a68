//! pid on Linux: programs that were stripped, a position-independent test program with its library, a `sha256sum` with
//! a probe on every instruction.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, finish, patient, trapline, trapline_from_init};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;
use tempfile::TempDir;
use trapline_tests::{guest, root};

const KERNEL: &str = ".guests/linux-cloud-amd64";
const LAST: &str = "pid: end";
const INIT: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
dmesg -n 1
head -c 4000 /bin/busybox > /tmp/data
echo 'pid: begin'
/bin/pid
/bin/bash -c 'echo \"bash: $((6 * 7))\"'
/bin/sha256sum /tmp/data
echo 'pid: end'
poweroff -f
";
/// Where Debian has the dynamic linker and the C library.
const LIBRARIES: [(&str, &str); 2] = [
    ("/lib64/ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2"),
    ("/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6"),
];

/// A folder with an initramfs of our program, bash and busybox.
pub struct Guest(TempDir);

pub static GUEST: LazyLock<Guest> = LazyLock::new(Guest::make);

fn tool(name: &str, args: &[&str]) {
    let mut command = patient(name);
    command.args(args).current_dir(root());
    let ran = finish(command);
    assert_eq!(ran.code, 0, "{name} {args:?}: {}", ran.err);
}

impl Guest {
    fn make() -> Self {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let flags = ["-O1", "-g0", "-fcf-protection=none", "-fno-inline"];
        let program = ["-fPIE", "-pie", "-pthread", "-o", &at("pid"), "tests/tests/pid/program.c"];
        tool("gcc", &[&flags[..], &program].concat());
        let library = ["-fPIC", "-shared", "-o", &at("libpid.so"), "tests/tests/pid/library.c"];
        tool("gcc", &[&flags[..], &library].concat());
        for (name, from) in [("busybox", "busybox-amd64"), ("bash", "bash-amd64")] {
            std::fs::copy(guest(from), folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("init"), INIT).unwrap();
        let mut list = std::fs::read_to_string(root().join("guest-images/initramfs/base.list")).unwrap();
        list.push_str("dir /lib 755\ndir /lib64 755\ndir /lib/x86_64-linux-gnu 755\nfile /lib/libpid.so libpid.so 755\n");
        list.push_str("file /bin/pid pid 755\nfile /bin/bash bash 755\n");
        for (path, from) in LIBRARIES {
            list.push_str(&format!("file {path} {from} 755\n"));
        }
        std::fs::write(folder.path().join("list"), list).unwrap();
        tool("scripts/guests/newc", &["--root", &at(""), &at("list"), &at("initramfs.cpio")]);
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn program(&self) -> String {
        self.path("pid")
    }

    pub fn initrd(&self) -> String {
        self.path("initramfs.cpio")
    }
}

/// Runs the guest to its end with these options.
fn run(more: &[&str]) -> Ran {
    let initrd = GUEST.initrd();
    let args = ["run", KERNEL, "--initrd", &initrd, "--until", LAST, "--digest", "--stats"];
    let ran = trapline_from_init(&root(), &[&args[..], more].concat());
    assert_eq!(ran.code, 0, "{more:?}: {}{}", ran.out, ran.err);
    ran
}

fn stat(ran: &Ran, name: &str) -> u64 {
    let line = ran.err.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().parse().unwrap()
}

fn digest(ran: &Ran) -> &str {
    ran.err.lines().find_map(|line| line.strip_prefix("digest ")).unwrap()
}

/// The output of the guest itself.
fn said(text: &str) -> String {
    let from = text.find("pid: begin").unwrap_or_else(|| panic!("{text}"));
    text[from..]
        .lines()
        .take_while(|line| !line.starts_with(LAST))
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// The guest without probes.
static PLAIN: LazyLock<Ran> = LazyLock::new(|| run(&["--console", "stdio"]));

/// The hits of clauses: probe and logged words; asserts that the guest is unaffected.
fn hits(clauses: &[&str], more: &[&str]) -> Vec<(String, Vec<u64>)> {
    let with: Vec<&str> = clauses.iter().flat_map(|clause| ["--rpn", clause]).collect();
    let ran = run(&[&with[..], more, &["-f", "json"]].concat());
    let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = lines.last().unwrap();
    assert_eq!(end["digest"], digest(&PLAIN), "{clauses:?} were noticed");
    let word =
        |bytes: &[u8]| u64::from_str_radix(std::str::from_utf8(bytes).unwrap(), 16).unwrap().swap_bytes();
    let hit = |line: &Value| {
        let data = line["data"].as_str().unwrap().as_bytes().chunks_exact(16).map(word).collect();
        (line["probe"].as_str().unwrap().to_owned(), data)
    };
    lines.iter().filter(|line| line["type"] == "hit").map(hit).collect()
}

fn of_program(clauses: &[&str], more: &[&str]) -> Vec<(String, Vec<u64>)> {
    hits(clauses, &[&["--target", "/bin/pid"], more].concat())
}

/// The process's number of a hit, and the rest of its probe's name.
fn split(probe: &str) -> (u32, &str) {
    let (provider, rest) = probe.split_once(':').unwrap();
    (provider.strip_prefix("pid").unwrap().parse().unwrap(), rest)
}

/// The probes of a description, as listed.
fn listed(more: &[&str]) -> Ran {
    let initrd = GUEST.initrd();
    let args = ["list", KERNEL, "--initrd", &initrd, "--file"];
    let library = format!("/lib/libpid.so={}", GUEST.path("libpid.so"));
    trapline(&root(), &[&args[..], &[library.as_str(), "-q"], more].concat())
}

/// The address of a symbol, by nm.
fn symbol(file: &Path, name: &str) -> u64 {
    let mut command = patient("nm");
    command.arg(file);
    let table = finish(command).out;
    let line = table.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
    u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
}

#[test]
fn guest_pid_entry_return_and_ten_arguments() {
    let ten = "pid$target:a.out:ten:entry { push arg, 9; push arg, 6; push arg, 5; push arg, 0; log 4 }";
    let found = of_program(&[ten, "pid$target:pid:ten:return", "pid$target:/bin/pid:main:"], &[]);
    let (process, _) = split(&found[0].0);
    let named = |rest: &str| format!("pid{process}:pid:{rest}");
    assert_eq!(found[0].0, named("main:entry"));
    assert_eq!(found[0].1[0], 1, "argc");
    let ten = found.iter().find(|(probe, _)| *probe == named("ten:entry")).unwrap();
    assert_eq!(ten.1, [1, 6, 7, 10]);
    let back = found.iter().find(|(probe, _)| *probe == named("ten:return")).unwrap();
    assert_eq!(back.1[1], 385);
    assert!(back.1[0] > 8, "the offset of the ret: {:#x}", back.1[0]);
    // The second main is that of the exec, which returns 15; it is another process.
    let mains: Vec<_> = found.iter().filter(|(probe, _)| probe.ends_with(":main:return")).collect();
    assert_eq!(mains.iter().map(|(_, data)| data[1]).collect::<Vec<_>>(), [15, 0]);
    assert_ne!(mains[0].0, mains[1].0);
    assert_eq!(mains[1].0, named("main:return"));
    assert!(found.iter().any(|(probe, _)| *probe == named("main:0")), "every instruction");
}

/// All forms of leaving a function: the place, the value, and the stack pointer afterwards.
#[test]
fn guest_pid_every_form_of_return() {
    let entry = "pid$target:a.out:{ret_*,outer,inner,again}:entry { push r, rsp; log 1 }";
    let leave = "pid$target:a.out:{ret_plain,ret_rep,ret_bnd,ret_zero,ret_popping,outer,inner,again}:return \
                 { push r, rip; push r, rsp; push ret; push arg, 0; log 4 }";
    let jump = "pid$target:a.out:{ret_jump,ret_if,ret_through}:return { push r, rsp; push arg, 0; log 2 }";
    // At an exit by a jump there is no value yet: the handler ends by an exception, and logs nothing.
    let value = "pid$target:a.out:ret_if:return { push ret; log 1 }";
    let found = of_program(&[entry, leave, jump, value], &[]);
    let function = |probe: &str| split(probe).1.split(':').nth(1).unwrap().to_owned();
    let of = |name: &str| found.iter().filter(|(probe, _)| function(probe) == name).collect::<Vec<_>>();
    // The bytes that a function pops beyond its return address, if it exits by a return.
    for (name, value, popped, at) in [
        ("ret_rep", 2, 8, 3),
        ("ret_bnd", 3, 8, 3),
        ("ret_zero", 4, 8, 3),
        ("ret_popping", 5, 16, 5),
        ("outer", 10, 8, 5),
    ] {
        let [entry, leave] = of(name)[..] else { panic!("{name}: {:x?}", of(name)) };
        let [offset, returned, sp, ip] = leave.1[..] else { panic!("{name}") };
        assert_eq!((offset, returned, sp - entry.1[0]), (at, value, popped), "{name}");
        let linked = symbol(Path::new(&GUEST.program()), name);
        assert_eq!(ip.wrapping_sub(linked + offset) % 0x1000, 0, "{name}: ip {ip:#x} is not the site");
    }
    // By a jump: the return address is still there. ret_if is left once by its jump and once by its return.
    let [entry, leave] = of("ret_jump")[..] else { panic!("{:x?}", of("ret_jump")) };
    assert_eq!(leave.1[..], [0, entry.1[0]]);
    // The compiler evaluates the last argument first.
    let [first, returned, value, second, jumped, none] = of("ret_if")[..] else {
        panic!("{:x?}", of("ret_if"))
    };
    assert_eq!((&value.1[..], &none.1[..], returned.1[1]), (&[0][..], &[][..], first.1[0] + 8));
    assert_eq!(jumped.1[1], second.1[0]);
    let [entry, leave] = of("ret_through")[..] else { panic!("{:x?}", of("ret_through")) };
    assert_eq!(leave.1[1], entry.1[0], "only the jump that leaves it");
    // ret_plain is reached by a call and by three jumps.
    assert_eq!(of("ret_plain").len(), 8);
    // The inner function is run as part of the outer one.
    assert_eq!(of("inner").len(), 2);
    assert_eq!(of("inner")[1].1[0], 1, "its own offset");
    // Recursion: each return matches the last entry.
    let mut stack = Vec::new();
    for (probe, data) in of("again") {
        if probe.ends_with("entry") {
            stack.push(data[0]);
        } else {
            assert_eq!(stack.pop().unwrap() + 8, data[2]);
        }
    }
    assert_eq!(of("again").len(), 10);
    assert!(stack.is_empty());
}

#[test]
fn guest_pid_children_threads_exec_and_dlopen() {
    let names = ["in_child", "in_thread", "in_exec", "main"].map(|f| format!("pid$target:a.out:{f}:entry"));
    let mut clauses: Vec<&str> = names.iter().map(String::as_str).collect();
    clauses.push("pid$target:libpid.so:shared:entry { push arg, 0; log 1 }");
    let count = |found: &[(String, Vec<u64>)]| {
        let mut counts: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (probe, _) in found {
            let (process, rest) = split(probe);
            counts.entry(rest.to_owned()).or_default().push(process);
        }
        counts
    };
    let found = of_program(&clauses, &[]);
    let counts = count(&found);
    let process = counts["pid:main:entry"][0];
    assert!(!counts.contains_key("pid:in_child:entry"), "a forked child is not traced: {counts:?}");
    assert_eq!(counts["pid:in_thread:entry"], [process; 3], "threads are of their process");
    assert_eq!(counts["pid:in_exec:entry"].len(), 1);
    assert_ne!(counts["pid:in_exec:entry"][0], process);
    assert_eq!(counts["libpid.so:shared:entry"], [process]);
    assert_eq!(found.iter().find(|(probe, _)| probe.contains(":shared:")).unwrap().1, [41]);

    let followed = count(&of_program(&clauses, &["--follow-fork"]));
    assert_eq!(followed["pid:in_child:entry"].len(), 1);
    assert_ne!(followed["pid:in_child:entry"][0], process, "it has its own number");

    // By number: neither the child nor executed programs.
    let numbered: Vec<String> = clauses.iter().map(|c| c.replace("$target", &process.to_string())).collect();
    let by_number: Vec<&str> = numbered.iter().map(String::as_str).collect();
    let counts = count(&hits(&by_number, &[]));
    assert_eq!(counts.values().map(Vec::len).sum::<usize>(), 1 + 3 + 1, "{counts:?}");
    // Any process has this program.
    let any: Vec<String> = clauses.iter().map(|c| c.replace("$target", "*")).collect();
    let any: Vec<&str> = any.iter().map(String::as_str).collect();
    let mut counts = count(&hits(&any, &[]));
    assert_eq!(counts.remove("bash:main:entry").map(|of| of.len()), Some(1));
    assert!(counts.remove("busybox:main:entry").is_some_and(|of| of[0] == 1), "init");
    assert_eq!(counts, followed);
}

#[test]
fn guest_pid_on_every_instruction() {
    let sum = said(&PLAIN.out);
    assert!(sum.contains("ten: 385\nrets: 1 2 3 4 5\njumps: 6 7 0 8\nothers: 9 10 11 120\n"), "{sum}");
    assert!(sum.contains("fork: 7 exec: 15 threads: 12 dlopen: 42\nbash: 42\n"), "{sum}");
    let mut command = patient("sh");
    command
        .args(["-c", "head -c 4000 .guests/busybox-amd64 | sha256sum | cut -d' ' -f1"])
        .current_dir(root());
    assert!(sum.contains(finish(command).out.trim()), "{sum}");
    for (clause, target, least) in [
        ("pid$target:a.out:: { abort }", "/bin/pid", 500),
        ("pid$target:busybox:: { abort }", "sha256sum", 100_000),
    ] {
        let probed = run(&[
            "--console",
            "stdio",
            "--log-to",
            "com2",
            "--com2",
            "none",
            "--rpn",
            clause,
            "--target",
            target,
        ]);
        assert_eq!(said(&probed.out), sum, "{clause}");
        assert_eq!(digest(&probed), digest(&PLAIN), "{clause} was noticed");
        assert!(stat(&probed, "hits") > least, "{}", probed.err);
    }
}

#[test]
fn guest_pid_finds_main_of_stripped_programs() {
    // The argument that _start passes to the C library, from objdump.
    for (file, name) in [(".guests/busybox-amd64", "busybox"), (".guests/bash-amd64", "bash")] {
        let mut command = patient("sh");
        let script = format!(
            "objdump -d --start-address=$(readelf -h {file} | awk '/Entry/{{print $4}}') {file} | grep -m1 'mov .*,%rdi'"
        );
        command.args(["-c", &script]).current_dir(root());
        let line = finish(command).out;
        let main = line.split("$0x").nth(1).unwrap().split(',').next().unwrap().to_owned();
        let by_name = listed(&[&format!("pid*:{name}:main:0"), "-f", "json"]).out;
        let by_address = listed(&[&format!("pid*:{name}:sub_{main}:0"), "-f", "json"]).out;
        let at = |text: &str| {
            let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines
                .filter(|line| line["type"] == "probe")
                .map(|line| line["sites"][0]["address"].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(at(&by_name).len(), 1, "{by_name}");
        assert_eq!(at(&by_name), at(&by_address));
    }
    let found = hits(&["pid*:bash:main:entry", "pid*:a.out:main:entry"], &[]);
    let bash = found.iter().filter(|(probe, _)| probe.contains(":bash:main:")).collect::<Vec<_>>();
    assert_eq!(bash.len(), 2, "{found:?}");
    assert_eq!(bash[0].1[0], 3, "argc");
    assert!(found.iter().filter(|(probe, _)| probe.contains(":busybox:main:")).count() > 2, "{found:?}");
}

#[test]
fn guest_pid_of_another_width() {
    let args = [
        "run",
        ".guests/linux-686",
        "--initrd",
        ".guests/initramfs-i386.cpio.gz",
        "--until",
        "/ # ",
        "--digest",
    ];
    let plain = trapline_from_init(&root(), &[&args[..], &["--console", "none"]].concat());
    let clause = ["--rpn", "pid$target:a.out:main:entry { push arg, 0; log 1 }", "--target", "mount"];
    let probed = trapline_from_init(&root(), &[&args[..], &clause].concat());
    assert_eq!(digest(&probed), digest(&plain));
    let lines: Vec<&str> = probed.out.lines().collect();
    assert!(matches!(lines[..], [line] if line.ends_with(":busybox:main:entry 05000000")), "{lines:?}");
}

#[test]
fn guest_pid_refuses_in_dtraces_words() {
    for (description, target, sentence) in [
        ("pid$target:a.out:main:ent", "/bin/pid", "'ent' is an invalid probe name"),
        ("pid$target:a.out:main:0x10", "/bin/pid", "'0x10' is an invalid probe name"),
        ("pid$target:a.out:ret_zero:6", "/bin/pid", "offset 0x6 outside of function 'ret_zero'"),
        (
            "pid$target:a.out:ret_zero:1",
            "/bin/pid",
            "offset 0x1 is not aligned on an instruction; the nearest are at 0 and 3",
        ),
        (
            "pid$target:a.out:tenn:entry",
            "/bin/pid",
            "failed to lookup 'tenn' in module 'a.out'; did you mean ten",
        ),
        ("pid$target:pid:-:1000", "/bin/pid", "only the a.out module is valid with the '-' function"),
        ("pid$target:a.out:-:entry", "/bin/pid", "'entry' is an invalid probe name"),
        (
            "pid$target:a.out:-:0",
            "/bin/pid",
            "failed to create offset probe for '-': 0x0 is not in the code of /bin/pid",
        ),
        (
            "pid$target:busybox:main:return",
            "/bin/pid",
            "failed to create return probe for 'main': no instruction leaves it",
        ),
        ("pid:a.out:main:entry", "/bin/pid", "'pid' is not a valid provider"),
        ("pid1x:a.out:main:entry", "/bin/pid", "'pid1x' is not a valid provider"),
        ("pid0:a.out:main:entry", "/bin/pid", "'pid0' does not contain a valid pid"),
        ("pid99999999999:a.out:main:entry", "/bin/pid", "'pid99999999999' does not contain a valid pid"),
        (
            "pid$target:a.out:main:entry",
            "/bin/none",
            "a.out is /bin/none, whose file is not known; give it with --file",
        ),
        (
            "pid$target:none:main:entry",
            "/bin/pid",
            "probe description pid$target:none:main:entry does not match any probes",
        ),
    ] {
        // Without $target, --target would be refused first.
        let args = [description, "--target", target];
        let ran = listed(if description.contains("$target") { &args } else { &args[..1] });
        assert!(matches!(ran.code, 2 | 3) && ran.out.is_empty(), "{description}: {}", ran.out);
        let error =
            ran.err.strip_prefix("trapline: error: ").unwrap_or_else(|| panic!("{description}: {}", ran.err));
        assert!(error.starts_with(sentence), "{description}: {error}");
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    }
    let ran = listed(&["pid$target:a.out:main:entry"]);
    assert!(ran.err.contains("'pid$target' needs a process; give --target"), "{}", ran.err);
    for (target, sentence) in
        [("", "it is empty"), ("0", "0 is not a process id"), ("bin/pid", "bin/pid is not an absolute path")]
    {
        assert!(listed(&["pid$target:::entry", "--target", target]).err.contains(sentence), "{target}");
    }
    let ran = listed(&["pid$target:::entry", "--target", "12", "--follow-fork"]);
    assert!(ran.err.contains("--follow-fork needs --target NAME or PATH"), "{}", ran.err);
}

#[test]
fn guest_pid_aliases_and_absolute_addresses() {
    let functions = |description: &str| -> Vec<String> {
        let ran = listed(&[description, "--target", "/bin/pid", "-f", "json"]);
        let lines = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let probes = lines.filter(|line| line["type"] == "probe");
        probes.map(|line| line["function"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(functions("pid$target:a.out:*alias:entry"), ["alias"], "the one with the fewest underscores");
    assert_eq!(functions("pid$target:a.out:_alias:entry"), ["_alias"], "unless another is named");
    let ten = symbol(Path::new(&GUEST.program()), "ten");
    let site = |description: &str| {
        let ran = listed(&[description, "--target", "/bin/pid", "-f", "json"]);
        let probe: Value =
            serde_json::from_str(ran.out.lines().nth(1).unwrap_or_else(|| panic!("{}", ran.err))).unwrap();
        probe["sites"][0]["address"].clone()
    };
    assert_eq!(site(&format!("pid$target:a.out:-:{ten:x}")), site("pid$target:a.out:ten:entry"));
    let ran = listed(&[&format!("pid$target:a.out:-:{:x}", ten + 2), "--target", "/bin/pid"]);
    assert!(
        ran.err.contains(&format!("offset {:#x} is not aligned on an instruction", ten + 2)),
        "{}",
        ran.err
    );
}

#[test]
fn guest_pid_needs_a_system_whose_tasks_are_known() {
    let file = "/bin/busybox=.guests/busybox-i386";
    let args = ["run", ".guests/gnumach", "--file", file, "--limit-insns", "1000000", "-q", "--rpn"];
    let ran = trapline(&root(), &[&args[..], &["pid1:busybox:main:entry"]].concat());
    assert_eq!(ran.code, 3, "{}", ran.err);
    let sentence = "the current process is unknown, because the tasks of this guest's system cannot be read";
    assert!(ran.err.contains(sentence), "{}", ran.err);
    let ran = trapline(&root(), &[&args[..], &["pid*:busybox:main:entry"]].concat());
    assert_eq!((ran.code, ran.out.as_str()), (124, ""), "{}", ran.err);
}

/// A program that the guest has copied or linked counts as the known file and as its process's program.
#[test]
fn guest_pid_a_out_of_copies_and_hard_links() {
    let script = "mount -t tmpfs none /sys\ncp /bin/busybox /sys/copy\nln /bin/busybox /link\n\
                  /sys/copy echo copied\n/link echo linked\necho copies: end\npoweroff -f\n";
    let linux = trapline_tests::linux::KERNELS.iter().find(|linux| linux.flavour == "cloud-amd64").unwrap();
    let folder = TempDir::new().unwrap();
    let initrd = linux.image(folder.path(), &[], &[], script).unwrap().display().to_string();
    let names = "pid*:a.out:main:entry { push 40; push arg, 1; push mem, u64; log str }";
    let args = ["run", KERNEL, "--initrd", &initrd, "--until", "copies: end", "--rpn", names, "-f", "json"];
    let ran = trapline_from_init(&root(), &[&args[..], &["--console", "none"]].concat());
    let lines = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let data: Vec<String> =
        lines.filter_map(|line| line["data"].as_str().map(|data| data[6..].to_owned())).collect();
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    for name in ["/sys/copy", "/link"] {
        assert!(data.contains(&hex(name)), "{name}: {data:?} {}", ran.err);
    }
}
