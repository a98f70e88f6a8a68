//! Conditions on registers and memory: C's operators over unsigned words of 64 bits.
//!
//! A condition without a value is false: unreadable memory and a division by 0 give no value. Not here: when a
//! condition is evaluated.

mod parse;
mod tokens;

use trapline_emu::Core;
use trapline_rpn::RegRow;

pub use parse::{Names, parse};

use crate::session::registers;

/// Why a text is not a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionError {
    /// The text.
    pub text: String,
    /// The position of the error, in characters from 0.
    pub at: usize,
    /// Number of wrong characters.
    pub len: usize,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

impl std::error::Error for ConditionError {}

impl std::fmt::Display for ConditionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text: String = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let (indent, carets) = (" ".repeat(self.at), "^".repeat(self.len.max(1)));
        write!(f, "{}\n  {text}\n  {indent}{carets}\n  help: {}", self.message, self.help)
    }
}

/// An operator before a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefix {
    /// `!`
    Not,
    /// `-`
    Minus,
    /// `+`
    Plus,
    /// `~`
    Invert,
}

/// An operator between two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Infix {
    Or,
    And,
    BitOr,
    BitXor,
    BitAnd,
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
    Left,
    Right,
    Plus,
    Minus,
    Times,
    Over,
    Rest,
}

impl Infix {
    /// Symbol, operator, and precedence, as in C.
    pub const ALL: [(&'static str, Self, u8); 18] = [
        ("||", Self::Or, 1),
        ("&&", Self::And, 2),
        ("|", Self::BitOr, 3),
        ("^", Self::BitXor, 4),
        ("&", Self::BitAnd, 5),
        ("==", Self::Equal, 6),
        ("!=", Self::Unequal, 6),
        ("<", Self::Less, 7),
        ("<=", Self::AtMost, 7),
        (">", Self::More, 7),
        (">=", Self::AtLeast, 7),
        ("<<", Self::Left, 8),
        (">>", Self::Right, 8),
        ("+", Self::Plus, 9),
        ("-", Self::Minus, 9),
        ("*", Self::Times, 10),
        ("/", Self::Over, 10),
        ("%", Self::Rest, 10),
    ];

    /// The value, if both sides have one. A shift by 64 or more gives 0.
    fn of(self, a: u64, b: u64) -> Option<u64> {
        let places = u32::try_from(b).unwrap_or(u32::MAX);
        Some(match self {
            Self::Or => u64::from(a != 0 || b != 0),
            Self::And => u64::from(a != 0 && b != 0),
            Self::BitOr => a | b,
            Self::BitXor => a ^ b,
            Self::BitAnd => a & b,
            Self::Equal => u64::from(a == b),
            Self::Unequal => u64::from(a != b),
            Self::Less => u64::from(a < b),
            Self::AtMost => u64::from(a <= b),
            Self::More => u64::from(a > b),
            Self::AtLeast => u64::from(a >= b),
            Self::Left => a.checked_shl(places).unwrap_or(0),
            Self::Right => a.checked_shr(places).unwrap_or(0),
            Self::Plus => a.wrapping_add(b),
            Self::Minus => a.wrapping_sub(b),
            Self::Times => a.wrapping_mul(b),
            Self::Over => return a.checked_div(b),
            Self::Rest => return a.checked_rem(b),
        })
    }
}

/// An expression over a state of the guest.
#[derive(Debug, Clone)]
pub enum Condition {
    /// This number.
    Number(u64),
    /// The value of a register, in the processor's own context.
    Register(&'static RegRow),
    /// Linear memory, little-endian.
    Memory {
        /// Number of bytes, 1 to 8.
        bytes: usize,
        /// Whether the value is sign-extended.
        signed: bool,
        /// The address.
        at: Box<Condition>,
    },
    /// An operator before an expression.
    Prefix(Prefix, Box<Condition>),
    /// An operator between two expressions.
    Infix(Box<Condition>, Infix, Box<Condition>),
}

impl Condition {
    /// Whether it is true in this state.
    pub fn holds(&self, core: &Core) -> bool {
        self.value(core).is_some_and(|value| value != 0)
    }

    /// Its value in this state; none if memory is unreadable or a divisor is 0.
    fn value(&self, core: &Core) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Register(row) => registers::word(core, row),
            Self::Memory { bytes, signed, at } => {
                let mut read = [0; 8];
                core.peek(at.value(core)?, read.get_mut(..*bytes)?).ok()?;
                let value = u64::from_le_bytes(read);
                let sign = 1u64 << (8 * bytes - 1);
                Some(if *signed { (value ^ sign).wrapping_sub(sign) } else { value })
            }
            Self::Prefix(prefix, of) => {
                let value = of.value(core)?;
                Some(match prefix {
                    Prefix::Not => u64::from(value == 0),
                    Prefix::Minus => value.wrapping_neg(),
                    Prefix::Plus => value,
                    Prefix::Invert => !value,
                })
            }
            Self::Infix(left, infix, right) => match (infix, left.value(core)?) {
                (Infix::And, 0) => Some(0),
                (Infix::Or, 1..) => Some(1),
                (_, left) => infix.of(left, right.value(core)?),
            },
        }
    }
}
