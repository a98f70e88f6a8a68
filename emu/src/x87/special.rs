//! The special cases: NaNs, infinities, zeros and numbers out of range (the tables of Intel SDM volume 2).

use super::f80::{BIAS, Class, F80, Rounding};
use super::{Answer, C2, Operation, PE, Values, functions};

/// The answer if an operand is a NaN, or is in a format that is not supported.
pub(super) fn nan(a: F80, b: Option<F80>) -> Option<Answer> {
    let b = b.unwrap_or(F80::ONE);
    if a.class() == Class::Unsupported || b.class() == Class::Unsupported {
        return Some(Answer::Invalid);
    }
    let signaling = a.class() == Class::Signaling || b.class() == Class::Signaling;
    (a.is_nan() || b.is_nan()).then(|| Answer::Nan(F80::propagated(a, b), signaling))
}

/// The answer for operands that are no NaNs, if these are a special case. `a` is ST(0), `b` is ST(1).
pub(super) fn answer(operation: Operation, a: F80, b: F80, rounding: Rounding) -> Option<Answer> {
    use Operation as O;
    match operation {
        O::F2xm1 => power(a),
        O::Fyl2x => logarithm(a, b),
        O::Fyl2xp1 => logarithm_plus_1(a, b),
        O::Fpatan => arctangent(a, b, rounding),
        O::Fptan | O::Fsin | O::Fcos | O::Fsincos => angle(operation, a),
        O::Fxtract => Some(parts(a)),
        O::Fprem | O::Fprem1 => remainder(a, b),
        O::Fscale => scaled(a, b),
    }
}

fn exact(value: F80) -> Option<Answer> {
    Some(Answer::Done(value.into(), 0))
}

/// A value that Intel's CPUs report as inexact.
fn approximated(value: F80) -> Option<Answer> {
    Some(Answer::Done(value.into(), PE))
}

fn power(a: F80) -> Option<Answer> {
    match a.class() {
        Class::Zero => exact(a),
        Class::Infinity => exact(if a.is_negative() { F80::ONE.negated() } else { a }),
        _ if a.finite()?.exponent < 0 => None,
        _ if a == F80::ONE.negated() => approximated(F80 { head: a.head - 1, ..a }),
        // Exact for 1. Beyond it, where the instruction is not defined, the operand stays.
        _ => approximated(a),
    }
}

fn logarithm(a: F80, b: F80) -> Option<Answer> {
    let negative = b.is_negative();
    match (a.class(), b.class()) {
        (Class::Zero, Class::Zero) => Some(Answer::Invalid),
        (Class::Zero, Class::Infinity) => exact(F80::infinity(!negative)),
        (Class::Zero, _) => Some(Answer::DivideByZero(F80::infinity(!negative).into())),
        _ if a.is_negative() => Some(Answer::Invalid),
        (Class::Infinity, Class::Zero) => Some(Answer::Invalid),
        (Class::Infinity, _) => exact(F80::infinity(negative)),
        _ if a == F80::ONE => {
            if b.is_infinite() {
                Some(Answer::Invalid)
            } else {
                exact(F80::zero(negative))
            }
        }
        (_, Class::Zero) => exact(F80::zero(negative != (a.finite()?.exponent < 0))),
        (_, Class::Infinity) => exact(F80::infinity(negative != (a.finite()?.exponent < 0))),
        _ => None,
    }
}

fn logarithm_plus_1(a: F80, b: F80) -> Option<Answer> {
    let negative = a.is_negative() != b.is_negative();
    match (a.class(), b.class()) {
        (Class::Zero, Class::Infinity) => Some(Answer::Invalid),
        (Class::Zero, _) => exact(F80::zero(negative)),
        (Class::Infinity, _) if a.is_negative() || b.is_zero() => Some(Answer::Invalid),
        (Class::Infinity, _) => exact(F80::infinity(b.is_negative())),
        (_, Class::Zero) => exact(F80::zero(negative)),
        (_, Class::Infinity) => exact(F80::infinity(negative)),
        // Not defined; the operand stays.
        _ if a.is_negative() && a.finite()?.exponent >= 0 => approximated(a),
        _ => None,
    }
}

fn arctangent(a: F80, b: F80, rounding: Rounding) -> Option<Answer> {
    // Quarters of pi.
    let quarters = match (b.class(), a.class(), a.is_negative()) {
        (Class::Infinity, Class::Infinity, false) => 1,
        (Class::Infinity, Class::Infinity, true) => 3,
        (Class::Infinity, _, _) => 2,
        (Class::Zero, _, false) | (_, Class::Infinity, false) => return exact(F80::zero(b.is_negative())),
        (Class::Zero, _, true) | (_, Class::Infinity, true) => 4,
        (_, Class::Zero, _) => 2,
        _ => return None,
    };
    let angle = functions::quarters_of_pi(quarters).magnitude()?.to_round(b.is_negative());
    Some(Answer::rounded(rounding.round(angle, true)))
}

fn angle(operation: Operation, a: F80) -> Option<Answer> {
    match a.class() {
        Class::Infinity => Some(Answer::Invalid),
        Class::Zero => Some(Answer::Done(
            match operation {
                Operation::Fcos => F80::ONE.into(),
                Operation::Fsin => a.into(),
                _ => Values { first: a, pushed: Some(F80::ONE) },
            },
            0,
        )),
        _ => (a.finite()?.exponent >= 63).then_some(Answer::Kept(C2)),
    }
}

/// FXTRACT: exponent and significand.
fn parts(a: F80) -> Answer {
    let pushed = Some(a);
    let Some(finite) = a.finite() else {
        let first = F80::infinity(a.is_zero());
        let values = Values { first, pushed };
        return if a.is_zero() { Answer::DivideByZero(values) } else { Answer::Done(values, 0) };
    };
    let significand = F80 { head: a.head & 0x8000 | BIAS as u16, mantissa: finite.mantissa };
    Answer::Done(Values { first: F80::integer(finite.exponent), pushed: Some(significand) }, 0)
}

fn remainder(a: F80, b: F80) -> Option<Answer> {
    match (a.class(), b.class()) {
        (Class::Infinity, _) | (_, Class::Zero) => Some(Answer::Invalid),
        // Without an underflow, also where a denormal dividend stays one.
        (_, Class::Infinity) | (Class::Zero, _) => exact(a.normalized()),
        _ => None,
    }
}

fn scaled(a: F80, b: F80) -> Option<Answer> {
    match (a.class(), b.class()) {
        (Class::Zero, Class::Infinity) if !b.is_negative() => Some(Answer::Invalid),
        (Class::Infinity, Class::Infinity) if b.is_negative() => Some(Answer::Invalid),
        (Class::Zero | Class::Infinity, _) => exact(a),
        (_, Class::Infinity) if b.is_negative() => exact(F80::zero(a.is_negative())),
        (_, Class::Infinity) => exact(F80::infinity(a.is_negative())),
        // Without an underflow, also where a denormal operand stays one.
        (_, Class::Zero) => exact(a.normalized()),
        _ => None,
    }
}
