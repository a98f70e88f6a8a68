//! Single and double precision: the formats (Intel SDM volume 1, 4.2.2), and what SSE computes in them (volume 1, 10.2.3 and
//! 11.5).

use super::f80::{Class, Exact, F80, Rounding, product, quotient, root, sum};
use super::{DE, IE, OE, PE, UE, ZE};
use std::cmp::Ordering;

const DAZ: u32 = 1 << 6;
const UM: u32 = 1 << 11;
const FZ: u32 = 1 << 15;
/// Exceptions that are found before a computation.
const BEFORE: u16 = IE | DE | ZE;

/// Single or double precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Single,
    Double,
}

/// A number that was rounded to a format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Narrowed {
    /// What it is if no exception is unmasked.
    pub value: u64,
    /// Whether its magnitude was rounded up.
    pub up: bool,
    /// Whether it is not exact, and whether it would not be with an exponent without bounds.
    pub inexact: bool,
    pub inexact_unbounded: bool,
    /// Whether its exponent is too large, or too small.
    pub large: bool,
    pub tiny: bool,
}

impl Format {
    /// Bits of a number.
    pub fn size(self) -> u32 {
        self.bits().0
    }

    /// Bits of a number, and of its fraction.
    fn bits(self) -> (u32, u32) {
        match self {
            Self::Single => (32, 23),
            Self::Double => (64, 52),
        }
    }

    fn bias(self) -> i32 {
        match self {
            Self::Single => 0x7f,
            Self::Double => 0x3ff,
        }
    }

    pub fn sign(self) -> u64 {
        1 << (self.bits().0 - 1)
    }

    fn quiet(self) -> u64 {
        1 << (self.bits().1 - 1)
    }

    fn infinity(self) -> u64 {
        ((self.bias() as u64) * 2 + 1) << self.bits().1
    }

    /// The default NaN.
    pub fn indefinite(self) -> u64 {
        self.sign() | self.infinity() | self.quiet()
    }

    fn one(self) -> u64 {
        (self.bias() as u64) << self.bits().1
    }

    fn is_nan(self, value: u64) -> bool {
        value & !self.sign() > self.infinity()
    }

    fn is_signaling(self, value: u64) -> bool {
        self.is_nan(value) && value & self.quiet() == 0
    }

    pub fn is_denormal(self, value: u64) -> bool {
        let magnitude = value & !self.sign();
        magnitude != 0 && magnitude >> self.bits().1 == 0
    }

    /// The same number in double extended precision.
    pub fn widened(self, value: u64) -> F80 {
        let (bits, fraction) = self.bits();
        let negative = value & self.sign() != 0;
        let exponent = (value & !self.sign()) >> fraction;
        let mantissa = (value & ((1 << fraction) - 1)) << (63 - fraction);
        if exponent == (1 << (bits - fraction - 1)) - 1 {
            let infinity = F80::infinity(negative);
            return F80 { mantissa: infinity.mantissa | mantissa, ..infinity };
        }
        match exponent {
            0 => F80::scaled(negative, mantissa, 1 - self.bias()),
            _ => F80::scaled(negative, 1 << 63 | mantissa, exponent as i32 - self.bias()),
        }
    }

    /// A number that is not finite, or 0, as this format has it; NaNs become quiet.
    pub fn special(self, of: F80) -> u64 {
        let sign = if of.is_negative() { self.sign() } else { 0 };
        let fraction = of.mantissa << 1 >> (64 - self.bits().1);
        match of.class() {
            Class::Quiet | Class::Signaling => sign | self.infinity() | self.quiet() | fraction,
            Class::Infinity => sign | self.infinity(),
            _ => sign,
        }
    }

    pub(super) fn round(self, of: Exact, rounding: Rounding) -> Narrowed {
        let (bits, fraction) = self.bits();
        let sign = if of.negative { 1 << (bits - 1) } else { 0 };
        let drop = 127 - fraction;
        let (kept, up, inexact) = of.cut(drop, rounding);
        let carries = kept as u64 + u64::from(up) == 2 << fraction;
        let biased = of.exponent + self.bias();
        let result = Narrowed {
            value: 0,
            up,
            inexact,
            inexact_unbounded: inexact,
            large: biased + i32::from(carries) > 2 * self.bias(),
            tiny: biased + i32::from(carries) <= 0,
        };
        if result.large {
            let infinite = rounding.overflows(of.negative);
            let value = sign | if infinite { self.infinity() } else { self.infinity() - 1 };
            return Narrowed { value, up: infinite, inexact: true, ..result };
        }
        // A carry out of the fraction goes into the exponent.
        if biased > 0 {
            let kept = (kept as u64) & !(1 << fraction);
            return Narrowed {
                value: sign | (kept + ((biased as u64) << fraction) + u64::from(up)),
                ..result
            };
        }
        let below = (1 - biased).unsigned_abs().min(128);
        let (kept, up, inexact) = of.cut(drop + below, rounding);
        Narrowed { value: sign | (kept as u64 + u64::from(up)), up, inexact, ..result }
    }
}

/// Computes as MXCSR says, and collects the exceptions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sse {
    mxcsr: u32,
    flags: u16,
}

impl Sse {
    pub fn new(mxcsr: u32) -> Self {
        Sse { mxcsr, flags: 0 }
    }

    /// Exceptions that were found and are not masked.
    fn unmasked(self) -> u16 {
        self.flags & !(self.mxcsr >> 7) as u16 & 0x3f
    }

    /// Whether an exception that is not masked was found: nothing is computed after it.
    pub fn stops(self) -> bool {
        self.unmasked() != 0
    }

    /// MXCSR after the computations. Of elements that are computed at once, no exception is noted that is found after a
    /// computation, if one that is not masked is found before (SDM volume 1, 11.5.3.2).
    pub fn mxcsr(self) -> u32 {
        let noted = if self.unmasked() & BEFORE != 0 { self.flags & BEFORE } else { self.flags };
        self.mxcsr | u32::from(noted)
    }

    pub fn add(&mut self, format: Format, a: u64, b: u64) -> u64 {
        let (a, b) = (self.flushed(format, a), self.flushed(format, b));
        if let Some(nan) = self.nan(format, a, b) {
            return nan;
        }
        let (x, y) = (format.widened(a), format.widened(b));
        if x.is_infinite() && y.is_infinite() && a != b {
            return self.invalid(format);
        }
        self.note_denormal(format, a, b);
        match (x.class(), y.class()) {
            (Class::Infinity, _) => a,
            (_, Class::Infinity) => b,
            _ => match sum(x, y) {
                Some(exact) => self.round(format, exact),
                None if a == b => a,
                None if self.rounding().is_down() => format.sign(),
                None => 0,
            },
        }
    }

    pub fn subtract(&mut self, format: Format, a: u64, b: u64) -> u64 {
        self.add(format, a, if format.is_nan(b) { b } else { b ^ format.sign() })
    }

    pub fn multiply(&mut self, format: Format, a: u64, b: u64) -> u64 {
        let (a, b) = (self.flushed(format, a), self.flushed(format, b));
        if let Some(nan) = self.nan(format, a, b) {
            return nan;
        }
        let (x, y) = (format.widened(a), format.widened(b));
        let sign = (a ^ b) & format.sign();
        if x.is_infinite() && y.is_zero() || x.is_zero() && y.is_infinite() {
            return self.invalid(format);
        }
        self.note_denormal(format, a, b);
        if x.is_infinite() || y.is_infinite() {
            return sign | format.infinity();
        }
        product(x, y).map_or(sign, |exact| self.round(format, exact))
    }

    pub fn divide(&mut self, format: Format, a: u64, b: u64) -> u64 {
        let (a, b) = (self.flushed(format, a), self.flushed(format, b));
        if let Some(nan) = self.nan(format, a, b) {
            return nan;
        }
        let (x, y) = (format.widened(a), format.widened(b));
        let sign = (a ^ b) & format.sign();
        if x.is_infinite() && y.is_infinite() || x.is_zero() && y.is_zero() {
            return self.invalid(format);
        }
        if y.is_zero() && !x.is_infinite() {
            self.flags |= ZE;
            return sign | format.infinity();
        }
        self.note_denormal(format, a, b);
        if x.is_infinite() {
            return sign | format.infinity();
        }
        quotient(x, y).map_or(sign, |exact| self.round(format, exact))
    }

    pub fn root(&mut self, format: Format, a: u64) -> u64 {
        let a = self.flushed(format, a);
        if let Some(nan) = self.nan(format, a, a) {
            return nan;
        }
        let x = format.widened(a);
        if x.is_zero() {
            return a;
        }
        if x.is_negative() {
            return self.invalid(format);
        }
        self.note_denormal(format, a, a);
        root(x).map_or(a, |exact| self.round(format, exact))
    }

    /// MINPS and the like, or MAXPS: the second operand unless the first is smaller, or larger.
    pub fn choose(&mut self, format: Format, larger: bool, a: u64, b: u64) -> u64 {
        let (a, b) = (self.flushed(format, a), self.flushed(format, b));
        if format.is_nan(a) || format.is_nan(b) {
            self.flags |= IE;
            return b;
        }
        self.note_denormal(format, a, b);
        let wanted = if larger { Ordering::Greater } else { Ordering::Less };
        if key(format, a).cmp(&key(format, b)) == wanted { a } else { b }
    }

    /// How two numbers compare; `None` if one is a NaN. Quiet NaNs are an exception if `all` are.
    pub fn compare(&mut self, format: Format, a: u64, b: u64, all: bool) -> Option<Ordering> {
        let (a, b) = (self.flushed(format, a), self.flushed(format, b));
        if format.is_nan(a) || format.is_nan(b) {
            let signaling = format.is_signaling(a) || format.is_signaling(b);
            self.flags |= if all || signaling { IE } else { 0 };
            return None;
        }
        self.note_denormal(format, a, b);
        Some(key(format, a).cmp(&key(format, b)))
    }

    /// A number in another format.
    pub fn convert(&mut self, from: Format, to: Format, a: u64) -> u64 {
        let a = self.flushed(from, a);
        let x = from.widened(a);
        self.flags |= if x.class() == Class::Signaling { IE } else { 0 };
        self.note_denormal(from, a, a);
        match x.finite() {
            Some(finite) => self.round(to, finite.exact(x.is_negative())),
            None => to.special(x),
        }
    }

    /// The nearest integer of so many bits; the least one if there is none.
    pub fn integer(&mut self, format: Format, bits: u32, truncated: bool, a: u64) -> u64 {
        let rounding = if truncated { Rounding::TRUNCATED } else { self.rounding() };
        let limit = 1i128 << (bits - 1);
        let found = format.widened(self.flushed(format, a)).to_integer(rounding);
        match found.filter(|(value, ..)| (-limit..limit).contains(value)) {
            Some((value, inexact, _)) => {
                self.flags |= if inexact { PE } else { 0 };
                value as u64 & (u64::MAX >> (64 - bits))
            }
            None => {
                self.flags |= IE;
                limit as u64
            }
        }
    }

    pub fn of_integer(&mut self, format: Format, value: i64) -> u64 {
        let exact = Exact::scaled(value < 0, value.unsigned_abs().into(), 0);
        exact.map_or(0, |exact| self.round(format, exact))
    }

    /// ROUNDPS and the like: a number rounded to an integer as the immediate says.
    pub fn integral(&mut self, format: Format, immediate: u8, a: u64) -> u64 {
        const AS_MXCSR: u8 = 4;
        const UNNOTED: u8 = 8;
        let a = self.flushed(format, a);
        if let Some(nan) = self.nan(format, a, a) {
            return nan;
        }
        let of_immediate = Rounding::of_mode((immediate & 3).into());
        let rounding = if immediate & AS_MXCSR != 0 { self.rounding() } else { of_immediate };
        let x = format.widened(a);
        let Some(finite) = x.finite().filter(|x| x.exponent < format.bits().1 as i32) else { return a };
        let (kept, up, inexact) = finite.exact(x.is_negative()).cut((127 - finite.exponent) as u32, rounding);
        self.flags |= if inexact && immediate & UNNOTED == 0 { PE } else { 0 };
        let value = Exact::scaled(x.is_negative(), kept + u128::from(up), 0);
        value.map_or(a & format.sign(), |value| format.round(value, rounding).value)
    }

    /// RCPPS and the like, or RSQRTPS. They note no exception. CPUs give an approximation with a relative error of at most
    /// 1.5 * 2^-12; this is the nearest number.
    pub fn reciprocal(format: Format, of_root: bool, a: u64) -> u64 {
        let a = if format.is_denormal(a) { a & format.sign() } else { a };
        let x = format.widened(a);
        match x.class() {
            Class::Quiet | Class::Signaling => return a | format.quiet(),
            Class::Zero => return a | format.infinity(),
            _ if of_root && x.is_negative() => return format.indefinite(),
            Class::Infinity => return a & format.sign(),
            _ => {}
        }
        let nearest = Rounding::of_mode(0);
        let divisor = if of_root { root(x).map(|exact| nearest.round(exact, false).value) } else { Some(x) };
        let found = divisor.and_then(|x| quotient(format.widened(format.one()), x));
        let found = found.map(|exact| format.round(exact, nearest)).filter(|found| !found.tiny);
        found.map_or(a & format.sign(), |found| found.value)
    }

    /// An operand, with DAZ applied.
    fn flushed(self, format: Format, value: u64) -> u64 {
        if self.mxcsr & DAZ != 0 && format.is_denormal(value) { value & format.sign() } else { value }
    }

    fn note_denormal(&mut self, format: Format, a: u64, b: u64) {
        self.flags |= if format.is_denormal(a) || format.is_denormal(b) { DE } else { 0 };
    }

    /// The first operand if it is a NaN, else the second (SDM volume 1, table 4-7).
    fn nan(&mut self, format: Format, a: u64, b: u64) -> Option<u64> {
        let signaling = format.is_signaling(a) || format.is_signaling(b);
        self.flags |= if signaling { IE } else { 0 };
        [a, b].into_iter().find(|value| format.is_nan(*value)).map(|value| value | format.quiet())
    }

    fn invalid(&mut self, format: Format) -> u64 {
        self.flags |= IE;
        format.indefinite()
    }

    fn rounding(self) -> Rounding {
        Rounding::of_mode((self.mxcsr >> 13 & 3) as u16)
    }

    fn round(&mut self, format: Format, of: Exact) -> u64 {
        let found = format.round(of, self.rounding());
        let masked = |flag: u16| self.mxcsr >> 7 & u32::from(flag) != 0;
        let precision = |inexact: bool| if inexact { PE } else { 0 };
        if found.large {
            self.flags |= OE | precision(masked(OE) || found.inexact_unbounded);
            return found.value;
        }
        if !found.tiny {
            self.flags |= precision(found.inexact);
            return found.value;
        }
        if !masked(UE) {
            self.flags |= UE | precision(found.inexact_unbounded);
            return found.value;
        }
        if self.mxcsr & (FZ | UM) == FZ | UM {
            self.flags |= UE | PE;
            return found.value & format.sign();
        }
        self.flags |= if found.inexact { UE | PE } else { 0 };
        found.value
    }
}

/// The order of the numbers of a format; -0 is 0.
fn key(format: Format, value: u64) -> i64 {
    let magnitude = (value & !format.sign()) as i64;
    if value & format.sign() != 0 { -magnitude } else { magnitude }
}

/// Element `n` of a vector.
pub(crate) fn lane(of: u128, n: u32, bits: u32) -> u64 {
    (of >> (n * bits)) as u64 & (u64::MAX >> (64 - bits))
}
