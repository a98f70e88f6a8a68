//! One guest run in several ways, which must all give the same results: without probes, with probes, and one instruction
//! at a time.

use crate::common::{Guest, Setup};
use trapline_emu::{Stop, TrapInterposer};
use trapline_interposer::{Interposer, Place};
use trapline_rpn::{LinkedProbe, LinkedProgram, NoSymbols, Width, parse};
use trapline_tests::interposer;

/// How a run ended, as the guest and its owner see it.
#[derive(Debug, PartialEq, Eq)]
pub struct End {
    pub stop: String,
    pub icount: u64,
    pub digest: String,
    pub console: Vec<u8>,
    pub registers: String,
}

pub fn end(guest: &Guest, stop: &Stop) -> End {
    End {
        stop: format!("{stop:?}"),
        icount: guest.count(),
        digest: guest.m.digest().to_string(),
        console: guest.m.console().to_vec(),
        registers: guest.core().dump_registers(),
    }
}

/// A program that observes, with a probe on each of these physical addresses as it is mapped one to one.
pub fn observer(guest: &Guest, sites: &[u64]) -> (LinkedProgram, Vec<Place>) {
    let text =
        "name = a\nmodtype = kernel\naddress = 0\nopcode = 0x90\npush r, eax\npush r, esp\nlog 2\nexit";
    let width = if guest.wide { Width::W64 } else { Width::W32 };
    let mut program = parse("a.rpn", text).unwrap().link(width, &NoSymbols).unwrap();
    let first = program.probes[0].clone();
    let opcode = |at: u64| guest.mem(at, 1) as u8;
    program.probes = sites.iter().map(|&at| LinkedProbe { opcode: opcode(at), ..first.clone() }).collect();
    (program, sites.iter().map(|&at| Place::Kernel { linear: at, paddr: at }).collect())
}

/// An interposer with those probes inserted.
pub fn probes(guest: &mut Guest, sites: &[u64]) -> Interposer {
    let (program, places) = observer(guest, sites);
    let mut probes = interposer();
    probes.insert(guest.m.core_mut(), "a", program, places).unwrap();
    probes
}

/// Runs a guest for `length` instructions, with these probes, each of which is hit in line as soon as it has trapped.
pub fn run(boot: &dyn Fn() -> Guest, sites: &[u64], length: u64) -> (End, u64) {
    run_after(1, boot, sites, length)
}

/// As [`run`], but hit in line after `traps` traps, or never.
fn run_after(traps: u16, boot: &dyn Fn() -> Guest, sites: &[u64], length: u64) -> (End, u64) {
    let mut guest = boot();
    guest.m.core_mut().set_in_line_after(traps);
    let limit = guest.base + length;
    if sites.is_empty() {
        let stop = guest.m.run(None, limit);
        return (end(&guest, &stop), 0);
    }
    let mut probes = probes(&mut guest, sites);
    let stop = guest.m.run(Some(&mut probes as &mut dyn TrapInterposer), limit);
    (end(&guest, &stop), probes.stats().hits)
}

/// Runs a guest without probes, one instruction at a time.
fn crept(boot: &dyn Fn() -> Guest, length: u64) -> End {
    let mut guest = boot();
    let mut stop = Stop::Limit;
    while stop == Stop::Limit && guest.count() < length {
        let limit = guest.m.icount() + 1;
        stop = guest.m.run(None, limit);
    }
    end(&guest, &stop)
}

/// Asserts that the guest ends alike in every way of running it; returns how, and how many hits the probes had.
pub fn alike(what: &str, boot: &dyn Fn() -> Guest, sites: &[u64], length: u64) -> (End, u64) {
    let (plain, _) = run(boot, &[], length);
    let (probed, hits) = run(boot, sites, length);
    assert_eq!(plain, probed, "{what}: without and with probes");
    assert_eq!((probed, hits), run_after(0, boot, sites, length), "{what}: in line and never in line");
    assert_eq!(plain, crept(boot, length), "{what}: at once and one at a time");
    (plain, hits)
}

/// As `alike`, and with each of the probes alone.
pub fn alike_each(what: &str, boot: &dyn Fn() -> Guest, sites: &[u64], length: u64) -> (End, u64) {
    let (plain, hits) = alike(what, boot, sites, length);
    for site in sites {
        assert_eq!(plain, run(boot, &[*site], length).0, "{what}: with one probe at {site:#x}");
    }
    (plain, hits)
}

/// Every byte from `from` on.
pub fn every_byte(from: u64, length: usize) -> Vec<u64> {
    (from..from + length as u64).collect()
}

/// As `alike_each`, for a guest that boots from a setup and has its registers set.
pub fn alike_from(
    what: &str,
    setup: &Setup,
    registers: &[(usize, u64)],
    sites: &[u64],
    length: u64,
) -> (End, u64) {
    let boot = || {
        let mut guest = setup.boot();
        for (n, value) in registers {
            guest.set(*n, *value);
        }
        guest
    };
    alike_each(what, &boot, sites, length)
}
