//! Tokens of D.
//!
//! Like DTrace's, the lexer has two states: outside a clause a word may be a probe description, inside it is C. The
//! parser says which one it is in. A `/` closes a predicate if the next character that is not white space is `{`, `;`,
//! `/` or the end; otherwise it divides.

use crate::error::{Error, Pos, Result};
use crate::pragma::Pragma;

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    /// A name or a keyword; the parser tells them apart.
    Word(String),
    /// A number with its suffix.
    Int(IntLiteral),
    /// A string, with its escapes replaced.
    Str(Vec<u8>),
    /// An operator or other mark.
    Mark(&'static str),
    /// The `/` that closes a predicate.
    EndPredicate,
    /// `@name`, without the `@`.
    Aggregation(String),
    /// The end of the text.
    End,
}

/// A number as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IntLiteral {
    pub value: u64,
    /// How it was written, for messages.
    pub text: String,
    pub unsigned: bool,
    /// 0 without suffix, 1 with `l`, 2 with `ll`.
    pub long: u8,
    pub decimal: bool,
    /// A character constant.
    pub character: bool,
}

impl Token {
    /// Its name in messages.
    fn show(&self) -> String {
        match self {
            Self::Word(word) => format!("\"{word}\""),
            Self::Int(int) => format!("\"{}\"", int.text),
            Self::Str(text) => format!("\"{}\"", String::from_utf8_lossy(text)),
            Self::Mark(mark) => format!("\"{mark}\""),
            Self::EndPredicate => "\"/\"".to_owned(),
            Self::Aggregation(name) => format!("\"@{name}\""),
            Self::End => "end of input".to_owned(),
        }
    }

    /// The error of a token that cannot stand here.
    pub fn unexpected(&self, pos: Pos) -> Error {
        let error = pos.error("D_SYNTAX", format!("syntax error near {}", self.show()));
        match self {
            Self::Word(word) => error.foreign(word),
            Self::Mark(mark) => error.foreign(mark),
            _ => error,
        }
    }
}

/// Operators and punctuation by the first character, the longest first.
const fn marks(first: u8) -> &'static [&'static str] {
    match first {
        b'(' => &["("],
        b')' => &[")"],
        b'[' => &["["],
        b']' => &["]"],
        b'{' => &["{"],
        b'}' => &["}"],
        b',' => &[","],
        b';' => &[";"],
        b':' => &[":"],
        b'?' => &["?"],
        b'~' => &["~"],
        b'.' => &["...", "."],
        b'+' => &["++", "+=", "+"],
        b'-' => &["->", "--", "-=", "-"],
        b'*' => &["*=", "*"],
        b'/' => &["/=", "/"],
        b'%' => &["%=", "%"],
        b'&' => &["&&", "&=", "&"],
        b'|' => &["||", "|=", "|"],
        b'^' => &["^^", "^=", "^"],
        b'!' => &["!=", "!"],
        b'=' => &["==", "="],
        b'<' => &["<<=", "<<", "<=", "<"],
        b'>' => &[">>=", ">>", ">=", ">"],
        _ => &[],
    }
}

/// The text being read.
pub(crate) struct Lexer<'t> {
    text: &'t [u8],
    at: usize,
    /// As directives say.
    line: u32,
    text_line: u32,
    line_start: usize,
    pub pragmas: Vec<(Pos, Pragma)>,
    /// Brackets that are open, for DTrace's messages.
    open: Vec<u8>,
    macros: &'t dyn Fn(&str) -> Option<Vec<u8>>,
    in_predicate: bool,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'`'
}

fn is_description(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-$:_.`?*\\[]!".contains(&byte)
}

impl<'t> Lexer<'t> {
    pub fn new(text: &'t [u8], macros: &'t dyn Fn(&str) -> Option<Vec<u8>>) -> Self {
        let (pragmas, open) = (Vec::new(), Vec::new());
        Self { text, at: 0, line: 1, text_line: 1, line_start: 0, pragmas, open, macros, in_predicate: false }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// The place of the next character.
    pub fn pos(&self) -> Pos {
        let column = (self.at - self.line_start + 1) as u32;
        Pos { line: self.line, column, text_line: self.text_line }
    }

    fn newline(&mut self) {
        self.at += 1;
        self.line += 1;
        self.text_line += 1;
        self.line_start = self.at;
    }

    /// Skips white space, comments and directives.
    pub fn skip(&mut self) -> Result<()> {
        loop {
            match self.peek(0) {
                b'\n' => self.newline(),
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'/' if self.peek(1) == b'*' => self.comment()?,
                b'/' if self.peek(1) == b'/' => {
                    let rest = self.text.get(self.at..).unwrap_or_default();
                    self.at += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                }
                b'\\' if self.peek(1) == b'\n' => {
                    self.at += 1;
                    self.newline();
                }
                b'#' if self.starts_line() => self.directive()?,
                _ => return Ok(()),
            }
        }
    }

    fn starts_line(&self) -> bool {
        let before = self.text.get(self.line_start..self.at).unwrap_or_default();
        before.iter().all(u8::is_ascii_whitespace)
    }

    fn comment(&mut self) -> Result<()> {
        let start = self.pos();
        self.at += 2;
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'*', b'/') => {
                    self.at += 2;
                    return Ok(());
                }
                (b'\n', _) => self.newline(),
                _ if self.at >= self.text.len() => {
                    return Err(start.error("D_COMMENT_EOF", "end-of-file encountered before matching */"));
                }
                _ => self.at += 1,
            }
        }
    }

    /// A line that begins with `#`.
    fn directive(&mut self) -> Result<()> {
        let pos = self.pos();
        let mut line = Vec::new();
        while self.at < self.text.len() && self.peek(0) != b'\n' {
            if self.peek(0) == b'\\' && self.peek(1) == b'\n' {
                self.at += 1;
                self.newline();
            } else {
                line.push(self.peek(0));
                self.at += 1;
            }
        }
        let text = String::from_utf8_lossy(&line).into_owned();
        let body = text.trim_start_matches('#').trim();
        if text.starts_with("#!") || body.is_empty() {
            return Ok(());
        }
        if let Some(number) = body.strip_prefix("line").unwrap_or(body).split_whitespace().next()
            && let Ok(number) = number.parse::<u32>()
        {
            // The line end that follows adds one.
            self.line = number.saturating_sub(1);
            return Ok(());
        }
        self.pragmas.push((pos, Pragma::parse(body, pos)?));
        Ok(())
    }

    /// The next word as a probe description, if it can be one. White space has been skipped.
    pub fn description(&mut self) -> Option<String> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut length = rest.iter().position(|&b| !is_description(b)).unwrap_or(rest.len());
        // A macro variable in a description is replaced when its clause is read.
        if rest.get(length) == Some(&b'{') && length > 0 && rest.get(length - 1) == Some(&b'$') {
            length -= 1;
        }
        let word = rest.get(..length).filter(|word| !word.is_empty())?;
        self.at += length;
        Some(String::from_utf8_lossy(word).into_owned())
    }

    /// The plain name that comes next, without taking it.
    pub fn name_ahead(&self) -> Option<String> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|&b| !is_word(b) || b == b'`').unwrap_or(rest.len());
        let word = rest.get(..length).filter(|w| w.first().is_some_and(|b| !b.is_ascii_digit()))?;
        Some(String::from_utf8_lossy(word).into_owned())
    }

    /// Whether one of these characters comes next.
    pub fn is_next(&self, any: &[u8]) -> bool {
        self.text.get(self.at).is_some_and(|byte| any.contains(byte))
    }

    /// Whether the text has ended. White space has been skipped.
    pub fn ended(&self) -> bool {
        self.at >= self.text.len()
    }

    /// A predicate begins or has ended.
    pub fn predicate(&mut self, inside: bool) {
        self.in_predicate = inside;
    }

    /// The next token of a clause or declaration, with its place.
    pub fn token(&mut self) -> Result<(Token, Pos)> {
        self.skip()?;
        let pos = self.pos();
        if self.ended() {
            return Ok((Token::End, pos));
        }
        let token = match self.peek(0) {
            b'"' => self.string(pos)?,
            b'\'' => self.character(pos)?,
            b'0'..=b'9' => self.number(pos)?,
            b'@' => self.aggregation(),
            b'$' => self.macro_variable(pos)?,
            byte if is_word(byte) => Token::Word(self.word()),
            _ => self.mark(pos)?,
        };
        Ok((token, pos))
    }

    fn word(&mut self) -> String {
        let start = self.at;
        while is_word(self.peek(0)) {
            self.at += 1;
        }
        String::from_utf8_lossy(self.text.get(start..self.at).unwrap_or_default()).into_owned()
    }

    fn aggregation(&mut self) -> Token {
        self.at += 1;
        Token::Aggregation(self.word())
    }

    /// `$1`, `$$1`, `$pid`: their values.
    fn macro_variable(&mut self, pos: Pos) -> Result<Token> {
        let start = self.at;
        self.at += 1;
        let as_text = self.peek(0) == b'$';
        self.at += usize::from(as_text);
        let name = self.word();
        let text = String::from_utf8_lossy(self.text.get(start..self.at).unwrap_or_default()).into_owned();
        let Some(value) = (self.macros)(&name) else {
            let argument = name.bytes().all(|b| b.is_ascii_digit());
            let what = if argument { "macro argument" } else { "macro variable" };
            return Err(pos.error("D_MACRO_UNDEF", format!("{what} {text} is not defined")).foreign("$"));
        };
        if as_text {
            return Ok(Token::Str(value));
        }
        let word = String::from_utf8_lossy(&value).into_owned();
        let digits = word.strip_prefix('-').unwrap_or(&word);
        if digits.starts_with(|c: char| c.is_ascii_digit()) {
            let mut inner = Lexer::new(digits.as_bytes(), self.macros);
            let number = inner.number(pos)?;
            return Ok(match number {
                Token::Int(int) if word.starts_with('-') => {
                    Token::Int(IntLiteral { value: int.value.wrapping_neg(), long: 2, text: word, ..int })
                }
                other => other,
            });
        }
        Ok(if word.is_empty() { Token::Int(IntLiteral::plain(0)) } else { Token::Word(word) })
    }

    fn mark(&mut self, pos: Pos) -> Result<Token> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let Some(mark) = marks(self.peek(0)).iter().find(|mark| rest.starts_with(mark.as_bytes())) else {
            let shown = rest.first().map(|b| b.escape_ascii().to_string()).unwrap_or_default();
            return Err(pos.error("D_SYNTAX", format!("syntax error near \"{shown}\"")));
        };
        if *mark == "/" && self.in_predicate && self.closes_predicate() {
            if let Some(open) = self.open.last().filter(|open| **open != b'{') {
                let close = if *open == b'(' { ')' } else { ']' };
                let sentence = format!("closing {close} expected in predicate before /");
                return Err(pos.error("D_SYNTAX", sentence));
            }
            self.at += 1;
            return Ok(Token::EndPredicate);
        }
        self.brackets(mark, pos)?;
        self.at += mark.len();
        Ok(Token::Mark(mark))
    }

    fn closes_predicate(&self) -> bool {
        let rest = self.text.get(self.at + 1..).unwrap_or_default();
        let mut rest = rest.iter().skip_while(|b| b.is_ascii_whitespace());
        matches!(rest.next(), None | Some(b'{' | b';' | b'/'))
    }

    /// Keeps track of the brackets.
    fn brackets(&mut self, mark: &str, pos: Pos) -> Result<()> {
        match mark {
            "(" | "[" | "{" => self.open.extend(mark.bytes()),
            ")" | "]" | "}" => {
                let opening = match mark {
                    ")" => b'(',
                    "]" => b'[',
                    _ => b'{',
                };
                if self.open.last() != Some(&opening) {
                    return Err(pos.error("D_SYNTAX", format!("extra {mark} in input stream")));
                }
                self.open.pop();
            }
            _ => {}
        }
        Ok(())
    }

    fn number(&mut self, pos: Pos) -> Result<Token> {
        let text = self.word();
        let low = text.to_ascii_lowercase();
        if self.peek(0) == b'.' && self.peek(1).is_ascii_digit() {
            let sentence = "floating-point constants are not permitted";
            return Err(pos.error("D_SYNTAX", sentence));
        }
        let body = if low.starts_with("0x") { low.as_str() } else { low.trim_end_matches(['u', 'l']) };
        let body = body.trim_end_matches(['u', 'l']);
        let suffix = low.get(body.len()..).unwrap_or_default();
        let (digits, radix) = match body.strip_prefix("0x") {
            Some(hex) => (hex, 16),
            None if body.len() > 1 && body.starts_with('0') => (body, 8),
            None => (body, 10),
        };
        let bad_suffix = !matches!(suffix, "" | "u" | "l" | "ul" | "lu" | "ll" | "ull" | "llu");
        if bad_suffix || digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(pos.error("D_SYNTAX", format!("syntax error near \"{text}\"")));
        }
        if !digits.chars().all(|c| c.is_digit(radix)) {
            let sentence = format!("invalid digit in constant {text}");
            return Err(pos.error("D_INT_DIGIT", sentence));
        }
        let value = u64::from_str_radix(digits, radix)
            .map_err(|_| pos.error("D_INT_OFLOW", format!("constant {text} results in integer overflow")))?;
        let long = suffix.bytes().filter(|b| *b == b'l').count() as u8;
        let unsigned = suffix.contains('u');
        Ok(Token::Int(IntLiteral { value, text, unsigned, long, decimal: radix == 10, character: false }))
    }

    fn string(&mut self, pos: Pos) -> Result<Token> {
        let bytes = self.quoted(b'"', pos)?;
        Ok(Token::Str(bytes))
    }

    fn character(&mut self, pos: Pos) -> Result<Token> {
        let start = self.at;
        let bytes = self.quoted(b'\'', pos)?;
        let text = String::from_utf8_lossy(self.text.get(start..self.at).unwrap_or_default()).into_owned();
        match bytes.len() {
            0 => return Err(pos.error("D_CHR_NULL", "empty character constant")),
            1..=4 => {}
            _ => return Err(pos.error("D_CHR_OFLOW", "character constant is too long")),
        }
        // The first character is the most significant, as multi-character constants of C are.
        let value = match bytes.as_slice() {
            [one] => *one as i8 as i64 as u64,
            more => more.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte)),
        };
        let (unsigned, long, decimal, character) = (false, 0, true, true);
        Ok(Token::Int(IntLiteral { value, text, unsigned, long, decimal, character }))
    }

    /// The bytes between quotes.
    fn quoted(&mut self, quote: u8, pos: Pos) -> Result<Vec<u8>> {
        let (tag, what) =
            if quote == b'"' { ("D_STR_NL", "string literal") } else { ("D_CHR_NL", "character constant") };
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            match self.peek(0) {
                byte if byte == quote => {
                    self.at += 1;
                    return Ok(bytes);
                }
                b'\n' => return Err(pos.error(tag, format!("newline encountered in {what}"))),
                _ if self.ended() => {
                    let tag = if quote == b'"' { "D_STR_EOF" } else { "D_CHR_EOF" };
                    return Err(pos.error(tag, format!("end-of-file encountered before end of {what}")));
                }
                b'\\' => self.escape(&mut bytes),
                byte => {
                    bytes.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    fn escape(&mut self, bytes: &mut Vec<u8>) {
        self.at += 1;
        let byte = self.peek(0);
        self.at += 1;
        match byte {
            b'a' => bytes.push(7),
            b'b' => bytes.push(8),
            b'f' => bytes.push(12),
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b't' => bytes.push(b'\t'),
            b'v' => bytes.push(11),
            b'\n' => {
                self.at -= 1;
                self.newline();
            }
            b'0'..=b'7' => {
                let mut value = u32::from(byte - b'0');
                for _ in 0..2 {
                    if matches!(self.peek(0), b'0'..=b'7') {
                        value = value << 3 | u32::from(self.peek(0) - b'0');
                        self.at += 1;
                    }
                }
                bytes.push(value as u8);
            }
            b'x' => {
                let mut value = 0u32;
                while let Some(digit) = (self.peek(0) as char).to_digit(16) {
                    value = value << 4 | digit;
                    self.at += 1;
                }
                bytes.push(value as u8);
            }
            other => bytes.push(other),
        }
    }
}

impl IntLiteral {
    /// A number that is not in the text.
    pub fn plain(value: u64) -> Self {
        let text = value.to_string();
        Self { value, text, unsigned: false, long: 0, decimal: true, character: false }
    }
}
