//! The output of `list`, `check`, the help and every kind of bad input. No guest runs here.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const KERNEL_PROBE: &str = "name = vmlinux\nmodtype = kernel\nmajor = 2\n";

/// A folder with the files that the cases name.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn trapline(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
    command.args(args).current_dir(folder).env_clear().output().unwrap()
}

/// Command line, exit code, standard output and standard error as one text.
fn shown(folder: &Path, args: &[&str]) -> String {
    let output = trapline(folder, args);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    format!("$ trapline {}\n{out}{err}[exit {code}]\n", args.join(" "))
}

/// One case after the other.
fn session(folder: &TempDir, cases: &[&[&str]]) -> String {
    let shown: Vec<String> = cases.iter().map(|args| shown(folder.path(), args)).collect();
    shown.join("\n")
}

fn probe(location: &str, opcode: &str) -> String {
    format!("{KERNEL_PROBE}offset = {location}\nopcode = {opcode}\nminor = 1\npush pid\nlog 1\nexit\n")
}

#[test]
fn help() {
    let folder = folder(&[]);
    let commands =
        ["run", "record", "replay", "tui", "verify", "list", "dis", "check", "build", "demo", "trace"]
            .map(|command| [command, "-h"]);
    let mut cases: Vec<&[&str]> = vec![&["-h"]];
    cases.extend(commands.iter().map(<[&str; 2]>::as_slice));
    insta::assert_snapshot!(session(&folder, &cases));
}

#[test]
fn list() {
    let folder = folder(&[]);
    let cases: &[&[&str]] = &[
        &["list", "embedded:ia32", "do_*", "--opcode"],
        &["list", "embedded:ia32", "[!a-l]a?n", "--bytes"],
        &["list", "embedded:ia32", "main", "-f", "json", "-q"],
        &["list", "embedded:ia32", "do_frok"],
        &["list", "embedded:ia32", "[a"],
        &["list", "embedded:pdp11"],
        &["list", "nothere"],
        &["list", "embedded:ia32", "--modules"],
        &["list", "embedded:ia32", "--mem", "64M"],
        &["list", "embedded:ia32", "--at", "3M"],
        &["list", "embedded:ia32", "--at", "insns=3M", "--until", "x"],
        &["list", "embedded:ia32", "--limit-insns", "3"],
        &["list", "embedded:ia32", "do_fork", "--processes", "--at", "insns=3M"],
        &["run", "embedded:ia32", "--output", "records.txt"],
    ];
    insta::assert_snapshot!(session(&folder, cases));
}

#[test]
fn probes() {
    let folder = folder(&[(
        "spec.rpn",
        b"name = vmlinux\nmodtype = kernel\noffset = \"fbt::do_frok:entry\"\nexit\n".as_slice(),
    )]);
    let cases: &[&[&str]] = &[
        &["list", "embedded:ia32", "fbt::do_[ef]*:", "-v", "--opcode"],
        &["list", "embedded:x86_64", "fbt::do_fork:", "-v", "--fbt", "strict"],
        &["list", "embedded:ia32", "::halt:", "-f", "json", "-q"],
        &["list", "embedded:ia32", "fbt::do_frok:entry"],
        &["list", "embedded:ia32", "a:b:c:d:e"],
        &["list", "embedded:ia32", "::[a:"],
        &["list", "embedded:ia32", "pid1::no*such:"],
        &["list", "embedded:ia32", "fbt:::", "--abi", "sysv"],
        &["list", "embedded:ia32", "fbt:::", "--abi", "pascal"],
        &["run", "embedded:ia32", "-n", ""],
        &["run", "embedded:ia32", "--rpn", "fbt::do_fork:entry { push rat; log 1"],
        &["run", "embedded:ia32", "--rpn", "fbt::do_fork:entry / jnz / { psh ret; log 1 }"],
        &["run", "embedded:ia32", "--rpn", "fbt::do_fork:entry { push ret; log 1 }"],
        &["run", "embedded:ia32", "--rpn", "fbt::do_fork:entry { vars = 3 }"],
        &["run", "embedded:ia32", "-n", "fbt::nosuch:entry"],
        &["run", "embedded:ia32", "-p", "spec.rpn"],
        &["run", "embedded:ia32", "-n", "fbt::do_fork:", "-f", "dtrace", "--symbols"],
        &["run", "embedded:ia32", "-n", "fbt::do_fork:", "-f", "dtrace", "--stack=2", "--stop-after", "3"],
    ];
    insta::assert_snapshot!(session(&folder, cases));
}

#[test]
fn dis() {
    let inside = probe("privileged + 1", "0x89") + &probe("do_fork", "0x55")[KERNEL_PROBE.len()..];
    let user = "name = appln\nmajor = 1\noffset = work\nopcode = 0x55\nminor = 1\nexit\n";
    let folder = folder(&[
        ("two.rpn", inside.as_bytes()),
        ("work.rpn", user.as_bytes()),
        ("opcode.rpn", probe("do_fork", "0x83").as_bytes()),
    ]);
    let cases: &[&[&str]] = &[
        &["dis", "embedded:ia32", "privileged", "-p", "two.rpn"],
        &["dis", "embedded:ia32", "privileged", "-p", "two.rpn", "--armed"],
        &["dis", "embedded:ia32", "appln:work", "-p", "work.rpn", "--armed", "-q"],
        &["dis", "embedded:ia32", "put", "--armed", "-q"],
        &["dis", "embedded:ia32", "halt", "-f", "json", "--armed", "-q"],
        &["dis", "embedded:ia32", "do_frok"],
        &["dis", "embedded:ia32", "appln:mian"],
        &["dis", "embedded:ia32", "nothere:main"],
        &["dis", "embedded:ia32", "current_task"],
        &["dis", "embedded:ia32", "put", "-p", "opcode.rpn"],
    ];
    insta::assert_snapshot!(session(&folder, cases));
}

/// The key of RFC 8032, 7.1, test 1.
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
                   -----END PRIVATE KEY-----\n";
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
                      -----END PUBLIC KEY-----\n";

#[test]
fn build() {
    let wide = format!("{KERNEL_PROBE}offset = f\nopcode = 0x55\nminor = 1\npush r, rax\nlog VALUE\nexit\n");
    let bad = format!("{KERNEL_PROBE}offset = f\nopcode = 0x55\npsh pid\n");
    let bell = format!("{KERNEL_PROBE}offset = \"\u{7}\"\nopcode = 0x55\n");
    let user = "name = appln\ngroupdef = a\noffset = main - 1\nopcode = 0x55\ngroup = A\nagain: dup 1\n// so\njz again\n";
    let folder = folder(&[
        ("good.rpn", probe("do_fork", "0x55").as_bytes()),
        ("user.rpn", user.as_bytes()),
        ("wide.rpn", wide.as_bytes()),
        ("bad.rpn", bad.as_bytes()),
        ("bell.rpn", bell.as_bytes()),
        ("frok.rpn", probe("do_frok + 4", "0x55").as_bytes()),
        ("newer.ppdf", b"\x89PPDF\r\n\x1a\x02\0\x01\0"),
        ("cut.ppdf", b"\x89PPDF\r\n\x1a\x01\0"),
        ("key", KEY.as_bytes()),
        ("key.pub", PUBLIC.as_bytes()),
    ]);
    let cases: &[&[&str]] = &[
        &["build", "good.rpn"],
        &["check", "good.ppdf", "--width", "32", "--disassemble"],
        &["dis", "good.ppdf"],
        &["build", "--build-ppdf", "user.rpn", "-o", "u", "--sign", "key"],
        &["dis", "u"],
        &["dis", "u", "-f", "json"],
        &["check", "u", "--require-signed", "key.pub"],
        &["check", "good.ppdf", "--require-signed", "key.pub"],
        &["check", "u", "--require-signed", "key"],
        &["build", "good.ppdf", "-o", "signed.ppdf", "--sign", "key", "-q"],
        &["check", "signed.ppdf", "--require-signed", "key.pub", "--width", "64"],
        &["build", "wide.rpn", "-D", "VALUE=1"],
        &["build", "wide.rpn", "-D", "VALUE=1", "--width", "32"],
        &["build", "frok.rpn", "-q"],
        &["run", "embedded:ia32", "-p", "frok.ppdf"],
        &["build", "bad.rpn"],
        &["build", "bell.rpn"],
        &["build", "good.ppdf"],
        &["build", "good.rpn", "-o", "nothere/good.ppdf"],
        &["build", "good.rpn", "--sign", "key.pub"],
        &["build", "good.rpn", "--sign", "good.rpn"],
        &["build"],
        &["build", "--new-key", "key"],
        &["check", "newer.ppdf", "cut.ppdf"],
        &["dis", "good.ppdf", "do_fork"],
        &["dis", "good.ppdf", "--armed"],
        &["dis", "embedded:ia32"],
        &["dis", "newer.ppdf"],
    ];
    insta::assert_snapshot!(session(&folder, cases));
}

#[test]
fn check() {
    let log64 = format!("{KERNEL_PROBE}offset = f\nopcode = 0x55\nminor = 1\npush r, rax\nlog 1\nexit\n");
    let poke = format!("{KERNEL_PROBE}offset = f\nopcode = 0x55\nminor = 1\npush VALUE\npop r, eax\nexit\n");
    let bad =
        format!("{KERNEL_PROBE}offset = f\nopcode = 0x55\nminor = 1\npsh pid\nlog\njmp nowhere\nexit\n");
    let folder = folder(&[
        ("good.rpn", probe("do_fork", "0x55").as_bytes()),
        ("wide.rpn", log64.as_bytes()),
        ("poke.rpn", poke.as_bytes()),
        ("bad.rpn", bad.as_bytes()),
        ("empty.rpn", b""),
        ("binary.rpn", b"name = \xff\xfe"),
    ]);
    let cases: &[&[&str]] = &[
        &["check", "good.rpn"],
        &["check", "good.rpn", "--disassemble", "--width", "32"],
        &["check", "wide.rpn"],
        &["check", "wide.rpn", "-q"],
        &["check", "wide.rpn", "--width", "32"],
        &["check", "poke.rpn", "-D", "VALUE=5"],
        &["check", "bad.rpn", "--color", "never"],
        &["check", "empty.rpn"],
        &["check", "binary.rpn"],
        &["check", "nothere.rpn", "good.rpn"],
        &["check", "good.rpn", "--width", "33"],
    ];
    insta::assert_snapshot!(session(&folder, cases));
}

#[test]
fn check_preprocesses_and_explains() {
    let macros = format!(
        "{KERNEL_PROBE}#include \"site.rpn\"\n#if WANTED > 1\noffset = SITE(4)\n#else\n#error WANTED is too small\n\
         #endif\nopcode = 0x55\n\n#include <trapline/counter.rpn>\npsh WANTED\n"
    );
    let folder = folder(&[
        ("macros.rpn", macros.as_bytes()),
        ("site.rpn", b"#pragma once\n#define SITE(n) do_fork + n\n"),
        ("bad.rpn", b"name = t\noffset = 0\nopcode = 1\nagain: jmp again\n"),
        ("include.rpn", b"#include \"/dev/zero\"\n#include \"nothere.rpn\"\n#include <trapline/bit.rpn>\n"),
    ]);
    let cases: &[&[&str]] = &[
        &["check", "-E", "macros.rpn", "-D", "WANTED=3"],
        &["check", "-E", "macros.rpn"],
        &["check", "macros.rpn", "-D", "WANTED = 3", "-f", "json"],
        &["check", "bad.rpn", "-f", "json"],
        &["check", "bad.rpn"],
        &["check", "include.rpn", "-D", "1x"],
        &["check", "--explain", "endless-loop"],
        &["check", "--explain", "endles-loop"],
        &["check", "--explain", "xyzzy"],
        &["check", "--explain", "useless", "-f", "json"],
        &["check", "--explain", "list"],
        &["check"],
        &["check", "-E", "bad.rpn", "-f", "json"],
    ];
    insta::assert_snapshot!(session(&folder, cases));
}

#[test]
fn scripts_that_are_wrong() {
    let wrong = "\
# Every line but this one is wrong.
at insns=10Q query
att insns=5 query
at insns=18446744073709551616 query
on hit 0 of x query
on hit 3 of do_frok.rpn remove nothere.rpn
on hit 3 on do_fork.rpn query
every insns=0 query
every insns=1M restore s
\tat insns=5 restore s # tabs are blanks
at insns=5 insert nothere.rpn
at insns=5 enable
at insns=5 disable good.rpn 0 1
at insns=5 snapshot
at 5 query
at insns=5 query more
at insns=5 insert \"good.rpn
at insns=5
at insns=5 explode
at
";
    let folder = folder(&[
        ("good.rpn", probe("do_fork", "0x55").as_bytes()),
        ("bad.rpn", probe("do_fork", "0x55").replace("log 1", "lgo 1").as_bytes()),
        ("misfit.rpn", probe("do_frok", "0x55").as_bytes()),
        ("wrong.script", wrong.as_bytes()),
        ("insert-bad.script", b"at insns=5 insert bad.rpn\n"),
        ("insert-misfit.script", b"at insns=5 insert misfit.rpn\n"),
        ("labels.script", b"at insns=5 snapshot one\nat insns=9 restore two\n"),
        ("binary.script", b"at \xff"),
        (
            "lists.script",
            b"at insns=5 list\nat insns=5 list --bytes main\nat insns=5 list -v fbt::: main\n\
              at insns=5 list a:b:c:d:e\nat insns=5 list [a\nat insns=5 list --modules --processes\n",
        ),
    ]);
    let cases: &[&[&str]] = &[
        &["run", "embedded:ia32", "-p", "good.rpn", "--script", "wrong.script"],
        &["run", "embedded:ia32", "--script", "insert-bad.script"],
        &["run", "embedded:ia32", "--script", "insert-misfit.script"],
        &["run", "embedded:ia32", "--script", "labels.script"],
        &["run", "embedded:ia32", "--script", "binary.script"],
        &["run", "embedded:ia32", "--script", "nothere.script"],
        &["run", "embedded:ia32", "--script", "lists.script"],
    ];
    insta::assert_snapshot!(session(&folder, cases));
}

#[test]
fn images_that_cannot_be_loaded() {
    let mut class = trapline_guests::IA32.image.to_vec();
    class[4] = 9;
    let mut hostile = trapline_guests::IA32.image.to_vec();
    // e_phoff far outside the file.
    hostile[28..32].copy_from_slice(&0xffff_fff0u32.to_le_bytes());
    let folder = folder(&[
        ("empty", b""),
        ("text", b"hello, world, this is no kernel"),
        ("gzip.gz", &[0x1f, 0x8b, 8, 0, 0, 0]),
        ("class", &class),
        ("hostile", &hostile),
        ("appln", trapline_guests::IA32.modules[0].1),
        ("vmlinux", trapline_guests::IA32.image),
        ("bad.map", b"c0100000 T good\nthis is no map\n"),
    ]);
    let cases: &[&[&str]] = &[
        &["run", "nothere"],
        &["run", "."],
        &["run", "empty"],
        &["run", "text"],
        &["run", "gzip.gz"],
        &["run", "class"],
        &["run", "hostile"],
        &["run", "vmlinux", "--module", "nothere"],
        &["run", "vmlinux", "--module", "nothere with arguments"],
        &["run", "vmlinux", "--sym", "bad.map"],
        &["run", "vmlinux", "--sym", "nothere"],
        &["run", "vmlinux", "--mem", "1M"],
        &["run", "vmlinux", "--mem", "12Q"],
        &["run", "vmlinux", "--channel", "0x0"],
        &["run", "vmlinux", "--header", "pid,shoesize"],
        &["run", "appln", "--module", "vmlinux"],
    ];
    insta::assert_snapshot!(session(&folder, cases));
}

#[test]
fn an_image_truncated_anywhere_is_refused_with_one_sentence() {
    let image = trapline_guests::IA32.image;
    for len in (0..image.len()).step_by(4096) {
        let folder = folder(&[("cut", &image[..len])]);
        let output = trapline(folder.path(), &["run", "cut"]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(7), "{len} bytes: {text}");
        assert!(text.starts_with("trapline: error: cannot load cut: "), "{len} bytes: {text}");
        assert_eq!(text.lines().count(), 1, "{len} bytes: {text}");
    }
}

#[test]
fn probes_that_do_not_fit_the_guest() {
    let user = "name = aplpn\nmajor = 1\noffset = main\nopcode = 0x55\nminor = 1\nexit\n";
    let files = [
        ("symbol.rpn", probe("do_frok", "0x55")),
        ("opcode.rpn", probe("do_fork", "0x83")),
        ("inside.rpn", probe("do_fork + 2", "0xe5")),
        ("data.rpn", probe("current_task", "0x55")),
        ("unmapped.rpn", probe("0x10000000", "0x55")),
        ("module.rpn", user.to_owned()),
        (
            "syntax.rpn",
            format!("{KERNEL_PROBE}offset = do_fork\nopcode = 0x55\nminor = 1\npush pid\nlgo 1\nexit\n"),
        ),
    ];
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
    let folder = folder(&files);
    let cases: Vec<[&str; 4]> = files.iter().map(|(name, _)| ["run", "embedded:ia32", "-p", name]).collect();
    let mut cases: Vec<&[&str]> = cases.iter().map(<[&str; 4]>::as_slice).collect();
    cases.push(&["run", "embedded:ia32", "--insert", "nothere.rpn"]);
    insta::assert_snapshot!(session(&folder, &cases));
}

#[test]
fn colours_are_used_only_when_asked_for() {
    let folder = folder(&[("bad.rpn", b"name = x\n")]);
    let always = trapline(folder.path(), &["check", "bad.rpn", "--color", "always"]);
    let auto = trapline(folder.path(), &["check", "bad.rpn"]);
    assert!(always.stderr.contains(&0x1b));
    assert!(!auto.stderr.contains(&0x1b));
}
