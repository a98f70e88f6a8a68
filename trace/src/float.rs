//! Floating-point numbers of a guest as text: binary16, binary32 and binary64 of IEEE 754, and the x87's 80 bits.
//!
//! Text is exact: what is shown has as many digits as tell the number from its neighbours (of 80 bits 21, as gdb), or as
//! many as a format asks for. Other sizes have no text.

use serde_json::{Value, json};

/// Digits that tell numbers of 80 bits apart.
const EXTENDED: usize = 21;
/// What decimal limbs hold, and the powers of 2 and 5 that fit beside one.
const LIMB: u64 = 1_000_000_000;
const TWOS: u32 = 29;
const FIVES: u32 = 12;

/// A number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Float {
    /// Of 16 or 32 bits, which a `f32` holds exactly.
    Single(f32),
    /// Of 64 bits.
    Double(f64),
    /// Of 80 bits: sign and exponent, and the significand with its integer bit.
    Extended(u16, u64),
}

impl Float {
    /// The number that these bytes hold. A `long double` takes 10, 12 or 16 bytes, of which the first 10 count.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [a, b] => Some(Self::Single(half(u16::from_le_bytes([a, b])))),
            [a, b, c, d] => Some(Self::Single(f32::from_le_bytes([a, b, c, d]))),
            [a, b, c, d, e, f, g, h] => Some(Self::Double(f64::from_le_bytes([a, b, c, d, e, f, g, h]))),
            [a, b, c, d, e, f, g, h, i, j, ..] if matches!(bytes.len(), 10 | 12 | 16) => {
                let significand = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
                Some(Self::Extended(u16::from_le_bytes([i, j]), significand))
            }
            _ => None,
        }
    }

    /// The number of the lower `size` bytes of a word: 2, 4 or 8.
    #[must_use]
    pub fn of_word(word: u64, size: u8) -> Option<Self> {
        Self::of(word.to_le_bytes().get(..size.into())?)
    }

    /// It as the nearest `f64`, if it is finite.
    #[must_use]
    pub fn finite(self) -> Option<f64> {
        let value = match self {
            Self::Single(value) => value.into(),
            Self::Double(value) => value,
            Self::Extended(..) => self.to_string().parse().ok()?,
        };
        value.is_finite().then_some(value)
    }

    /// A number of 80 bits as one of a type with fewer, which it is the value of.
    #[must_use]
    pub fn narrowed(self, bits: u32) -> Self {
        let text = self.to_string();
        match bits {
            32 => text.parse().map_or(self, Self::Single),
            64 => text.parse().map_or(self, Self::Double),
            _ => self,
        }
    }

    /// It as a number of JSON, or its name.
    #[must_use]
    pub fn json(self) -> Value {
        match (self, self.finite()) {
            // An `f64` has more digits than an `f32`, which are not its own.
            (Self::Single(_), Some(_)) => json!(self.to_string().parse::<f64>().ok()),
            (_, Some(value)) => json!(value),
            (_, None) => json!(self.to_string()),
        }
    }

    /// The order of all numbers; zeros are ordered by their sign, and those that are no number lie outside.
    #[must_use]
    pub fn total_cmp(self, other: Self) -> std::cmp::Ordering {
        let wide = |it: Self| match it {
            Self::Single(value) => f64::from(value),
            Self::Double(value) => value,
            Self::Extended(..) => it.finite().unwrap_or(f64::NAN),
        };
        wide(self).total_cmp(&wide(other))
    }

    fn is_negative(self) -> bool {
        match self {
            Self::Single(value) => value.is_sign_negative(),
            Self::Double(value) => value.is_sign_negative(),
            Self::Extended(high, _) => high & 0x8000 != 0,
        }
    }

    /// `inf` or `nan`. Since the 80387, what has an exponent and no integer bit is no number either.
    fn special(self) -> Option<&'static str> {
        let (infinite, nan) = match self {
            Self::Single(value) => (value.is_infinite(), value.is_nan()),
            Self::Double(value) => (value.is_infinite(), value.is_nan()),
            Self::Extended(high, low) => match high & 0x7fff {
                0x7fff if low == 1 << 63 => (true, false),
                0x7fff => (false, true),
                exponent => (false, exponent != 0 && low >> 63 == 0),
            },
        };
        if nan { Some("nan") } else { infinite.then_some("inf") }
    }

    /// `precision` digits behind the first one, and the power of ten: `-1.50e+00`.
    fn scientific(self, precision: usize) -> (String, i32) {
        let text = match self {
            Self::Single(value) => format!("{:.precision$e}", value.abs()),
            Self::Double(value) => format!("{:.precision$e}", value.abs()),
            Self::Extended(high, low) => extended(high, low, precision),
        };
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        (digits.to_owned(), power.parse().unwrap_or(0))
    }

    /// As C's `%e`, `%f` and `%g` show it, with their upper-case forms.
    #[must_use]
    pub fn formatted(self, letter: u8, precision: usize, alternate: bool) -> String {
        let sign = if self.is_negative() { "-" } else { "" };
        let upper = letter.is_ascii_uppercase();
        let text = match self.special() {
            Some(name) => name.to_owned(),
            None => match letter.to_ascii_lowercase() {
                b'e' => self.exponent(precision),
                b'f' => self.fixed(precision),
                _ => self.general(precision.max(1), alternate),
            },
        };
        let text = format!("{sign}{text}");
        if upper { text.to_uppercase() } else { text }
    }

    fn exponent(self, precision: usize) -> String {
        let (digits, power) = self.scientific(precision);
        format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.unsigned_abs())
    }

    fn fixed(self, precision: usize) -> String {
        match self {
            Self::Single(value) => format!("{:.precision$}", value.abs()),
            Self::Double(value) => format!("{:.precision$}", value.abs()),
            // D has no values of this size, so no format comes here.
            Self::Extended(..) => self.general(EXTENDED, false),
        }
    }

    fn general(self, precision: usize, alternate: bool) -> String {
        let (digits, power) = self.scientific(precision - 1);
        let text = if power < -4 || power >= i32::try_from(precision).unwrap_or(i32::MAX) {
            self.exponent(precision - 1)
        } else {
            placed(&(digits, power), (precision as i64 - 1 - i64::from(power)).max(0) as usize)
        };
        if alternate { text } else { trimmed(&text) }
    }
}

impl std::fmt::Display for Float {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(name) = self.special() {
            return write!(f, "{}{name}", if self.is_negative() { "-" } else { "" });
        }
        match self {
            // The shortest text that is read as this number again; `Debug` takes an exponent for great and small ones.
            Self::Single(value) => write!(f, "{value:?}"),
            Self::Double(value) => write!(f, "{value:?}"),
            Self::Extended(..) => {
                let text = self.formatted(b'g', EXTENDED, false);
                f.write_str(&text)?;
                if text.contains(['.', 'e']) { Ok(()) } else { f.write_str(".0") }
            }
        }
    }
}

/// Digits with a power of ten, written without it.
fn placed((digits, power): &(String, i32), behind: usize) -> String {
    let plain: String = digits.chars().filter(char::is_ascii_digit).collect();
    let (whole, mut rest) = match usize::try_from(*power) {
        Ok(power) => {
            let padded = format!("{plain:0<width$}", width = power + 1);
            let (whole, rest) = padded.split_at(power + 1);
            (whole.to_owned(), rest.to_owned())
        }
        Err(_) => ("0".to_owned(), format!("{}{plain}", "0".repeat(power.unsigned_abs() as usize - 1))),
    };
    rest.truncate(behind);
    let rest = format!("{rest:0<behind$}");
    if rest.is_empty() { whole } else { format!("{whole}.{rest}") }
}

/// Without zeros at the end of the digits behind the point.
fn trimmed(text: &str) -> String {
    let (digits, power) = text.find('e').map_or((text, ""), |at| text.split_at(at));
    match digits.contains('.') {
        true => format!("{}{power}", digits.trim_end_matches('0').trim_end_matches('.')),
        false => text.to_owned(),
    }
}

/// binary16, which a `f32` holds exactly.
fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (u32::from(bits >> 15) << 31, bits >> 10 & 31, u32::from(bits & 0x3ff));
    match exponent {
        0 => {
            let value = fraction as f32 / (1 << 24) as f32;
            f32::from_bits(value.to_bits() | sign)
        }
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | u32::from(exponent + 112) << 23 | fraction << 13),
    }
}

/// A number of 80 bits with this many digits behind the first one, rounded to nearest and then to even: `1.50e0`.
fn extended(high: u16, low: u64, precision: usize) -> String {
    let exponent = i32::from(high & 0x7fff).max(1) - 16383 - 63;
    // Limbs of nine decimal digits, the lowest first.
    let mut limbs = vec![low % LIMB, low / LIMB % LIMB, low / LIMB / LIMB];
    let (factor, most) = if exponent < 0 { (5u64, FIVES) } else { (2, TWOS) };
    let mut left = exponent.unsigned_abs();
    while left > 0 && low != 0 {
        let count = left.min(most);
        multiply(&mut limbs, factor.pow(count));
        left -= count;
    }
    let text: String = limbs.iter().rev().map(|limb| format!("{limb:09}")).collect();
    let text = text.trim_start_matches('0');
    if text.is_empty() {
        return format!("{}e0", placed(&("0".to_owned(), 0), precision));
    }
    // Each factor of a half is a five tenths.
    let mut power = text.len() as i32 - 1 + exponent.min(0);
    let mut digits: Vec<u8> = text.bytes().take(precision + 1).collect();
    let cut = text.as_bytes().get(precision + 1..).unwrap_or_default();
    let beyond = cut.iter().skip(1).any(|digit| *digit != b'0');
    let odd = digits.last().is_some_and(|digit| digit % 2 == 1);
    let up = match cut.first() {
        Some(b'5') => beyond || odd,
        Some(digit) => *digit > b'5',
        None => false,
    };
    if up && increase(&mut digits) {
        power += 1;
        digits.insert(0, b'1');
        digits.truncate(precision + 1);
    }
    digits.resize(precision + 1, b'0');
    let digits = String::from_utf8_lossy(&digits).into_owned();
    let (first, rest) = digits.split_at(1);
    if rest.is_empty() { format!("{first}e{power}") } else { format!("{first}.{rest}e{power}") }
}

/// Adds one to the last digit; whether all were nines.
fn increase(digits: &mut [u8]) -> bool {
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return false;
        }
        *digit = b'0';
    }
    true
}

fn multiply(limbs: &mut Vec<u64>, by: u64) {
    let mut carry = 0;
    for limb in limbs.iter_mut() {
        let product = *limb * by + carry;
        (*limb, carry) = (product % LIMB, product / LIMB);
    }
    if carry > 0 {
        limbs.push(carry);
    }
}

#[cfg(test)]
#[path = "float_tests.rs"]
mod tests;
