//! Numbers of 256 bits: integer arithmetic only, so that every host computes the same.

use super::f80::{Exact, Finite};
use std::cmp::Ordering;

/// 256 bits, the lowest word first.
type Words = [u64; 4];

/// Bits of a [`Fixed`] after the point.
const FRACTION: i32 = 224;

/// A positive number, `words * 2^(exponent - 255)`, with the top bit of the words set. Operations cut off what does not fit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Big {
    exponent: i32,
    words: Words,
}

/// A number in two's complement, with [`FRACTION`] bits after the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fixed(Words);

fn shifted_left(words: Words, by: u32) -> Words {
    let (skip, bits) = ((by / 64) as usize, by % 64);
    std::array::from_fn(|n| {
        let word = |n: usize| n.checked_sub(skip).and_then(|n| words.get(n)).copied().unwrap_or(0);
        let below = if n == 0 || bits == 0 { 0 } else { word(n - 1) >> (64 - bits) };
        word(n) << bits | below
    })
}

fn shifted_right(words: Words, by: u32) -> Words {
    let (skip, bits) = ((by / 64) as usize, by % 64);
    std::array::from_fn(|n| {
        let word = |n: usize| words.get(n + skip).copied().unwrap_or(0);
        let above = if bits == 0 { 0 } else { word(n + 1) << (64 - bits) };
        word(n) >> bits | above
    })
}

fn leading_zeros(words: &Words) -> u32 {
    let zero_words = words.iter().rev().take_while(|word| **word == 0).count();
    let first = words.iter().rev().nth(zero_words).map_or(0, |word| word.leading_zeros());
    64 * zero_words as u32 + first
}

/// The sum, and whether it has a carry.
fn added(a: &Words, b: &Words) -> (Words, bool) {
    let mut carry = false;
    let sum = std::array::from_fn(|n| {
        let (one, first) = a[n].overflowing_add(b[n]);
        let (all, second) = one.overflowing_add(carry.into());
        carry = first | second;
        all
    });
    (sum, carry)
}

/// The difference, and whether it has a borrow.
fn subtracted(a: &Words, b: &Words) -> (Words, bool) {
    let mut borrow = false;
    let difference = std::array::from_fn(|n| {
        let (one, first) = a[n].overflowing_sub(b[n]);
        let (all, second) = one.overflowing_sub(borrow.into());
        borrow = first | second;
        all
    });
    (difference, borrow)
}

/// The product of 512 bits: its upper and its lower half.
fn product(a: &Words, b: &Words) -> (Words, Words) {
    let mut all = [0u64; 8];
    for (i, x) in a.iter().enumerate() {
        let mut carry = 0u128;
        for (j, y) in b.iter().enumerate() {
            let sum = u128::from(*x) * u128::from(*y) + u128::from(all[i + j]) + carry;
            all[i + j] = sum as u64;
            carry = sum >> 64;
        }
        all[i + 4] = carry as u64;
    }
    let [a, b, c, d, e, f, g, h] = all;
    ([e, f, g, h], [a, b, c, d])
}

impl Big {
    /// `value * 2^exponent`; `None` for 0.
    pub fn new(value: u128, exponent: i32) -> Option<Self> {
        let shift = value.leading_zeros();
        let value = value.checked_shl(shift)?;
        Some(Big {
            exponent: exponent + 127 - shift as i32,
            words: [0, 0, value as u64, (value >> 64) as u64],
        })
    }

    pub fn times(self, other: Big) -> Big {
        let (upper, lower) = product(&self.words, &other.words);
        let exponent = self.exponent + other.exponent;
        if upper[3] >> 63 != 0 {
            return Big { exponent: exponent + 1, words: upper };
        }
        let mut words = shifted_left(upper, 1);
        words[0] |= lower[3] >> 63;
        Big { exponent, words }
    }

    pub fn over(self, other: Big) -> Big {
        let mut rest = self.words;
        let mut quotient = [0; 4];
        let mut exponent = self.exponent - other.exponent;
        // The first bit of the quotient is 1: the dividend is not less than the divisor, or becomes so when doubled.
        let (mut above, less) = (false, subtracted(&rest, &other.words).1);
        if less {
            exponent -= 1;
            (above, rest) = (true, shifted_left(rest, 1));
        }
        for bit in (0..256).rev() {
            let (difference, borrow) = subtracted(&rest, &other.words);
            if above || !borrow {
                rest = difference;
                quotient[bit / 64] |= 1 << (bit % 64);
            }
            above = rest[3] >> 63 != 0;
            rest = shifted_left(rest, 1);
        }
        Big { exponent, words: quotient }
    }

    pub fn doubled(self) -> Big {
        Big { exponent: self.exponent + 1, ..self }
    }

    /// The number to be rounded. It is not exact: what was cut off is not 0.
    pub fn to_round(self, negative: bool) -> Exact {
        let mantissa = u128::from(self.words[3]) << 64 | u128::from(self.words[2]);
        Exact { negative, exponent: self.exponent, mantissa, more: true }
    }
}

impl From<Finite> for Big {
    fn from(of: Finite) -> Self {
        Big { exponent: of.exponent, words: [0, 0, 0, of.mantissa] }
    }
}

impl Fixed {
    pub const ZERO: Fixed = Fixed([0; 4]);
    pub const ONE: Fixed = Fixed::integer(1);
    /// The smallest step.
    pub const STEP: Fixed = Fixed([1, 0, 0, 0]);

    pub const fn integer(value: i32) -> Fixed {
        Fixed([0, 0, 0, ((value as u32) as u64) << (FRACTION - 192)])
    }

    pub fn plus(self, other: Fixed) -> Fixed {
        Fixed(added(&self.0, &other.0).0)
    }

    pub fn minus(self, other: Fixed) -> Fixed {
        Fixed(subtracted(&self.0, &other.0).0)
    }

    /// The sum or the difference.
    pub fn plus_signed(self, other: Fixed, negative: bool) -> Fixed {
        if negative { self.minus(other) } else { self.plus(other) }
    }

    /// The product of two numbers that are not negative.
    pub fn times(self, other: Fixed) -> Fixed {
        let (upper, lower) = product(&self.0, &other.0);
        let up = 256 - FRACTION as u32;
        let mut words = shifted_left(upper, up);
        words[0] |= lower[3] >> (64 - up);
        Fixed(words)
    }

    /// The quotient of a number that is not negative.
    pub fn over(self, divisor: u32) -> Fixed {
        let divisor = u64::from(divisor.max(1));
        let (mut words, mut rest) = (self.0, 0u64);
        for word in words.iter_mut().rev() {
            // In halves, so that no division of 128 bits is needed.
            let high = rest << 32 | *word >> 32;
            let low = (high % divisor) << 32 | *word & 0xffff_ffff;
            let (upper, lower) = (high / divisor, low / divisor);
            *word = upper << 32 | lower;
            rest = low % divisor;
        }
        Fixed(words)
    }

    pub fn is_negative(self) -> bool {
        self.0[3] >> 63 != 0
    }

    /// The magnitude; `None` for 0.
    pub fn magnitude(self) -> Option<Big> {
        let words = if self.is_negative() { Fixed::ZERO.minus(self).0 } else { self.0 };
        let shift = leading_zeros(&words);
        let exponent = 255 - FRACTION - shift as i32;
        (shift < 256).then(|| Big { exponent, words: shifted_left(words, shift) })
    }

    pub fn at_least(self, other: Fixed) -> Fixed {
        if compared(self, other) == Ordering::Less { other } else { self }
    }

    pub fn at_most(self, other: Fixed) -> Fixed {
        if compared(self, other) == Ordering::Greater { other } else { self }
    }
}

/// Compares numbers that are not negative.
fn compared(a: Fixed, b: Fixed) -> Ordering {
    a.0.iter().rev().cmp(b.0.iter().rev())
}

impl From<Big> for Fixed {
    /// The number must be less than 2^31.
    fn from(of: Big) -> Self {
        let shift = 255 - FRACTION - of.exponent;
        Fixed(shifted_right(of.words, u32::try_from(shift).unwrap_or(0).min(256)))
    }
}
