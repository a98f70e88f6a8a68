//! Sine, cosine, tangent, arctangent, logarithm and power, to about 215 bits.
//!
//! Each is a series of fixed length on a small argument, to which tables reduce the others. A result of 64 bits that is
//! rounded from these is the correctly rounded one: the functions are transcendental, so that no result is exact or halfway,
//! and one that is so close to it that 150 bits after the 64th are alike is not to be expected. Where such results do
//! exist, for tiny arguments (sin x is just below x), the series keeps them on the right side.

use super::big::{Big, Fixed};
use super::f80::Finite;
use std::sync::LazyLock;

/// Bits after the point of the mantissas that [`logarithm`] takes.
const POINT: u32 = 101;
/// Terms of the series of arctangents of at most 1/16, and of logarithms.
const TERMS: u32 = 30;

struct Tables {
    /// The arctangents of n/16.
    arctangents: [Fixed; 17],
    /// The natural logarithms of (n + 12)/12.
    logarithms: [Fixed; 13],
    ln2: Option<Big>,
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let quotient = |a: u32, b: u32| Some(Big::new(a.into(), 0)?.over(Big::new(b.into(), 0)?));
    let mut arctangents = [Fixed::ZERO; 17];
    for n in 1..17 {
        // The difference of the angles n/16 and (n - 1)/16.
        let step = quotient(16, 256 + n * (n - 1)).map(|t| Fixed::from(small_arctangent(t)));
        arctangents[n as usize] = arctangents[n as usize - 1].plus(step.unwrap_or(Fixed::ZERO));
    }
    let mut logarithms = [Fixed::ZERO; 13];
    for n in 1..13 {
        // (n + 12) / (n + 11).
        let step = quotient(1, 2 * n + 23).map(|t| Fixed::from(small_logarithm(t)));
        logarithms[n as usize] = logarithms[n as usize - 1].plus(step.unwrap_or(Fixed::ZERO));
    }
    Tables { arctangents, logarithms, ln2: logarithms[12].magnitude() }
});

/// Sine and cosine of an angle between 0 and 0.8; both are less than their bounds, the angle and 1.
pub(super) fn sine_and_cosine(angle: Big) -> (Big, Option<Big>) {
    let (ratio, cosine) = series(angle);
    (ratio.magnitude().map_or(angle, |ratio| angle.times(ratio)), cosine.magnitude())
}

/// sin(a)/a and cos(a).
fn series(angle: Big) -> (Fixed, Fixed) {
    let square = Fixed::from(angle.times(angle));
    let (mut sine, mut cosine) = (Fixed::ONE, Fixed::ONE);
    for n in (1..=27u32).rev() {
        sine = Fixed::ONE.minus(square.times(sine).over(2 * n * (2 * n + 1)));
        cosine = Fixed::ONE.minus(square.times(cosine).over(2 * n * (2 * n - 1)));
    }
    let below = Fixed::ONE.minus(Fixed::STEP);
    (sine.at_most(below), cosine.at_most(below))
}

/// The tangent of an angle between 0 and 0.8; it is greater than the angle.
pub(super) fn tangent(angle: Big) -> Option<Big> {
    let (sine, cosine) = series(angle);
    let ratio = Fixed::from(sine.magnitude()?.over(cosine.magnitude()?));
    Some(angle.times(ratio.at_least(Fixed::ONE.plus(Fixed::STEP)).magnitude()?))
}

/// The cotangent of an angle between 0 and 0.8.
pub(super) fn cotangent(angle: Big) -> Option<Big> {
    let (sine, cosine) = sine_and_cosine(angle);
    Some(cosine?.over(sine))
}

/// The arctangent of at most 1/16; it is less than its argument.
fn small_arctangent(t: Big) -> Big {
    let square = Fixed::from(t.times(t));
    let mut sum = Fixed::ZERO;
    for n in (0..TERMS).rev() {
        sum = Fixed::ONE.over(2 * n + 1).minus(square.times(sum));
    }
    sum.at_most(Fixed::ONE.minus(Fixed::STEP)).magnitude().map_or(t, |sum| t.times(sum))
}

/// The logarithm of (1 + t)/(1 - t) for at most 1/16.
fn small_logarithm(t: Big) -> Big {
    let square = Fixed::from(t.times(t));
    let mut sum = Fixed::ZERO;
    for n in (0..TERMS).rev() {
        sum = Fixed::ONE.over(2 * n + 1).plus(square.times(sum));
    }
    sum.at_least(Fixed::ONE.plus(Fixed::STEP)).magnitude().map_or(t, |sum| t.times(sum)).doubled()
}

/// n quarters of pi.
pub(super) fn quarters_of_pi(n: u32) -> Fixed {
    (0..n).fold(Fixed::ZERO, |sum, _| sum.plus(TABLES.arctangents[16]))
}

/// The arctangent of a quotient of at most 1.
pub(super) fn arctangent(a: Finite, b: Finite) -> Option<Big> {
    let apart = b.exponent - a.exponent;
    if apart > 6 {
        return Some(small_arctangent(Big::from(a).over(Big::from(b))));
    }
    // The next angle n/16, and by the addition theorem the tangent of what it leaves.
    let (one, two) = (i128::from(a.mantissa), i128::from(b.mantissa) << apart.max(0));
    let n = (32 * one + two) / (2 * two);
    let (rest, of) = (16 * one - n * two, 16 * two + n * one);
    let angle = *TABLES.arctangents.get(n as usize)?;
    let Some(tangent) = Big::new(rest.unsigned_abs(), 0) else { return angle.magnitude() };
    let rest_angle = small_arctangent(tangent.over(Big::new(of.unsigned_abs(), 0)?));
    if n == 0 {
        return Some(rest_angle);
    }
    angle.plus_signed(Fixed::from(rest_angle), rest < 0).magnitude()
}

/// A logarithm to base 2: its magnitude, `None` for 0, and whether it is negative.
pub(super) type Logarithm = (Option<Big>, bool);

/// The logarithm to base 2 of `value * 2^exponent`; of 0, that of 1.
pub(super) fn logarithm(value: u128, exponent: i32) -> Logarithm {
    let shift = value.leading_zeros();
    // From 1 up to 2, or from 3/4 up to 1: near 1, the logarithm is a small one and not a difference.
    let one = value.checked_shl(shift).unwrap_or(1 << 127) >> (127 - POINT);
    let whole = exponent + 127 - shift as i32;
    let (mantissa, whole) = if one >> (POINT - 1) >= 3 { (one >> 1, whole + 1) } else { (one, whole) };
    let n = ((mantissa << 4) + (1 << (POINT - 1))) >> POINT;
    let near = n << POINT;
    let (rest, of) = ((mantissa << 4).abs_diff(near), (mantissa << 4) + near);
    let negative = mantissa << 4 < near;
    let small = Big::new(rest, 0).zip(Big::new(of, 0)).map(|(rest, of)| small_logarithm(rest.over(of)));
    if n == 16 && whole == 0 {
        return (small.and_then(to_base_2), negative);
    }
    let table = &TABLES.logarithms;
    let from_table = table.get((n as usize).wrapping_sub(12)).copied().unwrap_or(Fixed::ZERO).minus(table[4]);
    let natural = from_table.plus_signed(small.map_or(Fixed::ZERO, Fixed::from), negative);
    let fraction = natural.magnitude().and_then(to_base_2);
    if whole == 0 {
        return (fraction, natural.is_negative());
    }
    let sum =
        Fixed::integer(whole).plus_signed(fraction.map_or(Fixed::ZERO, Fixed::from), natural.is_negative());
    (sum.magnitude(), sum.is_negative())
}

fn to_base_2(natural: Big) -> Option<Big> {
    Some(natural.over(TABLES.ln2?))
}

/// The logarithm to base 2 of 1 + x, for a magnitude of x less than 1 if x is negative.
pub(super) fn logarithm_plus_1(x: Finite, negative: bool) -> Logarithm {
    let mantissa = u128::from(x.mantissa);
    match x.exponent {
        // So small that 1 + x has too many bits.
        ..-5 => {
            let of = Fixed::integer(2).plus_signed(Fixed::from(Big::from(x)), negative);
            let t = of.magnitude().map(|of| Big::from(x).over(of));
            (t.map(small_logarithm).and_then(to_base_2), negative)
        }
        -5..0 => {
            let x = mantissa << (37 + x.exponent);
            let sum = if negative { (1 << 100) - x.min(1 << 100) } else { (1 << 100) + x };
            logarithm(sum, -100)
        }
        // The instruction is not defined for these. A 1 that lies below the mantissa is left out.
        0..=37 => logarithm((mantissa << 37) + (1 << (100 - x.exponent)), x.exponent - 100),
        _ => logarithm(mantissa, x.exponent - 63),
    }
}

/// 2^x - 1 for a magnitude of x of at most 1.
pub(super) fn power_minus_1(x: Finite, negative: bool) -> Option<Big> {
    let natural = Big::from(x).times(TABLES.ln2?);
    let fixed = Fixed::from(natural);
    let mut sum = Fixed::ONE;
    for n in (2..=56).rev() {
        sum = Fixed::ONE.plus_signed(fixed.times(sum).over(n), negative);
    }
    Some(natural.times(sum.magnitude()?))
}
