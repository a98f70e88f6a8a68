//! How many lines of a screen a text takes.

/// Columns from one tab stop to the next.
const TAB: usize = 8;

/// The part of an escape sequence that was read last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    None,
    Begun,
    Sequence,
}

/// Counts the lines of a text piece by piece.
#[derive(Debug)]
pub struct Rows {
    lines: usize,
    columns: usize,
    /// Lines that were begun.
    rows: usize,
    /// Characters in the last one.
    column: usize,
    escape: Escape,
}

impl Rows {
    /// For a screen of this size.
    pub fn new(lines: u16, columns: u16) -> Self {
        let (lines, columns) = (lines.into(), usize::from(columns).max(1));
        Self { lines, columns, rows: 0, column: 0, escape: Escape::None }
    }

    /// Adds a piece. A character is taken to be one column wide, a sequence of colour to have no width.
    pub fn add(&mut self, text: &[u8]) {
        for byte in text {
            match (self.escape, byte) {
                (Escape::None, 0x1b) => self.escape = Escape::Begun,
                (Escape::Begun, b'[') => self.escape = Escape::Sequence,
                (Escape::Begun, _) | (Escape::Sequence, 0x40..=0x7e) => self.escape = Escape::None,
                (Escape::Sequence, _) => {}
                (Escape::None, b'\n') => self.end_line(),
                (Escape::None, b'\t') => self.column = (self.column / TAB + 1) * TAB,
                // The later bytes of a character.
                (Escape::None, 0x80..=0xbf) => {}
                (Escape::None, _) => self.column += 1,
            }
        }
    }

    fn end_line(&mut self) {
        self.rows += self.column.div_ceil(self.columns).max(1);
        self.column = 0;
    }

    /// Whether there is no line left for the shell's prompt.
    pub fn fill_the_screen(&self) -> bool {
        self.rows + self.column.div_ceil(self.columns) >= self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fills(lines: u16, columns: u16, text: &str) -> bool {
        let (mut whole, mut pieces) = (Rows::new(lines, columns), Rows::new(lines, columns));
        whole.add(text.as_bytes());
        text.as_bytes().iter().for_each(|byte| pieces.add(&[*byte]));
        assert_eq!(whole.fill_the_screen(), pieces.fill_the_screen(), "{text:?}");
        whole.fill_the_screen()
    }

    #[test]
    fn a_text_fills_the_screen_when_no_line_is_left_for_the_prompt() {
        assert!(!fills(4, 80, "a\nb\nc\n"));
        assert!(fills(4, 80, "a\nb\nc\nd\n"));
        assert!(fills(4, 80, "a\nb\nc\nd"));
        assert!(!fills(4, 80, ""));
        assert!(fills(4, 80, "\n\n\n\n"));
    }

    #[test]
    fn long_lines_take_more_than_one_row() {
        assert!(!fills(3, 10, "0123456789\n0123456789\n"));
        assert!(fills(3, 10, "0123456789\n01234567890\n"));
        assert!(fills(3, 10, "\t\t\t\t"));
    }

    #[test]
    fn colours_and_the_later_bytes_of_characters_have_no_width() {
        assert!(!fills(2, 4, "\x1b[1;31mabcd\x1b[0m\n"));
        assert!(!fills(2, 4, "äöüß\n"));
        assert!(fills(2, 3, "äöüß\n"));
    }
}
