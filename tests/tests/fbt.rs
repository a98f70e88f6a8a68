//! fbt and profile on the guests: the guests do not notice them, fbt's returns match its entries, and DTrace's sites are
//! those that objdump shows.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, finish, patient, trapline};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use trapline_tests::{guest, root};

fn run(args: &[&str]) -> Ran {
    let ran = trapline(&root(), args);
    assert!(matches!(ran.code, 0 | 3), "{args:?}: {}", ran.err);
    ran
}

fn digest(ran: &Ran) -> String {
    ran.err.lines().find_map(|line| line.strip_prefix("digest ")).unwrap().to_owned()
}

fn lines(text: &str, kind: &str) -> Vec<Value> {
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["type"] == kind).collect()
}

/// Functions whose returns had no entry, and whose entries no return, by the stack pointer at both.
fn unpaired(json: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let mut open: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut returns = BTreeSet::new();
    for hit in lines(json, "hit") {
        let probe = hit["probe"].as_str().unwrap().split(':').collect::<Vec<_>>();
        let here = open.entry(hit["sp"].as_str().unwrap().to_owned()).or_default();
        match (probe[3], here.iter().rposition(|function| function == probe[2])) {
            ("entry", _) => here.push(probe[2].to_owned()),
            (_, Some(at)) => {
                here.remove(at);
            }
            (_, None) => {
                returns.insert(probe[2].to_owned());
            }
        }
    }
    (returns, open.into_values().flatten().collect())
}

fn set(names: &str) -> BTreeSet<String> {
    names.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn no_embedded_guest_notices_a_probe_on_every_entry_and_return_and_they_pair() {
    // trap_entry and syscall_entry are left by IRET or SYSRET, switch_to continues on another stack, the others end the
    // task or never return.
    let guests = [
        (
            "embedded:ia32",
            "switch_to",
            "_start do_exit do_syscall halt kernel_main schedule switch_to trap_dispatch trap_entry",
        ),
        (
            "embedded:x86_64",
            "switch_to",
            "_start do_exit do_page_fault do_syscall halt kernel_main schedule switch_to syscall_entry trap_dispatch \
             trap_entry",
        ),
    ];
    for (guest, returns, entries) in guests {
        let plain = run(&["run", guest, "--digest", "-q", "--console", "none"]);
        let args = ["run", guest, "-n", "fbt:::", "--header", "esp", "-f", "json", "--stats", "-q"];
        let probed = run(&args);
        let end = &lines(&probed.out, "end")[0];
        assert_eq!(end["digest"], digest(&plain), "{guest} noticed its probes");
        assert!(end["hits"].as_u64().unwrap() > 10_000 && end["lost"] == 0, "{end}");
        assert_eq!(unpaired(&probed.out), (set(returns), set(entries)), "{guest}");
        assert_eq!(probed.out, run(&args).out, "{guest}: two runs differ");
    }
}

/// The output of an external program.
fn output(program: &str, args: &[&str]) -> String {
    let mut command: Command = patient(program);
    command.args(args);
    let ran = finish(command);
    assert_eq!(ran.code, 0, "{program}: {}", ran.err);
    ran.out
}

/// Names, addresses and sizes of functions as readelf has them, by address.
fn functions(image: &str) -> Vec<(u64, u64, String)> {
    let table = output("readelf", &["-sW", image]);
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut found: Vec<(u64, u64, String)> = rows
        .filter(|row| row.len() == 8 && row[3] == "FUNC" && row[4] != "WEAK")
        .map(|row| (u64::from_str_radix(row[1], 16).unwrap(), row[2].parse().unwrap(), row[7].to_owned()))
        .collect();
    found.sort();
    found
}

/// Instructions as objdump shows them: address and bytes.
fn instructions(image: &str) -> Vec<(u64, Vec<u8>)> {
    let text = output("objdump", &["-dw", image]);
    let line = |line: &str| {
        let (at, rest) = line.split_once(":\t")?;
        let at = u64::from_str_radix(at.trim(), 16).ok()?;
        let bytes = rest.split('\t').next()?.split_whitespace();
        Some((at, bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()))
    };
    text.lines().filter_map(line).collect()
}

/// The strict sites of IA32 by objdump: functions with an entry, and with how many returns.
fn by_objdump(image: &str) -> (BTreeSet<String>, BTreeMap<String, usize>) {
    let code = instructions(image);
    let (mut entries, mut returns) = (BTreeSet::new(), BTreeMap::new());
    for (start, size, name) in functions(image) {
        let first = code.partition_point(|(at, _)| *at < start);
        let own: Vec<_> = code[first..].iter().take_while(|(at, _)| *at < start + size).collect();
        let bytes: Vec<u8> = own.iter().flat_map(|(_, bytes)| bytes.clone()).take(3).collect();
        if bytes != [0x55, 0x89, 0xe5] && bytes != [0x55, 0x8b, 0xec] {
            continue;
        }
        entries.insert(name.clone());
        let before_ret = own
            .windows(2)
            .filter(|pair| matches!(pair[0].1[..], [0xc9] | [0x5d]) && matches!(pair[1].1[0], 0xc3 | 0xc2));
        let count = before_ret.count();
        if count > 0 {
            *returns.entry(name).or_default() += count;
        }
    }
    (entries, returns)
}

fn listed(image: &str, spec: &str, strict: bool) -> Vec<Value> {
    let rules = if strict { "strict" } else { "full" };
    lines(&run(&["list", image, spec, "--fbt", rules, "-f", "json", "-q"]).out, "probe")
}

fn agrees_with_objdump(image: &str, path: &str) {
    let (entries, returns) = by_objdump(path);
    let name = |probe: &Value| probe["function"].as_str().unwrap().to_owned();
    let ours: BTreeSet<String> = listed(image, "fbt:::entry", true).iter().map(name).collect();
    assert_eq!(ours, entries, "entries of {image}");
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    for probe in listed(image, "fbt:::return", true) {
        *left.entry(name(&probe)).or_default() += probe["sites"].as_array().unwrap().len();
    }
    assert_eq!(left, returns, "returns of {image}");
    assert!(entries.len() > 50 && returns.len() > 50, "{} {}", entries.len(), returns.len());
}

#[test]
fn strict_sites_are_those_that_objdump_shows() {
    agrees_with_objdump(
        "embedded:ia32",
        &root().join("guest-images/prebuilt/vmlinux-ia32").display().to_string(),
    );
}

#[test]
fn guest_strict_sites_of_gnumach_are_those_that_objdump_shows() {
    agrees_with_objdump(".guests/gnumach", &guest("gnumach"));
}

#[test]
fn guest_every_function_of_gnumach_is_listed() {
    let all = functions(&guest("gnumach"));
    // A table in .data that its source declares as a function.
    let mut symbols: Vec<String> =
        all.into_iter().map(|(.., name)| name).filter(|name| name != "idt_inittab").collect();
    symbols.sort();
    let listed = listed(".guests/gnumach", "fbt:::entry", false);
    let ours: Vec<&str> = listed.iter().map(|probe| probe["function"].as_str().unwrap()).collect();
    assert_eq!(ours, symbols);
    let ids: Vec<u64> = listed.iter().map(|probe| probe["id"].as_u64().unwrap()).collect();
    assert!(ids.is_sorted(), "identifiers are in the order of the names");
}

#[test]
fn guest_gnumach_boots_as_before_with_every_entry_and_return_probed_and_they_pair_at_length() {
    let boot = ["run", ".guests/gnumach", "--cmdline", "console=com0", "--until", "db>", "--console", "none"];
    let with = |more: &[&str]| run(&[&boot[..], more].concat());
    let plain = with(&["--digest", "-q"]);
    let probed = with(&["--rpn", "fbt::: { exit }", "--header", "esp", "-f", "json", "-q"]);
    let end = &lines(&probed.out, "end")[0];
    assert_eq!(end["digest"], digest(&plain), "GNU Mach noticed its probes");
    assert!(end["hits"].as_u64().unwrap() > 600_000, "{end}");
    let (returns, entries) = unpaired(&probed.out);
    // call_continuation is entered on one thread's stack and left on another's; t_int3 begins where the CPU pushes a
    // frame and is left through alltraps.
    assert_eq!(returns, set("call_continuation t_int3"));
    // splx ends by a conditional jump to the next routine; all_intrs and t_int3 by IRET; _setjmp by an indirect jump;
    // the rest are functions active at the debugger's prompt, and the start-up code, which never returns.
    for name in ["splx", "all_intrs", "_setjmp", "c_boot_entry", "Panic", "kdb_trap", "cnputc"] {
        assert!(entries.contains(name), "{name} has a return");
    }
    assert!(entries.len() < 40, "{entries:?}");
}

#[test]
fn two_names_of_one_address_both_fire_and_a_weak_one_does_not() {
    let folder = tempfile::TempDir::new().unwrap();
    let list = run(&["list", "embedded:ia32", "fbt::do_fork:entry", "-v", "-q"]).out;
    let address = list.split("0x").nth(1).unwrap().split_whitespace().next().unwrap();
    let map = format!("{address} T fork_alias\n{address} W fork_weak\n");
    std::fs::write(folder.path().join("System.map"), map).unwrap();
    let args = ["run", "embedded:ia32", "--sym", "System.map", "-n", "fbt::*fork*:entry", "-f", "json", "-q"];
    let ran = trapline(Path::new(folder.path()), &args);
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for hit in lines(&ran.out, "hit") {
        *counts.entry(hit["probe"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    let of = |name: &str| counts.get(&format!("fbt:vmlinux:{name}:entry")).copied().unwrap_or(0);
    assert!(of("do_fork") > 0 && of("do_fork") == of("fork_alias") && of("fork_weak") == 0, "{counts:?}");
}

#[test]
fn a_failing_handler_is_reported_and_the_others_continue() {
    let args = ["run", "embedded:ia32", "--rpn", "fbt::do_fork:entry { push 0x10; push mem, u8; log 1 }"];
    let ran = run(&[
        &args[..],
        &["--rpn", "fbt::do_fork:entry { push 1; push 0; div; log 1 }", "--rpn", "fbt::do_fork:entry"],
    ]
    .concat());
    let first = "error on enabled probe ID 1 (ID 33: fbt:vmlinux:do_fork:entry): invalid address (0x10) in action #2 at \
                 RPN offset 9";
    assert!(ran.err.contains(first), "{}", ran.err);
    assert!(ran.err.contains("divide-by-zero in action #3 at RPN offset 18"), "{}", ran.err);
    let whole = ran.out.lines().filter(|line| line.len() > 80).count();
    assert!(whole > 1 && ran.out.lines().count() == 3 * whole, "{}", ran.out);
}

#[test]
fn ticks_come_at_exact_times_and_leave_the_guest_unaffected() {
    for guest in ["embedded:ia32", "embedded:x86_64"] {
        let plain = run(&["run", guest, "--digest", "-q", "--console", "none"]);
        let clauses =
            ["--rpn", "profile:::tick-50us { exit }", "--rpn", "profile:::profile-77777insn { exit }"];
        let args = [&["run", guest, "-f", "json", "--header", "tsc", "-q"][..], &clauses[..]].concat();
        let probed = run(&args);
        assert_eq!(lines(&probed.out, "end")[0]["digest"], digest(&plain), "{guest} noticed its ticks");
        let hits = lines(&probed.out, "hit");
        let of = |name: &str, field: &str| -> Vec<u64> {
            let named = hits.iter().filter(|hit| hit["probe"].as_str().unwrap().contains(name));
            named.map(|hit| hit[field].as_u64().unwrap()).collect()
        };
        let every = |period: u64, times: &[u64]| (1..).zip(times).all(|(n, time)| *time == n * period);
        let (times, counts) = (of("tick", "tsc"), of("profile-", "icount"));
        assert!(times.len() > 50 && every(50_000, &times), "{times:?}");
        assert!(counts.len() > 50 && every(77_777, &counts), "{counts:?}");
    }
    let stopped = run(&["run", "embedded:ia32", "-n", "tick-1ms", "--stop-after", "3"]);
    assert_eq!(stopped.out.lines().count(), 3);
    assert!(stopped.err.contains("there were 3 hits"), "{}", stopped.err);
}

#[test]
fn guest_a_function_that_jumps_to_another_has_no_value_there() {
    let mach = [".guests/gnumach", "--cmdline", "console=com0", "--until", "db>"];
    let run_mach =
        |clause: &str| run(&[&["run"][..], &mach, &["--console", "none", "--rpn", clause]].concat());
    let run_embedded = |clause: &str| run(&["run", "embedded:ia32", "--rpn", clause, "--console", "none"]);
    let data = |ran: &Ran| -> Vec<String> {
        let rest = ran.out.lines().filter_map(|line| line.split_once(":return"));
        rest.map(|(_, data)| data.trim().to_owned()).collect()
    };
    // t_int3 ends by a jump to another function. arch_init has a far jump within itself, which is no return, and ends by one.
    let listed = run(&["list", ".guests/gnumach", "fbt::t_int3:return", "-v", "-q"]).out;
    assert!(listed.contains("+0x4  tail jmp"), "{listed}");
    let listed = run(&["list", "embedded:ia32", "fbt::arch_init:return", "-v", "-q"]).out;
    assert!(listed.contains("+0xe1  ret") && !listed.contains("jmp"), "{listed}");
    // What is on top of the stack at that jump is no return address, so the value is not known.
    let ran = run_mach("fbt::t_int3:return");
    assert!(ran.err.contains("no return value in action #"), "{}", ran.err);
    assert_eq!(data(&ran), [""]);
    assert_eq!(data(&run_embedded("fbt::arch_init:return")), ["e100000000000000"]);
    let why = "no return value in action #1 at RPN offset 0: the function jumps to another function here, which returns later";
    for handler in ["push ret; log 1", "push arg, 1; log 1"] {
        let ran = run_mach(&format!("fbt::t_int3:return {{ {handler} }}"));
        assert!(ran.err.contains(why), "{}", ran.err);
        assert_eq!(data(&ran), [""]);
        let ran = run_embedded(&format!("fbt::arch_init:return {{ {handler} }}"));
        assert!(!ran.err.contains(why), "{}", ran.err);
        assert_eq!(data(&ran), ["00000000"]);
    }
}
