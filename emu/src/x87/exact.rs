//! The instructions whose results are exact: FPREM, FPREM1, FSCALE and FXTRACT (Intel SDM volume 2).

use super::f80::{Exact, F80, Finite};

/// A partial or complete remainder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remainder {
    /// `None` for 0.
    pub magnitude: Option<Exact>,
    /// Whether the sign is not that of the dividend.
    pub flipped: bool,
    /// The quotient, of which the lowest three bits are reported; `None` if the reduction is not complete.
    pub quotient: Option<u128>,
}

/// FPREM, or FPREM1 if the quotient is rounded to the nearest integer.
pub(super) fn remainder(a: Finite, b: Finite, nearest: bool) -> Remainder {
    let apart = a.exponent - b.exponent;
    let divisor = u128::from(b.mantissa);
    let result = |value: u128, exponent: i32| Exact::scaled(false, value, exponent);
    if apart >= 64 {
        // As Intel's and AMD's CPUs do, by at least 32 and at most 63 bits.
        let reduced = 32 + apart % 32;
        let rest = (u128::from(a.mantissa) << reduced) % divisor;
        let magnitude = result(rest, b.exponent - 63 + apart - reduced);
        return Remainder { magnitude, flipped: false, quotient: None };
    }
    if apart < -1 || apart < 0 && !nearest {
        return Remainder { magnitude: Some(a.exact(false)), flipped: false, quotient: Some(0) };
    }
    // In halves of the divisor's unit.
    let (dividend, divisor) = (u128::from(a.mantissa) << (apart + 1), divisor << 1);
    let (quotient, rest) = (dividend / divisor, dividend % divisor);
    let half = divisor >> 1;
    let up = nearest && (rest > half || rest == half && quotient & 1 != 0);
    let (rest, quotient) = if up { (divisor - rest, quotient + 1) } else { (rest, quotient) };
    Remainder { magnitude: result(rest, b.exponent - 64), flipped: up, quotient: Some(quotient) }
}

/// FSCALE: the exponent grows by the integer part of `by`, which no result needs in full.
pub(super) fn scaled(a: Finite, negative: bool, by: F80) -> Exact {
    const ENOUGH: i32 = 1 << 17;
    let amount = by.finite().map_or(0, |by| match by.exponent {
        ..0 => 0,
        0..17 => (by.mantissa >> (63 - by.exponent)) as i32,
        _ => ENOUGH,
    });
    let amount = if by.is_negative() { -amount } else { amount };
    Exact { exponent: a.exponent + amount, ..a.exact(negative) }
}
