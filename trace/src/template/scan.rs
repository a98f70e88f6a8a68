//! Template files to tokens: words, numbers and strings in C notation, `=`, `,`; C comments are skipped.
//!
//! Every token knows its place, and every character of a string its own, so that an error inside a template points at
//! it.

use super::error::{Errors, Place};

/// A character of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Letter {
    /// The character itself.
    pub char: char,
    /// It was written after a backslash, so it is always text.
    pub escaped: bool,
    pub line: u32,
    pub col: u32,
}

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    Number(u32),
    Text(Vec<Letter>),
    Equals,
    Comma,
    /// An invalid value, already reported.
    Broken,
}

impl Token {
    /// For messages.
    pub fn shown(&self) -> String {
        match self {
            Self::Word(word) => format!("`{}`", short(word)),
            Self::Number(n) => format!("the number {n}"),
            Self::Text(letters) => {
                let text: String = letters.iter().map(|letter| letter.char).collect();
                format!("the string {:?}", short(&text))
            }
            Self::Equals => "`=`".to_owned(),
            Self::Comma => "`,`".to_owned(),
            Self::Broken => "a broken value".to_owned(),
        }
    }
}

/// A text shortened for a message.
pub(super) fn short(text: &str) -> String {
    const SHOWN: usize = 40;
    let mut out: String = text.chars().take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() {
        out.push_str("...");
    }
    out
}

/// Reads the tokens of a file.
pub(super) struct Scanner<'t> {
    file: String,
    rest: std::iter::Peekable<std::str::Chars<'t>>,
    line: u32,
    col: u32,
    held: Option<Option<(Place, Token)>>,
}

impl<'t> Scanner<'t> {
    pub fn new(file: &str, text: &'t str) -> Self {
        Self { file: file.to_owned(), rest: text.chars().peekable(), line: 1, col: 1, held: None }
    }

    /// The place of the next character.
    pub fn here(&self) -> Place {
        self.place(self.line, self.col)
    }

    /// A place in this file.
    pub fn place(&self, line: u32, col: u32) -> Place {
        Place { file: self.file.clone(), line, col }
    }

    /// The next token, without consuming it.
    pub fn peek(&mut self, errors: &mut Errors) -> Option<&(Place, Token)> {
        if self.held.is_none() {
            self.held = Some(self.scan(errors));
        }
        self.held.as_ref().and_then(Option::as_ref)
    }

    /// The next token.
    pub fn next(&mut self, errors: &mut Errors) -> Option<(Place, Token)> {
        match self.held.take() {
            Some(held) => held,
            None => self.scan(errors),
        }
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            (self.line, self.col) = (self.line.saturating_add(1), 1);
        } else {
            self.col = self.col.saturating_add(1);
        }
        Some(c)
    }

    /// The next whole token. Anything else is reported and skipped.
    fn scan(&mut self, errors: &mut Errors) -> Option<(Place, Token)> {
        loop {
            let at = self.here();
            let c = self.bump()?;
            let found = match c {
                c if c.is_whitespace() => continue,
                '=' => Some(Token::Equals),
                ',' => Some(Token::Comma),
                '/' => {
                    self.comment(at.clone(), errors);
                    continue;
                }
                '"' => self.string(at.clone(), errors),
                c if c.is_ascii_alphanumeric() || c == '_' => self.word(c, at.clone(), errors),
                c => {
                    let message = format!("{c:?} is unexpected; write a keyword, a number or a \"string\"");
                    errors.add(at.clone(), message);
                    None
                }
            };
            if let Some(token) = found {
                return Some((at, token));
            }
        }
    }

    /// Skips the comment that a `/` began.
    fn comment(&mut self, at: Place, errors: &mut Errors) {
        match self.rest.peek() {
            Some('/') => while self.rest.peek().is_some_and(|&c| c != '\n') && self.bump().is_some() {},
            Some('*') => {
                self.bump();
                let mut last = ' ';
                while let Some(c) = self.bump() {
                    if (last, c) == ('*', '/') {
                        return;
                    }
                    last = c;
                }
                errors.add(at, "the comment `/*` has no end; close it with `*/`".to_owned());
            }
            _ => errors.add(at, "'/' is unexpected; a comment begins with `/*` or `//`".to_owned()),
        }
    }

    fn word(&mut self, first: char, at: Place, errors: &mut Errors) -> Option<Token> {
        let mut word = String::from(first);
        while let Some(&c) = self.rest.peek().filter(|c| c.is_ascii_alphanumeric() || **c == '_') {
            word.push(c);
            self.bump();
        }
        if !first.is_ascii_digit() {
            return Some(Token::Word(word));
        }
        let hex = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
        let octal = word.len() > 1 && word.starts_with('0') && hex.is_none();
        let value = match hex {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => word.parse(),
        };
        match value {
            Ok(n) if !octal => return Some(Token::Number(n)),
            _ => {
                let shown = short(&word);
                let right = "write a decimal number, or 0x and hexadecimal digits, at most 0xffffffff";
                errors.add(at, format!("`{shown}` is not a number; {right}"));
            }
        }
        Some(Token::Broken)
    }

    /// The string after its opening quote.
    fn string(&mut self, at: Place, errors: &mut Errors) -> Option<Token> {
        let mut letters = Vec::new();
        loop {
            let (line, col) = (self.line, self.col);
            let letter = |char, escaped| Letter { char, escaped, line, col };
            match self.rest.peek().copied() {
                None | Some('\n') => {
                    let text: String = letters.iter().map(|l: &Letter| l.char).collect();
                    let message =
                        format!("the string {:?} does not end on its line; close it with \"", short(&text));
                    errors.add(at, message);
                    return Some(Token::Broken);
                }
                Some('"') => {
                    self.bump();
                    return Some(Token::Text(letters));
                }
                Some('\\') => {
                    self.bump();
                    let stands_for = match self.rest.peek().copied() {
                        Some('n') => Some('\n'),
                        Some('t') => Some('\t'),
                        Some(c @ ('\\' | '"')) => Some(c),
                        _ => None,
                    };
                    if let Some(c) = stands_for {
                        self.bump();
                        letters.push(letter(c, true));
                        continue;
                    }
                    let next: String = self.rest.peek().filter(|c| **c != '\n').iter().copied().collect();
                    let message = format!("`\\{next}` is not an escape; use \\n, \\t, \\\\ or \\\"");
                    errors.add(self.place(line, col), message);
                }
                Some(c) => {
                    self.bump();
                    letters.push(letter(c, false));
                }
            }
        }
    }
}
