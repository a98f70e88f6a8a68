//! The functions of the x87 that the machine executes: against the host's CPU, and the same however a guest is run.

mod cases;
mod guest;
mod host;
mod known;

use crate::common::Rng;
use cases::{EXACT, OPERATIONS, state};
use trapline_emu::x87::{C1, ES, F80, Operation, PE, UE, X87};

const BUSY: u16 = 0x8000;

/// Cases of each instruction.
fn times() -> usize {
    std::env::var("TRAPLINE_X87").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000)
}

fn cases(operations: &[Operation], seed: u64) -> Vec<(Operation, X87)> {
    let mut rng = Rng(seed);
    let each = |operation: &Operation| -> Vec<_> {
        (0..times()).map(|_| (*operation, state(&mut rng, *operation))).collect()
    };
    operations.iter().flat_map(each).collect()
}

fn executed(operation: Operation, before: &X87) -> X87 {
    let mut x87 = *before;
    x87.execute(operation);
    x87
}

/// The place of a number among all.
fn rank(of: F80) -> i128 {
    let rank = i128::from(of.head & 0x7fff) << 63 | i128::from(of.mantissa & (u64::MAX >> 1));
    let denormal = of.head & 0x7fff == 0 && of.mantissa >> 63 != 0;
    let rank = if denormal { i128::from(of.mantissa) } else { rank };
    if of.head >> 15 != 0 { -rank } else { rank }
}

/// The largest difference of two registers, in units of the last place.
fn difference(a: &X87, b: &X87) -> i128 {
    a.registers.iter().zip(&b.registers).map(|(a, b)| (rank(*a) - rank(*b)).abs()).max().unwrap()
}

/// Whether FYL2XP1 is not defined for the operand: |x| > 1 - sqrt(1/2), or a negative one below.
fn is_undefined(operation: Operation, before: &X87) -> bool {
    let x = before.registers[before.top];
    operation == Operation::Fyl2xp1 && x.head & 0x7fff >= 0x3ffe
}

/// The smallest normal number, and the largest one below it.
fn at_the_border(x87: &X87) -> bool {
    x87.registers.iter().any(|value| {
        matches!(
            (value.head & 0x7fff, value.mantissa),
            (0, 0x7fff_ffff_ffff_ffff) | (1, 0x8000_0000_0000_0000)
        )
    })
}

#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn exact_results_and_all_flags_are_the_hosts() {
    let cases = cases(&EXACT, 0x2545_f491_4f6c_dd1d);
    for ((operation, before), host) in cases.iter().zip(host::run(&cases)) {
        let ours = executed(*operation, before);
        assert_eq!(ours, host, "{operation:?} of {before:x?}");
    }
}

#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn functions_are_within_a_unit_of_the_hosts() {
    let functions: Vec<_> = OPERATIONS.into_iter().filter(|one| !EXACT.contains(one)).collect();
    let cases = cases(&functions, 0x9e37_79b9_7f4a_7c15);
    let mut equal = 0;
    for ((operation, before), host) in cases.iter().zip(host::run(&cases)) {
        let ours = executed(*operation, before);
        // C1 of an approximation tells whether that was rounded up.
        let mut open = if ours.status & PE != 0 { C1 } else { 0 };
        let apart = difference(&ours, &host);
        if apart != 0 && at_the_border(&ours) | at_the_border(&host) {
            // Rounded to it, a result has not underflown.
            open |= UE | ES | BUSY;
        }
        let same = (ours.top, ours.empty, ours.status & !open) == (host.top, host.empty, host.status & !open);
        let near = apart <= 1 || is_undefined(*operation, before) || open & UE != 0;
        assert!(same && near, "{operation:?} of {before:x?}: {ours:x?}, on the host {host:x?}");
        equal += usize::from(apart == 0);
    }
    // The others are rounded as Intel's CPUs do not always.
    assert!(equal > cases.len() * 9 / 10, "{equal} of {}", cases.len());
}

/// With the exceptions unmasked and any bits in the registers, nothing panics, and what is not on the top of the stack stays.
#[test]
fn any_bits_have_a_result() {
    let mut rng = Rng(77);
    for n in 0..60_000 {
        let operation = OPERATIONS[n % OPERATIONS.len()];
        let random = |rng: &mut Rng| F80 { head: rng.next() as u16, mantissa: rng.next() };
        let before = X87 {
            control: rng.next() as u16,
            status: rng.next() as u16 & 0x47ff,
            top: rng.below(8) as usize,
            empty: [false, false, false, rng.below(2) == 0, false, false, false, false],
            registers: std::array::from_fn(|_| random(&mut rng)),
        };
        let after = executed(operation, &before);
        let kept = (2..7).map(|n| (before.top + n) % 8);
        assert!(kept.into_iter().all(|n| after.registers[n] == before.registers[n]), "{operation:?}");
        assert_eq!(after.control, before.control);
    }
}
