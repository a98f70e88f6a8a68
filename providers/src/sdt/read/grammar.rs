//! The argument grammar of `.note.stapsdt`, AT&T operands with a size before them:
//!
//! ```text
//! args    := [arg (SP+ arg)*]
//! arg     := [size '@'] operand              size := ['-'] (1|2|4|8|16) ['f']
//! operand := '$' int | '%' reg | mem
//! mem     := [disp] '(' [%base] [',' %index [',' scale]] ')' | disp
//! disp    := int | sym | sums of them with at most one sym; '@GOTOFF' after the symbol or the sum
//! ```
//!
//! `(%rip)` is the symbol, absolute. An argument that cannot be read gives an error; the others remain valid.
//! Source: the SystemTap wiki's UserSpaceProbeImplementation, and what GNU as takes as an operand.

use super::operand::{Argument, Format, Memory, Operand, SymbolTerm};
use super::register::Register;
use trapline_emu::load::Width;

/// Why an argument cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("argument {text:?}: {kind}")]
pub struct ArgumentError {
    /// The argument.
    pub text: String,
    /// Why it is refused.
    pub kind: ArgumentErrorKind,
}

/// What is wrong with an argument.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentErrorKind {
    /// An impossible size.
    #[error(
        "the size {0:?} is invalid; it must be 1, 2, 4, 8 or 16, optionally with - before and f after it"
    )]
    Size(String),
    /// An invalid size of a floating-point number.
    #[error("a floating-point number cannot have {0} bytes; it must have 4, 8 or 16")]
    FloatSize(u8),
    /// A register that does not exist.
    #[error("{0} is not a register that can hold an argument")]
    UnknownRegister(String),
    /// A register that does not exist in the file's code.
    #[error("{0} does not exist in 32-bit code")]
    NotInWidth(Register),
    /// More bytes than the register has.
    #[error("{register} has {has} bytes, fewer than the size {size}")]
    WiderThanRegister {
        /// Bytes asked for.
        size: u8,
        /// Bytes of the register.
        has: u8,
        /// The register.
        register: Register,
    },
    /// An invalid number.
    #[error("{0:?} is not a number of at most 64 bits")]
    Number(String),
    /// An invalid displacement.
    #[error("the displacement {0:?} is not a sum of numbers and at most one symbol")]
    Displacement(String),
    /// A relocation other than `@GOTOFF`.
    #[error("@{0} is unknown; only @GOTOFF is supported")]
    Relocation(String),
    /// A segment register.
    #[error("an operand in segment {0} cannot be read")]
    Segment(String),
    /// An invalid address in parentheses.
    #[error("{0:?} is not an address: {1}")]
    Address(String, &'static str),
    /// Nothing to read.
    #[error("there is no operand")]
    Missing,
}

/// The arguments in `text`, of a file of `width`.
pub fn arguments(text: &str, width: Width) -> Vec<Result<Argument, ArgumentError>> {
    text.split_ascii_whitespace().map(|text| argument(text, width)).collect()
}

/// One argument.
///
/// # Errors
/// It does not match the grammar, or does not fit the register or the code's width.
pub fn argument(text: &str, width: Width) -> Result<Argument, ArgumentError> {
    read(text, width).map_err(|kind| ArgumentError { text: text.to_owned(), kind })
}

type Read<T> = Result<T, ArgumentErrorKind>;

fn read(text: &str, width: Width) -> Read<Argument> {
    let (format, rest) = match text.split_once('@') {
        // `4+sym@GOTOFF(%ebx)` without a size has an @ too.
        Some((size, rest)) if is_size(size) => (Some(format(size)?), rest),
        _ => (None, text),
    };
    let operand = operand(rest, width)?;
    let natural = match &operand {
        Operand::Register(register) => register.bytes(),
        _ => (width.bits() / 8) as u8,
    };
    let format = format.unwrap_or(Format::unsigned(natural));
    match operand {
        Operand::Register(register) if format.bytes > register.bytes() => {
            Err(ArgumentErrorKind::WiderThanRegister { size: format.bytes, has: register.bytes(), register })
        }
        operand => Ok(Argument { format, operand }),
    }
}

/// Whether the text before an `@` is a size.
fn is_size(text: &str) -> bool {
    !text.starts_with('f') && text.chars().all(|c| c.is_ascii_digit() || "-f".contains(c))
}

fn format(text: &str) -> Read<Format> {
    let (signed, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (float, digits) = match rest.strip_suffix('f') {
        Some(digits) => (true, digits),
        None => (false, rest),
    };
    let bytes = match digits {
        "1" => 1,
        "2" => 2,
        "4" => 4,
        "8" => 8,
        "16" => 16,
        _ => return Err(ArgumentErrorKind::Size(text.to_owned())),
    };
    if float && bytes < 4 {
        return Err(ArgumentErrorKind::FloatSize(bytes));
    }
    Ok(Format { bytes, signed, float })
}

fn operand(text: &str, width: Width) -> Read<Operand> {
    if let Some(constant) = text.strip_prefix('$') {
        return Ok(Operand::Immediate(constant_of(constant)?));
    }
    match text.strip_prefix('%') {
        Some(name) if name.contains(':') => {
            Err(ArgumentErrorKind::Segment(text.split(':').next().unwrap_or(text).to_owned()))
        }
        Some(_) => Ok(Operand::Register(register(text, width)?)),
        None if text.is_empty() => Err(ArgumentErrorKind::Missing),
        None => Ok(Operand::Memory(memory(text, width)?)),
    }
}

fn register(text: &str, width: Width) -> Read<Register> {
    let unknown = || ArgumentErrorKind::UnknownRegister(text.to_owned());
    let register = text.strip_prefix('%').and_then(Register::named).ok_or_else(unknown)?;
    if width == Width::Bits32 && register.is_wide_only() {
        return Err(ArgumentErrorKind::NotInWidth(register));
    }
    Ok(register)
}

fn memory(text: &str, width: Width) -> Read<Memory> {
    let Some((before, registers)) = text.split_once('(') else { return displacement(text) };
    let mut memory = if before.is_empty() { Memory::default() } else { displacement(before)? };
    let wrong = |why| ArgumentErrorKind::Address(format!("({registers}"), why);
    let inner = registers.strip_suffix(')').ok_or_else(|| wrong("it does not end with `)`"))?;
    if inner == "%rip" {
        if width == Width::Bits32 {
            return Err(wrong("32-bit code has no %rip"));
        }
        if memory.symbol.is_none() {
            return Err(wrong("%rip without a symbol has no value outside its instruction"));
        }
        memory.rip = true;
        return Ok(memory);
    }
    let mut parts = inner.split(',').map(str::trim);
    let mut next = || parts.next().filter(|part| !part.is_empty());
    let base = next().map(|text| register(text, width)).transpose()?;
    let index = next().map(|text| register(text, width)).transpose()?;
    let scale = match next() {
        None => 1,
        Some(digit @ ("1" | "2" | "4" | "8")) => digit.parse().unwrap_or(1),
        Some(_) => return Err(wrong("a scale is 1, 2, 4 or 8")),
    };
    if index.is_none() && inner.matches(',').count() > 1 {
        return Err(wrong("a scale needs an index"));
    }
    if inner.matches(',').count() > 2 || inner.ends_with(',') {
        return Err(wrong("it must be a base, an index and a scale"));
    }
    let address = |register: &Register| matches!(register, Register::General { bytes: 4 | 8, .. });
    let both = [base, index];
    match both.iter().flatten().collect::<Vec<_>>().as_slice() {
        [] => return Err(wrong("it has no register")),
        registers if !registers.iter().all(|r| address(r)) => {
            return Err(wrong("base and index are general registers of 4 or 8 bytes"));
        }
        [one, other] if one.bytes() != other.bytes() => {
            return Err(wrong("base and index differ in width"));
        }
        _ => {}
    }
    if index.is_some_and(Register::is_stack) {
        return Err(wrong("the stack pointer cannot be an index"));
    }
    memory.base = base;
    memory.index = index.map(|index| (index, scale));
    Ok(memory)
}

/// A sum of numbers and at most one symbol.
fn displacement(text: &str) -> Read<Memory> {
    let wrong = || ArgumentErrorKind::Displacement(text.to_owned());
    let (sum, mut from_got) = match text.split_once('@') {
        None => (text.to_owned(), false),
        Some((before, after)) => {
            let rest = after.strip_prefix("GOTOFF");
            // `+4` may follow the symbol.
            match rest.filter(|rest| rest.is_empty() || rest.starts_with(['+', '-'])) {
                Some(rest) => (format!("{before}{rest}"), true),
                None => return Err(ArgumentErrorKind::Relocation(after.to_owned())),
            }
        }
    };
    let mut memory = Memory::default();
    let mut number: i128 = 0;
    let mut rest = sum.as_str();
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut first = true;
    while !rest.is_empty() {
        let negative = rest.starts_with('-');
        let term = match rest.strip_prefix(['+', '-']) {
            Some(term) => term,
            None if first => rest,
            None => return Err(wrong()),
        };
        first = false;
        let end = term.find(['+', '-']).unwrap_or(term.len());
        let (term, after) = term.split_at(end);
        rest = after;
        if term.starts_with(|c: char| c.is_ascii_digit()) {
            let value = i128::from(unsigned(term)?);
            number += if negative { -value } else { value };
        } else if is_symbol(term) && memory.symbol.is_none() {
            memory.symbol =
                Some(SymbolTerm { name: term.to_owned(), negative, from_got: std::mem::take(&mut from_got) });
        } else {
            return Err(wrong());
        }
    }
    if from_got {
        return Err(wrong());
    }
    // An address in the upper half may be written as an unsigned number.
    memory.displacement = i64::try_from(number)
        .or_else(|_| u64::try_from(number).map(u64::cast_signed))
        .map_err(|_| ArgumentErrorKind::Number(text.to_owned()))?;
    Ok(memory)
}

fn is_symbol(text: &str) -> bool {
    let first = |c: char| c.is_alphabetic() || "_.$".contains(c);
    text.starts_with(first) && text.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// A number as GNU as reads it: `0x` hexadecimal, `0b` binary, a leading 0 octal, else decimal.
fn unsigned(text: &str) -> Read<u64> {
    let number = || ArgumentErrorKind::Number(text.to_owned());
    let lower = text.to_ascii_lowercase();
    let (digits, radix) = match lower.as_bytes() {
        [b'0', b'x', ..] => (lower.get(2..), 16),
        [b'0', b'b', ..] => (lower.get(2..), 2),
        [b'0', _, ..] => (lower.get(1..), 8),
        _ => (Some(lower.as_str()), 10),
    };
    let digits = digits.filter(|digits| digits.starts_with(|c: char| c.is_ascii_hexdigit()));
    u64::from_str_radix(digits.ok_or_else(number)?, radix).map_err(|_| number())
}

/// A constant with its sign, as its two's complement.
fn constant_of(text: &str) -> Read<u64> {
    let number = || ArgumentErrorKind::Number(text.to_owned());
    let Some(magnitude) = text.strip_prefix('-') else { return unsigned(text) };
    let magnitude = unsigned(magnitude).map_err(|_| number())?;
    if magnitude > 1 << 63 { Err(number()) } else { Ok(magnitude.wrapping_neg()) }
}

#[cfg(test)]
#[path = "grammar_tests.rs"]
mod tests;
