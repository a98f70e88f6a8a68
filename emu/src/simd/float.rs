//! The instructions of SSE that compute with floating-point numbers (Intel SDM volume 2, the operation of each).

use crate::x87::narrow::{Format, Sse, lane};
use iced_x86::{Instruction, Mnemonic, OpKind};
use std::cmp::Ordering;

/// Such an instruction whose result is a vector of such numbers, or of masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arithmetic {
    what: Operation,
    format: Format,
    /// Whether only the lowest element is computed, and the others stay.
    scalar: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Root,
    Minimum,
    Maximum,
    Compare,
    Round,
    /// Subtracts the even elements, and adds the odd ones.
    AddSubtract,
    AddPairs,
    SubtractPairs,
    Dot,
    Reciprocal,
    ReciprocalRoot,
}

/// What an element of a conversion is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    Number(Format),
    /// An integer of so many bits.
    Integer(u32),
}

/// A conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conversion {
    from: Element,
    to: Element,
    /// How many elements are converted.
    count: u32,
    truncated: bool,
    /// Whether the rest of the destination stays; else it becomes 0.
    keeps: bool,
}

/// COMISS and the like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    format: Format,
    /// Whether a quiet NaN is an exception.
    signals: bool,
}

/// An instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Float {
    Arithmetic(Arithmetic),
    Conversion(Conversion),
    Order(Order),
}

/// The forms of the operations: packed singles and doubles, scalar singles and doubles.
#[rustfmt::skip]
const OPERATIONS: [(Operation, [Mnemonic; 4]); 15] = {
    use Mnemonic as M;
    use Operation as O;
    const NONE: Mnemonic = Mnemonic::INVALID;
    [
        (O::Add, [M::Addps, M::Addpd, M::Addss, M::Addsd]),
        (O::Subtract, [M::Subps, M::Subpd, M::Subss, M::Subsd]),
        (O::Multiply, [M::Mulps, M::Mulpd, M::Mulss, M::Mulsd]),
        (O::Divide, [M::Divps, M::Divpd, M::Divss, M::Divsd]),
        (O::Root, [M::Sqrtps, M::Sqrtpd, M::Sqrtss, M::Sqrtsd]),
        (O::Minimum, [M::Minps, M::Minpd, M::Minss, M::Minsd]),
        (O::Maximum, [M::Maxps, M::Maxpd, M::Maxss, M::Maxsd]),
        (O::Compare, [M::Cmpps, M::Cmppd, M::Cmpss, M::Cmpsd]),
        (O::Round, [M::Roundps, M::Roundpd, M::Roundss, M::Roundsd]),
        (O::AddSubtract, [M::Addsubps, M::Addsubpd, NONE, NONE]),
        (O::AddPairs, [M::Haddps, M::Haddpd, NONE, NONE]),
        (O::SubtractPairs, [M::Hsubps, M::Hsubpd, NONE, NONE]),
        (O::Dot, [M::Dpps, M::Dppd, NONE, NONE]),
        (O::Reciprocal, [M::Rcpps, NONE, M::Rcpss, NONE]),
        (O::ReciprocalRoot, [M::Rsqrtps, NONE, M::Rsqrtss, NONE]),
    ]
};

impl Float {
    /// What the instruction is, if it is one of these.
    pub fn of(i: &Instruction) -> Option<Self> {
        let mnemonic = i.mnemonic();
        // One of the strings is a CMPSD, too.
        if mnemonic == Mnemonic::INVALID || i.is_string_instruction() {
            return None;
        }
        let found = OPERATIONS.iter().find_map(|(what, forms)| {
            let form = forms.iter().position(|one| *one == mnemonic)?;
            let format = if form % 2 == 0 { Format::Single } else { Format::Double };
            Some(Arithmetic { what: *what, format, scalar: form >= 2 })
        });
        found
            .map(Self::Arithmetic)
            .or_else(|| conversion(i).map(Self::Conversion))
            .or_else(|| order(mnemonic).map(Self::Order))
    }

    /// Whether the engine computes it wrong whatever MXCSR is.
    pub fn is_mended(self, i: &Instruction) -> bool {
        let Self::Arithmetic(of) = self else { return false };
        match of.what {
            // The engine adds in another order.
            Operation::Dot => true,
            // It notes exceptions, and does not take denormal numbers for 0.
            Operation::Reciprocal | Operation::ReciprocalRoot => true,
            // It notes an inexact result although it is not to.
            Operation::Round => i.immediate8() & 8 != 0,
            // It raises #UD.
            Operation::Compare => i.immediate8() > 7,
            _ => false,
        }
    }
}

fn conversion(i: &Instruction) -> Option<Conversion> {
    use Mnemonic as M;
    let mnemonic = i.mnemonic();
    let of_integers = matches!(mnemonic, M::Cvtsi2ss | M::Cvtsi2sd);
    let wide = match i.op1_kind() {
        OpKind::Register if of_integers => i.op1_register().size() == 8,
        _ if of_integers => i.memory_size().size() == 8,
        _ => i.op0_register().size() == 8,
    };
    const S: Element = Element::Number(Format::Single);
    const D: Element = Element::Number(Format::Double);
    const I: Element = Element::Integer(32);
    let gpr = Element::Integer(if wide { 64 } else { 32 });
    let (from, to, count) = match mnemonic {
        M::Cvtpi2ps => (I, S, 2),
        M::Cvtpi2pd | M::Cvtdq2pd => (I, D, 2),
        M::Cvtps2pi | M::Cvttps2pi => (S, I, 2),
        M::Cvtpd2pi | M::Cvttpd2pi | M::Cvtpd2dq | M::Cvttpd2dq => (D, I, 2),
        M::Cvtdq2ps => (I, S, 4),
        M::Cvtps2dq | M::Cvttps2dq => (S, I, 4),
        M::Cvtps2pd => (S, D, 2),
        M::Cvtpd2ps => (D, S, 2),
        M::Cvtss2sd => (S, D, 1),
        M::Cvtsd2ss => (D, S, 1),
        M::Cvtsi2ss => (gpr, S, 1),
        M::Cvtsi2sd => (gpr, D, 1),
        M::Cvtss2si | M::Cvttss2si => (S, gpr, 1),
        M::Cvtsd2si | M::Cvttsd2si => (D, gpr, 1),
        _ => return None,
    };
    let truncated = matches!(
        mnemonic,
        M::Cvttps2pi | M::Cvttpd2pi | M::Cvttpd2dq | M::Cvttps2dq | M::Cvttss2si | M::Cvttsd2si
    );
    Some(Conversion { from, to, count, truncated, keeps: count == 1 || mnemonic == M::Cvtpi2ps })
}

fn order(mnemonic: Mnemonic) -> Option<Order> {
    use Mnemonic as M;
    let (format, signals) = match mnemonic {
        M::Comiss => (Format::Single, true),
        M::Comisd => (Format::Double, true),
        M::Ucomiss => (Format::Single, false),
        M::Ucomisd => (Format::Double, false),
        _ => return None,
    };
    Some(Order { format, signals })
}

impl Arithmetic {
    /// The destination after it; `a` is the destination before it.
    pub fn apply(self, sse: &mut Sse, a: u128, b: u128, immediate: u8) -> u128 {
        use Operation as O;
        let (format, bits) = (self.format, self.format.size());
        if self.what == O::Dot {
            return dot(sse, format, a, b, immediate);
        }
        let (count, half) = (if self.scalar { 1 } else { 128 / bits }, 64 / bits);
        (0..count).fold(a, |result, n| {
            let (from, pair) = if n < half { (a, 2 * n) } else { (b, 2 * (n - half)) };
            let pair = |odd: u32| lane(from, pair + odd, bits);
            let (x, y) = (lane(a, n, bits), lane(b, n, bits));
            let value = match self.what {
                O::Add => sse.add(format, x, y),
                O::AddSubtract if n % 2 == 1 => sse.add(format, x, y),
                O::Subtract | O::AddSubtract => sse.subtract(format, x, y),
                O::Multiply => sse.multiply(format, x, y),
                O::Divide => sse.divide(format, x, y),
                O::Root => sse.root(format, y),
                O::Minimum => sse.choose(format, false, x, y),
                O::Maximum => sse.choose(format, true, x, y),
                O::Compare => compared(sse, format, x, y, immediate),
                O::Round => sse.integral(format, immediate, y),
                O::AddPairs => sse.add(format, pair(0), pair(1)),
                O::SubtractPairs => sse.subtract(format, pair(0), pair(1)),
                O::Reciprocal => Sse::reciprocal(format, false, y),
                O::ReciprocalRoot => Sse::reciprocal(format, true, y),
                O::Dot => x,
            };
            placed(result, value, n, bits)
        })
    }
}

/// A vector with this value as element `n`.
fn placed(vector: u128, value: u64, n: u32, bits: u32) -> u128 {
    vector & !(u128::from(u64::MAX >> (64 - bits)) << (n * bits)) | u128::from(value) << (n * bits)
}

/// CMPPS and the like: all ones if the predicate holds. Its upper bits are ignored.
fn compared(sse: &mut Sse, format: Format, a: u64, b: u64, predicate: u8) -> u64 {
    const NEGATED: u8 = 4;
    let found = sse.compare(format, a, b, matches!(predicate & 3, 1 | 2));
    let holds = match predicate & 3 {
        0 => found == Some(Ordering::Equal),
        1 => found == Some(Ordering::Less),
        2 => matches!(found, Some(Ordering::Less | Ordering::Equal)),
        _ => found.is_none(),
    };
    if holds == (predicate & NEGATED == 0) { u64::MAX >> (64 - format.size()) } else { 0 }
}

/// DPPS and DPPD: products of the elements that `mask` names in its upper half, added in pairs; the sum stands in the elements
/// that its lower half names.
fn dot(sse: &mut Sse, format: Format, a: u128, b: u128, mask: u8) -> u128 {
    let bits = format.size();
    let count = 128 / bits;
    let mut terms: Vec<u64> = (0..count)
        .map(|n| match mask >> (4 + n) & 1 {
            0 => 0,
            _ => sse.multiply(format, lane(a, n, bits), lane(b, n, bits)),
        })
        .collect();
    while terms.len() > 1 && !sse.stops() {
        terms = terms
            .chunks(2)
            .map(|pair| pair.iter().copied().reduce(|x, y| sse.add(format, x, y)).unwrap_or(0))
            .collect();
    }
    let sum = terms.first().copied().unwrap_or(0);
    (0..count).filter(|n| mask >> n & 1 != 0).fold(0, |all, n| placed(all, sum, n, bits))
}

impl Conversion {
    /// The destination after it; `a` is the destination before it.
    pub fn apply(self, sse: &mut Sse, a: u128, b: u128) -> u128 {
        let bits = self.to.size();
        (0..self.count).fold(if self.keeps { a } else { 0 }, |result, n| {
            let value = lane(b, n, self.from.size());
            let value = match (self.from, self.to) {
                (Element::Number(from), Element::Number(to)) => sse.convert(from, to, value),
                (Element::Number(from), Element::Integer(bits)) => {
                    sse.integer(from, bits, self.truncated, value)
                }
                (Element::Integer(bits), Element::Number(to)) => {
                    sse.of_integer(to, (value as i64) << (64 - bits) >> (64 - bits))
                }
                (Element::Integer(_), Element::Integer(_)) => value,
            };
            placed(result, value, n, bits)
        })
    }
}

impl Element {
    fn size(self) -> u32 {
        match self {
            Self::Number(format) => format.size(),
            Self::Integer(bits) => bits,
        }
    }
}

impl Order {
    /// ZF, PF and CF for the lowest elements.
    pub fn flags(self, sse: &mut Sse, a: u128, b: u128) -> u64 {
        let bits = self.format.size();
        order_flags(sse.compare(self.format, lane(a, 0, bits), lane(b, 0, bits), self.signals))
    }
}

/// ZF, PF and CF of a comparison; `None`: not ordered.
pub(crate) fn order_flags(found: Option<Ordering>) -> u64 {
    match found {
        None => 0x45,
        Some(Ordering::Less) => 1,
        Some(Ordering::Equal) => 0x40,
        Some(Ordering::Greater) => 0,
    }
}
