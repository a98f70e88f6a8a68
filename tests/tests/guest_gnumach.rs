//! GNU Mach on the machine: to its debugger's prompt, the same every time, probed or not.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use trapline_emu::Stop;
use trapline_interposer::Place;
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_tests::{Mach, interposer, observer, root};

/// The results that must be equal between runs.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    console: String,
    icount: u64,
    digest: String,
}

fn outcome(mach: &Mach) -> Run {
    Run {
        console: String::from_utf8_lossy(mach.machine.console()).into_owned(),
        icount: mach.machine.icount(),
        digest: mach.machine.digest().to_string(),
    }
}

fn unprobed() -> Run {
    let mut mach = Mach::load().unwrap();
    assert_eq!(mach.run(None), Stop::Text(0));
    outcome(&mach)
}

#[test]
fn guest_boots_to_its_panic_its_own_int3_and_the_prompt_twice_alike() {
    let first = unprobed();
    for line in
        ["GNU Mach 1.8", "No bootstrap code loaded with the kernel!", "Kernel Breakpoint trap, eip 0x", "db>"]
    {
        assert!(first.console.contains(line), "{line:?} is missing in\n{}", first.console);
    }
    let oracle = std::fs::read_to_string(root().join("guest-images/oracle/gnumach-console.txt")).unwrap();
    let oracle: Vec<&str> = oracle.lines().filter(|l| !l.starts_with('#')).collect();
    let ours: Vec<String> = first.console.replace('\r', "").lines().map(str::to_string).collect();
    assert_eq!(ours.len(), oracle.len(), "{}", first.console);
    for (here, qemu) in ours.iter().zip(&oracle) {
        assert_eq!(frame(here.trim_end()), frame(qemu.trim_end()), "the console differs from qemu's");
    }
    assert_eq!(first, unprobed());
}

/// A line of the stack trace without its arguments: ddb prints five words of stack for each frame, some of them
/// left over from interrupts, which come at other times under `-icount`.
fn frame(line: &str) -> &str {
    if line.starts_with("0xc1") { line.split('(').next().unwrap() } else { line }
}

/// Counts of an independent oracle: `qemu -d exec`, equal for different `-icount` shifts.
fn oracle() -> BTreeMap<u64, (String, u64)> {
    let text = std::fs::read_to_string(root().join("guest-images/oracle/gnumach.tsv")).unwrap();
    let rows = text.lines().filter(|l| l.starts_with("0x"));
    rows.map(|l| l.split('\t').collect::<Vec<_>>())
        .filter(|f| f.get(3).is_none_or(|c| c.trim().is_empty()))
        .map(|f| (u64::from_str_radix(&f[0][2..], 16).unwrap(), (f[1].to_string(), f[2].parse().unwrap())))
        .collect()
}

#[test]
fn guest_does_not_notice_a_probe_on_every_framed_function_at_length() {
    let plain = unprobed();
    let mut runs = Vec::new();
    for _ in 0..2 {
        let mut mach = Mach::load().unwrap();
        let places = mach.framed_functions();
        assert!(places.len() > 2000, "{} functions", places.len());
        let source = observer(places.iter().map(|(at, byte, _)| (*at, *byte)));
        let program = parse("all.rpn", &source).unwrap().link(Width::W32, &NoSymbols).unwrap();
        let mut probes = interposer();
        let targets: Vec<Place> = places.iter().map(|(.., place)| place.clone()).collect();
        let id = probes.insert(mach.machine.core_mut(), "all", program, targets).unwrap();
        assert!(probes.observe_only());
        assert_eq!(mach.run(Some(&mut probes)), Stop::Text(0));
        assert_eq!(outcome(&mach), plain, "the guest noticed its probes");
        let stats = probes.stats();
        assert!(stats.hits > 10_000, "{stats:?}");
        let records = probes.channels().records();
        let counts: Vec<u64> = probes.runs(id);
        runs.push((counts, stats, records, places));
    }
    let (counts, _, _, places) = &runs[0];
    assert_eq!(runs[0].0, runs[1].0, "hit counts of two probed runs differ");
    assert_eq!(runs[0].1, runs[1].1);
    assert!(runs[0].2 == runs[1].2, "records of two probed runs differ");
    let oracle = oracle();
    let mut compared = 0;
    let mut wrong = Vec::new();
    for ((address, ..), &count) in places.iter().zip(counts) {
        if let Some((name, expected)) = oracle.get(address) {
            compared += u32::from(*expected > 0);
            if count != *expected {
                wrong.push(format!("{name}: qemu {expected}, here {count}"));
            }
        }
    }
    assert!(compared >= 20, "only {compared} functions ran under qemu");
    assert!(wrong.is_empty(), "hit counts differ from qemu's:\n{}", wrong.join("\n"));
}

#[test]
fn guest_does_not_notice_a_probe_on_every_function_whatever_it_begins_with() {
    let plain = unprobed();
    let mut mach = Mach::load().unwrap();
    let places = mach.functions();
    let source = observer(places.iter().map(|(at, byte, _)| (*at, *byte)));
    let program = parse("all.rpn", &source).unwrap().link(Width::W32, &NoSymbols).unwrap();
    let mut probes = interposer();
    let targets: Vec<Place> = places.iter().map(|(.., place)| place.clone()).collect();
    probes.insert(mach.machine.core_mut(), "all", program, targets).unwrap();
    assert_eq!(mach.run(Some(&mut probes)), Stop::Text(0));
    assert_eq!(outcome(&mach), plain, "the guest noticed its probes");
    let mut ways: BTreeMap<String, u32> = BTreeMap::new();
    for (_, _, way) in probes.armed_sites() {
        *ways.entry(format!("{way:?}")).or_default() += 1;
    }
    assert_eq!(probes.stats().stepped, 0, "nothing that begins a function here needs stepping");
    println!("{} functions, ways of those that ran: {ways:?}, {:?}", places.len(), probes.stats());
    for way in ["Some(Emulated)", "Some(OutOfLine)"] {
        assert!(ways.contains_key(way), "{way} was not exercised: {ways:?}");
    }
}
