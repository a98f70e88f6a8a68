//! Single and double precision as SSE computes with them (Intel SDM volume 1, 10.2.3 and 11.5), for the instructions that
//! the engine computes in another order.

use super::f80::{Class, Exact, F80, Rounding, product, sum};
use super::{DE, IE, OE, PE, UE};
use std::cmp::Ordering;

const DAZ: u32 = 1 << 6;
const UM: u32 = 1 << 11;
const FZ: u32 = 1 << 15;

/// Single or double precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Single,
    Double,
}

impl Format {
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

    fn sign(self) -> u64 {
        1 << (self.bits().0 - 1)
    }

    fn quiet(self) -> u64 {
        1 << (self.bits().1 - 1)
    }

    fn infinity(self) -> u64 {
        ((self.bias() as u64) * 2 + 1) << self.bits().1
    }

    fn is_nan(self, value: u64) -> bool {
        value & !self.sign() > self.infinity()
    }

    fn is_denormal(self, value: u64) -> bool {
        let magnitude = value & !self.sign();
        magnitude != 0 && magnitude >> self.bits().1 == 0
    }

    /// The same number in double extended precision.
    fn widened(self, value: u64) -> F80 {
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

    /// MXCSR after the computations.
    pub fn mxcsr(self) -> u32 {
        self.mxcsr | u32::from(self.flags)
    }

    pub fn add(&mut self, format: Format, a: u64, b: u64) -> u64 {
        let (a, b) = (self.operand(format, a), self.operand(format, b));
        if let Some(nan) = self.nan(format, a, b) {
            return nan;
        }
        let (x, y) = (format.widened(a), format.widened(b));
        match (x.class(), y.class()) {
            (Class::Infinity, Class::Infinity) if a != b => self.invalid(format),
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

    pub fn multiply(&mut self, format: Format, a: u64, b: u64) -> u64 {
        let (a, b) = (self.operand(format, a), self.operand(format, b));
        if let Some(nan) = self.nan(format, a, b) {
            return nan;
        }
        let (x, y) = (format.widened(a), format.widened(b));
        let sign = (a ^ b) & format.sign();
        match (x.class(), y.class()) {
            (Class::Infinity, Class::Zero) | (Class::Zero, Class::Infinity) => self.invalid(format),
            (Class::Infinity, _) | (_, Class::Infinity) => sign | format.infinity(),
            _ => product(x, y).map_or(sign, |exact| self.round(format, exact)),
        }
    }

    /// MINPS and the like, or MAXPS: the second operand unless the first is smaller, or larger. As in the engine, a denormal
    /// operand is not noted.
    pub fn choose(&mut self, format: Format, larger: bool, a: u64, b: u64) -> u64 {
        let flushed = |value| {
            let flush = self.mxcsr & DAZ != 0 && format.is_denormal(value);
            if flush { value & format.sign() } else { value }
        };
        let (a, b) = (flushed(a), flushed(b));
        if format.is_nan(a) || format.is_nan(b) {
            self.flags |= IE;
            return b;
        }
        let key = |value: u64| {
            let magnitude = (value & !format.sign()) as i64;
            if value & format.sign() != 0 { -magnitude } else { magnitude }
        };
        let wanted = if larger { Ordering::Greater } else { Ordering::Less };
        if key(a).cmp(&key(b)) == wanted { a } else { b }
    }

    /// An operand, with DAZ applied.
    fn operand(&mut self, format: Format, value: u64) -> u64 {
        if !format.is_denormal(value) {
            return value;
        }
        if self.mxcsr & DAZ != 0 {
            return value & format.sign();
        }
        self.flags |= DE;
        value
    }

    /// The first operand if it is a NaN, else the second (SDM volume 1, table 4-7).
    fn nan(&mut self, format: Format, a: u64, b: u64) -> Option<u64> {
        let signaling = |value: u64| format.is_nan(value) && value & format.quiet() == 0;
        if signaling(a) || signaling(b) {
            self.flags |= IE;
        }
        [a, b].into_iter().find(|value| format.is_nan(*value)).map(|value| value | format.quiet())
    }

    fn invalid(&mut self, format: Format) -> u64 {
        self.flags |= IE;
        format.sign() | format.infinity() | format.quiet()
    }

    fn rounding(self) -> Rounding {
        Rounding::new((self.mxcsr >> 13 & 3) as u16 * 0x400)
    }

    fn round(&mut self, format: Format, of: Exact) -> u64 {
        let (bits, fraction) = format.bits();
        let sign = if of.negative { 1 << (bits - 1) } else { 0 };
        let drop = 127 - fraction;
        let (kept, up, inexact) = of.cut(drop, self.rounding());
        // A carry out of the fraction goes into the exponent.
        let magnitude = |kept: u128, up: bool, biased: i32| {
            ((kept as u64) & !(1 << fraction)) + ((biased as u64) << fraction) + u64::from(up)
        };
        let carries = kept as u64 + u64::from(up) == 2 << fraction;
        let biased = of.exponent + format.bias();
        if biased + i32::from(carries) > 2 * format.bias() {
            self.flags |= OE | PE;
            let infinite = self.rounding().overflows(of.negative);
            return sign | if infinite { format.infinity() } else { format.infinity() - 1 };
        }
        self.flags |= if inexact { PE } else { 0 };
        if biased + i32::from(carries) > 0 {
            return sign | if biased > 0 { magnitude(kept, up, biased) } else { 1 << fraction };
        }
        if self.mxcsr & (FZ | UM) == FZ | UM {
            self.flags |= UE | PE;
            return sign;
        }
        let below = (1 - biased).unsigned_abs().min(128);
        let (kept, up, inexact) = of.cut(drop + below, self.rounding());
        self.flags |= if inexact { UE | PE } else { 0 };
        sign | (kept as u64 + u64::from(up))
    }
}

/// DPPS: products of the elements that `mask` names in its upper half, added in pairs; the sum stands in the elements that its
/// lower half names (SDM volume 2, DPPS and DPPD).
pub(crate) fn dot_single(sse: &mut Sse, a: u128, b: u128, mask: u8) -> u128 {
    let products = [0u32, 1, 2, 3].map(|n| match mask >> (4 + n) & 1 {
        0 => 0,
        _ => sse.multiply(Format::Single, lane(a, n, 32), lane(b, n, 32)),
    });
    let lower = sse.add(Format::Single, products[0], products[1]);
    let upper = sse.add(Format::Single, products[2], products[3]);
    let sum = sse.add(Format::Single, lower, upper);
    (0..4).filter(|n| mask >> n & 1 != 0).fold(0, |all, n| all | u128::from(sum) << (32 * n))
}

/// DPPD.
pub(crate) fn dot_double(sse: &mut Sse, a: u128, b: u128, mask: u8) -> u128 {
    let products = [0u32, 1].map(|n| match mask >> (4 + n) & 1 {
        0 => 0,
        _ => sse.multiply(Format::Double, lane(a, n, 64), lane(b, n, 64)),
    });
    let sum = sse.add(Format::Double, products[0], products[1]);
    (0..2).filter(|n| mask >> n & 1 != 0).fold(0, |all, n| all | u128::from(sum) << (64 * n))
}

/// Element `n` of a vector.
pub(crate) fn lane(of: u128, n: u32, bits: u32) -> u64 {
    (of >> (n * bits)) as u64 & (u64::MAX >> (64 - bits))
}
