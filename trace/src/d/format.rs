//! Formats of `printf()` and `printa()`: their syntax, and the text that they make of values.

use super::field::Field;
use super::record::Value;
use std::fmt::Write as _;

/// An invalid format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FormatError(pub String);

/// A format.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Format {
    /// Its pieces.
    pub pieces: Vec<Piece>,
}

/// Text or a conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Literal text.
    Text(Vec<u8>),
    /// A conversion.
    Conversion(Conversion),
}

/// A width or precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Size {
    /// None was given.
    #[default]
    None,
    /// This one.
    Number(u32),
    /// The next argument.
    Argument,
}

/// A conversion.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conversion {
    /// `-`.
    pub left: bool,
    /// `+`.
    pub plus: bool,
    /// A space.
    pub space: bool,
    /// `#`.
    pub alternate: bool,
    /// `0`.
    pub zero: bool,
    /// `'`.
    pub grouped: bool,
    /// `@`: the value of an aggregation.
    pub aggregation: bool,
    /// The width.
    pub width: Size,
    /// The precision.
    pub precision: Size,
    /// Size prefixes and the conversion, such as `lld`.
    pub name: String,
}

/// The largest width and precision: each value that is shown takes so many characters.
const WIDEST: u32 = 4096;
/// All conversions, without their prefixes.
const NAMES: &[u8] = b"aAcCdDeEfgGikNopPsSTuxXYUk";
/// The conversions that take a prefix.
const PREFIXED: &[u8] = b"diouxX";

impl Conversion {
    /// The last letter.
    #[must_use]
    pub fn letter(&self) -> u8 {
        self.name.bytes().last().unwrap_or(b'd')
    }
}

impl Format {
    /// Reads a format.
    ///
    /// # Errors
    /// An invalid conversion, with its number.
    pub fn parse(text: &[u8]) -> Result<Self, FormatError> {
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        let (mut at, mut number) = (0, 0);
        while let Some(&byte) = text.get(at) {
            at += 1;
            if byte != b'%' {
                plain.push(byte);
                continue;
            }
            number += 1;
            let (conversion, next) = conversion(text, at, number)?;
            at = next;
            if conversion.name == "%" {
                plain.push(b'%');
                number -= 1;
                continue;
            }
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Conversion(conversion));
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self { pieces })
    }

    /// The conversions, in order.
    pub fn conversions(&self) -> impl Iterator<Item = &Conversion> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Conversion(conversion) => Some(conversion),
            Piece::Text(_) => None,
        })
    }
}

/// Reads the flags of a conversion.
fn flags(text: &[u8], mut at: usize, read: &mut Conversion) -> usize {
    while let Some(&byte) = text.get(at) {
        match byte {
            b'-' => read.left = true,
            b'+' => read.plus = true,
            b' ' => read.space = true,
            b'#' => read.alternate = true,
            b'0' => read.zero = true,
            b'\'' => read.grouped = true,
            b'@' => read.aggregation = true,
            _ => break,
        }
        at += 1;
    }
    at
}

fn digits(text: &[u8], at: usize) -> (Option<u32>, usize) {
    let rest = text.get(at..).unwrap_or_default();
    let count = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let value =
        rest.iter().take(count).fold(0u32, |v, b| v.saturating_mul(10).saturating_add(u32::from(b - b'0')));
    ((count > 0).then_some(value), at + count)
}

/// Refuses a width or a precision that would fill the disk.
fn check_sizes(read: &Conversion) -> Result<(), String> {
    for (what, size) in [("width", read.width), ("precision", read.precision)] {
        if let Size::Number(size) = size
            && size > WIDEST
        {
            return Err(format!("has a {what} of {size}, and {WIDEST} is the most"));
        }
    }
    Ok(())
}

fn conversion(text: &[u8], at: usize, number: u32) -> Result<(Conversion, usize), FormatError> {
    let fail = |what: String| Err(FormatError(format!("format conversion #{number} {what}")));
    let mut read = Conversion::default();
    let mut at = flags(text, at, &mut read);
    let (width, next) = digits(text, at);
    at = next;
    if width.is_none() && text.get(at) == Some(&b'?') {
        // As wide as an address in hexadecimal.
        at += 1;
        read.width = Size::Number(16);
    }
    if let Some(width) = width {
        if text.get(at) == Some(&b'$') {
            return fail("uses unsupported positional format (%n$)".to_owned());
        }
        read.width = Size::Number(width);
    }
    if text.get(at) == Some(&b'*') {
        at += 1;
        read.width = Size::Argument;
        if text.get(at) == Some(&b'*') {
            return fail("has more than one '*' specified for the output width".to_owned());
        }
        let (position, next) = digits(text, at);
        if position.is_some() && text.get(next) == Some(&b'$') {
            return fail("uses unsupported positional format (%n$)".to_owned());
        }
    }
    if text.get(at) == Some(&b'.') {
        at += 1;
        if text.get(at) == Some(&b'*') {
            read.precision = Size::Argument;
            at += 1;
        } else {
            let (precision, next) = digits(text, at);
            read.precision = Size::Number(precision.unwrap_or(0));
            at = next;
        }
        if text.get(at) == Some(&b'.') {
            return fail("has more than one '.' specified".to_owned());
        }
        let (position, next) = digits(text, at);
        if position.is_some() && text.get(next) == Some(&b'$') {
            return fail("uses unsupported positional format (%n$)".to_owned());
        }
    }
    // `%@` may follow the width too.
    at = flags(text, at, &mut read);
    let (more, next) = digits(text, at);
    if let Some(more) = more {
        read.width = Size::Number(more);
        at = next;
    }
    if let Err(what) = check_sizes(&read) {
        return fail(what);
    }
    if text.get(at) == Some(&b'%') {
        if read != Conversion::default() {
            return fail("cannot be combined with other format flags: %%".to_owned());
        }
        return Ok((Conversion { name: "%".to_owned(), ..read }, at + 1));
    }
    let start = at;
    while text.get(at).is_some_and(|b| b"hlLjwtzq".contains(b)) && text.get(at + 1).is_some() {
        at += 1;
    }
    let Some(&letter) = text.get(at) else {
        return fail("name expected before end of format string".to_owned());
    };
    let prefix = text.get(start..at).unwrap_or_default();
    let good = match prefix {
        b"" => NAMES.contains(&letter),
        b"h" | b"hh" | b"l" | b"ll" => PREFIXED.contains(&letter) || b"aceEfgG".contains(&letter),
        b"L" => b"eEfgG".contains(&letter),
        b"w" => b"cs".contains(&letter),
        _ => false,
    };
    let name = String::from_utf8_lossy(text.get(start..=at).unwrap_or_default()).into_owned();
    if !good {
        return fail(format!("is undefined: %{name}"));
    }
    read.name = name;
    Ok((read, at + 1))
}

/// Pads a text to the width of its conversion.
pub(crate) fn pad_text(out: &mut Vec<u8>, text: &[u8], conversion: &Conversion, width: i64) {
    let left = conversion.left || width < 0;
    let missing = (width.unsigned_abs() as usize).saturating_sub(text.len());
    let fill = std::iter::repeat_n(b' ', missing);
    if left {
        out.extend_from_slice(text);
        out.extend(fill);
    } else {
        out.extend(fill);
        out.extend_from_slice(text);
    }
}

/// Digits with commas between each three.
fn group(digits: &str) -> String {
    let mut out = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number.
pub(crate) fn number(
    out: &mut Vec<u8>,
    c: &Conversion,
    field: Field,
    value: u64,
    width: i64,
    precision: Option<u32>,
) {
    let (size, signed) = match field {
        Field::Int { size, signed } => (size, signed),
        _ => (8, false),
    };
    let bits = u32::from(size.clamp(1, 8)) * 8;
    let cut = if bits == 64 { value } else { value & ((1 << bits) - 1) };
    let extended = ((cut << (64 - bits)) as i64) >> (64 - bits);
    let (mut sign, mut digits) = (String::new(), String::new());
    match c.letter() {
        b'd' | b'i' if signed && extended < 0 => {
            sign.push('-');
            let _ = write!(digits, "{}", extended.unsigned_abs());
        }
        b'x' | b'p' | b'a' | b'A' => {
            let _ = write!(digits, "{cut:x}");
            if c.alternate && cut != 0 {
                sign.push_str("0x");
            }
        }
        b'X' => {
            let _ = write!(digits, "{cut:X}");
            if c.alternate && cut != 0 {
                sign.push_str("0X");
            }
        }
        b'o' => {
            let _ = write!(digits, "{cut:o}");
            if c.alternate && cut != 0 {
                digits.insert(0, '0');
            }
        }
        letter => {
            let _ = write!(digits, "{cut}");
            if letter != b'u' {
                sign.push_str(if c.plus {
                    "+"
                } else if c.space {
                    " "
                } else {
                    ""
                });
            }
        }
    }
    if let Some(precision) = precision {
        if precision == 0 && cut == 0 {
            digits.clear();
        }
        let missing = (precision as usize).saturating_sub(digits.len());
        digits.insert_str(0, &"0".repeat(missing));
    }
    if c.grouped && matches!(c.letter(), b'd' | b'i' | b'u') {
        digits = group(&digits);
    }
    if c.zero && !c.left && precision.is_none() && width > 0 {
        let missing = (width as usize).saturating_sub(digits.len() + sign.len());
        digits.insert_str(0, &"0".repeat(missing));
    }
    pad_text(out, format!("{sign}{digits}").as_bytes(), c, width);
}

/// Formats a text.
pub(crate) fn text(out: &mut Vec<u8>, c: &Conversion, bytes: &[u8], width: i64, precision: Option<u32>) {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let shown = bytes.get(..end).unwrap_or_default();
    let shown =
        precision.filter(|most| *most > 0).and_then(|most| shown.get(..most as usize)).unwrap_or(shown);
    pad_text(out, shown, c, width);
}

/// The integer of a value.
pub(crate) fn int_of(value: Option<&Value>) -> u64 {
    match value {
        Some(Value::Int(value)) => *value,
        Some(Value::Code(code)) => code.first(),
        _ => 0,
    }
}

/// The value of a width or precision; it uses an argument if it is `*`. One that is too large counts as the largest.
pub(crate) fn size_of<'v>(
    size: Size,
    arguments: &mut impl Iterator<Item = (&'v Field, &'v Value)>,
) -> Option<i64> {
    match size {
        Size::None => None,
        Size::Number(n) => Some(n.min(WIDEST).into()),
        Size::Argument => {
            let given = int_of(arguments.next().map(|(_, value)| value)) as i32;
            Some(i64::from(given).clamp(-i64::from(WIDEST), WIDEST.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(format: &str) -> String {
        Format::parse(format.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn widths_and_precisions_have_a_bound() {
        for good in ["%4096d", "%-4096.4096s", "%4096@d", "%@4096d", "%.0d", "%?p"] {
            assert!(Format::parse(good.as_bytes()).is_ok(), "{good}");
        }
        assert_eq!(
            error("%d %1000000000d"),
            "format conversion #2 has a width of 1000000000, and 4096 is the most"
        );
        assert_eq!(error("%.4097s"), "format conversion #1 has a precision of 4097, and 4096 is the most");
        for format in ["%99999999999999999999d", "%@4097d", "%04097x", "%5.99999s", "%4097%"] {
            assert!(error(format).contains("4096 is the most"), "{format}");
        }
    }

    #[test]
    fn a_width_that_is_an_argument_is_bounded_when_it_is_used() {
        let field = Field::Int { size: 4, signed: true };
        let size = |value: i64| {
            let value = Value::Int(value as u64);
            size_of(Size::Argument, &mut std::iter::once((&field, &value)))
        };
        assert_eq!([size(7), size(-7), size(1 << 30)], [Some(7), Some(-7), Some(4096)]);
        assert_eq!(size(i64::from(i32::MIN)), Some(-4096));
        assert_eq!(size_of(Size::Number(u32::MAX), &mut std::iter::empty()), Some(4096));
    }
}
