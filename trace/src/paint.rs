//! Colours of texts that people read. Without colours, every text stays as it is; with them, the same bytes stand between
//! sequences of colour.

use std::fmt::Write as _;

const PLAIN: &str = "\x1b[0m";

/// What a part of a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// What matters less: addresses, headings, names of probes.
    Dim,
    /// What is looked for: a name.
    Name,
    /// A number.
    Number,
    /// What an instruction does.
    Mnemonic,
    /// Of the first of two, or what failed.
    First,
    /// Of the second of two, or what is well.
    Second,
    /// What needs attention.
    Notice,
}

impl Role {
    const fn sequence(self) -> &'static str {
        match self {
            Self::Dim => "\x1b[2m",
            Self::Name => "\x1b[1m",
            Self::Number => "\x1b[36m",
            Self::Mnemonic => "\x1b[34m",
            Self::First => "\x1b[31m",
            Self::Second => "\x1b[32m",
            Self::Notice => "\x1b[33m",
        }
    }
}

/// Whether texts have colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Paint(bool);

impl Paint {
    /// With colours, or without.
    #[must_use]
    pub const fn new(on: bool) -> Self {
        Self(on)
    }

    /// Whether there are colours.
    #[must_use]
    pub const fn is_on(self) -> bool {
        self.0
    }

    /// A text in the colour of its role.
    #[must_use]
    pub fn text(self, role: Role, text: &str) -> String {
        let mut out = String::new();
        self.push(role, text, &mut out);
        out
    }

    /// Appends it.
    pub fn push(self, role: Role, text: &str, out: &mut String) {
        if self.0 && !text.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(out, "{}{text}{PLAIN}", role.sequence());
        } else {
            out.push_str(text);
        }
    }

    /// A text whose numbers have a colour: decimal ones, and hexadecimal ones that begin with `0x`. Those in quotes and in
    /// names are text.
    #[must_use]
    pub fn numbers(self, text: &str) -> String {
        if !self.0 {
            return text.to_owned();
        }
        let mut out = String::new();
        let (mut rest, mut in_quotes) = (text, false);
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.');
            let length = match first {
                '\\' if in_quotes => first.len_utf8() + rest.chars().nth(1).map_or(0, char::len_utf8),
                _ if is_word(first) && !in_quotes => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                _ => first.len_utf8(),
            };
            let (word, more) = rest.split_at(length);
            let number = !in_quotes && is_number(word);
            in_quotes ^= first == '"';
            match number {
                true => self.push(Role::Number, word, &mut out),
                false => out.push_str(word),
            }
            rest = more;
        }
        out
    }

    /// A text whose values have a colour: what follows `=` in a word.
    #[must_use]
    pub fn values(self, text: &str) -> String {
        let mut out = String::new();
        for (n, word) in text.split(' ').enumerate() {
            if n > 0 {
                out.push(' ');
            }
            match word.split_once('=') {
                Some((name, value)) => {
                    out.push_str(name);
                    out.push('=');
                    self.push(Role::Number, value, &mut out);
                }
                None => out.push_str(word),
            }
        }
        out
    }
}

/// Whether a word is a number.
fn is_number(word: &str) -> bool {
    let digits = word.strip_suffix("..").unwrap_or(word);
    match digits.strip_prefix("0x") {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text with marks in the place of colours.
    fn marked(text: &str) -> String {
        Paint::new(true).numbers(text).replace("\x1b[36m", "<").replace(PLAIN, ">")
    }

    #[test]
    fn numbers_have_a_colour_and_names_and_quoted_texts_have_none() {
        assert_eq!(marked("f(a=5, b=-0x1f)"), "f(a=<5>, b=-<0x1f>)");
        assert_eq!(marked("p=0xff {pid=1, comm=\"x 7\"}"), "p=<0xff> {pid=<1>, comm=\"x 7\"}");
        assert_eq!(marked("\"a\\\"7\" 8"), "\"a\\\"7\" <8>");
        assert_eq!(
            marked("fn2 eth0 2x 0x 0xg é9 v1.2 _3 [4+0x1]"),
            "fn2 eth0 2x 0x 0xg é9 v1.2 _3 [<4>+<0x1>]"
        );
        assert_eq!(marked(""), "");
    }

    #[test]
    fn without_colours_texts_stay_as_they_are() {
        let text = "DProbes(1,2) pid=5 \"7\" 0x8";
        let plain = Paint::default();
        assert_eq!(plain.numbers(text), text);
        assert_eq!(plain.values(text), text);
        assert_eq!(plain.text(Role::Dim, text), text);
        let values = Paint::new(true).values("DProbes(1,2) pid=5 name=a=b x");
        assert_eq!(values.replace("\x1b[36m", "<").replace(PLAIN, ">"), "DProbes(1,2) pid=<5> name=<a=b> x");
    }
}
