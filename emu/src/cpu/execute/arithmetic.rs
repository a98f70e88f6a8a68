//! Operations on integers, and the flags that they set (SDM volume 1, appendix A).

use iced_x86::Mnemonic;

const CF: u64 = 1;
const PF: u64 = 1 << 2;
const AF: u64 = 1 << 4;
const ZF: u64 = 1 << 6;
const SF: u64 = 1 << 7;
const OF: u64 = 1 << 11;
const ALL: u64 = CF | PF | AF | ZF | SF | OF;

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Add,
    Or,
    Adc,
    Sbb,
    And,
    Sub,
    Xor,
    /// SUB without a result.
    Cmp,
    /// AND without a result.
    Test,
    Inc,
    Dec,
    Neg,
    Not,
}

/// The operation of an instruction.
pub(super) fn of(mnemonic: Mnemonic) -> Option<Operation> {
    use Mnemonic as M;
    use Operation as O;
    Some(match mnemonic {
        M::Add => O::Add,
        M::Or => O::Or,
        M::Adc => O::Adc,
        M::Sbb => O::Sbb,
        M::And => O::And,
        M::Sub => O::Sub,
        M::Xor => O::Xor,
        M::Cmp => O::Cmp,
        M::Test => O::Test,
        M::Inc => O::Inc,
        M::Dec => O::Dec,
        M::Neg => O::Neg,
        M::Not => O::Not,
        _ => return None,
    })
}

impl Operation {
    /// Whether it replaces its first operand.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Cmp | Self::Test)
    }

    /// The result of the operation on operands of so many bits, and EFLAGS after it. Operations on one operand ignore
    /// `two`.
    pub fn apply(self, one: u64, two: u64, flags: u64, bits: u32) -> (u64, u64) {
        let mask = u64::MAX >> (64 - bits);
        let (a, b, carry) = (one & mask, two & mask, flags & CF);
        let kept_carry = |(value, changed): (u64, u64)| (value, changed & !CF | carry);
        let (value, changed) = match self {
            Self::Add => sum(a, b, 0, bits),
            Self::Adc => sum(a, b, carry, bits),
            Self::Sub | Self::Cmp => difference(a, b, 0, bits),
            Self::Sbb => difference(a, b, carry, bits),
            Self::Inc => kept_carry(sum(a, 1, 0, bits)),
            Self::Dec => kept_carry(difference(a, 1, 0, bits)),
            Self::Neg => difference(0, a, 0, bits),
            Self::And | Self::Test => (a & b, 0),
            Self::Or => (a | b, 0),
            Self::Xor => (a ^ b, 0),
            Self::Not => return (!a & mask, flags),
        };
        (value, flags & !ALL | changed | of_result(value, bits))
    }
}

/// SF, ZF and PF of a result.
fn of_result(value: u64, bits: u32) -> u64 {
    let sign = if value >> (bits - 1) & 1 != 0 { SF } else { 0 };
    let zero = if value == 0 { ZF } else { 0 };
    let parity = if (value as u8).count_ones().is_multiple_of(2) { PF } else { 0 };
    sign | zero | parity
}

/// A sum with a carry, and its CF, AF and OF.
fn sum(a: u64, b: u64, carry: u64, bits: u32) -> (u64, u64) {
    let mask = u64::MAX >> (64 - bits);
    let whole = u128::from(a) + u128::from(b) + u128::from(carry);
    let value = whole as u64 & mask;
    let carried = if whole >> bits != 0 { CF } else { 0 };
    let overflow = if ((a ^ value) & (b ^ value)) >> (bits - 1) & 1 != 0 { OF } else { 0 };
    (value, carried | overflow | (a ^ b ^ value) & AF)
}

/// A difference with a borrow, and its CF, AF and OF.
fn difference(a: u64, b: u64, borrow: u64, bits: u32) -> (u64, u64) {
    let mask = u64::MAX >> (64 - bits);
    let value = a.wrapping_sub(b).wrapping_sub(borrow) & mask;
    let borrowed = if u128::from(a) < u128::from(b) + u128::from(borrow) { CF } else { 0 };
    let overflow = if ((a ^ b) & (a ^ value)) >> (bits - 1) & 1 != 0 { OF } else { 0 };
    (value, borrowed | overflow | (a ^ b ^ value) & AF)
}
