//! The arithmetic of the x87, its comparisons and moves (Intel SDM volume 1, chapter 8, and volume 2), for programs that have
//! unmasked an exception: what the engine does then is that of a masked one.

use super::f80::{Class, F80, Rounding, product, quotient, root, sum};
use super::narrow::Format;
use super::{C0, C1, C2, C3, DE, IE, OE, PE, SF, UE, X87, ZE};
use std::cmp::Ordering;

/// An operation on two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// An operation on ST(0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unary {
    Root,
    Integer,
    Negate,
    Magnitude,
}

/// A number that an instruction takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Of this register, counted from the top.
    Register(usize),
    /// From memory, in this format.
    Number(Format, u64),
    Extended(F80),
    Integer(i64),
}

/// What happens to the stack after an instruction.
pub(crate) type Pops = usize;

/// A result, and the exceptions that were found; C1 if it was rounded up.
struct Found {
    value: F80,
    flags: u16,
}

impl Found {
    fn exact(value: F80) -> Self {
        Found { value, flags: 0 }
    }

    fn invalid() -> Self {
        Found { value: F80::INDEFINITE, flags: IE }
    }
}

impl Source {
    /// The number, and whether the operand in memory was denormal; `None` if the register is empty.
    fn number(self, x87: &X87) -> Option<(F80, bool)> {
        match self {
            Self::Register(n) => (!x87.is_empty(n)).then(|| (x87.register(n), false)),
            Self::Number(format, bits) => Some((format.widened(bits), format.is_denormal(bits))),
            Self::Extended(value) => Some((value, false)),
            Self::Integer(value) => Some((F80::scaled(value < 0, value.unsigned_abs(), 63), false)),
        }
    }
}

impl X87 {
    /// FADD and the like: a register is combined with a number, and its value is the second operand if `reversed`.
    pub(crate) fn combine(&mut self, what: Binary, reversed: bool, to: usize, from: Source, pops: Pops) {
        self.status &= !C1;
        let operands = from.number(self).filter(|_| !self.is_empty(to));
        let Some((b, denormal)) = operands else {
            return self.complete(Found { value: F80::INDEFINITE, flags: IE | SF }, to, pops);
        };
        let a = self.register(to);
        let (a, b) = if reversed { (b, a) } else { (a, b) };
        let found = self.nan(a, b).unwrap_or_else(|| self.computed(what, a, b, denormal));
        self.complete(found, to, pops);
    }

    /// The answer where an operand is a NaN, or not supported.
    fn nan(&self, a: F80, b: F80) -> Option<Found> {
        if a.class() == Class::Unsupported || b.class() == Class::Unsupported {
            return Some(Found::invalid());
        }
        let signaling = a.class() == Class::Signaling || b.class() == Class::Signaling;
        let flags = if signaling { IE } else { 0 };
        (a.is_nan() || b.is_nan()).then(|| Found { value: F80::propagated(a, b), flags })
    }

    fn computed(&self, what: Binary, a: F80, b: F80, denormal: bool) -> Found {
        let rounding = Rounding::new(self.control);
        let negative = a.is_negative() != b.is_negative();
        let denormal = if denormal || a.is_denormal() || b.is_denormal() { DE } else { 0 };
        let with = |value| Found { value, flags: denormal };
        let (infinities, zeros) = ((a.is_infinite(), b.is_infinite()), (a.is_zero(), b.is_zero()));
        let exact = match (what, infinities, zeros) {
            (Binary::Add, (true, true), _) if negative => return Found::invalid(),
            (Binary::Subtract, (true, true), _) if !negative => return Found::invalid(),
            (Binary::Multiply, (true, _), (_, true)) | (Binary::Multiply, (_, true), (true, _)) => {
                return Found::invalid();
            }
            (Binary::Divide, (true, true), _) | (Binary::Divide, _, (true, true)) => return Found::invalid(),
            (Binary::Add | Binary::Subtract, (true, _), _) => return with(a),
            (Binary::Add, (_, true), _) => return with(b),
            (Binary::Subtract, (_, true), _) => return with(b.negated()),
            (Binary::Multiply, ..) if a.is_infinite() || b.is_infinite() => {
                return with(F80::infinity(negative));
            }
            (Binary::Divide, (true, _), _) => return with(F80::infinity(negative)),
            (Binary::Divide, _, (_, true)) => return Found { value: F80::infinity(negative), flags: ZE },
            (Binary::Divide, (_, true), _) => return with(F80::zero(negative)),
            (Binary::Add, ..) => sum(a, b),
            (Binary::Subtract, ..) => sum(a, b.negated()),
            (Binary::Multiply, ..) => product(a, b),
            (Binary::Divide, ..) => quotient(a, b),
        };
        let Some(exact) = exact else {
            let b = if what == Binary::Subtract { b.negated() } else { b };
            let same = a.is_negative() == b.is_negative();
            let sum = if same { a.is_negative() } else { rounding.is_down() };
            return with(F80::zero(match what {
                Binary::Add | Binary::Subtract if a.is_zero() && b.is_zero() || !same => sum,
                _ => negative,
            }));
        };
        let rounded = rounding.round_precisely(exact);
        let up = if rounded.up { C1 } else { 0 };
        Found { value: rounded.value, flags: denormal | rounded.flags | up }
    }

    /// FSQRT, FRNDINT, FCHS or FABS.
    pub(crate) fn replace(&mut self, what: Unary) {
        self.status &= !C1;
        if self.is_empty(0) {
            return self.complete(Found { value: F80::INDEFINITE, flags: IE | SF }, 0, 0);
        }
        let a = self.register(0);
        let found = match what {
            Unary::Negate => Found::exact(a.negated()),
            Unary::Magnitude => Found::exact(if a.is_negative() { a.negated() } else { a }),
            _ => self.nan(a, a).unwrap_or_else(|| self.replacement(what, a)),
        };
        self.complete(found, 0, 0);
    }

    fn replacement(&self, what: Unary, a: F80) -> Found {
        let rounding = Rounding::new(self.control);
        let denormal = if a.is_denormal() { DE } else { 0 };
        if what == Unary::Root && a.is_negative() && !a.is_zero() {
            return Found::invalid();
        }
        let Some(finite) = a.finite() else { return Found::exact(a) };
        if what == Unary::Root {
            let rounded = root(a).map(|exact| rounding.round_precisely(exact));
            return rounded.map_or(Found::exact(a), |of| Found {
                value: of.value,
                flags: denormal | of.flags | if of.up { C1 } else { 0 },
            });
        }
        if finite.exponent >= 63 {
            return Found::exact(a);
        }
        let (kept, up, inexact) = finite.exact(a.is_negative()).cut((127 - finite.exponent) as u32, rounding);
        let value = F80::scaled(a.is_negative(), (kept + u128::from(up)) as u64, 63);
        Found { value, flags: denormal | if inexact { PE } else { 0 } | if up { C1 } else { 0 } }
    }

    /// Notes the exceptions, and writes a register unless one that is not masked prevents that. Then nothing is computed, and
    /// only what was found before counts.
    fn complete(&mut self, found: Found, to: usize, pops: Pops) {
        const BEFORE: u16 = IE | DE | ZE;
        if found.flags & !self.control & BEFORE != 0 {
            return self.raise(found.flags & (BEFORE | SF));
        }
        self.raise(found.flags);
        self.set(to, found.value);
        self.pop(pops);
    }

    pub(super) fn pop(&mut self, times: Pops) {
        for _ in 0..times {
            self.empty[self.top % 8] = true;
            self.top = (self.top + 1) % 8;
        }
    }

    /// FLD and the like.
    pub(crate) fn push(&mut self, from: Source) {
        self.status &= !C1;
        let found = match from.number(self) {
            None => Found { value: F80::INDEFINITE, flags: IE | SF },
            Some(_) if !self.is_empty(7) => Found { value: F80::INDEFINITE, flags: IE | SF | C1 },
            Some((value, denormal)) => {
                let signaling = matches!(from, Source::Number(..)) && value.class() == Class::Signaling;
                let flags = if signaling { IE } else { 0 } | if denormal { DE } else { 0 };
                Found { value: if signaling { value.quieted() } else { value }, flags }
            }
        };
        self.raise(found.flags);
        // A denormal number is loaded although that is an exception.
        if found.flags & !self.control & IE == 0 {
            self.top = (self.top + 7) % 8;
            self.set(0, found.value);
        }
    }

    /// FST and FSTP to a register.
    pub(crate) fn copy(&mut self, to: usize, pops: Pops) {
        self.status &= !C1;
        let empty = self.is_empty(0);
        let value = if empty { F80::INDEFINITE } else { self.register(0) };
        self.complete(Found { value, flags: if empty { IE | SF } else { 0 } }, to, pops);
    }

    /// FST and FSTP to memory, in 10 bytes without a format; `None` if an exception that is not masked prevents it.
    pub(crate) fn store(&mut self, format: Option<Format>, pops: Pops) -> Option<[u8; 10]> {
        self.status &= !C1;
        let value = if self.is_empty(0) { F80::INDEFINITE } else { self.register(0) };
        let (bytes, flags) = match format {
            _ if self.is_empty(0) => (stored(format, value), IE | SF),
            None => (value.to_bytes(), 0),
            Some(format) => self.narrowed(format, value),
        };
        self.raise(flags);
        if flags & !self.control & (IE | OE | UE) != 0 {
            return None;
        }
        self.pop(pops);
        Some(bytes)
    }

    fn narrowed(&self, format: Format, value: F80) -> ([u8; 10], u16) {
        match value.class() {
            Class::Unsupported => return (stored(Some(format), F80::INDEFINITE), IE),
            Class::Signaling => return (stored(Some(format), value), IE),
            _ => {}
        }
        let Some(finite) = value.finite() else { return (stored(Some(format), value), 0) };
        let found = format.round(finite.exact(value.is_negative()), Rounding::new(self.control));
        let masked = |flag: u16| self.control & flag != 0;
        let precision = |inexact: bool| if inexact { PE } else { 0 };
        let flags = match found {
            _ if found.large && masked(OE) => OE | PE,
            _ if found.large => OE,
            _ if !found.tiny => precision(found.inexact),
            _ if !masked(UE) => UE,
            _ if found.inexact => UE | PE,
            _ => 0,
        };
        let up = if found.up && flags & PE != 0 { C1 } else { 0 };
        (bytes(found.value), flags | up)
    }

    /// FCOM and the like: how ST(0) compares with a number; `None` if it does not. `Err` if an exception that is not masked was
    /// found. Quiet NaNs are an exception if `signals`.
    pub(crate) fn compare(
        &mut self,
        from: Source,
        signals: bool,
        pops: Pops,
    ) -> Result<Option<Ordering>, ()> {
        self.status &= !C1;
        let operand = from.number(self).filter(|_| !self.is_empty(0));
        let (found, flags) = match operand {
            None => (None, IE | SF),
            Some((b, denormal)) => compared(self.register(0), b, denormal, signals),
        };
        self.raise(flags);
        if flags & !self.control & (IE | DE) != 0 {
            return Err(());
        }
        self.pop(pops);
        Ok(found)
    }

    /// Sets C0, C2 and C3 for a comparison.
    pub(crate) fn set_conditions(&mut self, found: Option<Ordering>) {
        self.status &= !(C0 | C2 | C3);
        self.status |= match found {
            None => C0 | C2 | C3,
            Some(Ordering::Less) => C0,
            Some(Ordering::Equal) => C3,
            Some(Ordering::Greater) => 0,
        };
    }

    /// FXAM.
    pub(crate) fn examine(&mut self) {
        let of = self.register(0);
        self.status &= !(C0 | C1 | C2 | C3);
        self.status |= if of.is_negative() { C1 } else { 0 };
        self.status |= match of.class() {
            _ if self.is_empty(0) => C3 | C0,
            Class::Unsupported => 0,
            Class::Quiet | Class::Signaling => C0,
            Class::Infinity => C2 | C0,
            Class::Zero => C3,
            Class::Finite { denormal: true } => C3 | C2,
            Class::Finite { denormal: false } => C2,
        };
    }

    /// FXCH.
    pub(crate) fn exchange(&mut self, with: usize) {
        self.status &= !C1;
        let fault = self.is_empty(0) || self.is_empty(with);
        if fault {
            self.raise(IE | SF);
            if self.control & IE == 0 {
                return;
            }
        }
        let value = |n: usize| if self.is_empty(n) { F80::INDEFINITE } else { self.register(n) };
        let (a, b) = (value(0), value(with));
        self.set(with, a);
        self.set(0, b);
    }

    /// FCMOVcc, of which the condition holds or not.
    pub(crate) fn move_if(&mut self, holds: bool, from: usize) {
        let fault = self.is_empty(0) || self.is_empty(from);
        let value = match fault {
            true => F80::INDEFINITE,
            false if holds => self.register(from),
            false => return,
        };
        if fault {
            self.status &= !C1;
        }
        self.complete(Found { value, flags: if fault { IE | SF } else { 0 } }, 0, 0);
    }

    /// FFREE and FFREEP.
    pub(crate) fn free(&mut self, which: usize, pops: Pops) {
        self.status &= !C1;
        self.empty[(self.top + which) % 8] = true;
        self.pop(pops);
    }

    /// FINCSTP, or FDECSTP.
    pub(crate) fn rotate(&mut self, up: bool) {
        self.status &= !C1;
        self.top = (self.top + if up { 1 } else { 7 }) % 8;
    }
}

fn compared(a: F80, b: F80, denormal: bool, signals: bool) -> (Option<Ordering>, u16) {
    let unsupported = a.class() == Class::Unsupported || b.class() == Class::Unsupported;
    if unsupported || a.is_nan() || b.is_nan() {
        let signaling = a.class() == Class::Signaling || b.class() == Class::Signaling;
        return (None, if unsupported || signaling || signals { IE } else { 0 });
    }
    let denormal = denormal || a.is_denormal() || b.is_denormal();
    let place = |of: F80| {
        let magnitude = match of.finite() {
            Some(finite) => (finite.exponent, finite.mantissa),
            None if of.is_infinite() => (i32::MAX, 0),
            None => (i32::MIN, 0),
        };
        (of.is_negative() && !of.is_zero(), magnitude)
    };
    let order = match (place(a), place(b)) {
        ((true, a), (true, b)) => b.cmp(&a),
        ((true, _), (false, _)) => Ordering::Less,
        ((false, _), (true, _)) => Ordering::Greater,
        ((false, a), (false, b)) => a.cmp(&b),
    };
    (Some(order), if denormal { DE } else { 0 })
}

/// What is not finite, or 0, in memory.
fn stored(format: Option<Format>, value: F80) -> [u8; 10] {
    format.map_or(value.to_bytes(), |format| bytes(format.special(value)))
}

fn bytes(value: u64) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes
}
