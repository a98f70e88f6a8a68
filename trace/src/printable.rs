//! Guest bytes and foreign text without the control characters that steer a terminal.

/// A byte as a character: itself from 0x20 to 0x7e, else a period.
#[must_use]
pub const fn visible(byte: u8) -> char {
    if byte >= 0x20 && byte <= 0x7e { byte as char } else { '.' }
}

/// A process name as text; bytes that are not printable ASCII become `?`.
pub(crate) fn printable(name: &[u8]) -> String {
    name.iter().map(|&b| if (0x20..0x7f).contains(&b) { char::from(b) } else { '?' }).collect()
}

/// Text from a file that anyone may have made: control characters become `?`.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
