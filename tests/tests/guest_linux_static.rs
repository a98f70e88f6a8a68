//! Static probes of programs that run in a Linux guest: semaphores, USDT and is-enabled sites, macro-declared probes,
//! and the probes that Debian's python3.11 and libstdc++ have. The guest's programs are compiled here.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use crate::cli::{Ran, trace_file_prints_the_run, trapline, trapline_from_init};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use trapline_emu::load::ElfView;
use trapline_providers::sdt::{CallSites, Domain};
use trapline_session::{GuestBuilder, GuestTypes};
use trapline_tests::{guest, guests_of, root};

const KERNEL: &str = ".guests/linux-cloud-amd64";
/// How `shop.c` is linked: its relocations are kept, as `dtrace -G` needs them.
const SHOP: [&str; 3] = ["-Wl,-q", "-Wl,-z,lazy", "-Wl,--unresolved-symbols=ignore-all"];

fn source(name: &str) -> PathBuf {
    root().join("tests/tests/static").join(name)
}

fn run_tool(mut command: Command) {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Compiles a program into `folder`.
fn compile(folder: &Path, compiler: &str, file: &str, flags: &[&str]) -> PathBuf {
    let to = folder.join(file.split('.').next().unwrap());
    let mut command = Command::new(compiler);
    command
        .args(["-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("guest-images/include"));
    command.arg("-o").arg(&to).arg(source(file)).args(flags);
    run_tool(command);
    to
}

/// The shop, as prepared by a loader that supports USDT.
fn shop(folder: &Path) -> PathBuf {
    shop_with(folder, &[])
}

fn shop_with(folder: &Path, flags: &[&str]) -> PathBuf {
    let path = compile(folder, "gcc", "shop.c", &[&SHOP[..], flags].concat());
    let mut file = std::fs::read(&path).unwrap();
    let sites = CallSites::read(&ElfView::parse(&file).unwrap(), Domain::User).unwrap();
    assert_eq!((sites.sites.len(), sites.refused.len()), (2, 0), "{:?}", sites.refused);
    sites.load_into(&mut file);
    std::fs::write(&path, file).unwrap();
    path
}

/// A guest that runs the lines of `test`, with these files at its root.
struct Guest {
    folder: TempDir,
    initrd: String,
}

impl Guest {
    fn new(folder: TempDir, files: &[PathBuf], test: &str) -> Self {
        std::fs::write(folder.path().join("test.sh"), test).unwrap();
        let mut list = format!("file /test {} 644\n", folder.path().join("test.sh").display());
        for file in files {
            let name = file.file_name().unwrap().to_str().unwrap();
            list.push_str(&format!("file /{name} {} 755\n", file.display()));
        }
        std::fs::write(folder.path().join("list"), list).unwrap();
        let added = folder.path().join("added.cpio");
        let mut command = Command::new(root().join("scripts/guests/newc"));
        command.arg(folder.path().join("list")).arg(&added);
        run_tool(command);
        let mut image = std::fs::read(guest("static-amd64.cpio")).unwrap();
        image.extend(std::fs::read(added).unwrap());
        let path = folder.path().join("initrd");
        std::fs::write(&path, image).unwrap();
        Self { initrd: path.to_str().unwrap().to_owned(), folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Runs it to its end; what it wrote on the console is there too.
    fn run(&self, more: &[&str]) -> (Ran, Vec<String>) {
        self.run_on(KERNEL, more)
    }

    /// The same with another kernel.
    fn run_on(&self, kernel: &str, more: &[&str]) -> (Ran, Vec<String>) {
        let console = self.path("console");
        let args = ["run", kernel, "--initrd", &self.initrd, "--until", "static: end", "--console", &console];
        let ran = trapline_from_init(
            &root(),
            &[&args[..], &["--limit-insns", "20000000000", "--stats"], more].concat(),
        );
        assert_eq!(ran.code, 0, "{}", ran.err);
        let text = String::from_utf8_lossy(&std::fs::read(console).unwrap()).into_owned();
        let own = text.lines().skip_while(|line| !line.contains("Run /init")).skip(1);
        (ran, own.filter(|line| !line.starts_with('[')).map(str::to_owned).collect())
    }
}

/// The data of each record of the probe called `name`, as hexadecimal digits.
fn records<'a>(ran: &'a Ran, name: &str) -> Vec<&'a str> {
    let lines = ran.out.lines().filter_map(|line| line.split_once("probe="));
    let named = lines.filter_map(|(_, rest)| rest.split_once(' '));
    named.filter(|(probe, _)| probe.ends_with(name)).map(|(_, data)| data).collect()
}

/// The words of a record.
fn words(data: &str) -> Vec<i64> {
    let byte = |n| u8::from_str_radix(&data[n..n + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..data.len()).step_by(2).map(byte).collect();
    bytes.chunks(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect()
}

fn stat(ran: &Ran, name: &str) -> u64 {
    let line = ran.err.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().parse().unwrap()
}

/// Without any probe.
const DORMANT: [&str; 8] = [
    "first: 0 answers",
    "first: sale 0 refund 0 checkout off",
    "child: 0 answers",
    "child: sale 0 refund 0 checkout off",
    "first?",
    "then: 0 answers",
    "then: sale 0 refund 0 checkout off",
    "second?",
];

#[test]
fn guest_programs_see_their_static_probes_while_they_are_enabled() {
    programs_see_their_static_probes(KERNEL);
}

/// Kernels that keep the mappings of processes in other ways, and larger ones.
const OTHER_KERNELS: [&str; 6] = [
    ".guests/linux-amd64",
    ".guests/linux-5.10-cloud-amd64",
    ".guests/linux-5.10-amd64",
    ".guests/linux-6.12-cloud-amd64",
    ".guests/linux-6.12-amd64",
    ".guests/linux-testing-cloud-amd64",
];

#[test]
fn guest_programs_on_kernels_of_any_release_see_their_static_probes_at_length() {
    for kernel in OTHER_KERNELS {
        programs_see_their_static_probes(kernel);
    }
}

fn programs_see_their_static_probes(kernel: &str) {
    let folder = TempDir::new().unwrap();
    let shop = shop(folder.path());
    let sum: String =
        Sha256::digest(std::fs::read(&shop).unwrap()).iter().map(|b| format!("{b:02x}")).collect();
    let guest = Guest::new(folder, &[shop], "/shop first\nsha256sum /shop\n/shop first\n");
    let sums = format!("{sum}  /shop");

    let (_, plain) = guest.run_on(kernel, &[]);
    let once = [&DORMANT[..], &["last: 0 answers", "last: sale 0 refund 0 checkout off"]].concat();
    let whole = [&once[..], &[&*sums], &once[..], &["static: end"]].concat();
    assert_eq!(plain, whole, "{kernel}");

    let (ran, seen) =
        guest.run_on(kernel, &["-n", "shop:::sale,shop:::order-placed", "-n", "sdt:shop::checkout"]);
    let enabled = |who: &str| [format!("{who}: 2 answers"), format!("{who}: sale 1 refund 0 checkout on")];
    let once: Vec<String> = [
        &enabled("first")[..],
        &enabled("child"),
        &["first?".to_owned()],
        &enabled("then"),
        &["second?".to_owned()],
        &enabled("last"),
    ]
    .concat();
    let end = ["static: end".to_owned()];
    assert_eq!(
        seen,
        [&once[..], std::slice::from_ref(&sums), &once, &end].concat(),
        "{kernel}: the file is unchanged"
    );
    // Two processes, each with a child that inherits: semaphore and pointer are raised once in each.
    assert_eq!(stat(&ran, "words_raised"), 4, "{kernel}");
    let numbers = |name: &str, at: usize| -> Vec<i64> {
        records(&ran, name).iter().map(|data| words(data)[at]).collect()
    };
    let calls = [1, 2].repeat(8);
    assert_eq!(numbers("shop:sale:sale", 0), calls);
    assert_eq!(numbers("shop:sale:sale", 2), [-7].repeat(16));
    assert_eq!(numbers("shop:order:order-placed", 0), calls);
    assert_eq!(numbers("shop:order:order-placed", 1), [3, 6].repeat(8));
    assert_eq!(numbers("sdt:shop:sale:checkout", 0), [100, 200].repeat(8));
}

#[test]
fn guest_programs_see_that_static_probes_are_disabled_and_enabled_while_they_run() {
    let folder = TempDir::new().unwrap();
    let shop = shop(folder.path());
    let guest = Guest::new(folder, &[shop], "/shop first\n");
    let program = |spec: &str| {
        format!("name = vmlinux\nmodtype = kernel\noffset = \"{spec}\"\npush arg, 0\nlog 1\nexit\n")
    };
    let names = [("sale", "shop:::sale"), ("again", "shop:::sold-again"), ("order", "shop:::order-placed")];
    let names = names.iter().chain(&[("checkout", "sdt:shop::checkout"), ("refund", "shop:::refund")]);
    let files: Vec<(&str, String)> =
        names.map(|(name, spec)| (*name, guest.write(&format!("{name}.rpn"), &program(spec)))).collect();
    let mut args: Vec<&str> = files.iter().flat_map(|(_, file)| ["-p", file.as_str()]).collect();
    // At the first question all but `again`, which shares its semaphore with `sale`, are disabled; at the second some
    // are enabled again.
    let script = "on console \"first?\" disable sale.rpn\non console \"first?\" disable order.rpn\n\
                  on console \"first?\" disable checkout.rpn\non console \"first?\" disable refund.rpn\n\
                  on console \"second?\" disable again.rpn\non console \"second?\" enable refund.rpn\n\
                  on console \"second?\" enable checkout.rpn\n";
    let script = guest.write("s.script", script);
    args.extend(["--script", &script]);
    let (ran, seen) = guest.run(&args);
    let wanted = [
        "first: 2 answers",
        "first: sale 1 refund 1 checkout on",
        "child: 2 answers",
        "child: sale 1 refund 1 checkout on",
        "first?",
        "then: 0 answers",
        "then: sale 1 refund 0 checkout off",
        "second?",
        "last: 0 answers",
        "last: sale 0 refund 1 checkout on",
        "static: end",
    ];
    assert_eq!(seen, wanted, "{}", ran.err);
}

#[test]
fn guest_a_trace_file_of_every_provider_of_linux_prints_what_the_run_prints_at_length() {
    let folder = TempDir::new().unwrap();
    let shop = shop(folder.path());
    let guest = Guest::new(folder, &[shop], "/shop first\n");
    let string = "push 30; push arg, 0; log str";
    let clauses = [
        "shop:::sale { push arg, 0; log 1; push 5; push u, rsp; log mrf }".to_owned(),
        "shop:::order-placed".to_owned(),
        "sdt:shop::checkout { push arg, 0; log 1 }".to_owned(),
        "sdt:vmlinux:sched:sched_process_fork".to_owned(),
        "tracepoint:vmlinux:sched:sched_process_exec".to_owned(),
        format!("fbt::do_mount:entry,fbt::getname:entry {{ {string} }}"),
        "pid*:shop:main:entry,pid*:shop:main:return".to_owned(),
        "profile:::tick-10ms".to_owned(),
    ];
    let kernel = root().join(KERNEL).display().to_string();
    let mut args = vec!["run", &kernel, "--initrd", &guest.initrd, "--until", "static: end"];
    args.extend(["--limit-insns", "20000000000", "--header", "all", "--stack=4", "--ustack=4"]);
    let begun = trapline_tests::begun::options(&root(), &args).unwrap();
    args.extend(begun.iter().map(String::as_str));
    args.extend(clauses.iter().flat_map(|clause| ["--rpn", clause]));
    let forms: [&[&str]; 3] = [&["--symbols"], &["-f", "json", "--stats"], &["-f", "dtrace"]];
    let text = trace_file_prints_the_run(guest.folder.path(), &args, &forms);
    for wanted in
        ["shop:sale:sale", "shop:order:order-placed", "checkout", "sched_process_fork", "fbt:", "profile:"]
    {
        let probe = |line: &str| line.split_once("probe=").is_some_and(|(_, rest)| rest.contains(wanted));
        assert!(text.lines().any(probe), "{wanted}");
    }
    assert!(text.lines().any(|line| {
        let probe = line.split_once("probe=pid").map(|(_, rest)| rest);
        probe.is_some_and(|rest| {
            rest.starts_with(|c: char| c.is_ascii_digit()) && rest.contains(":main:return")
        })
    }));
}

/// Boots a kernel whose first process is `small.c`, until it has printed its observations.
fn small(folder: &Path, [kernel, initrd]: [&str; 2], more: &[&str]) -> (Ran, String) {
    guests_of(initrd);
    let flags =
        ["-m32", "-ffreestanding", "-nostdlib", "-static", "-no-pie", "-fno-pic", "-fno-stack-protector"];
    let program = compile(folder, "gcc", "small.c", &flags);
    std::fs::write(folder.join("list"), format!("file /init {} 755\n", program.display())).unwrap();
    let mut command = Command::new(root().join("scripts/guests/newc"));
    command.arg(folder.join("list")).arg(folder.join("added.cpio"));
    run_tool(command);
    let mut image = std::fs::read(root().join(initrd)).unwrap();
    // An archive begins at a multiple of four bytes.
    image.resize(image.len().next_multiple_of(4), 0);
    image.extend(std::fs::read(folder.join("added.cpio")).unwrap());
    let paths = ["initrd", "console"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    std::fs::write(&paths[0], image).unwrap();
    let args = ["run", kernel, "--initrd", &paths[0], "--console", &paths[1], "--limit-insns", "20000000000"];
    let ran = trapline_from_init(
        &root(),
        &[&args[..], &["--until", "small: turn 1 done 1", "--stats"], more].concat(),
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    let console = std::fs::read_to_string(&paths[1]).unwrap();
    (ran, console.lines().last().unwrap().to_owned())
}

#[test]
fn guest_32_bit_programs_see_their_static_probes_on_both_kinds_of_kernels_at_length() {
    let narrow = [".guests/linux-686", ".guests/linux-5.10-686"];
    let narrow = narrow.map(|kernel| [kernel, ".guests/initramfs-i386.cpio.gz"]);
    let wide = [KERNEL, ".guests/linux-5.10-cloud-amd64", ".guests/linux-6.12-cloud-amd64"];
    let wide = wide.map(|kernel| [kernel, ".guests/initramfs-amd64.cpio.gz"]);
    for guest in narrow.into_iter().chain(wide) {
        let folder = TempDir::new().unwrap();
        let (ran, seen) = small(folder.path(), guest, &["-n", "small:::,sdt:init::"]);
        assert_eq!(seen, "small: turn 1 done 1", "{guest:?}: {}", ran.err);
        assert_eq!(stat(&ran, "words_raised"), 2);
        // The words of a record are the kernel's.
        let low = |data: &str| u32::from_str_radix(&data[..8], 16).unwrap().swap_bytes() as i32;
        let turns: Vec<i32> = records(&ran, "small:init:turn:turn").iter().map(|data| low(data)).collect();
        let done: Vec<i32> = records(&ran, "sdt:init:turn:done").iter().map(|data| low(data)).collect();
        assert_eq!((turns, done), (vec![1, -2], vec![1, -2]), "{guest:?}");
    }
}

#[test]
fn guest_a_sleeping_process_has_its_semaphore_lowered_at_once() {
    a_sleeping_process_has_its_semaphore_lowered(KERNEL);
}

#[test]
fn guest_a_sleeping_process_on_kernels_of_any_release_has_its_semaphore_lowered_at_length() {
    for kernel in OTHER_KERNELS {
        a_sleeping_process_has_its_semaphore_lowered(kernel);
    }
}

fn a_sleeping_process_has_its_semaphore_lowered(kernel: &str) {
    let folder = TempDir::new().unwrap();
    let shop = shop(folder.path());
    let look = "dd if=/proc/$pid/mem bs=1 skip=$at count=2 2>/dev/null | hexdump -C | sed 1q\n";
    let test = format!(
        "/shop first sleep >/out &\npid=$!\nuntil grep -q ^at /out; do sleep 1; done\n\
         at=$(sed -n 's/^at //p' /out)\n{look}echo disable?\n{look}echo enable?\n{look}kill $pid\n"
    );
    let guest = Guest::new(folder, &[shop], &test);
    let program = "name = vmlinux\nmodtype = kernel\noffset = \"shop:::sale\"\nlog 0\nexit\n";
    let program = guest.write("sale.rpn", program);
    let script = "on console \"disable?\" disable sale.rpn\non console \"enable?\" enable sale.rpn\n";
    let script = guest.write("s.script", script);
    let (ran, seen) = guest.run_on(kernel, &["-p", &program, "--script", &script]);
    let values: Vec<&str> = seen.iter().filter_map(|line| line.strip_prefix("00000000  ")).collect();
    let values: Vec<&str> = values.iter().map(|line| &line[..5]).collect();
    // When enabled again, it is raised when the process next runs.
    assert_eq!(values, ["01 00", "00 00", "00 00"], "{kernel}: {seen:?} {}", ran.err);
}

#[test]
fn guest_arguments_of_notes_have_their_widths_and_a_bad_one_harms_no_other() {
    let folder = TempDir::new().unwrap();
    let shop = shop(folder.path());
    let path = shop.to_str().unwrap().to_owned();
    let guest = Guest::new(folder, &[shop], "/shop first\n");
    let (ran, _) = guest.run(&["-n", "shop:::wide", "--rpn", "shop:::crooked { push arg, 1; log 1 }"]);
    let wanted = [-128, 128, 0x11, -0x7000, 0x9000, -2, 0xffff_fffe, -5, -5, -3, -12, 11];
    assert_eq!(records(&ran, "shop:wide:wide").iter().map(|data| words(data)).collect::<Vec<_>>(), [wanted]);
    assert_eq!(records(&ran, "shop:wide:crooked"), ["feffffffffffffff"]);

    let list = trapline(&root(), &["list", &path, ":::", "-v", "-q"]);
    assert_eq!(list.code, 0, "{}", list.err);
    for sentence in [
        "(unreadable: argument \"-8@%eax\": %eax has 4 bytes, fewer than the size 8, -4@%ecx)",
        "shop:nowhere: its site 0x0 is not in an executable segment of the file",
        "semaphore, 1 in each process while enabled, visible to the guest",
        "is-enabled: answers 1 while enabled, visible to the guest",
        "pointer of a macro-declared probe, visible to the guest  (integer number * 100, string what)",
    ] {
        assert!(list.out.contains(sentence), "{sentence}\n{}", list.out);
    }
    let args = ["run", KERNEL, "--initrd", &guest.initrd, "--rpn", "shop:::crooked { push arg, 0; log 1 }"];
    let refused = trapline(&root(), &args);
    let sentence = "the handler has `push arg, 0`, but shop:shop:wide:crooked has no such argument";
    assert!(refused.code != 0 && refused.err.contains(sentence), "{}", refused.err);
}

#[test]
fn guest_python_enters_functions_and_libstdcxx_throws() {
    let folder = TempDir::new().unwrap();
    let thrower = compile(folder.path(), "g++", "throw.cc", &[]);
    let test = "python3.11 -S -E -I /visit.py\n/throw\n";
    let guest = Guest::new(folder, &[thrower, source("visit.py")], test);
    let strings = "push 60; push arg, 1; log str; push 60; push arg, 0; log str";
    let entry = format!("python:::function-entry {{ push arg, 2; log 1; {strings} }}");
    let (ran, seen) = guest.run(&["--rpn", &entry, "-n", "libstdcxx:::throw"]);
    assert!(seen.contains(&"sum 44".to_owned()), "{seen:?}");
    let entered = records(&ran, "function-entry");
    let file = "\"/visit.py\"";
    let own: Vec<&str> = entered.iter().copied().filter(|data| data.ends_with(file)).collect();
    let counter = |line: u64| format!("{line:02x}00000000000000 \"counter\" {file}");
    // Thrown into, and closed at the end, which throws too.
    assert_eq!(own, [counter(4), counter(6), counter(4), counter(6)], "{entered:?}");
    assert_eq!(stat(&ran, "words_raised"), 1, "libstdc++'s probes have no semaphores");

    let caught = seen.iter().filter_map(|line| line.strip_prefix("caught "));
    let caught: Vec<Vec<i64>> = caught
        .map(|line| line.split(' ').map(|at| i64::from_str_radix(&at[2..], 16).unwrap()).collect())
        .collect();
    let thrown: Vec<Vec<i64>> =
        records(&ran, "libstdc++.so.6:__cxa_throw:throw").iter().map(|d| words(d)).collect();
    assert_eq!((thrown.len(), &thrown), (2, &caught), "object and type");
}

#[test]
fn guest_python_is_probed_by_pid_too() {
    let folder = TempDir::new().unwrap();
    let guest = Guest::new(folder, &[source("visit.py")], "python3.11 -S -E -I /visit.py\n");
    // Its main was stripped: found as the argument that `_start` passes to the C library.
    let probes = [
        "pid$target:a.out:{main,Py_BytesMain}:entry { push arg, 0; log 1 }",
        "pid$target:a.out:Py_RunMain:return { push ret; log 1 }",
        "pid$target:a.out:main:return { push 7; log 1 }",
        "pid$target:libc.so.6:write:entry { push arg, 2; push arg, 0; log 2 }",
    ];
    let mut args = vec!["--target", "/usr/bin/python3.11"];
    probes.iter().for_each(|probe| args.extend(["--rpn", probe]));
    let (ran, seen) = guest.run(&args);
    assert!(seen.contains(&"sum 44".to_owned()), "{seen:?}");
    let said = |name: &str| -> Vec<Vec<i64>> { records(&ran, name).iter().map(|data| words(data)).collect() };
    for function in ["main", "Py_BytesMain"] {
        assert_eq!(said(&format!("python3.11:{function}:entry")), [[5]], "arguments of the command line");
    }
    assert_eq!(said("python3.11:Py_RunMain:return"), [[0]], "the exit status");
    assert_eq!(
        said("python3.11:main:return"),
        [[7]],
        "a jump to Py_BytesMain, which has no value to return yet"
    );
    assert!(
        said("libc.so.6:write:entry").contains(&vec![1, 7]),
        "standard output and \"sum 44\\n\": {}",
        ran.out
    );
}

#[test]
fn guest_functions_of_a_program_with_debugging_information_have_typed_arguments() {
    let folder = TempDir::new().unwrap();
    let typed = compile(folder.path(), "gcc", "typed.c", &["-g"]);
    let shop = shop_with(folder.path(), &["-g"]);
    let guest = Guest::new(folder, &[typed, shop], "/typed\n/shop wood\n");
    let clause = "pid*:typed:area:entry { printf(\"%d %s %d\", args[0]->x, stringof(args[0]->name), args[1]); } \
                  pid*:typed:area:return { printf(\"%d\", args[1]); } \
                  shop:::sale { printf(\"sale %d %s %d\", args[0], copyinstr(args[1]), args[2]); } \
                  shop:::order-placed { printf(\"order %d %d\", args[0], args[1]); } \
                  sdt:shop::checkout { printf(\"checkout %d %s\", args[0], copyinstr((uintptr_t)args[1])); }";
    let (ran, seen) =
        guest.run(&["-x", "quiet", "-n", "pid*:typed:area:entry,pid*:typed:area:return", "-n", clause]);
    assert!(seen.contains(&"area -12".to_owned()), "{seen:?}");
    assert!(ran.out.contains(" area(p=0x"), "{}", ran.out);
    assert!(ran.out.contains(" {x=-3, name=\"here\", flags=5}, scale=4)\n"), "{}", ran.out);
    assert!(ran.out.contains(" area() = -12\n"), "{}", ran.out);
    for line in ["sale 1 wood -7", "checkout 200 wood", "order 2 6"] {
        assert!(ran.out.contains(line), "{line}: {}", ran.out);
    }
    let image = GuestBuilder::image(root().join(KERNEL).to_str().unwrap()).initrd(guest.initrd.as_str());
    let types = Arc::new(GuestTypes::new(Arc::clone(image.open().unwrap().target())));
    for (probe, wanted) in [
        ("shop:shop:sale:sale", &["uint64_t", "uint64_t", "int32_t"][..]),
        ("shop:shop:order:order-placed", &["long", "long"]),
        ("sdt:shop:sale:checkout", &["int64_t", "char *"]),
        ("shop:shop:wide:crooked", &[]),
    ] {
        assert_eq!(types.argument_names(probe), wanted, "{probe}");
    }
    assert!(
        ran.out.contains("-3 here 4") && ran.out.lines().any(|line| line.starts_with("-12")),
        "{}",
        ran.out
    );
}
