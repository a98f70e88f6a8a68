//! Operands: special numbers, random ones, and such as are near the bounds of an instruction.

use crate::common::Rng;
use trapline_emu::x87::{F80, Operation, X87};

/// The instructions, by their numbers in `host.c`.
pub const OPERATIONS: [Operation; 12] = [
    Operation::F2xm1,
    Operation::Fyl2x,
    Operation::Fptan,
    Operation::Fpatan,
    Operation::Fxtract,
    Operation::Fprem1,
    Operation::Fprem,
    Operation::Fyl2xp1,
    Operation::Fsincos,
    Operation::Fscale,
    Operation::Fsin,
    Operation::Fcos,
];

/// Instructions whose results are exact.
pub const EXACT: [Operation; 4] =
    [Operation::Fxtract, Operation::Fprem1, Operation::Fprem, Operation::Fscale];

const ONE: u64 = 1 << 63;
const BIAS: u16 = 0x3fff;
/// 0, 1, 2, 1/2, a denormal, a pseudo-denormal, infinity, NaNs of both kinds, an unnormal, a pseudo-infinity, a pseudo-NaN, the
/// largest and the smallest number, pi, 2^63.
const SPECIAL: [(u16, u64); 18] = [
    (0, 0),
    (BIAS, ONE),
    (BIAS + 1, ONE),
    (BIAS - 1, ONE),
    (0, 1),
    (0, ONE | 1),
    (0x7fff, ONE),
    (0x7fff, ONE | 1 << 62 | 5),
    (0x7fff, ONE | 1 << 62 | 9),
    (0x7fff, ONE | 7),
    (0x7fff, ONE | 8),
    (0x4000, 5),
    (0x7fff, 0),
    (0x7fff, 3),
    (0x7ffe, u64::MAX),
    (1, ONE),
    (0x4000, 0xc90f_daa2_2168_c235),
    (BIAS + 63, ONE),
];

fn mantissa(rng: &mut Rng) -> u64 {
    match rng.below(6) {
        0 => ONE,
        1 => u64::MAX,
        2 => ONE | 1 << rng.below(63),
        3 => ONE | rng.below(256),
        _ => rng.next() | ONE,
    }
}

fn number(rng: &mut Rng) -> F80 {
    let sign = (rng.below(2) as u16) << 15;
    let (exponent, mantissa) = match rng.below(20) {
        0 => SPECIAL[rng.below(SPECIAL.len() as u64) as usize],
        1 => (rng.next() as u16 & 0x7fff, rng.next()),
        2 => (0, rng.next() >> rng.below(64)),
        3 => (0x7fff, rng.next()),
        4 => (rng.next() as u16 & 0x7fff, mantissa(rng)),
        5 => ([1, 2, 0x7ffe, 0x7ffd, BIAS + 62, BIAS + 63, BIAS + 64][rng.below(7) as usize], mantissa(rng)),
        6..=9 => (BIAS - 70 + rng.below(140) as u16, mantissa(rng)),
        10..=12 => (BIAS + rng.below(17) as u16, mantissa(rng)),
        _ => (BIAS - 6 + rng.below(10) as u16, mantissa(rng)),
    };
    F80 { head: sign | exponent, mantissa }
}

/// The second operand of a remainder, near the first.
fn divisor(rng: &mut Rng, a: F80) -> F80 {
    let apart = [0, 0, 1, 2, 10, 62, 63, 64, 65, 70, 100, 200, rng.below(70) as u16][rng.below(13) as usize];
    let exponent = (a.head & 0x7fff) + u16::from(rng.below(6) == 0);
    let mantissa = [ONE, a.mantissa | ONE, rng.next() | ONE, 3 << 62][rng.below(4) as usize];
    F80 { head: exponent.saturating_sub(apart).min(0x7ffe), mantissa }
}

/// A state to execute an instruction in.
pub fn state(rng: &mut Rng, operation: Operation) -> X87 {
    let masks = if rng.below(4) == 0 { rng.below(64) as u16 } else { 0x3f };
    let control = 0x340 | (rng.below(4) as u16) << 10 | masks;
    let old = if rng.below(4) == 0 { rng.below(64) as u16 & masks } else { 0 };
    let top = rng.below(8) as usize;
    let (mut registers, mut empty) = ([F80 { head: 0x4001, mantissa: ONE }; 8], [false; 8]);
    let (a, b) = (number(rng), number(rng));
    let near = matches!(operation, Operation::Fprem | Operation::Fprem1) && rng.below(3) != 0;
    registers[top] = a;
    registers[(top + 1) % 8] = if near { divisor(rng, a) } else { b };
    match rng.below(10) {
        0 => {}
        1 => empty = std::array::from_fn(|_| rng.below(2) == 0),
        _ => empty[(top + 7) % 8] = true,
    }
    if operation == Operation::Fyl2xp1 && rng.below(4) != 0 {
        let below = [2, 3, 4, 5, 6, 7, 10, 30, 60, 64, 70, 130, 1000][rng.below(13) as usize];
        registers[top] =
            F80 { head: (rng.below(2) as u16) << 15 | (BIAS - below), mantissa: rng.next() | ONE };
    }
    X87 { control, status: rng.next() as u16 & 0x4700 | old, top, empty, registers }
}
