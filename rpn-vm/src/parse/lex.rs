//! The scanner: source lines to tokens, as C's translation phases 2 and 3 do it.
//!
//! A backslash at the end joins lines; a comment counts as a space. It knows numbers, names, strings and
//! punctuation, not their meaning. A malformed number or a stray character is a token too; the parser
//! reports it, so that a line gives one error.

use std::sync::Arc;

use crate::source::Span;

/// The kind of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name; dots and `$` may follow the first character, for compiler-made symbols.
    Ident,
    /// A number that fits 64 bits.
    Num(u64),
    /// A malformed number, or one that does not fit 64 bits.
    BadNum,
    /// Text in double quotes, without them.
    Str,
    /// A double quote that is not closed on its line.
    OpenStr,
    /// A character constant, valid only in `#if`.
    Char(u32),
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
    /// Whether white space or a comment precedes it.
    pub space: bool,
    /// Whether it must not be joined with the token before it, because the text of a macro begins or ends between them.
    /// Unlike `space` it does not show in a string that `#` makes.
    pub apart: bool,
    /// Whether it was met while its macro was being replaced: it is never replaced again.
    pub painted: bool,
}

impl Token {
    pub fn is(&self, c: char) -> bool {
        self.kind == Kind::Punct(c)
    }

    pub fn ident(&self) -> Option<&str> {
        (self.kind == Kind::Ident).then_some(self.text.as_str())
    }

    /// Its source text.
    pub fn source(&self) -> String {
        match self.kind {
            Kind::Str => format!("\"{}\"", self.text),
            Kind::OpenStr => format!("\"{}", self.text),
            _ => self.text.clone(),
        }
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

/// Most characters of a line, continuation lines included.
pub(crate) const MAX_LINE: usize = 65_536;

/// Errors in the text of a line that are found before parsing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// More than [`MAX_LINE`] characters; the line has no tokens.
    TooLong,
    /// A `/*` without its `*/`.
    OpenComment,
    /// A `//` comment that a backslash continues.
    ContinuedComment,
}

/// A logical line.
#[derive(Debug, Default)]
pub(crate) struct Logical {
    pub tokens: Vec<Token>,
    /// The first of its physical lines.
    pub line: u32,
    pub troubles: Vec<(Trouble, Span)>,
}

/// A character with its physical line and column.
type Placed = (char, u32, u32);

/// Reads a file, one logical line after the other.
pub(crate) struct Reader {
    lines: Arc<[String]>,
    file: u32,
    /// Physical lines read.
    pub next: usize,
}

impl Reader {
    pub fn new(lines: Arc<[String]>, file: u32) -> Self {
        Self { lines, file, next: 0 }
    }

    /// The characters of the next line, joined with those that a backslash adds. `None`: the end.
    fn spliced(&mut self) -> Option<Vec<Placed>> {
        let mut chars: Vec<Placed> = Vec::new();
        self.lines.get(self.next)?;
        while let Some(text) = self.lines.get(self.next) {
            self.next += 1;
            let line = small(self.next);
            let joined = text.trim_end().strip_suffix('\\');
            if chars.len() <= MAX_LINE {
                let shown = joined.unwrap_or(text).chars().take(MAX_LINE + 1);
                chars.extend(shown.zip(1..).map(|(c, col)| (c, line, col)));
            }
            if joined.is_none() {
                break;
            }
        }
        Some(chars)
    }

    /// The next line as tokens.
    pub fn logical(&mut self) -> Option<Logical> {
        let line = small(self.next + 1);
        let chars = self.spliced()?;
        let mut scanner = Scanner {
            chars,
            at: 0,
            file: self.file,
            out: Logical { line, ..Logical::default() },
            space: false,
        };
        scanner.run(self);
        Some(scanner.out)
    }
}

fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Scans a text that is not from a file, such as a pasted token. `file` and `line` go into the spans.
pub(crate) fn scan(text: &str) -> Vec<Token> {
    let mut reader = Reader::new(Arc::from([text.to_owned()]), 0);
    reader.logical().map(|l| l.tokens).unwrap_or_default()
}

struct Scanner {
    chars: Vec<Placed>,
    at: usize,
    file: u32,
    out: Logical,
    space: bool,
}

impl Scanner {
    fn char(&self, at: usize) -> Option<char> {
        self.chars.get(at).map(|(c, ..)| *c)
    }

    fn run(&mut self, reader: &mut Reader) {
        if self.too_long() {
            return;
        }
        while let Some(c) = self.char(self.at) {
            let next = self.char(self.at + 1);
            if c.is_whitespace() {
                self.at += 1;
                self.space = true;
            } else if c == '/' && next == Some('/') {
                self.line_comment();
                return;
            } else if c == '/' && next == Some('*') {
                if !self.block_comment(reader) {
                    return;
                }
            } else {
                self.token(c);
            }
        }
    }

    fn too_long(&mut self) -> bool {
        let long = self.chars.len() > MAX_LINE;
        if long {
            let at = Span { len: 1, ..self.span(0, 1) };
            self.out.troubles.push((Trouble::TooLong, at));
            self.out.tokens.clear();
            self.chars.clear();
        }
        long
    }

    fn line_comment(&mut self) {
        let span = self.span(self.at, self.at + 2);
        if self.chars.last().is_some_and(|(_, line, _)| *line > span.line) {
            self.out.troubles.push((Trouble::ContinuedComment, span));
        }
        self.at = self.chars.len();
    }

    /// Skips a comment, and reads lines until it ends. Returns whether it ended.
    fn block_comment(&mut self, reader: &mut Reader) -> bool {
        let span = self.span(self.at, self.at + 2);
        self.at += 2;
        self.space = true;
        loop {
            let rest = self.chars.get(self.at..).unwrap_or_default();
            if let Some(end) = rest.windows(2).position(|w| w[0].0 == '*' && w[1].0 == '/') {
                self.at += end + 2;
                return true;
            }
            match reader.spliced() {
                Some(chars) => (self.chars, self.at) = (chars, 0),
                None => {
                    self.out.troubles.push((Trouble::OpenComment, span));
                    return false;
                }
            }
            if self.too_long() {
                return false;
            }
        }
    }

    /// The place of some characters; its length ends with the line that they begin on.
    fn span(&self, from: usize, to: usize) -> Span {
        let Some(&(_, line, col)) = self.chars.get(from) else { return Span::default() };
        let len = self.chars.get(from..to).unwrap_or_default().iter().filter(|c| c.1 == line).count();
        Span { file: self.file, line, col, len: small(len), via: 0 }
    }

    fn text(&self, from: usize, to: usize) -> String {
        self.chars.get(from..to).unwrap_or_default().iter().map(|(c, ..)| *c).collect()
    }

    /// The end of the word that continues at `from`.
    fn word(&self, from: usize) -> usize {
        let rest = self.chars.get(from..).unwrap_or_default();
        from + rest.iter().take_while(|(c, ..)| c.is_alphanumeric() || matches!(c, '_' | '.' | '$')).count()
    }

    fn token(&mut self, c: char) {
        let start = self.at;
        let (kind, text) = if c == '"' {
            let rest = self.chars.get(start + 1..).unwrap_or_default();
            match rest.iter().position(|(c, ..)| *c == '"') {
                Some(n) => {
                    self.at = start + n + 2;
                    (Kind::Str, self.text(start + 1, self.at - 1))
                }
                None => {
                    self.at = self.chars.len();
                    (Kind::OpenStr, self.text(start + 1, self.at))
                }
            }
        } else if c == '\'' && self.char(start + 2) == Some('\'') && self.char(start + 1) != Some('\'') {
            self.at = start + 3;
            let value = self.char(start + 1).map_or(0, u32::from);
            (Kind::Char(value), self.text(start, self.at))
        } else if c.is_ascii_digit() {
            self.at = self.word(start);
            let text = self.text(start, self.at);
            (number(&text), text)
        } else if c.is_ascii_alphabetic() || c == '_' || (c == '.' && self.word(start) > start + 1) {
            self.at = self.word(start);
            (Kind::Ident, self.text(start, self.at))
        } else {
            self.at += 1;
            (Kind::Punct(c), c.to_string())
        };
        let span = self.span(start, self.at);
        self.out.tokens.push(Token { kind, text, span, space: self.space, apart: false, painted: false });
        self.space = false;
    }
}
