//! The numbers of the x87: double extended precision (Intel SDM volume 1, 4.2.2 and 8.2), and rounding to it.

use super::{OE, PE, UE};
use std::cmp::Ordering;

/// Bias of the exponent.
pub(super) const BIAS: i32 = 0x3fff;
/// Exponent of the largest finite numbers.
const LARGEST: i32 = 0x3fff;
/// Exponent of the smallest normal numbers.
const SMALLEST: i32 = -0x3ffe;
/// What is added to the exponent of a result that underflows unmasked, and subtracted from one that overflows (SDM
/// volume 1, 8.5.4).
const ADJUSTMENT: i32 = 24576;
const SIGN: u16 = 0x8000;
const INTEGER: u64 = 1 << 63;
const QUIET: u64 = 1 << 62;

/// A number as a register holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct F80 {
    /// Sign and biased exponent.
    pub head: u16,
    /// Significand with its integer bit.
    pub mantissa: u64,
}

/// What a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Zero,
    /// Finite, and not zero; `denormal` if its biased exponent is 0.
    Finite {
        denormal: bool,
    },
    Infinity,
    Quiet,
    Signaling,
    /// A pseudo-NaN, pseudo-infinity or unnormal number.
    Unsupported,
}

/// The magnitude of a finite number that is not zero: `mantissa * 2^(exponent - 63)`, with the top bit of the mantissa
/// set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Finite {
    pub exponent: i32,
    pub mantissa: u64,
}

/// A magnitude that is to be rounded: `mantissa * 2^(exponent - 127)`, with the top bit of the mantissa set, and less
/// than one unit of the mantissa more if `more`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exact {
    pub negative: bool,
    pub exponent: i32,
    pub mantissa: u128,
    pub more: bool,
}

/// The rounding of the control word, and which of its exceptions are not masked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounding(u16);

/// A rounded result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rounded {
    pub value: F80,
    /// OE, UE and PE.
    pub flags: u16,
    /// Whether the magnitude was rounded up.
    pub up: bool,
}

impl F80 {
    pub(super) const ONE: F80 = F80 { head: BIAS as u16, mantissa: INTEGER };
    /// The default NaN (SDM volume 1, table 4-3).
    pub(super) const INDEFINITE: F80 = F80 { head: 0xffff, mantissa: INTEGER | QUIET };

    /// The number in a register's 10 bytes.
    pub fn from_bytes(bytes: [u8; 10]) -> Self {
        let [m0, m1, m2, m3, m4, m5, m6, m7, h0, h1] = bytes;
        let mantissa = u64::from_le_bytes([m0, m1, m2, m3, m4, m5, m6, m7]);
        F80 { head: u16::from_le_bytes([h0, h1]), mantissa }
    }

    /// A register's 10 bytes.
    pub fn to_bytes(self) -> [u8; 10] {
        let (mut bytes, head) = ([0; 10], self.head.to_le_bytes());
        bytes[..8].copy_from_slice(&self.mantissa.to_le_bytes());
        bytes[8..].copy_from_slice(&head);
        bytes
    }

    pub(super) fn zero(negative: bool) -> Self {
        F80 { head: sign(negative), mantissa: 0 }
    }

    pub(super) fn infinity(negative: bool) -> Self {
        F80 { head: sign(negative) | 0x7fff, mantissa: INTEGER }
    }

    /// The largest number with a mantissa of so many bits.
    fn largest(negative: bool, bits: u32) -> Self {
        F80 { head: sign(negative) | 0x7ffe, mantissa: u64::MAX << (64 - bits) }
    }

    /// `mantissa * 2^(exponent - 63)`, which is a normal number or 0.
    pub(super) fn scaled(negative: bool, mantissa: u64, exponent: i32) -> Self {
        let shift = mantissa.leading_zeros();
        match mantissa.checked_shl(shift) {
            Some(mantissa) => F80::packed(negative, exponent - shift as i32, mantissa),
            None => F80::zero(negative),
        }
    }

    /// The integer that it is rounded to, whether that is inexact, and whether its magnitude was rounded up; `None` if it is a
    /// NaN, infinite or 2^65 and more.
    pub(super) fn to_integer(self, rounding: Rounding) -> Option<(i128, bool, bool)> {
        if self.is_zero() {
            return Some((0, false, false));
        }
        let (finite, negative) = (self.finite().filter(|of| of.exponent <= 64)?, self.is_negative());
        let (kept, up, inexact) = finite.exact(negative).cut((127 - finite.exponent) as u32, rounding);
        let magnitude = kept as i128 + i128::from(up);
        Some((if negative { -magnitude } else { magnitude }, inexact, up))
    }

    /// A packed decimal number of 18 digits and a sign.
    pub(crate) fn decimal(bytes: u128) -> Self {
        let digits = (0..18).rev().map(|n| (bytes >> (4 * n)) as u64 & 0xf);
        F80::scaled(bytes >> 79 & 1 != 0, digits.fold(0, |value, digit| 10 * value + digit), 63)
    }

    pub(super) fn integer(value: i32) -> Self {
        if value == 0 {
            return Self::zero(false);
        }
        let shift = value.unsigned_abs().leading_zeros();
        let exponent = (BIAS + 31 - shift as i32) as u16;
        let mantissa = u64::from(value.unsigned_abs()) << (32 + shift);
        F80 { head: sign(value < 0) | exponent, mantissa }
    }

    pub(super) fn is_negative(self) -> bool {
        self.head & SIGN != 0
    }

    pub(super) fn class(self) -> Class {
        let integer = self.mantissa & INTEGER != 0;
        match self.head & 0x7fff {
            0 if self.mantissa == 0 => Class::Zero,
            0 => Class::Finite { denormal: true },
            _ if !integer => Class::Unsupported,
            0x7fff if self.mantissa == INTEGER => Class::Infinity,
            0x7fff if self.mantissa & QUIET != 0 => Class::Quiet,
            0x7fff => Class::Signaling,
            _ => Class::Finite { denormal: false },
        }
    }

    pub(super) fn is_denormal(self) -> bool {
        self.class() == Class::Finite { denormal: true }
    }

    pub(super) fn is_zero(self) -> bool {
        self.class() == Class::Zero
    }

    pub(super) fn is_infinite(self) -> bool {
        self.class() == Class::Infinity
    }

    pub(super) fn is_nan(self) -> bool {
        matches!(self.class(), Class::Quiet | Class::Signaling)
    }

    /// The magnitude of a finite number; `None` for zero and what is not finite.
    pub(super) fn finite(self) -> Option<Finite> {
        let Class::Finite { denormal } = self.class() else { return None };
        let shift = self.mantissa.leading_zeros();
        let biased = if denormal { 1 } else { i32::from(self.head & 0x7fff) };
        Some(Finite { exponent: biased - BIAS - shift as i32, mantissa: self.mantissa << shift })
    }

    pub(super) const fn negated(self) -> Self {
        F80 { head: self.head ^ SIGN, ..self }
    }

    /// The same finite number, if it is one, with an exponent for its integer bit.
    pub(super) fn normalized(self) -> Self {
        F80 { head: self.head | u16::from(self.head & 0x7fff == 0) & (self.mantissa >> 63) as u16, ..self }
    }

    pub(super) fn quieted(self) -> Self {
        F80 { mantissa: self.mantissa | QUIET, ..self }
    }

    /// The result for operands of which one is a NaN (SDM volume 1, table 4-7).
    pub(super) fn propagated(a: F80, b: F80) -> F80 {
        match (a.class(), b.class()) {
            (Class::Quiet, Class::Signaling) => a,
            (Class::Signaling, Class::Quiet) => b,
            (Class::Quiet | Class::Signaling, Class::Quiet | Class::Signaling) => {
                match a.mantissa.cmp(&b.mantissa) {
                    Ordering::Greater => a.quieted(),
                    Ordering::Less => b.quieted(),
                    Ordering::Equal if a.is_negative() => b.quieted(),
                    Ordering::Equal => a.quieted(),
                }
            }
            (Class::Quiet | Class::Signaling, _) => a.quieted(),
            _ => b.quieted(),
        }
    }

    fn packed(negative: bool, exponent: i32, mantissa: u64) -> Self {
        F80 { head: sign(negative) | (exponent + BIAS) as u16, mantissa }
    }
}

fn sign(negative: bool) -> u16 {
    if negative { SIGN } else { 0 }
}

impl Finite {
    pub fn exact(self, negative: bool) -> Exact {
        let mantissa = u128::from(self.mantissa) << 64;
        Exact { negative, exponent: self.exponent, mantissa, more: false }
    }
}

impl Exact {
    /// `value * 2^exponent`; `None` for 0.
    pub fn scaled(negative: bool, value: u128, exponent: i32) -> Option<Self> {
        let shift = value.leading_zeros();
        let mantissa = value.checked_shl(shift)?;
        Some(Exact { negative, exponent: exponent + 127 - shift as i32, mantissa, more: false })
    }

    /// The upper bits of the mantissa without the lowest `drop`, and whether a rounding of them goes up; whether anything was
    /// dropped.
    pub(super) fn cut(self, drop: u32, rounding: Rounding) -> (u128, bool, bool) {
        let kept = self.mantissa.checked_shr(drop).unwrap_or(0);
        let rest = self.mantissa ^ kept.checked_shl(drop).unwrap_or(0);
        let half = match drop {
            0 => Ordering::Less,
            129.. => Ordering::Less,
            _ => rest.cmp(&(1u128 << (drop - 1))).then(if self.more {
                Ordering::Greater
            } else {
                Ordering::Equal
            }),
        };
        let inexact = rest != 0 || self.more;
        let up = match rounding.mode() {
            0 => half == Ordering::Greater || half == Ordering::Equal && kept & 1 != 0,
            1 => inexact && self.negative,
            2 => inexact && !self.negative,
            _ => false,
        };
        (kept, up, inexact)
    }
}

/// The sum of two finite numbers; `None` for 0.
pub(super) fn sum(a: F80, b: F80) -> Option<Exact> {
    let (Some(x), Some(y)) = (a.finite(), b.finite()) else {
        return a
            .finite()
            .map(|x| x.exact(a.is_negative()))
            .or_else(|| Some(b.finite()?.exact(b.is_negative())));
    };
    let (x, y) = (x.exact(a.is_negative()), y.exact(b.is_negative()));
    let (x, y) = if (x.exponent, x.mantissa) < (y.exponent, y.mantissa) { (y, x) } else { (x, y) };
    let down = (x.exponent - y.exponent) as u32 + 1;
    // The mantissas end in 63 zeros or more: of what is lost below them, it counts only whether it is 0.
    let other = y.mantissa.checked_shr(down).unwrap_or(0);
    let other = other | u128::from(other.checked_shl(down) != Some(y.mantissa));
    let mantissa = x.mantissa >> 1;
    let value = if x.negative == y.negative { mantissa + other } else { mantissa - other };
    Exact::scaled(x.negative, value, x.exponent - 126)
}

/// The product of two finite numbers; `None` for 0.
pub(super) fn product(a: F80, b: F80) -> Option<Exact> {
    let (x, y) = (a.finite()?, b.finite()?);
    let value = u128::from(x.mantissa) * u128::from(y.mantissa);
    Exact::scaled(a.is_negative() != b.is_negative(), value, x.exponent + y.exponent - 126)
}

/// The quotient of two finite numbers; `None` if one of them is 0.
pub(super) fn quotient(a: F80, b: F80) -> Option<Exact> {
    let (x, y) = (a.finite()?, b.finite()?);
    let divisor = u128::from(y.mantissa);
    let whole = u128::from(x.mantissa) << 63;
    let rest = (whole % divisor) << 64;
    // The lowest bit says that there is more.
    let value = ((whole / divisor) << 64) | (rest / divisor) | u128::from(rest % divisor != 0);
    Exact::scaled(a.is_negative() != b.is_negative(), value, x.exponent - y.exponent - 127)
}

/// The square root of a positive number; `None` for 0.
pub(super) fn root(a: F80) -> Option<Exact> {
    let x = a.finite()?;
    let square = u128::from(x.mantissa) << (63 + x.exponent.rem_euclid(2));
    let root = square.isqrt();
    // It is never half between two numbers.
    let rest = square - root * root;
    let more = if rest > root { 3 << 62 } else { u128::from(rest != 0) << 62 };
    Some(Exact {
        negative: false,
        exponent: x.exponent.div_euclid(2),
        mantissa: root << 64 | more,
        more: false,
    })
}

impl Rounding {
    /// Towards zero.
    pub const TRUNCATED: Rounding = Rounding(3 << 10);

    /// As the control word says.
    pub fn new(control: u16) -> Self {
        Rounding(control)
    }

    /// With this RC, and all exceptions masked.
    pub fn of_mode(mode: u16) -> Self {
        Rounding(mode << 10 | 0x33f)
    }

    pub fn is_nearest(self) -> bool {
        self.mode() == 0
    }

    pub fn is_down(self) -> bool {
        self.mode() == 1
    }

    pub fn is_up(self) -> bool {
        self.mode() == 2
    }

    /// Whether a result that is too large becomes infinite.
    pub fn overflows(self, negative: bool) -> bool {
        match self.mode() {
            0 => true,
            1 => negative,
            2 => !negative,
            _ => false,
        }
    }

    /// RC: 0 nearest, 1 down, 2 up, 3 towards zero.
    fn mode(self) -> u16 {
        self.0 >> 10 & 3
    }

    fn masks(self, flag: u16) -> bool {
        self.0 & flag != 0
    }

    /// Rounds to 64 bits (SDM volume 1, 8.5.4 to 8.5.6). `approximated` results count as inexact whatever they are.
    pub fn round(self, of: Exact, approximated: bool) -> Rounded {
        self.round_to(64, of, approximated)
    }

    /// Rounds to the bits that PC says (SDM volume 1, 8.1.5.2).
    pub fn round_precisely(self, of: Exact) -> Rounded {
        let bits = match self.0 >> 8 & 3 {
            0 => 24,
            2 => 53,
            _ => 64,
        };
        self.round_to(bits, of, false)
    }

    fn round_to(self, bits: u32, of: Exact, approximated: bool) -> Rounded {
        let (kept, up, inexact) = of.cut(128 - bits, self);
        let (mantissa, exponent) = carried(kept, up, of.exponent, bits);
        let precision = if inexact || approximated { PE } else { 0 };
        if exponent > LARGEST {
            let largest = F80::largest(of.negative, bits);
            return self.overflowed(F80 { mantissa, ..largest }, exponent, precision, up, largest);
        }
        if exponent >= SMALLEST {
            return Rounded { value: F80::packed(of.negative, exponent, mantissa), flags: precision, up };
        }
        if self.masks(UE) {
            return self.denormal(of, bits, approximated);
        }
        let adjusted = exponent + ADJUSTMENT;
        if adjusted < SMALLEST {
            return Rounded { value: F80::zero(of.negative), flags: UE | PE, up: false };
        }
        Rounded { value: F80::packed(of.negative, adjusted, mantissa), flags: UE | precision, up }
    }

    /// The result of an overflow of a number with this sign and mantissa.
    fn overflowed(self, of: F80, exponent: i32, precision: u16, up: bool, largest: F80) -> Rounded {
        let negative = of.is_negative();
        if !self.masks(OE) {
            let adjusted = exponent - ADJUSTMENT;
            if adjusted > LARGEST {
                return Rounded { value: F80::infinity(negative), flags: OE | PE, up: true };
            }
            return Rounded {
                value: F80::packed(negative, adjusted, of.mantissa),
                flags: OE | precision,
                up,
            };
        }
        let infinite = self.overflows(negative);
        let value = if infinite { F80::infinity(negative) } else { largest };
        Rounded { value, flags: OE | PE, up: infinite }
    }

    /// The result of a masked underflow. The bits that PC takes away are the lowest of the register.
    fn denormal(self, of: Exact, bits: u32, approximated: bool) -> Rounded {
        let below = SMALLEST.saturating_sub(of.exponent).unsigned_abs();
        let (kept, up, inexact) = of.cut(128 - bits + below.min(128), self);
        let mantissa = (kept as u64 + u64::from(up)) << (64 - bits);
        let flags = if inexact || approximated { UE | PE } else { 0 };
        // A carry into the integer bit makes it the smallest normal number.
        let head = sign(of.negative) | (mantissa >> 63) as u16;
        Rounded { value: F80 { head, mantissa }, flags, up }
    }
}

/// A mantissa of so many bits that is rounded up or not, in 64 bits, with its exponent.
fn carried(kept: u128, up: bool, exponent: i32, bits: u32) -> (u64, i32) {
    let mantissa = kept + u128::from(up);
    if mantissa >> bits == 0 { ((mantissa << (64 - bits)) as u64, exponent) } else { (INTEGER, exponent + 1) }
}
