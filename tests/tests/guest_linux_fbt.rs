//! fbt and static probes on Debian's Linux kernels: all functions are there, and no kernel notices its probes.

#![allow(clippy::unwrap_used, clippy::panic)]

mod cli;

use cli::{Ran, finish, patient, trapline};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use trapline_emu::Stop;
use trapline_providers::FunctionGlob;
use trapline_tests::boot::{LINUX_LIMIT, LinuxBoot, PROMPT};
use trapline_tests::linux::KERNELS;
use trapline_tests::{pairing, root};

const CLOUD: [&str; 2] = [".guests/linux-cloud-amd64", ".guests/initramfs-amd64.cpio.gz"];

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

fn lines(text: &str, kind: &str) -> Vec<Value> {
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["type"] == kind).collect()
}

/// Boots to the shell with every entry and return probed: nobody notices, and they pair.
fn notices_nothing(flavour: &str, stack: u64, least: u64) {
    let linux = KERNELS.iter().find(|linux| linux.flavour == flavour).unwrap();
    let boot = LinuxBoot::shell(linux).unwrap();
    let mut plain = boot.machine(PROMPT).unwrap();
    assert_eq!(plain.run(None, LINUX_LIMIT), Stop::Text(0));
    let mut probed = boot.machine(PROMPT).unwrap();
    let run = pairing::run(&mut probed, &boot.target(), stack, LINUX_LIMIT).unwrap();
    assert_eq!(run.stop, Stop::Text(0));
    assert_eq!(probed.digest(), plain.digest(), "{flavour} noticed its probes");
    assert!(run.hits > least, "{}", run.hits);
    println!("{flavour}: {} hits, {} pairs", run.hits, run.pairing.pairs());
    let rows = unpaired_rows();
    let mut unexplained = Vec::new();
    for (function, unpaired) in run.pairing.unpaired() {
        let explained = |side: &str| rows.iter().any(|(of, glob)| of == side && glob.matches(&function));
        // What runs at the prompt and what the tasks that have ended left open is in its place.
        if unpaired.left > 0 && !explained("entry") || unpaired.returns > 0 && !explained("return") {
            unexplained.push((function, unpaired));
        }
    }
    assert!(unexplained.is_empty(), "no row of tests/oracle/linux-unpaired.txt explains {unexplained:?}");
}

/// Which of an entry and a return may have no counterpart in which functions.
fn unpaired_rows() -> Vec<(String, FunctionGlob)> {
    let text = std::fs::read_to_string(root().join("tests/oracle/linux-unpaired.txt")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with(['e', 'r']));
    let row = |line: &str| {
        let (side, rest) = line.split_once(' ').unwrap();
        (side.to_owned(), FunctionGlob::new(rest.split_whitespace().next().unwrap()).unwrap())
    };
    rows.map(row).collect()
}

#[test]
fn guest_linux_cloud_amd64_boots_as_before_with_every_entry_and_return_probed() {
    notices_nothing("cloud-amd64", 16 << 10, 20_000_000);
}

#[test]
fn guest_linux_amd64_boots_as_before_with_every_entry_and_return_probed() {
    notices_nothing("amd64", 16 << 10, 20_000_000);
}

#[test]
fn guest_linux_686_boots_as_before_with_every_entry_and_return_probed() {
    notices_nothing("686", 8 << 10, 10_000_000);
}

/// What a shell in the initramfs of the stress script is told: a module comes, is asked where it is, goes, and comes again.
const MODULES: [&str; 5] = [
    "/bin/busybox mount -t proc proc /proc; alias load='/bin/busybox insmod /lib/modules/6*/loop.ko max_loop=1'",
    "load; /bin/busybox grep '.loop.$' /proc/kallsyms",
    "/bin/busybox rmmod loop; /bin/busybox uname",
    "load; /bin/busybox rmmod loop; load; /bin/busybox grep '.loop.$' /proc/kallsyms",
    "/bin/busybox rmmod loop; /bin/busybox uname",
];

/// Boots to a shell, types [`MODULES`], and answers with what the console showed.
fn with_modules(more: &[&str]) -> (Ran, String) {
    let folder = tempfile::TempDir::new().unwrap();
    let mut script = String::new();
    for (n, line) in MODULES.iter().enumerate() {
        script +=
            &format!("on console \"/ # \" {} query\non console \"/ # \" {0} type \"{line}\\n\"\n", n + 1);
    }
    script += &format!("on console \"/ # \" {} query\non console \"/ # \" {0} stop\n", MODULES.len() + 1);
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("s.script"), script).unwrap();
    let initrd = ".guests/stress-cloud-amd64.cpio.gz";
    let args = [
        "run",
        CLOUD[0],
        "--initrd",
        initrd,
        "--append",
        "rdinit=/bin/busybox -- sh",
        "--digest",
        "-f",
        "json",
    ];
    let files = ["--script", &path("s.script"), "--console", &path("console"), "--limit-insns", "5000000000"];
    let ran = run(&[&args[..], &files[..], more].concat());
    (ran, String::from_utf8_lossy(&std::fs::read(path("console")).unwrap()).into_owned())
}

/// Where the guest itself says that a function of the module was, each time it was asked.
fn in_kallsyms(console: &str, function: &str) -> Vec<u64> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.len() == 4 && words[2..] == [function, "[loop]"])
            .then(|| u64::from_str_radix(words[0], 16).unwrap())
    };
    console.lines().filter_map(line).collect()
}

#[test]
fn guest_functions_of_a_module_fire_where_it_is_loaded_each_time_and_nobody_notices() {
    let (plain, _) = with_modules(&[]);
    let (probed, console) = with_modules(&["-n", "fbt:loop:: { exit }", "--header", "esp"]);
    let end = |ran: &Ran| lines(&ran.out, "end")[0]["digest"].clone();
    assert_eq!(end(&probed), end(&plain), "the guest noticed the probes of its module");
    let hits = lines(&probed.out, "hit");
    let of = |probe: &str| -> Vec<&Value> {
        let name = format!("fbt:loop:{probe}");
        hits.iter().filter(|hit| hit["probe"] == name.as_str()).collect()
    };
    // Three times in and out. What the module does at its start is in .init.text, whose two names share their probes' place.
    for name in ["init_module", "loop_init", "loop_add", "lo_free_disk", "loop_exit", "cleanup_module"] {
        let sps =
            |end: &str| of(&format!("{name}:{end}")).iter().map(|hit| hit["sp"].clone()).collect::<Vec<_>>();
        assert_eq!(sps("entry").len(), 3, "{name} in {console}");
        assert_eq!(sps("entry"), sps("return"), "{name}");
    }
    for name in ["loop_add", "lo_free_disk"] {
        let hit: Vec<u64> = of(&format!("{name}:entry")).iter().map(|hit| number(&hit["ip"])).collect();
        let said = in_kallsyms(&console, name);
        assert_eq!([hit[0], hit[2]], said[..], "where {name} is");
    }
    // Armed while it is there, and nowhere when it has gone.
    let sites = lines(&probed.out, "query").iter().map(armed).collect::<Vec<u64>>();
    let listed = lines(
        &run(&[
            "list",
            CLOUD[0],
            "--initrd",
            ".guests/stress-cloud-amd64.cpio.gz",
            "fbt:loop::",
            "-f",
            "json",
            "-q",
        ])
        .out,
        "probe",
    );
    let all: usize = listed.iter().map(|probe| probe["sites"].as_array().unwrap().len()).sum();
    assert!(sites[2] > 100 && (sites[2] as usize) < all, "all but those of .init.text: {sites:?} of {all}");
    assert_eq!([sites[0], sites[1], sites[3], sites[5]], [0; 4], "{sites:?}");
    assert_eq!(sites[4], sites[2]);
}

/// A number in hexadecimal of a record.
fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// How many sites are armed, as a query says.
fn armed(query: &Value) -> u64 {
    let points = query["programs"][0]["points"].as_array();
    points.into_iter().flatten().map(|point| point["sites"].as_u64().unwrap()).sum()
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
        let sites: usize = probes.iter().map(|probe| probe["sites"].as_array().unwrap().len()).sum();
        assert_eq!(sites, field("Provider:").len(), "{file}");
    }
}
