//! `list` of a guest that has run: which probes and modules are present, where, and with which bytes.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, finish, patient, trapline};
use serde_json::Value;
use tempfile::TempDir;
use trapline_tests::root;

fn run(args: &[&str]) -> Ran {
    let ran = trapline(&root(), args);
    assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
    ran
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs the embedded guest under a script; lines of JSON.
fn scripted(script: &str, more: &[&str]) -> Vec<Value> {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("s.script"), script).unwrap();
    let path = folder.path().join("s.script").display().to_string();
    let args = [&["run", "embedded:ia32", "--script", &path, "-f", "json", "-q"][..], more].concat();
    lines(&run(&args).out)
}

#[test]
fn modules_that_are_not_loaded_yet_are_not_listed() {
    for guest in ["embedded:ia32", "embedded:x86_64"] {
        let names = |at: &str, more: &[&str]| -> Vec<(String, String)> {
            let all = run(&[&["list", guest, "--at", at, "-f", "json", "-q"][..], more].concat());
            let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
            let found = lines(&all.out);
            let inner = found.get(1..found.len() - 1).unwrap().iter();
            inner.map(|line| (text(line, "module") + &text(line, "kind"), text(line, "name"))).collect()
        };
        let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        assert_eq!(names("insns=0", &["--modules"]), [pair("kernel", "vmlinux")], "{guest}");
        assert_eq!(names("insns=0", &["main"]), [], "{guest}");
        let modules = names("insns=3M", &["--modules"]);
        assert!(modules.contains(&pair("user", "appln")), "{guest}: {modules:?}");
        assert_eq!(names("insns=3M", &["main"]), [pair("appln", "main")], "{guest}");
        let tasks = names("insns=3M", &["--processes"]);
        assert!(tasks.contains(&pair("", "swapper")) && tasks.contains(&pair("", "appln")), "{tasks:?}");
    }
}

#[test]
fn a_run_before_a_listing_ends_at_its_limit_and_says_how() {
    let until = run(&["list", "embedded:ia32", "do_fork", "--until", "Trapline"]);
    assert!(until.err.starts_with("trapline: the console showed \"Trapline\" after "), "{}", until.err);
    let at = run(&["list", "embedded:ia32", "do_fork", "--at", "insns=1_234K"]);
    assert_eq!(at.err, "trapline: the guest ran for 1234000 instructions\ntrapline: 1 function\n");
    assert_eq!(at.out, until.out);
    let never = ["list", "embedded:ia32", "do_fork", "--until", "no such text", "--limit-insns", "9999"];
    let never = trapline(&root(), &never);
    assert_eq!((never.code, never.out), (124, at.out));
    assert!(never.err.contains("the instruction limit was reached after 9999 instructions"), "{}", never.err);
}

#[test]
fn a_script_lists_sites_as_they_are_before_while_and_after_they_are_armed() {
    let program = root().join("examples/man/2-do_fork.rpn").display().to_string();
    let script = format!(
        "at insns=1M list --opcode fbt::do_fork:entry\nat insns=1M insert {program}\n\
         at insns=2M list --opcode fbt::do_fork:entry\nat insns=2500K remove {program}\n\
         at insns=2600K list --opcode fbt::do_fork:entry\nat insns=2600K stop\n"
    );
    let found = scripted(&script, &[]);
    let site = |line: &Value| line["probes"][0]["sites"][0]["now"][0].clone();
    let listed: Vec<Value> = found.iter().filter(|line| line["type"] == "list").map(site).collect();
    let fetched: Vec<&str> = listed.iter().map(|now| now["fetched"].as_str().unwrap()).collect();
    assert_eq!(fetched, ["5589e55653", "cc89e55653", "5589e55653"]);
    assert!(listed.iter().all(|now| now["bytes"] == "5589e55653" && now["address"] == "0xc0100f91"));
}

#[test]
fn a_listing_changes_nothing() {
    let digest = |found: &[Value]| found.last().unwrap()["digest"].as_str().unwrap().to_owned();
    let probes = ["-n", "fbt::do_*:"];
    let every = "every insns=500K list -v --opcode :::\nevery insns=500K list -v --processes\n\
                 every insns=500K list --modules\nevery insns=500K list *\n";
    let (plain, listed) = (scripted("", &probes), scripted(every, &probes));
    assert_eq!(digest(&listed), digest(&plain));
    let hits = |found: Vec<Value>| -> Vec<Value> {
        found.into_iter().filter(|line| line["type"] == "hit").collect()
    };
    assert!(listed.iter().filter(|line| line["type"] == "list").count() > 20);
    assert_eq!(hits(listed), hits(plain));
}

#[test]
fn a_guest_whose_system_is_not_known_has_functions_and_no_processes() {
    let folder = TempDir::new().unwrap();
    let mut command = patient("objcopy");
    command.args(["--strip-symbol=trapline_os_info"]);
    command.arg(root().join("guest-images/prebuilt/vmlinux-ia32")).arg(folder.path().join("kernel"));
    assert_eq!(finish(command).code, 0);
    let list = |more: &[&str]| {
        trapline(folder.path(), &[&["list", "kernel", "--at", "insns=100K", "-q"][..], more].concat())
    };
    assert_eq!(list(&["do_fork"]).out, "0xc0100f91     277  kernel  do_fork\n");
    let sentence = "the guest's system is not known, so neither its modules nor its processes can be read";
    for option in ["--modules", "--processes"] {
        let ran = list(&[option]);
        assert_eq!((ran.code, ran.err), (2, format!("trapline: error: {sentence}\n")));
    }
}
