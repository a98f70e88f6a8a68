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

/// The longest word and the longest line of a message, in characters, and how much of their ends is shown.
const WORD: (usize, usize) = (400, 80);
const LINE: (usize, usize) = (4000, 400);

/// The beginning and the end of a text that is too long.
fn cut(text: &str, (most, end): (usize, usize)) -> Cow<'_, str> {
    // There are at least as many bytes as characters.
    let count = if text.len() > most { text.chars().count() } else { 0 };
    if count <= most {
        return Cow::Borrowed(text);
    }
    let at = |n| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    let (head, tail) = text.split_at(at(most - end));
    let tail = tail.get(at(count - end) - head.len()..).unwrap_or_default();
    Cow::Owned(format!("{head}..{tail}"))
}

/// A message without names and lines of any length: a file or an option may have put them into it.
#[must_use]
pub fn shortened(message: &str) -> Cow<'_, str> {
    if message.len() <= WORD.0 {
        return Cow::Borrowed(message);
    }
    let line = |line: &str| {
        let words: Vec<Cow<'_, str>> = line.split(' ').map(|word| cut(word, WORD)).collect();
        cut(&words.join(" "), LINE).into_owned()
    };
    Cow::Owned(message.split('\n').map(line).collect::<Vec<String>>().join("\n"))
}

/// Untrusted text: control characters become `?`.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        Cow::Owned(text.chars().map(|c| if c.is_control() { '?' } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_and_lines_keep_their_ends() {
        let path = format!("cannot read /{}/x.d: no such file", "d/".repeat(100));
        assert_eq!(shortened(&path), path);
        let word = format!("near \"{}b\"\n  ^^^^", "ä".repeat(100_000));
        let shown = shortened(&word);
        assert_eq!(shown.lines().next().unwrap().chars().count(), 5 + 402);
        assert!(shown.starts_with("near \"ää") && shown.ends_with("ääb\"\n  ^^^^") && shown.contains("ä..ä"));
        let line = "a b ".repeat(100_000);
        assert_eq!(shortened(&line).len(), 4002);
        let colours = format!("\x1b[1m{}\x1b[0m", "x".repeat(500));
        assert!(shortened(&colours).ends_with("x\x1b[0m"));
    }
}
