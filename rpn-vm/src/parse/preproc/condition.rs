//! Constant expressions of `#if` and `#elif`, as in C: 64-bit numbers, signed unless one is unsigned.
//!
//! Its input are tokens in which macros and `defined` are already replaced. Operands that are not evaluated
//! (`0 && 1 / 0`) are parsed but cannot fail. Nesting is bounded.

use super::super::lex::{Kind, Token};
use crate::source::Span;

/// Deepest nesting of parentheses, signs and `?:`.
const MAX_DEPTH: usize = 200;

/// An error and its place.
pub(super) type Wrong = (Span, String);

#[derive(Debug, Clone, Copy)]
struct Value {
    bits: u64,
    unsigned: bool,
}

impl Value {
    const fn signed(n: i64) -> Self {
        Self { bits: n as u64, unsigned: false }
    }

    const fn truth(yes: bool) -> Self {
        Self::signed(yes as i64)
    }

    const fn is_true(self) -> bool {
        self.bits != 0
    }
}

/// Binary operators, those that bind loosest first; operators of the same precedence have the same number.
const BINARY: &[(&str, u8)] = &[
    ("||", 1),
    ("&&", 2),
    ("|", 3),
    ("^", 4),
    ("&", 5),
    ("==", 6),
    ("!=", 6),
    ("<=", 7),
    (">=", 7),
    ("<<", 8),
    (">>", 8),
    ("<", 7),
    (">", 7),
    ("+", 9),
    ("-", 9),
    ("*", 10),
    ("/", 10),
    ("%", 10),
];

struct Parser<'t> {
    tokens: &'t [Token],
    at: usize,
    end: Span,
    depth: usize,
}

/// The truth of a condition. `end` is where something missing is reported.
pub(super) fn evaluate(tokens: &[Token], end: Span) -> Result<bool, Wrong> {
    let mut parser = Parser { tokens, at: 0, end, depth: 0 };
    let value = parser.choice(true)?;
    match parser.tokens.get(parser.at) {
        None => Ok(value.is_true()),
        Some(extra) => Err((extra.span, format!("unexpected `{}` in the condition", extra.source()))),
    }
}

impl Parser<'_> {
    fn is(&self, ahead: usize, c: char) -> bool {
        self.tokens.get(self.at + ahead).is_some_and(|t| t.is(c) && (ahead == 0 || !(t.space || t.apart)))
    }

    fn span(&self) -> Span {
        self.tokens.get(self.at).map_or(self.end, |t| t.span)
    }

    fn deeper(&mut self) -> Result<(), Wrong> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err((self.span(), format!("the condition nests deeper than {MAX_DEPTH}")));
        }
        Ok(())
    }

    /// `a ? b : c`.
    fn choice(&mut self, live: bool) -> Result<Value, Wrong> {
        self.deeper()?;
        let condition = self.binary(1, live)?;
        let mut value = condition;
        if self.is(0, '?') {
            self.at += 1;
            let yes = self.choice(live && condition.is_true())?;
            if !self.is(0, ':') {
                return Err((self.span(), "`?` without its `:`".to_owned()));
            }
            self.at += 1;
            let no = self.choice(live && !condition.is_true())?;
            let picked = if condition.is_true() { yes } else { no };
            value = Value { bits: picked.bits, unsigned: yes.unsigned || no.unsigned };
        }
        self.depth -= 1;
        Ok(value)
    }

    /// The binary operator here.
    fn operator(&self) -> Option<(&'static str, u8)> {
        let fits = |text: &str| text.chars().enumerate().all(|(n, c)| self.is(n, c));
        BINARY.iter().filter(|(text, _)| fits(text)).max_by_key(|(text, _)| text.len()).copied()
    }

    fn binary(&mut self, level: u8, live: bool) -> Result<Value, Wrong> {
        let mut left = self.unary(live)?;
        while let Some((text, own)) = self.operator().filter(|(_, own)| *own >= level) {
            let span = self.span();
            self.at += text.len();
            let evaluated = match text {
                "&&" => live && left.is_true(),
                "||" => live && !left.is_true(),
                _ => live,
            };
            let right = self.binary(own + 1, evaluated)?;
            left = apply(text, left, right, evaluated).map_err(|message| (span, message))?;
        }
        Ok(left)
    }

    fn unary(&mut self, live: bool) -> Result<Value, Wrong> {
        let Some(token) = self.tokens.get(self.at) else {
            return Err((self.end, "the condition is incomplete".to_owned()));
        };
        self.deeper()?;
        self.at += 1;
        let value = match token.kind {
            Kind::Punct('!') => Value::truth(!self.unary(live)?.is_true()),
            Kind::Punct('~') => {
                let value = self.unary(live)?;
                Value { bits: !value.bits, ..value }
            }
            Kind::Punct('-') => {
                let value = self.unary(live)?;
                Value { bits: value.bits.wrapping_neg(), ..value }
            }
            Kind::Punct('+') => self.unary(live)?,
            Kind::Punct('(') => {
                let value = self.choice(live)?;
                if !self.is(0, ')') {
                    return Err((self.span(), "a parenthesis of the condition is not closed".to_owned()));
                }
                self.at += 1;
                value
            }
            _ => number(token)?,
        };
        self.depth -= 1;
        Ok(value)
    }
}

/// A number with C's suffixes, a character constant, or a name, which is 0.
fn number(token: &Token) -> Result<Value, Wrong> {
    match token.kind {
        Kind::Ident => return Ok(Value::signed(0)),
        Kind::Char(c) => return Ok(Value::signed(c.into())),
        Kind::Num(_) | Kind::BadNum => {}
        Kind::Str | Kind::OpenStr => {
            return Err((token.span, "a condition cannot contain a string".to_owned()));
        }
        Kind::Punct(c) => return Err((token.span, format!("unexpected `{c}` in the condition"))),
    }
    let text = token.text.to_ascii_lowercase();
    let bare = text.trim_end_matches(['u', 'l']);
    let suffix = &text[bare.len()..];
    if !["", "u", "l", "ul", "lu", "ll", "ull", "llu"].contains(&suffix) {
        return Err((token.span, format!("`{}` is not a valid number in a condition", token.text)));
    }
    if bare.len() > 1 && bare.starts_with('0') && bare.bytes().all(|b| b.is_ascii_digit()) {
        let message =
            format!("`{}` is octal in C and decimal in a probe program; write it without the 0", token.text);
        return Err((token.span, message));
    }
    let parsed = match bare.strip_prefix("0x") {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok(),
        _ if bare.bytes().all(|b| b.is_ascii_digit()) => bare.parse().ok(),
        _ => None,
    };
    let message = || format!("`{}` is not a valid number in a condition", token.text);
    let bits = parsed.ok_or_else(|| (token.span, message()))?;
    Ok(Value { bits, unsigned: suffix.contains('u') || bits > i64::MAX as u64 })
}

fn apply(operator: &str, a: Value, b: Value, live: bool) -> Result<Value, String> {
    let unsigned = a.unsigned || b.unsigned;
    let (x, y) = (a.bits, b.bits);
    let (sx, sy) = (x as i64, y as i64);
    let less = if unsigned { x < y } else { sx < sy };
    let number = |bits: u64| Value { bits, unsigned };
    Ok(match operator {
        "||" => Value::truth(a.is_true() || b.is_true()),
        "&&" => Value::truth(a.is_true() && b.is_true()),
        "|" => number(x | y),
        "^" => number(x ^ y),
        "&" => number(x & y),
        "==" => Value::truth(x == y),
        "!=" => Value::truth(x != y),
        "<" => Value::truth(less),
        ">=" => Value::truth(!less),
        ">" => Value::truth(!less && x != y),
        "<=" => Value::truth(less || x == y),
        "+" => number(x.wrapping_add(y)),
        "-" => number(x.wrapping_sub(y)),
        "*" => number(x.wrapping_mul(y)),
        "<<" | ">>" => {
            if y >= 64 && live {
                let by = if b.unsigned { y.to_string() } else { sy.to_string() };
                return Err(format!("a shift by {by}; shift by 0 to 63"));
            }
            let by = (y & 63) as u32;
            let bits = match (operator, a.unsigned) {
                ("<<", _) => x << by,
                (_, true) => x >> by,
                (_, false) => (sx >> by) as u64,
            };
            Value { bits, unsigned: a.unsigned }
        }
        _ if y == 0 && live => return Err("a division by zero".to_owned()),
        _ if y == 0 => number(0),
        "/" if unsigned => number(x / y),
        "/" => number(sx.wrapping_div(sy) as u64),
        _ if unsigned => number(x % y),
        _ => number(sx.wrapping_rem(sy) as u64),
    })
}
