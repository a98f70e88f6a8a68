//! Bytes as hexadecimal digits.

/// Letters of hexadecimal output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HexStyle {
    /// Pairs of lower-case digits, nothing between them.
    Pairs,
    /// Pairs with a space between them.
    Spaced,
}

/// Bytes as pairs of hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8], style: HexStyle) -> String {
    let mut out = String::with_capacity(bytes.len() * 3);
    push_hex(bytes, style, &mut out);
    out
}

/// Appends bytes as pairs of hexadecimal digits.
pub(crate) fn push_hex(bytes: &[u8], style: HexStyle, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (n, byte) in bytes.iter().enumerate() {
        if n > 0 && style == HexStyle::Spaced {
            out.push(' ');
        }
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}
