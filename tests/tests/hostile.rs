//! Guests that attack: random code under random page tables, descriptors and stacks, with probes anywhere. The host is
//! not harmed, the run ends, and twice alike.
//!
//! `TRAPLINE_FUZZ=N` runs N times as many guests.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../emu/tests/common/mod.rs"]
mod common;

use common::{CODE, DATA, GDT, Guest, IDT, Rng, STACK0, Setup, TABLES, TSS};
use trapline_emu::{Stop, TrapInterposer};
use trapline_interposer::{Interposer, Place};
use trapline_rpn::{LinkedProbe, LinkedProgram, NoSymbols, Width, parse};
use trapline_tests::interposer;

/// Instructions that a guest may run, and bytes of its code.
const LIMIT: u64 = 20_000;
const LENGTH: u64 = 512;

fn handler(width: Width) -> LinkedProgram {
    let text = "name = v\nmodtype = kernel\naddress = 0\nopcode = 0x90\npush r, eax\npush r, esp\npush u, eip\nlog 3\nexit";
    parse("v.rpn", text).unwrap().link(width, &NoSymbols).unwrap()
}

/// A guest whose every choice comes from the seed.
fn guest(seed: u64) -> Guest {
    let mut random = Rng(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed) | 1);
    let bits = if seed.is_multiple_of(2) { 32 } else { 64 };
    let ring = if random.below(2) == 0 { 0 } else { 3 };
    let code: Vec<u8> = (0..LENGTH).map(|_| random.next() as u8).collect();
    let mut guest = Setup::bits(bits).ring(ring).flags(random.next() & 0x4cd5).code(&code).boot();
    for n in (0..16).filter(|n| *n != 4) {
        let near = [DATA, CODE, TABLES, IDT, GDT, STACK0][random.below(6) as usize];
        let value = if random.below(2) == 0 { near + random.below(0x1000) } else { random.next() };
        guest.set(n, if bits == 32 { value & 0xffff_ffff } else { value });
    }
    // Some of what the CPU itself reads is broken.
    for _ in 0..random.below(6) {
        let place = [TABLES, TABLES + 0x1000, TABLES + 0x3000, IDT, GDT, TSS, STACK0 - 0x40]
            [random.below(7) as usize];
        let at = place + random.below(0x100);
        let bytes = random.next().to_le_bytes();
        guest.m.write_physical(at, &bytes[..1 + random.below(8) as usize]);
    }
    guest
}

/// Probes on random bytes of the code, as many as it has room for at one go.
fn probes(guest: &mut Guest, seed: u64, program: &LinkedProgram) -> Interposer {
    let mut random = Rng(seed.wrapping_mul(0xd134_2543_de82_ef95) | 1);
    let mut at: Vec<u64> = (0..random.below(200)).map(|_| CODE + random.below(LENGTH)).collect();
    at.sort_unstable();
    at.dedup();
    let byte = |at: u64| guest.mem(at, 1) as u8;
    let mut program = program.clone();
    let first = program.probes[0].clone();
    program.probes = at.iter().map(|&a| LinkedProbe { opcode: byte(a), ..first.clone() }).collect();
    let places = at.iter().map(|&a| Place::Kernel { linear: a, paddr: a }).collect();
    let mut probes = interposer();
    probes.insert(guest.m.core_mut(), "v", program, places).unwrap();
    probes
}

#[test]
fn random_guests_end_and_end_alike() {
    let times: u64 = std::env::var("TRAPLINE_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let programs = [handler(Width::W32), handler(Width::W64)];
    let (mut ran, mut hits, mut crashed) = (0, 0, 0);
    for seed in 1..=2_000 * times {
        let mut runs = Vec::new();
        for _ in 0..2 {
            let mut guest = guest(seed);
            let mut probes = probes(&mut guest, seed, &programs[(seed % 2) as usize]);
            let start = guest.m.icount();
            let stop = guest.m.run(Some(&mut probes as &mut dyn TrapInterposer), start + LIMIT);
            assert!(guest.m.icount() <= start + LIMIT, "seed {seed}");
            assert!(!matches!(stop, Stop::Engine(_)), "seed {seed}: {stop:?}");
            ran += guest.m.icount() - start;
            hits += probes.stats().hits;
            crashed += u64::from(matches!(stop, Stop::TripleFault(_)));
            runs.push((format!("{stop:?}"), guest.m.digest(), probes.stats()));
        }
        assert!(runs[0] == runs[1], "seed {seed}: {:?} {:?}", runs[0], runs[1]);
    }
    println!("{ran} instructions, {hits} hits, {crashed} triple faults");
    assert!(hits > 1000 && crashed > 10, "{hits} hits, {crashed} triple faults: the guests are too tame");
}
