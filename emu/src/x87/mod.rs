//! The instructions of the x87, with integers only: every host computes the same. The machine executes those that the engine
//! computes with the host's C library or wrong, and all of them while an exception is not masked.
//!
//! Source: Intel SDM volume 2, the operation and the tables of each, and volume 1, chapter 8. Where the manual leaves
//! something undefined, it is as on Intel's CPUs.

pub(crate) mod arithmetic;
mod big;
mod exact;
mod f80;
mod functions;
mod integer;
pub(crate) mod narrow;
mod special;

pub use f80::F80;
pub use integer::{Constant, Stored};

use f80::{Exact, Finite, Rounded, Rounding};
use functions::Logarithm;

/// Invalid operation.
pub const IE: u16 = 1;
/// Denormal operand.
pub const DE: u16 = 2;
/// Division by zero.
pub const ZE: u16 = 4;
/// Overflow.
pub const OE: u16 = 8;
/// Underflow.
pub const UE: u16 = 0x10;
/// Inexact result.
pub const PE: u16 = 0x20;
/// Stack fault.
pub const SF: u16 = 0x40;
/// An exception that is not masked is pending.
pub const ES: u16 = 0x80;
/// Bit 2 of the quotient of a remainder.
pub const C0: u16 = 0x100;
/// Rounded up, stack overflow, or bit 0 of a quotient.
pub const C1: u16 = 0x200;
/// The reduction is not complete.
pub const C2: u16 = 0x400;
/// Bit 1 of a quotient.
pub const C3: u16 = 0x4000;
const BUSY: u16 = 0x8000;
const EXCEPTIONS: u16 = 0x3f;

/// The instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation {
    F2xm1,
    Fyl2x,
    Fptan,
    Fpatan,
    Fxtract,
    Fprem1,
    Fprem,
    Fyl2xp1,
    Fsincos,
    Fscale,
    Fsin,
    Fcos,
}

/// What an instruction does to the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// ST(0) is replaced.
    Replace,
    /// ST(0) is replaced, and another value is pushed.
    Push,
    /// ST(0) is popped, and ST(1) is replaced.
    Pop,
}

/// The state of the x87 as far as these instructions use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct X87 {
    /// Control word.
    pub control: u16,
    /// Status word; its field for TOP is not used.
    pub status: u16,
    /// Number of the register ST(0), 0 to 7.
    pub top: usize,
    /// Which registers are empty.
    pub empty: [bool; 8],
    /// The registers, not counted from the top.
    pub registers: [F80; 8],
}

/// What an instruction is about to do.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// IE, and the default NaN.
    Invalid,
    /// ZE, and these values.
    DivideByZero(Values),
    /// A NaN, and IE if an operand was signaling.
    Nan(F80, bool),
    /// Nothing but these bits of the status word.
    Kept(u16),
    /// These values, and bits of the status word.
    Done(Values, u16),
}

/// The results.
#[derive(Debug, Clone, Copy)]
struct Values {
    /// In the place of ST(0), or of ST(1) if that is popped.
    first: F80,
    /// What is pushed.
    pushed: Option<F80>,
}

impl Operation {
    fn shape(self) -> Shape {
        match self {
            Self::Fyl2x | Self::Fyl2xp1 | Self::Fpatan => Shape::Pop,
            Self::Fptan | Self::Fsincos | Self::Fxtract => Shape::Push,
            _ => Shape::Replace,
        }
    }

    fn takes_two(self) -> bool {
        self.shape() == Shape::Pop || matches!(self, Self::Fprem | Self::Fprem1 | Self::Fscale)
    }

    /// Whether C2 says that the operand was out of range, or the reduction is not complete.
    fn reports_range(self) -> bool {
        use Operation as O;
        matches!(self, O::Fsin | O::Fcos | O::Fsincos | O::Fptan | O::Fprem | O::Fprem1)
    }
}

impl Answer {
    fn rounded(of: Rounded) -> Self {
        Self::pushing(of, None)
    }

    fn pushing(of: Rounded, pushed: Option<F80>) -> Self {
        Answer::Done(Values { first: of.value, pushed }, of.flags | if of.up { C1 } else { 0 })
    }
}

impl From<F80> for Values {
    fn from(first: F80) -> Self {
        Values { first, pushed: None }
    }
}

impl X87 {
    /// Executes an instruction. An exception that is not masked becomes pending.
    pub fn execute(&mut self, operation: Operation) {
        self.status &= !C1;
        if operation.reports_range() {
            self.status &= !C2;
        }
        let (a, b) = (self.register(0), self.register(1));
        if let Some(fault) = self.stack_fault(operation) {
            return self.finish(operation, fault | IE | SF, Some(F80::INDEFINITE.into()));
        }
        let two = operation.takes_two();
        let answer = special::nan(a, two.then_some(b))
            .or_else(|| special::answer(operation, a, b, Rounding::new(self.control)))
            .unwrap_or_else(|| self.compute(operation, a, b));
        let denormal = if a.is_denormal() || two && b.is_denormal() { DE } else { 0 };
        match answer {
            Answer::Invalid => self.finish(operation, IE, Some(F80::INDEFINITE.into())),
            Answer::DivideByZero(values) => self.finish(operation, ZE, Some(values)),
            Answer::Nan(value, signaling) => {
                self.finish(operation, if signaling { IE } else { 0 }, Some(value.into()));
            }
            Answer::Kept(bits) => self.finish(operation, bits, None),
            _ if denormal & !self.control != 0 => self.finish(operation, DE, None),
            Answer::Done(values, bits) => {
                if matches!(operation, Operation::Fprem | Operation::Fprem1) {
                    self.status &= !(C0 | C3);
                }
                self.finish(operation, denormal | bits, Some(values));
            }
        }
    }

    fn register(&self, n: usize) -> F80 {
        self.registers[(self.top + n) % 8]
    }

    fn is_empty(&self, n: usize) -> bool {
        self.empty[(self.top + n) % 8]
    }

    fn set(&mut self, n: usize, value: F80) {
        let at = (self.top + n) % 8;
        self.registers[at] = value;
        self.empty[at] = false;
    }

    /// C1 of a stack fault, if there is one: whether it is an overflow.
    fn stack_fault(&self, operation: Operation) -> Option<u16> {
        if self.is_empty(0) || operation.takes_two() && self.is_empty(1) {
            return Some(0);
        }
        (operation.shape() == Shape::Push && !self.is_empty(7)).then_some(C1)
    }

    /// Sets flags of the status word, and writes the results unless one of the exceptions prevents that: those that are found
    /// before the computation, if they are not masked (SDM volume 1, 8.6).
    fn finish(&mut self, operation: Operation, flags: u16, values: Option<Values>) {
        self.status |= flags;
        if self.status & !self.control & EXCEPTIONS != 0 && flags & EXCEPTIONS != 0 {
            self.status |= ES | BUSY;
        }
        let Some(values) = values.filter(|_| flags & !self.control & (IE | DE | ZE) == 0) else { return };
        match operation.shape() {
            Shape::Replace => self.set(0, values.first),
            Shape::Push => {
                self.set(0, values.first);
                self.top = (self.top + 7) % 8;
                self.set(0, values.pushed.unwrap_or(values.first));
            }
            Shape::Pop => {
                self.set(1, values.first);
                self.empty[self.top % 8] = true;
                self.top = (self.top + 1) % 8;
            }
        }
    }

    /// The result for finite operands that are not 0.
    fn compute(&self, operation: Operation, a: F80, b: F80) -> Answer {
        use Operation as O;
        let rounding = Rounding::new(self.control);
        let (Some(x), negative) = (a.finite(), a.is_negative()) else { return Answer::Invalid };
        let second = b.finite().unwrap_or(x);
        let of = match operation {
            O::Fsin | O::Fcos | O::Fsincos | O::Fptan => {
                return Angle::new(x, negative).answer(operation, rounding);
            }
            O::Fprem | O::Fprem1 => return remainder(operation, (x, negative), second, rounding),
            O::Fscale => {
                return Answer::rounded(rounding.round(exact::scaled(x, negative, b), false));
            }
            O::Fpatan => arctangent((second, b.is_negative()), (x, negative)),
            O::Fyl2x if x.mantissa == 1 << 63 => {
                let magnitude = u128::from(second.mantissa) * u128::from(x.exponent.unsigned_abs());
                Exact::scaled(b.is_negative() != (x.exponent < 0), magnitude, second.exponent - 63)
            }
            O::Fyl2x => product(functions::logarithm(x.mantissa.into(), x.exponent - 63), second, b),
            O::Fyl2xp1 => product(functions::logarithm_plus_1(x, negative), second, b),
            _ => functions::power_minus_1(x, negative).map(|power| power.to_round(negative)),
        };
        // Intel's CPUs report every result of these as inexact, also those that are exact.
        of.map_or(Answer::Invalid, |of| Answer::rounded(rounding.round(of, true)))
    }
}

/// `y` times a logarithm.
fn product((logarithm, negative): Logarithm, y: Finite, of: F80) -> Option<Exact> {
    Some(logarithm?.times(y.into()).to_round(negative != of.is_negative()))
}

/// The angle of the point (x, y); each is a magnitude and whether it is negative.
fn arctangent((y, below): (Finite, bool), (x, left): (Finite, bool)) -> Option<Exact> {
    let steep = (y.exponent, y.mantissa) > (x.exponent, x.mantissa);
    let angle = if steep { functions::arctangent(x, y) } else { functions::arctangent(y, x) }?;
    let quarters = match (steep, left) {
        (false, false) => return Some(angle.to_round(below)),
        (true, _) => 2,
        (false, true) => 4,
    };
    let sum = functions::quarters_of_pi(quarters).plus_signed(angle.into(), steep != left);
    Some(sum.magnitude()?.to_round(below))
}

fn remainder(operation: Operation, (x, negative): (Finite, bool), y: Finite, rounding: Rounding) -> Answer {
    let of = exact::remainder(x, y, operation == Operation::Fprem1);
    let condition = match of.quotient {
        None => C2,
        Some(quotient) => [(1, C1), (2, C3), (4, C0)]
            .into_iter()
            .filter(|(bit, _)| quotient & bit != 0)
            .fold(0, |all, (_, condition)| all | condition),
    };
    let negative = negative != of.flipped;
    let rounded = match of.magnitude {
        Some(magnitude) => rounding.round(Exact { negative, ..magnitude }, false),
        None => Rounded { value: F80::zero(negative), flags: 0, up: false },
    };
    Answer::Done(rounded.value.into(), rounded.flags | condition)
}

/// An angle, reduced to at most an eighth of a turn.
struct Angle {
    /// Its magnitude; `None` for 0.
    rest: Option<big::Big>,
    negative: bool,
    /// Quarters of a turn that are to be added.
    quarters: u128,
    /// Whether the angle was negative before.
    mirrored: bool,
}

impl Angle {
    /// Half of pi to 66 bits, in units of 2^-65 (SDM volume 1, 8.3.8).
    const QUARTER: u128 = 0x3_243f_6a88_85a3_08d3;

    /// The angle must be less than 2^63.
    fn new(x: Finite, negative: bool) -> Self {
        if x.exponent < -1 {
            return Angle { rest: Some(x.into()), negative: false, quarters: 0, mirrored: negative };
        }
        let whole = u128::from(x.mantissa) << (x.exponent + 2).min(64);
        let (quarters, rest) = (whole / Self::QUARTER, whole % Self::QUARTER);
        let beyond = rest > Self::QUARTER / 2;
        let (quarters, rest) = if beyond { (quarters + 1, Self::QUARTER - rest) } else { (quarters, rest) };
        Angle { rest: big::Big::new(rest, -65), negative: beyond, quarters, mirrored: negative }
    }

    fn answer(&self, operation: Operation, rounding: Rounding) -> Answer {
        let round = |of: Option<Exact>| of.map(|of| rounding.round(of, true));
        let result = match operation {
            Operation::Fptan => round(self.tangent()).map(|tangent| (tangent, Some(F80::ONE))),
            Operation::Fcos => round(self.sine(1)).map(|cosine| (cosine, None)),
            Operation::Fsincos => round(self.sine(0)).zip(round(self.sine(1))).map(both),
            _ => round(self.sine(0)).map(|sine| (sine, None)),
        };
        result.map_or(Answer::Invalid, |(of, pushed)| Answer::pushing(of, pushed))
    }

    /// The sine after so many more quarters of a turn. Only that of the angle itself changes its sign with the angle.
    fn sine(&self, more: u128) -> Option<Exact> {
        let quarters = (self.quarters + more) % 4;
        let (sine, cosine) = functions::sine_and_cosine(self.rest?);
        let mirrored = self.mirrored && more == 0;
        let (value, negative) =
            if quarters.is_multiple_of(2) { (sine, self.negative) } else { (cosine?, false) };
        Some(value.to_round(negative ^ (quarters >= 2) ^ mirrored))
    }

    fn tangent(&self) -> Option<Exact> {
        let odd = self.quarters % 2 == 1;
        let value = if odd { functions::cotangent(self.rest?) } else { functions::tangent(self.rest?) };
        Some(value?.to_round(self.negative ^ odd ^ self.mirrored))
    }
}

/// FSINCOS: sine and cosine, with the flags of both. C1 is the cosine's, which is the top of the stack.
fn both((sine, cosine): (Rounded, Rounded)) -> (Rounded, Option<F80>) {
    (Rounded { flags: sine.flags | cosine.flags, up: cosine.up, ..sine }, Some(cosine.value))
}
