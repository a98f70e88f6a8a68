//! A probe on every instruction that a guest executes, without any effect on the guest.

#![allow(clippy::unwrap_used, clippy::panic)]

use trapline_emu::{Machine, Stop, TrapInterposer};
use trapline_interposer::Stats;
use trapline_rpn::Width;
use trapline_tests::{Mach, embedded, embedded_guest, probe_everywhere};

/// The 1.6 G instructions of the boot after these measure how fast loops are, and execute little that is new.
const MOST_OF_MACH: u64 = 600_000_000;

/// The results that must be equal between runs.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    stop: Stop,
    icount: u64,
    console: String,
    digest: String,
}

fn outcome(stop: Stop, machine: &Machine) -> Run {
    Run {
        stop,
        icount: machine.icount(),
        console: String::from_utf8_lossy(machine.console()).into_owned(),
        digest: machine.digest().to_string(),
    }
}

/// Runs unprobed, and returns where instructions lie.
fn plain(mut machine: Machine, limit: u64) -> (Run, Vec<u64>) {
    machine.core_mut().collect_coverage();
    let stop = machine.run(None, limit);
    let sites = machine.core().coverage().collect();
    (outcome(stop, &machine), sites)
}

/// Runs with an observing probe at each of these physical addresses, hit in line after its first trap.
fn probed(mut machine: Machine, limit: u64, sites: &[u64], width: Width) -> (Run, Stats) {
    machine.core_mut().set_in_line_after(1);
    let mut probes = probe_everywhere(&mut machine, sites, width).unwrap();
    assert!(probes.observe_only());
    let stop = machine.run(Some(&mut probes as &mut dyn TrapInterposer), limit);
    (outcome(stop, &machine), probes.stats())
}

/// Sites are armed even in pages that hold something else at first: a patch inside another instruction, or in
/// data, changes nothing for the guest.
fn check(machine: impl Fn() -> Machine, limit: u64, width: Width) -> Stats {
    let (expected, sites) = plain(machine(), limit);
    assert!(sites.len() > 1000, "{} instructions", sites.len());
    let (seen, stats) = probed(machine(), limit, &sites, width);
    println!("{} sites, {stats:?}", sites.len());
    assert_eq!(seen, expected);
    stats
}

#[test]
fn the_embedded_guest_does_not_notice() {
    check(|| embedded().unwrap(), 100_000_000, Width::W32);
}

#[test]
fn the_64_bit_embedded_guest_does_not_notice() {
    check(|| embedded_guest(&trapline_guests::X86_64).unwrap().0, 100_000_000, Width::W64);
}

#[test]
fn guest_gnumach_does_not_notice_at_length() {
    let stats = check(|| Mach::load().unwrap().machine, MOST_OF_MACH, Width::W32);
    assert!(stats.stepped * 20 <= stats.traps, "more than 5 % are stepped: {stats:?}");
}
