//! fbt and static probes on Debian's Linux kernels: all functions are there, and no kernel notices its probes.

#![allow(clippy::unwrap_used, clippy::panic)]

mod cli;

use cli::{Ran, finish, patient, trapline};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use trapline_tests::root;

const CLOUD: [&str; 2] = [".guests/linux-cloud-amd64", ".guests/initramfs-amd64.cpio.gz"];
const I686: [&str; 2] = [".guests/linux-686", ".guests/initramfs-i386.cpio.gz"];

fn run(args: &[&str]) -> Ran {
    let ran = trapline(&root(), args);
    assert!(matches!(ran.code, 0 | 124), "{args:?}: {}", ran.err);
    ran
}

/// Boots to the shell.
fn boot([kernel, initrd]: [&str; 2], more: &[&str]) -> Ran {
    let args = ["run", kernel, "--initrd", initrd, "--until", "/ # ", "--console", "none", "--digest"];
    let ran = run(&[&args[..], more].concat());
    assert!(ran.err.contains("the console showed \"/ # \""), "{}", ran.err);
    ran
}

fn digest(ran: &Ran) -> &str {
    ran.err.lines().find_map(|line| line.strip_prefix("digest ")).unwrap()
}

/// A number as `0x..`.
fn number(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// How many hits a run says it had.
fn hits(ran: &Ran) -> u64 {
    let line = ran.err.lines().find(|line| line.contains(" hits, ")).unwrap();
    line.split_whitespace().find_map(|word| word.parse().ok()).unwrap()
}

fn lines(text: &str, kind: &str) -> Vec<Value> {
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["type"] == kind).collect()
}

fn notices_nothing(guest: [&str; 2], least: u64) {
    let plain = boot(guest, &[]);
    // The predicate leaves no record: there are some 28 million hits.
    let probed = boot(guest, &["-n", "fbt::: / push 0 / { exit }"]);
    assert_eq!(digest(&probed), digest(&plain), "{guest:?} noticed its probes");
    assert!(hits(&probed) > least, "{}", probed.err);
}

#[test]
fn guest_linux_cloud_amd64_boots_as_before_with_every_entry_and_return_probed() {
    notices_nothing(CLOUD, 20_000_000);
}

#[test]
fn guest_linux_686_boots_as_before_with_every_entry_and_return_probed() {
    notices_nothing(I686, 10_000_000);
}

/// The functions that the kernel's own table names; what the guest would show of them is `guest_linux_symbols.rs`'s.
#[test]
fn guest_every_function_of_linux_is_listed() {
    for [kernel, _] in [CLOUD, I686] {
        let functions = run(&["list", kernel, "-f", "json", "-q"]).out;
        let named = lines(&functions, "function").into_iter();
        let named: BTreeSet<String> = named.map(|line| line["name"].as_str().unwrap().to_owned()).collect();
        let probes = lines(&run(&["list", kernel, "fbt:::entry", "-f", "json", "-q"]).out, "probe");
        let probed: BTreeSet<String> =
            probes.iter().map(|line| line["function"].as_str().unwrap().to_owned()).collect();
        assert!(probes.len() > 40_000, "{}", probes.len());
        assert!(probed.is_subset(&named));
        for name in ["kernel_clone", "do_exit", "schedule", "vfs_read"] {
            assert!(probed.contains(name), "{kernel}: {name}");
        }
    }
}

#[test]
fn guest_a_tracepoint_is_passed_and_nobody_notices() {
    let plain = boot(CLOUD, &[]);
    let probed = boot(CLOUD, &["-n", "sdt::sched:sched_switch, tracepoint::sched:sched_switch"]);
    assert_eq!(digest(&probed), digest(&plain), "the kernel noticed its probes");
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (_, probe) in probed.out.lines().filter_map(|line| line.split_once("probe=")) {
        *counts.entry(probe.split(':').next().unwrap().to_owned()).or_default() += 1;
    }
    // Off, it runs no iterator.
    assert!(counts["sdt"] > 100 && !counts.contains_key("tracepoint"), "{counts:?}");
    let listed = run(&["list", CLOUD[0], "tracepoint::sched:sched_switch", "-f", "json", "-q"]).out;
    let arguments = lines(&listed, "probe")[0]["sites"][0]["arguments"].clone();
    let wanted =
        ["bool preempt", "struct task_struct *prev", "struct task_struct *next", "unsigned int prev_state"];
    assert_eq!(arguments, serde_json::json!(wanted));
}

/// Provider, name, address and arguments of each note, as readelf has them.
#[test]
fn guest_probes_of_user_files_are_those_of_readelf() {
    for file in ["postgres", "libstdc++.so.6", "python3.11", "libruby-3.1.so", "php8.2"] {
        let path = format!(".guests/sdt/{file}");
        let mut command = patient("readelf");
        command.args(["-n", &root().join(&path).display().to_string()]);
        let notes = finish(command).out;
        let field = |name: &str| -> Vec<String> {
            let values = notes.lines().filter_map(|line| line.trim().strip_prefix(name));
            values.map(|value| value.trim().replace("__", "-")).collect()
        };
        let names: BTreeSet<(String, String)> = field("Provider:").into_iter().zip(field("Name:")).collect();
        let probes = lines(&run(&["list", &path, ":::", "-f", "json", "-q"]).out, "probe");
        let text = |probe: &Value, key: &str| probe[key].as_str().unwrap().to_owned();
        let ours: BTreeSet<(String, String)> =
            probes.iter().map(|probe| (text(probe, "provider"), text(probe, "name"))).collect();
        assert!(!names.is_empty());
        assert_eq!(ours, names, "{file}");
        let sites = probes.iter().flat_map(|probe| probe["sites"].as_array().unwrap());
        let (semaphores, notes): (Vec<&Value>, Vec<&Value>) =
            sites.partition(|site| site["rule"].as_str().unwrap().starts_with("semaphore"));
        assert_eq!(notes.len(), field("Provider:").len(), "{file}");
        let ours: BTreeSet<u64> =
            semaphores.iter().map(|site| number(site["address"].as_str().unwrap())).collect();
        let words = field("Location:");
        let theirs = words.iter().filter_map(|words| words.rsplit_once("Semaphore: "));
        let theirs: BTreeSet<u64> = theirs.map(|(_, at)| number(at)).filter(|at| *at != 0).collect();
        assert_eq!(ours, theirs, "{file}");
    }
}
