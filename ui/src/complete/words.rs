//! A command line of a shell, as it is typed, in words.

/// The quotes around the end of a text.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Quote {
    /// None.
    #[default]
    None,
    /// `'`.
    Single,
    /// `"`.
    Double,
}

impl Quote {
    /// How a text is written in these quotes.
    pub fn written(self, text: &str) -> String {
        let special = |c: char| match self {
            Self::None => " \t'\"\\$`&;|<>()[]{}*?#~!".contains(c),
            Self::Double => "\"\\$`".contains(c),
            Self::Single => false,
        };
        let mut written = String::new();
        for c in text.chars() {
            if special(c) {
                written.push('\\');
            }
            written.push(c);
        }
        written
    }

    /// Whether more of a word follows such a part of it.
    pub fn goes_on(part: &str) -> bool {
        part.ends_with([':', '=', '/'])
    }
}

/// A line with a cursor in it.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// Its words without quotes. That of the cursor ends at the cursor.
    pub words: Vec<String>,
    /// The index of that word.
    pub current: usize,
    /// The quotes at the cursor.
    pub quote: Quote,
}

impl Line {
    /// Splits the text before the cursor and the text behind it.
    pub fn split(before: &str, after: &str) -> Self {
        let mut reader = Reader::default();
        before.chars().for_each(|c| reader.take(c));
        let quote = reader.quote;
        reader.words.push(std::mem::take(&mut reader.word));
        let current = reader.words.len() - 1;
        // What touches the cursor belongs to its word, which is to be replaced.
        let rest = after.trim_start_matches(|c: char| !c.is_whitespace());
        reader = Reader { words: reader.words, ..Reader::default() };
        rest.chars().for_each(|c| reader.take(c));
        reader.end();
        Self { words: reader.words, current, quote }
    }

    /// The part of the cursor's word before what the shell replaces: bash splits words at colons, but not in quotes.
    pub fn kept(&self, replaced: &str) -> &str {
        let replaced = Self::split(replaced, "");
        let end = replaced.words.last().map_or("", String::as_str);
        self.words.get(self.current).and_then(|word| word.strip_suffix(end)).unwrap_or_default()
    }
}

/// Reads a text character by character.
#[derive(Default)]
struct Reader {
    words: Vec<String>,
    word: String,
    begun: bool,
    quote: Quote,
    escaped: bool,
}

impl Reader {
    fn take(&mut self, c: char) {
        if std::mem::take(&mut self.escaped) {
            self.word.push(c);
            return;
        }
        match (self.quote, c) {
            (Quote::None | Quote::Double, '\\') => (self.escaped, self.begun) = (true, true),
            (Quote::None, '\'') => (self.quote, self.begun) = (Quote::Single, true),
            (Quote::None, '"') => (self.quote, self.begun) = (Quote::Double, true),
            (Quote::Single, '\'') | (Quote::Double, '"') => self.quote = Quote::None,
            (Quote::None, c) if c.is_whitespace() => self.end(),
            _ => {
                self.begun = true;
                self.word.push(c);
            }
        }
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.begun) {
            self.words.push(std::mem::take(&mut self.word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(before: &str, after: &str) -> (Vec<String>, usize) {
        let line = Line::split(before, after);
        (line.words, line.current)
    }

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        let expected = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(words("trapline run em", ""), (expected(&["trapline", "run", "em"]), 2));
        assert_eq!(words("t run ", ""), (expected(&["t", "run", ""]), 2));
        assert_eq!(words("t 'a b' \"c \\\" d\" e\\ f", ""), (expected(&["t", "a b", "c \" d", "e f"]), 3));
        assert_eq!(words("t run -n fbt::d", " embedded:ia32"), {
            (expected(&["t", "run", "-n", "fbt::d", "embedded:ia32"]), 3)
        });
        assert_eq!(words("t r", "un x"), (expected(&["t", "r", "x"]), 1));
        assert_eq!(words("t '' 'fbt::x { a", ""), (expected(&["t", "", "fbt::x { a"]), 2));
    }

    #[test]
    fn the_shell_keeps_what_it_does_not_replace() {
        let kept = |before: &str, replaced: &str| Line::split(before, "").kept(replaced).to_owned();
        assert_eq!(kept("t run embedded:ia", "ia"), "embedded:");
        assert_eq!(kept("t run embedded:", ""), "embedded:");
        assert_eq!(kept("t run 'fbt::do_", "fbt::do_"), "");
        assert_eq!(kept("t run 'fbt::do_fork:'e", "'fbt::do_fork:'e"), "");
        assert_eq!(kept("t run --rpn='fbt::do_", "fbt::do_"), "--rpn=");
    }

    #[test]
    fn special_characters_are_written_in_the_quotes_of_the_cursor() {
        assert_eq!(Quote::None.written("pid$target: a"), "pid\\$target:\\ a");
        assert_eq!(Quote::Double.written("pid$target: a"), "pid\\$target: a");
        assert_eq!(Quote::Single.written("pid$target: a"), "pid$target: a");
    }
}
