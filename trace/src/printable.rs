//! Makes guest bytes and foreign text harmless for a terminal: no control characters.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// A byte as a character: itself from 0x20 to 0x7e, else a period.
#[must_use]
pub const fn visible(byte: u8) -> char {
    if byte >= 0x20 && byte <= 0x7e { byte as char } else { '.' }
}

/// A process name as text; bytes that are not printable ASCII become `?`.
pub(crate) struct Printable<'a>(pub &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |byte: u8| if (0x20..0x7f).contains(&byte) { char::from(byte) } else { '?' };
        self.0.iter().try_for_each(|byte| f.write_char(shown(*byte)))
    }
}

/// Untrusted text: control characters become `?`.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        Cow::Owned(text.chars().map(|c| if c.is_control() { '?' } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}
