//! Names of programs' code on Linux: what a process has mapped decides, not which file of the guest covers the address.
//!
//! Three programs are linked at one address, and a fourth can be mapped anywhere; their bytes are equal. The oracle is the
//! source: each program runs only its own function.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, finish, patient, trapline_from_init};
use std::collections::BTreeSet;
use std::sync::LazyLock;
use tempfile::TempDir;
use trapline_tests::{guest, root};

const KERNEL: &str = ".guests/linux-cloud-amd64";
const INIT: &str = "#!/bin/busybox sh
/bin/two
/bin/three
/bin/anywhere
echo 'spin: end'
/bin/busybox poweroff -f
";
/// The programs in the order of the archive: path, name of the function, and how each is linked.
const PROGRAMS: [(&str, &str, &[&str]); 4] = [
    ("one", "first", &["-static", "-no-pie"]),
    ("two", "second", &["-static", "-no-pie"]),
    ("three", "third", &["-static", "-no-pie"]),
    ("anywhere", "fourth", &["-static-pie", "-fpie"]),
];

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let mut list = std::fs::read_to_string(root().join("guest-images/initramfs/base.list")).unwrap();
    let flags = ["-O1", "-nostdlib", "-fcf-protection=none", "-fno-omit-frame-pointer"];
    for (name, function, linked) in PROGRAMS {
        let function = format!("-DFUNCTION={function}");
        let more = [&function, "-o", &at(name), "tests/tests/user_symbols/spin.c"];
        tool("gcc", &[&flags[..], linked, &more].concat());
        list.push_str(&format!("file /bin/{name} {name} 755\n"));
    }
    std::fs::copy(guest("busybox-amd64"), at("busybox")).unwrap();
    std::fs::write(at("init"), INIT).unwrap();
    std::fs::write(at("list"), list).unwrap();
    tool("scripts/guests/newc", &["--root", &at(""), &at("list"), &at("initramfs.cpio")]);
    folder
});

fn tool(name: &str, args: &[&str]) {
    let mut command = patient(name);
    command.args(args).current_dir(root());
    let ran = finish(command);
    assert_eq!(ran.code, 0, "{name} {args:?}: {}", ran.err);
}

fn run(more: &[&str]) -> Ran {
    let initrd = FOLDER.path().join("initramfs.cpio").display().to_string();
    let args = ["run", KERNEL, "--initrd", &initrd, "--until", "spin: end", "-q"];
    let ran = trapline_from_init(&root(), &[&args[..], more].concat());
    assert_eq!(ran.code, 0, "{more:?}: {}{}", ran.out, ran.err);
    ran
}

/// The lines of a D program's output, without spaces around them.
fn lines(program: &str) -> BTreeSet<String> {
    let out = run(&["-x", "quiet", "-n", program, "--console", "none"]).out;
    out.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn expected(shown: impl Fn(&str, &str) -> String) -> BTreeSet<String> {
    PROGRAMS[1..].iter().map(|(name, function, _)| shown(name, function)).collect()
}

#[test]
fn d_names_code_of_programs_by_what_their_process_has_mapped() {
    // Nearly all samples are in the loop.
    let program = |values: &str| {
        format!(
            "profile-4999hz /arg1 && (execname == \"two\" || execname == \"three\" || execname == \"anywhere\")/ {{ {values} }}"
        )
    };
    let printed = |format: &str, values: &str| {
        lines(&program(&format!("printf(\"%s {format}\\n\", execname, {values})")))
    };
    let function = |name: &str, function: &str| format!("{name} {name}`{function}");
    assert_eq!(printed("%s", "usym(arg1)"), expected(function));
    assert_eq!(printed("%s", "ufunc(arg1)"), expected(function));
    assert_eq!(printed("%s", "umod(arg1)"), expected(|name, _| format!("{name} {name}")));
    for offset in [printed("%A", "arg1"), printed("%a", "arg1"), printed("%s", "uaddr(arg1)")] {
        let without: BTreeSet<String> =
            offset.iter().map(|line| line.split('+').next().unwrap().to_owned()).collect();
        assert_eq!(without, expected(function), "{offset:?}");
    }
}

#[test]
fn the_stack_and_the_caller_of_a_program_have_the_names_of_its_own_file() {
    let stacks = lines(
        "pid*:two:second:entry, pid*:three:third:entry, pid*:anywhere:fourth:entry
         { ustack(3); printf(\"%s caller %A\\n\", execname, ucaller); }",
    );
    for (name, function, _) in &PROGRAMS[1..] {
        assert!(stacks.contains(&format!("{name}`{function}")), "{stacks:?}");
        assert!(stacks.iter().any(|line| line.starts_with(&format!("{name}`program+0x"))), "{stacks:?}");
        let caller = format!("{name} caller {name}`program+0x");
        assert!(stacks.iter().any(|line| line.starts_with(&caller)), "{stacks:?}");
    }
    assert!(!stacks.iter().any(|line| line.contains("first")), "{stacks:?}");
}

#[test]
fn keys_of_aggregations_have_one_entry_for_each_function_and_file() {
    let found = lines(
        "profile-4999hz /arg1 && execname != \"busybox\" && execname != \"init\"/ { @[usym(arg1)] = count(); }",
    );
    for (name, function, _) in &PROGRAMS[1..] {
        let own = found.iter().filter(|line| line.starts_with(&format!("{name}`{function} "))).count();
        assert_eq!(own, 1, "{found:?}");
    }
    assert!(!found.iter().any(|line| line.contains("first")), "{found:?}");
}

#[test]
fn a_probe_of_a_program_does_not_fire_in_one_with_an_equal_page() {
    let hits =
        lines("pid*:two:second:entry, pid*:one:first:entry { printf(\"%s %s\\n\", execname, probefunc); }");
    assert_eq!(hits.iter().map(String::as_str).collect::<Vec<_>>(), ["two second"]);
    let hits = lines("spin:two::start, spin:one::start { printf(\"%s %s\\n\", execname, probemod); }");
    assert_eq!(hits.iter().map(String::as_str).collect::<Vec<_>>(), ["two two"]);
    for (program, hits) in [("two", 1), ("one", 0)] {
        let text = format!(
            "name = {program}\nmodtype = user\nmajor = 1\noffset = program\nopcode = 0x55\nminor = 1\npush 1\nlog 1\nexit\n"
        );
        let file = FOLDER.path().join(format!("{program}.rpn"));
        std::fs::write(&file, text).unwrap();
        let out = run(&["-p", &file.display().to_string(), "--console", "none", "--header", "name"]).out;
        assert_eq!(out.lines().count(), hits, "{program}: {out}");
        assert!(out.lines().all(|line| line.contains(&format!("name={program}"))), "{out}");
    }
}

#[test]
fn who_wrote_names_the_instruction_of_the_process_that_wrote() {
    let recording = FOLDER.path().join("run.tlr").display().to_string();
    let initrd = FOLDER.path().join("initramfs.cpio").display().to_string();
    let record = ["record", KERNEL, "--initrd", &initrd, "--until", "spin: end", "-q", "-o", &recording];
    let mut command = patient(crate::cli::binary());
    command.args(record).current_dir(root());
    assert_eq!(finish(command).code, 0);
    let mut nm = patient("nm");
    nm.arg(FOLDER.path().join("three"));
    let symbols = finish(nm).out;
    let line = symbols.lines().find(|line| line.ends_with(" n")).unwrap();
    let address = format!("0x{}", line.split(' ').next().unwrap());
    let mut ask = patient(crate::cli::binary());
    ask.args(["replay", &recording, "--who-wrote", &address, "-q"]).current_dir(root());
    let told = finish(ask).out;
    let ip = told.lines().find(|line| line.contains(":third+0x")).unwrap_or_else(|| panic!("{told}"));
    assert!(ip.contains(" three:third+0x"), "{told}");
    assert!(!told.contains("first") && !told.contains("second"), "{told}");
}
