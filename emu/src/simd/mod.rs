//! The vector instructions that the engine computes wrong in some form or state (Intel SDM volume 2, the operation of each):
//! here those of integers.

pub(crate) mod float;
pub(crate) mod strings;

use iced_x86::Mnemonic;

/// An operation of SSSE3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Pshufb,
    Phaddw,
    Phaddd,
    Phaddsw,
    Pmaddubsw,
    Phsubw,
    Phsubd,
    Phsubsw,
    Psignb,
    Psignw,
    Psignd,
    Pmulhrsw,
    Pabsb,
    Pabsw,
    Pabsd,
    Palignr,
}

impl Operation {
    pub fn of(mnemonic: Mnemonic) -> Option<Self> {
        use Mnemonic as M;
        Some(match mnemonic {
            M::Pshufb => Self::Pshufb,
            M::Phaddw => Self::Phaddw,
            M::Phaddd => Self::Phaddd,
            M::Phaddsw => Self::Phaddsw,
            M::Pmaddubsw => Self::Pmaddubsw,
            M::Phsubw => Self::Phsubw,
            M::Phsubd => Self::Phsubd,
            M::Phsubsw => Self::Phsubsw,
            M::Psignb => Self::Psignb,
            M::Psignw => Self::Psignw,
            M::Psignd => Self::Psignd,
            M::Pmulhrsw => Self::Pmulhrsw,
            M::Pabsb => Self::Pabsb,
            M::Pabsw => Self::Pabsw,
            M::Pabsd => Self::Pabsd,
            M::Palignr => Self::Palignr,
            _ => return None,
        })
    }

    /// Whether it combines neighbours of each operand.
    pub fn is_horizontal(self) -> bool {
        use Operation as O;
        matches!(self, O::Phaddw | O::Phaddd | O::Phaddsw | O::Phsubw | O::Phsubd | O::Phsubsw)
    }

    /// The result for vectors of `bytes` bytes.
    pub fn apply(self, a: u128, b: u128, immediate: u8, bytes: u32) -> u128 {
        let saturated = |value: i64| value.clamp(i16::MIN.into(), i16::MAX.into());
        let signed = |x: i64, y: i64| x * y.signum();
        match self {
            Self::Pshufb => (0..bytes).fold(0, |all, n| {
                let from = element(b, n, 8);
                let value = if from < 0 { 0 } else { element(a, from as u32 & (bytes - 1), 8) };
                all | placed(value, n, 8)
            }),
            Self::Phaddw => horizontal(a, b, bytes, 16, |x, y| x + y),
            Self::Phaddd => horizontal(a, b, bytes, 32, |x, y| x + y),
            Self::Phaddsw => horizontal(a, b, bytes, 16, |x, y| saturated(x + y)),
            Self::Phsubw => horizontal(a, b, bytes, 16, |x, y| x - y),
            Self::Phsubd => horizontal(a, b, bytes, 32, |x, y| x - y),
            Self::Phsubsw => horizontal(a, b, bytes, 16, |x, y| saturated(x - y)),
            Self::Pmaddubsw => (0..bytes / 2).fold(0, |all, n| {
                let of = |n: u32| (element(a, n, 8) & 0xff) * element(b, n, 8);
                all | placed(saturated(of(2 * n) + of(2 * n + 1)), n, 16)
            }),
            Self::Psignb => each(a, b, bytes, 8, signed),
            Self::Psignw => each(a, b, bytes, 16, signed),
            Self::Psignd => each(a, b, bytes, 32, signed),
            Self::Pmulhrsw => each(a, b, bytes, 16, |x, y| (((x * y) >> 14) + 1) >> 1),
            Self::Pabsb => each(a, b, bytes, 8, |_, y| y.abs()),
            Self::Pabsw => each(a, b, bytes, 16, |_, y| y.abs()),
            Self::Pabsd => each(a, b, bytes, 32, |_, y| y.abs()),
            Self::Palignr => aligned(a, b, immediate.into(), bytes),
        }
    }
}

/// Element `n` of `bits` bits, sign-extended.
fn element(of: u128, n: u32, bits: u32) -> i64 {
    let value = (of >> (n * bits)) as i64;
    value << (64 - bits) >> (64 - bits)
}

/// A value, cut to its bits, in the place of element `n`.
fn placed(value: i64, n: u32, bits: u32) -> u128 {
    u128::from(value as u64 & (u64::MAX >> (64 - bits))) << (n * bits)
}

/// An operation on the elements of both vectors.
fn each(a: u128, b: u128, bytes: u32, bits: u32, of: impl Fn(i64, i64) -> i64) -> u128 {
    (0..8 * bytes / bits)
        .fold(0, |all, n| all | placed(of(element(a, n, bits), element(b, n, bits)), n, bits))
}

/// An operation on neighbours: those of the first vector make the lower half of the result.
fn horizontal(a: u128, b: u128, bytes: u32, bits: u32, of: impl Fn(i64, i64) -> i64) -> u128 {
    let half = 4 * bytes / bits;
    (0..2 * half).fold(0, |all, n| {
        let (from, pair) = if n < half { (a, n) } else { (b, n - half) };
        all | placed(of(element(from, 2 * pair, bits), element(from, 2 * pair + 1, bits)), n, bits)
    })
}

/// `b` and above it `a`, moved down by so many bytes.
fn aligned(a: u128, b: u128, down: u32, bytes: u32) -> u128 {
    let mask = u128::MAX >> (128 - 8 * bytes);
    let lower = (b & mask).checked_shr(8 * down).unwrap_or(0);
    let upper = match down.checked_sub(bytes) {
        None => (a & mask).checked_shl(8 * (bytes - down)).unwrap_or(0),
        Some(beyond) => (a & mask).checked_shr(8 * beyond).unwrap_or(0),
    };
    (lower | upper) & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operations_are_those_of_the_manual() {
        let a = 0x7fff_8000_0001_0002_8000_ffff_0003_0004;
        assert_eq!(Operation::Phaddw.apply(a, a, 0, 16), 0xffff_0003_7fff_0007_ffff_0003_7fff_0007);
        assert_eq!(Operation::Phaddsw.apply(a, a, 0, 16), 0xffff_0003_8000_0007_ffff_0003_8000_0007);
        assert_eq!(Operation::Pmulhrsw.apply(0x8000, 0x8000, 0, 8), 0x8000);
        assert_eq!(Operation::Palignr.apply(0x11, 0x2200_0000_0000_0000, 7, 8), 0x1122);
        assert_eq!(Operation::Palignr.apply(0x1100, 0x22, 9, 8), 0x11);
        assert_eq!(Operation::Pshufb.apply(0x0807_0605_0403_0201, 0x8007_0f00, 0, 8), 0x0101_0101_0008_0801);
        assert_eq!(Operation::Pabsw.apply(0, 0x8000_ffff, 0, 8), 0x8000_0001);
        assert_eq!(Operation::Psignb.apply(0x8005, 0xff00, 0, 8), 0x8000);
    }
}
