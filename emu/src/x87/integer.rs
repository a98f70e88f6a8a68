//! The stores of integers and packed decimals, and the constants (Intel SDM volume 2: FIST, FISTTP, FBSTP, FLDPI).

use super::f80::{F80, Rounding};
use super::{BUSY, C1, ES, EXCEPTIONS, IE, PE, SF, X87};

/// What is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Bytes of it; 10 is a packed decimal number.
    pub size: usize,
    /// Whether it is rounded towards zero, whatever the control word says.
    pub truncated: bool,
    /// Whether ST(0) is popped.
    pub pops: bool,
}

/// A constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Constant {
    Pi,
    Log2Of10,
    Log2OfE,
    Log10Of2,
    LnOf2,
    One,
    Zero,
}

/// Digits of a packed decimal number.
const DIGITS: u32 = 18;

impl X87 {
    /// Stores ST(0) as an integer; `None` if an exception that is not masked prevents that.
    pub fn store_integer(&mut self, as_: Stored) -> Option<[u8; 10]> {
        self.status &= !C1;
        let rounding = if as_.truncated { Rounding::TRUNCATED } else { Rounding::new(self.control) };
        let empty = self.is_empty(0);
        let limit: i128 = if as_.size == 10 { 10i128.pow(DIGITS) } else { 1 << (8 * as_.size - 1) };
        let lowest = if as_.size == 10 { 1 - limit } else { -limit };
        let found =
            self.register(0).to_integer(rounding).filter(|(value, ..)| (lowest..limit).contains(value));
        let (bytes, flags) = match found.filter(|_| !empty) {
            Some((value, inexact, up)) => {
                let precision = if inexact { PE } else { 0 };
                let negative = self.register(0).is_negative();
                (stored(value, negative, as_.size), precision | if up { C1 } else { 0 })
            }
            None => (indefinite(as_.size), if empty { IE | SF } else { IE }),
        };
        self.raise(flags);
        if flags & IE & !self.control != 0 {
            return None;
        }
        self.pop(as_.pops.into());
        Some(bytes)
    }

    /// Pushes a constant, rounded as the control word says.
    pub fn push_constant(&mut self, of: Constant) {
        self.status &= !C1;
        let overflow = !self.is_empty(7);
        if overflow {
            self.raise(IE | SF | C1);
            if self.control & IE == 0 {
                return;
            }
        }
        let value = if overflow { F80::INDEFINITE } else { of.rounded(Rounding::new(self.control)) };
        self.top = (self.top + 7) % 8;
        self.set(0, value);
    }

    pub(super) fn raise(&mut self, flags: u16) {
        self.status |= flags;
        if self.status & !self.control & EXCEPTIONS != 0 && flags & EXCEPTIONS != 0 {
            self.status |= ES | BUSY;
        }
    }
}

impl Constant {
    /// The constant is the number below or the one above, and nearer to the one above, but for the logarithm of 10.
    fn rounded(self, rounding: Rounding) -> F80 {
        let (head, below, nearer_above) = match self {
            Self::One => return F80::ONE,
            Self::Zero => return F80::zero(false),
            Self::Pi => (0x4000, 0xc90f_daa2_2168_c234, true),
            Self::Log2Of10 => (0x4000, 0xd49a_784b_cd1b_8afe, false),
            Self::Log2OfE => (0x3fff, 0xb8aa_3b29_5c17_f0bb, true),
            Self::Log10Of2 => (0x3ffd, 0x9a20_9a84_fbcf_f798, true),
            Self::LnOf2 => (0x3ffe, 0xb172_17f7_d1cf_79ab, true),
        };
        let above = rounding.is_up() || rounding.is_nearest() && nearer_above;
        F80 { head, mantissa: below + u64::from(above) }
    }
}

fn stored(value: i128, negative: bool, size: usize) -> [u8; 10] {
    let mut bytes = [0; 10];
    if size < 10 {
        bytes[..8].copy_from_slice(&(value as i64).to_le_bytes());
        return bytes;
    }
    let mut rest = value.unsigned_abs();
    for byte in &mut bytes[..9] {
        *byte = (rest % 10 + rest / 10 % 10 * 16) as u8;
        rest /= 100;
    }
    bytes[9] = if negative { 0x80 } else { 0 };
    bytes
}

fn indefinite(size: usize) -> [u8; 10] {
    if size == 10 {
        return [0, 0, 0, 0, 0, 0, 0, 0xc0, 0xff, 0xff];
    }
    let mut bytes = [0; 10];
    bytes[size - 1] = 0x80;
    bytes
}
