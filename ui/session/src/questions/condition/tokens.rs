//! The tokens of a condition.

use std::fmt;

use super::ConditionError;

/// A token, its position, and its characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    pub at: usize,
    pub len: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A number, a register, a symbol.
    Word(String),
    Sign(&'static str),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Sign(sign) => write!(f, "`{sign}`"),
        }
    }
}

/// The longer ones first.
const SIGNS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<<", ">>", "<", ">", "!", "+", "-", "*", "/", "%", "&", "|", "^",
    "~", "(", ")", "[", "]",
];

/// The help for the form of a condition.
pub const FORM: &str =
    "write a condition such as `eax == 5`, `u32[jiffies] > 0x1000` or `u8[rdi + 8] & 4 && cr3 != 0`";

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '$')
}

/// The tokens of a text.
pub fn tokens(text: &str) -> Result<Vec<Token>, ConditionError> {
    let chars: Vec<char> = text.chars().collect();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(&c) = chars.get(at) {
        let rest = chars.get(at..).unwrap_or_default();
        let (kind, len) = if c.is_whitespace() {
            at += 1;
            continue;
        } else if is_word(c) {
            let word: String = rest.iter().take_while(|c| is_word(**c)).collect();
            let len = word.chars().count();
            (Kind::Word(word), len)
        } else {
            let next: String = rest.iter().take(2).collect();
            let Some(sign) = SIGNS.iter().find(|sign| next.starts_with(**sign)) else {
                let message = match c {
                    '=' => "`=` has no meaning here: a comparison is `==`".to_owned(),
                    _ => format!("`{c}` has no meaning here"),
                };
                return Err(ConditionError {
                    text: text.to_owned(),
                    at,
                    len: 1,
                    message,
                    help: FORM.to_owned(),
                });
            };
            (Kind::Sign(sign), sign.len())
        };
        found.push(Token { kind, at, len });
        at += len;
    }
    Ok(found)
}
