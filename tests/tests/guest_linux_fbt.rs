//! fbt and static probes on Debian's Linux kernels: entries match returns, and no kernel notices its probes.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, finish, patient, trapline, trapline_from_init};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use trapline_providers::FunctionGlob;
use trapline_session::{Condition, Ending, Limits};
use trapline_tests::boot::{LINUX_LIMIT, LinuxBoot, PROMPT};
use trapline_tests::linux::{KERNELS, Linux, QUICK};
use trapline_tests::{pairing, root};

const CLOUD: [&str; 2] = [".guests/linux-cloud-amd64", ".guests/initramfs-amd64.cpio.gz"];

fn run(args: &[&str]) -> Ran {
    let ran = trapline(&root(), args);
    assert!(matches!(ran.code, 0 | 124), "{args:?}: {}", ran.err);
    ran
}

/// Runs `trapline run LINUX ..` from the first process on.
fn run_from_init(args: &[&str]) -> Ran {
    let ran = trapline_from_init(&root(), args);
    assert!(matches!(ran.code, 0 | 124), "{args:?}: {}", ran.err);
    ran
}

/// Goes on to the shell.
fn boot([kernel, initrd]: [&str; 2], more: &[&str]) -> Ran {
    let args = ["run", kernel, "--initrd", initrd, "--until", "/ # ", "--console", "none", "--digest"];
    let ran = run_from_init(&[&args[..], more].concat());
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

fn lines(text: &str, kind: &str) -> Vec<Value> {
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["type"] == kind).collect()
}

/// Boots to the shell with every entry and return probed: the guest is unaffected, and entries match returns.
fn notices_nothing(flavour: &str, stack: u64, least: u64) {
    let linux = KERNELS.iter().find(|linux| linux.flavour == flavour).unwrap();
    let boot = LinuxBoot::quick(linux).unwrap();
    let (prompt, limits) = (Condition::console(PROMPT), Limits::insns(LINUX_LIMIT));
    let mut plain = boot.session().unwrap();
    assert_eq!(plain.run_until(&prompt, &limits), Ending::Until(PROMPT.to_owned()));
    let mut probed = boot.session().unwrap();
    let run = pairing::run(&mut probed, stack, &prompt, LINUX_LIMIT).unwrap();
    assert_eq!(run.ending, Ending::Until(PROMPT.to_owned()));
    assert_eq!(probed.digest(), plain.digest(), "{flavour} noticed its probes");
    assert!(run.hits > least, "{}", run.hits);
    let pairs = run.pairing.pairs();
    println!("{flavour}: {} hits, {pairs} pairs", run.hits);
    assert!(2 * pairs > run.hits / 10 * 9, "{pairs} pairs");
    let rows = unpaired_rows();
    let mut unexplained = Vec::new();
    for (function, unpaired) in run.pairing.unpaired() {
        let explained = |side: &str| rows.iter().any(|(of, glob)| of == side && glob.matches(&function));
        // Functions that run at the prompt, or that ended tasks left open, are in the table.
        if unpaired.left > 0 && !explained("entry") || unpaired.returns > 0 && !explained("return") {
            unexplained.push((function, unpaired));
        }
    }
    assert!(unexplained.is_empty(), "no row of tests/oracle/linux-unpaired.txt explains {unexplained:?}");
}

/// The functions whose entries or returns may have no counterpart.
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
fn guest_linux_cloud_amd64_boots_as_before_with_every_entry_and_return_probed_at_length() {
    notices_nothing("cloud-amd64", 16 << 10, 20_000_000);
}

#[test]
fn guest_linux_amd64_boots_as_before_with_every_entry_and_return_probed_at_length() {
    notices_nothing("amd64", 16 << 10, 20_000_000);
}

#[test]
fn guest_linux_686_boots_as_before_with_every_entry_and_return_probed_at_length() {
    notices_nothing("686", 8 << 10, 10_000_000);
}

#[test]
fn guest_a_tracepoint_fires_while_off_and_leaves_the_guest_unaffected() {
    let plain = boot(CLOUD, &[]);
    let probed = boot(CLOUD, &["-n", "sdt::sched:sched_switch, tracepoint::sched:sched_switch"]);
    assert_eq!(digest(&probed), digest(&plain), "the kernel noticed its probes");
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (_, probe) in probed.out.lines().filter_map(|line| line.split_once("probe=")) {
        *counts.entry(probe.split(':').next().unwrap().to_owned()).or_default() += 1;
    }
    // While it is off, it runs no iterator.
    assert!(counts["sdt"] > 15 && !counts.contains_key("tracepoint"), "{counts:?}");
    let listed = run(&["list", CLOUD[0], "tracepoint::sched:sched_switch", "-f", "json", "-q"]).out;
    let arguments = lines(&listed, "probe")[0]["sites"][0]["arguments"].clone();
    let wanted =
        ["bool preempt", "struct task_struct *prev", "struct task_struct *next", "unsigned int prev_state"];
    assert_eq!(arguments, serde_json::json!(wanted));
}

/// Arguments without `--abi`, by the convention derived from the kernel's code, which a message names.
#[test]
fn guest_arguments_of_ia32_kernels_are_found_without_being_told_how() {
    let text = |handler: &str, args: &[&str]| {
        let ran = run(&[&["run"], args, &["--rpn", handler, "--console", "none", "-f", "json"]].concat());
        let hits = lines(&ran.out, "hit");
        let bytes = |hit: &Value| {
            let data = hit["data"].as_str().unwrap().as_bytes();
            let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            String::from_utf8(data.chunks(2).skip(3).map(byte).collect()).unwrap()
        };
        (hits.iter().map(bytes).collect::<Vec<_>>(), ran.err)
    };
    let linux = [
        ".guests/linux-686",
        "--initrd",
        ".guests/initramfs-i386.cpio.gz",
        "--stop-after",
        "12",
        "--append",
        QUICK,
    ];
    let (paths, said) = text("fbt::getname:entry { push 40; push arg, 0; log str }", &linux);
    assert!(
        paths.iter().any(|path| path == "/bin/busybox") && paths.iter().all(|p| p.is_ascii()),
        "{paths:?}"
    );
    assert!(said.contains("takes arguments as regparm: in EAX, EDX and ECX"), "{said}");
    let mach = [".guests/gnumach.gz", "--cmdline", "console=com0", "--stop-after", "2"];
    let (names, said) = text("fbt::kmem_cache_init:entry { push 40; push arg, 1; log str }", &mach);
    assert_eq!(names, ["vm_object", "vm_external"]);
    assert!(said.contains("takes arguments as cdecl: on the stack"), "{said}");
}

/// With one listener, as ftrace is, the kernel calls it without going through `__traceiter_`.
#[test]
fn guest_a_tracepoint_with_one_listener_has_its_hits() {
    let script = "mount -t proc proc /proc\nmount -t sysfs sysfs /sys\nmount -t tracefs tracefs /sys/kernel/tracing\n\
                  cd /sys/kernel/tracing\necho 1 > events/sched/sched_process_exit/enable\n\
                  for i in 1 2 3 4 5 6 7; do /bin/busybox true; done\n\
                  echo 0 > events/sched/sched_process_exit/enable\n/bin/busybox true\n\
                  echo \"counted $(grep -c sched_process_exit: trace)\"\necho tracepoint: end\npoweroff -f\n";
    let linux = KERNELS.iter().find(|linux| linux.flavour == "cloud-amd64").unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let image = linux.image(folder.path(), &[], &[], script).unwrap().display().to_string();
    let console = folder.path().join("console").display().to_string();
    let args = ["run", CLOUD[0], "--initrd", &image, "--until", "tracepoint: end", "--console", &console];
    let ran =
        run_from_init(&[&args[..], &["-n", "tracepoint::sched:sched_process_exit", "-f", "json"]].concat());
    let text = std::fs::read_to_string(console).unwrap();
    let counted =
        text.lines().find_map(|line| line.strip_prefix("counted ")).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(lines(&ran.out, "hit").len(), counted.trim().parse::<usize>().unwrap(), "{}", ran.err);
    assert_eq!(counted.trim(), "7", "{text}");
}

/// A module's tracepoints have the hits that ftrace counts; as static probes they also have hits while ftrace is off.
fn module_events_are_counted(flavour: &str) {
    const EVENTS: [&str; 3] = ["ext4_unlink_enter", "ext4_evict_inode", "ext4_request_inode"];
    const MODULES: [&str; 6] = ["loop", "crc16", "mbcache", "jbd2", "crc32c_generic", "ext4"];
    let each = |line: &str| EVENTS.map(|event| line.replace("EVENT", event)).concat();
    let script = [
        "mount -t proc proc /proc\nmount -t sysfs sysfs /sys\nmount -t devtmpfs devtmpfs /dev\n\
         mount -t tracefs tracefs /sys/kernel/tracing\nexport PATH=/bin\n",
        &MODULES.map(|module| format!("insmod /{module}.ko\n")).concat(),
        "dd if=/dev/zero of=/disk bs=1024 count=4096\nmke2fs -F /disk\nlosetup /dev/loop0 /disk\nmkdir /mnt\n\
         mount -t ext2 /dev/loop0 /mnt\ncd /sys/kernel/tracing\n",
        &each("echo 1 > events/ext4/EVENT/enable\n"),
        "for i in 1 2 3 4 5 6 7 8 9; do echo $i > /mnt/$i; done\nrm /mnt/3 /mnt/5\n",
        &each("echo 0 > events/ext4/EVENT/enable\n"),
        "rm /mnt/7\n",
        &each("echo \"counted EVENT $(grep -c EVENT: trace)\"\n"),
        "echo tracepoint: end\npoweroff -f\n",
    ];
    let linux = Linux::of(flavour).unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let image = linux.image(folder.path(), &MODULES, &[], &script.concat()).unwrap().display().to_string();
    let console = folder.path().join("console").display().to_string();
    let kernel = format!(".guests/linux-{flavour}");
    let args = ["run", &kernel, "--initrd", &image, "--until", "tracepoint: end", "--console", &console];
    let clauses =
        ["tracepoint", "sdt"].map(|provider| format!("{provider}:ext4:ext4:{{{}}}", EVENTS.join(",")));
    let ran =
        run_from_init(&[&args[..], &["--rpn", &clauses[0], "--rpn", &clauses[1], "-f", "json"]].concat());
    let text = std::fs::read_to_string(console).unwrap();
    let hits = lines(&ran.out, "hit");
    let hits = |provider: &str, event: &str| {
        let name = format!("{provider}:ext4:ext4:{event}");
        hits.iter().filter(|hit| hit["probe"] == name.as_str()).count()
    };
    for (event, least) in EVENTS.iter().zip([2, 2, 9]) {
        let counted = text.lines().find_map(|line| line.strip_prefix(&format!("counted {event} ")));
        let counted: usize = counted.unwrap_or_else(|| panic!("{text}")).trim().parse().unwrap();
        assert!(counted >= least, "{flavour}, {event}: {counted}\n{text}");
        assert_eq!(hits("tracepoint", event), counted, "{flavour}, {event}");
        let more = if *event == "ext4_request_inode" { 0 } else { 1 };
        assert!(hits("sdt", event) >= counted + more, "{flavour}, {event}");
    }
    assert_eq!(hits("sdt", "ext4_unlink_enter"), 3, "{flavour}");
}

#[test]
fn guest_tracepoints_of_a_module_have_the_hits_that_ftrace_counts_at_length() {
    module_events_are_counted("amd64");
}

#[test]
fn guest_tracepoints_of_a_module_of_debian_11_and_13_have_the_hits_that_ftrace_counts_at_length() {
    module_events_are_counted("5.10-amd64");
    module_events_are_counted("6.12-amd64");
}

/// The tracepoints of a module are those of its table, and its types are not known: arguments are words.
#[test]
fn guest_a_modules_tracepoints_are_listed() {
    for flavour in ["amd64", "5.10-amd64", "6.12-amd64"] {
        tracepoints_of_ext4_are_listed(flavour);
    }
}

fn tracepoints_of_ext4_are_listed(flavour: &str) {
    let own = format!(".guests/modules-{flavour}/ext4.ko");
    let readelf = |what: &str| {
        let mut command = patient("readelf");
        command.args([what, &root().join(&own).display().to_string()]);
        finish(command).out
    };
    // Those that it defines, and those that its code tests.
    let (symbols, relocations) = (readelf("-sW"), readelf("-rW"));
    let column = |line: &str, n: usize| line.split_whitespace().nth(n).map(str::to_owned);
    let own_name = |line: &str, n: usize| column(line, n)?.strip_prefix("__tracepoint_").map(str::to_owned);
    let defined = symbols.lines().filter(|line| column(line, 6).is_some_and(|section| section != "UND"));
    let defined: BTreeSet<String> = defined.filter_map(|line| own_name(line, 7)).collect();
    let (_, keys) = relocations.split_once("'.rela__jump_table'").unwrap();
    let keys = keys.split("Relocation section").next().unwrap();
    let tested: BTreeSet<String> = keys.lines().filter_map(|line| own_name(line, 4)).collect();
    assert!(defined.len() >= tested.len() && tested.len() > 100, "{flavour}: {tested:?}");
    let (file, kernel) = (format!("/lib/ext4.ko={own}"), format!(".guests/linux-{flavour}"));
    for (provider, names) in [("sdt", &tested), ("tracepoint", &defined)] {
        let spec = format!("{provider}:ext4::");
        let found = run(&["list", &kernel, "--file", &file, &spec, "-f", "json", "-q"]);
        let probes = lines(&found.out, "probe");
        let name = |probe: &Value| probe["name"].as_str().unwrap().to_owned();
        let listed: BTreeSet<String> = probes.iter().map(name).collect();
        assert_eq!((listed.len(), &listed), (probes.len(), names), "{flavour}, {provider}");
        for probe in &probes {
            assert_eq!((&probe["function"], &probe["module"]), (&"ext4".into(), &"ext4".into()));
            let rule = match (provider, tested.contains(probe["name"].as_str().unwrap())) {
                ("sdt", _) => "static key, ",
                (_, true) => "call of the listener, ",
                (_, false) => "trampoline to the listener, ",
            };
            let sites = probe["sites"].as_array().unwrap();
            assert!(sites.iter().all(|site| site["rule"].as_str().unwrap().starts_with(rule)), "{probe}");
        }
    }
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
