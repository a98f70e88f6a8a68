//! The scanner: one source line to tokens.
//!
//! It knows numbers, names, strings, punctuation and comments, not meaning.
//! A malformed number or a stray character is a token too; whoever meets it
//! reports it, so that one line gives one error.

use crate::source::Span;

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name; dots and `$` may follow the first character, for compiler-made symbols.
    Ident,
    /// A number that fits 64 bits.
    Num(u64),
    /// Starts like a number and is none, or does not fit 64 bits.
    BadNum,
    /// Text in double quotes, without them.
    Str,
    /// A double quote that is not closed on its line.
    OpenStr,
    /// One character of anything else.
    Punct(char),
}

/// One token.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub kind: Kind,
    /// Its text; for strings, without the quotes.
    pub text: String,
    pub span: Span,
}

impl Token {
    pub fn is(&self, c: char) -> bool {
        self.kind == Kind::Punct(c)
    }

    pub fn ident(&self) -> Option<&str> {
        (self.kind == Kind::Ident).then_some(self.text.as_str())
    }
}

fn number(text: &str) -> Kind {
    let low = text.to_ascii_lowercase();
    let parsed = match low.strip_prefix("0x") {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None if low.bytes().all(|b| b.is_ascii_digit()) => low.parse().ok(),
        None => None,
    };
    parsed.map_or(Kind::BadNum, Kind::Num)
}

/// Scans one line. `file` and `line` go into the spans.
pub(crate) fn scan(text: &str, file: u32, line: u32) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        if c.is_whitespace() {
            at += 1;
            continue;
        }
        if c == '/' && chars.get(at + 1) == Some(&'/') {
            break;
        }
        let start = at;
        let word = |from: usize| {
            let rest = &chars[from..];
            from + rest.iter().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '$')).count()
        };
        let (kind, text): (Kind, String) = if c == '"' {
            match chars[at + 1..].iter().position(|&c| c == '"') {
                Some(n) => {
                    at += n + 2;
                    (Kind::Str, chars[start + 1..at - 1].iter().collect())
                }
                None => {
                    at = chars.len();
                    (Kind::OpenStr, chars[start + 1..].iter().collect())
                }
            }
        } else if c.is_ascii_digit() {
            at = word(at);
            let text: String = chars[start..at].iter().collect();
            (number(&text), text)
        } else if c.is_ascii_alphabetic() || c == '_' || (c == '.' && word(at) > at + 1) {
            at = word(at);
            (Kind::Ident, chars[start..at].iter().collect())
        } else {
            at += 1;
            (Kind::Punct(c), c.to_string())
        };
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        tokens.push(Token {
            kind,
            text,
            span: Span { file, line, col: small(start + 1), len: small(at - start) },
        });
    }
    tokens
}
