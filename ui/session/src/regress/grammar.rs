//! The language of expectations: one assertion per line, from text to a tree.
//!
//! ```text
//! assertion = value ("==" | "!=" | "<=" | ">=" | "<" | ">") value
//!           | "console" "contains" TEXT
//!           | "ending" ("==" | "!=") TEXT
//! value     = product (("+" | "-") product)*
//! product   = factor (("*" | "/") factor)*
//! factor    = NUMBER | NAME | NAME "(" TEXT ")" | "(" value ")"
//! ```
//!
//! A NUMBER is written as everywhere; a TEXT is quoted by `'` or `"`; `#` begins a comment. Reading and evaluating recurse, so an
//! assertion has a limited number of operators and brackets.

use std::fmt;

use trapline_rpn::{Diagnostic, Diagnostics, Severity};

use crate::numbers::count;

/// A number of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Instructions.
    Insns,
    /// Virtual time.
    VirtualNs,
    /// Handlers run.
    Hits,
    /// Records that were drained.
    Records,
    /// Records that were lost.
    Lost,
    /// Handlers that an exception ended.
    Exceptions,
}

impl Quantity {
    const ALL: [(&'static str, Self); 6] = [
        ("insns", Self::Insns),
        ("virtual_ns", Self::VirtualNs),
        ("hits", Self::Hits),
        ("records", Self::Records),
        ("lost", Self::Lost),
        ("exceptions", Self::Exceptions),
    ];
}

/// A number of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfProgram {
    /// Handlers run.
    Hits,
    /// RPN instructions that its handlers have executed.
    RpnOps,
}

impl OfProgram {
    const ALL: [(&'static str, Self); 2] = [("hits", Self::Hits), ("rpn_ops", Self::RpnOps)];
}

/// A number of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// This one.
    Number(u64),
    /// Of the run.
    Of(Quantity),
    /// Of a program: its name, or a description of probes.
    OfProgram(OfProgram, String),
    /// Of two others.
    Binary(Box<Value>, Operator, Box<Value>),
}

/// An operator between numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `*`
    Times,
    /// `/`, rounded down.
    Over,
}

/// A relation between numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// `==`
    Equal,
    /// `!=`
    Unequal,
    /// `<=`
    AtMost,
    /// `>=`
    AtLeast,
    /// `<`
    Less,
    /// `>`
    More,
}

impl Relation {
    /// The longer ones first.
    const ALL: [(&'static str, Self); 6] = [
        ("==", Self::Equal),
        ("!=", Self::Unequal),
        ("<=", Self::AtMost),
        (">=", Self::AtLeast),
        ("<", Self::Less),
        (">", Self::More),
    ];

    /// Whether it holds.
    pub fn holds<T: Ord>(self, left: &T, right: &T) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Unequal => left != right,
            Self::AtMost => left <= right,
            Self::AtLeast => left >= right,
            Self::Less => left < right,
            Self::More => left > right,
        }
    }
}

/// A claim about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Two numbers.
    Compare(Value, Relation, Value),
    /// The console shows a text.
    Console(String),
    /// Why the run ended, in the words of its summary.
    Ending(bool, String),
}

/// An assertion, with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assertion {
    /// The line's number, from 1.
    pub line: u32,
    /// The line without its comment.
    pub text: String,
    /// What it claims.
    pub claim: Claim,
}

/// A token, its column from 1 and its characters.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    kind: Kind,
    col: usize,
    len: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Word(String),
    Text(String),
    Sign(&'static str),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Text(text) => write!(f, "the text '{text}'"),
            Self::Sign(sign) => write!(f, "`{sign}`"),
        }
    }
}

/// Most operators and pairs of brackets of an assertion.
const MOST: usize = 1_000;
const SIGNS: [&str; 12] = ["==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "(", ")"];
const FORM: &str = "write an assertion such as `insns < 5G`, `hits('fbt::kmalloc:entry') == 29` or `console contains 'login:'`";

/// An error in a line.
struct Wrong {
    col: usize,
    len: usize,
    message: String,
    help: String,
}

fn wrong(col: usize, len: usize, message: impl Into<String>, help: &str) -> Wrong {
    Wrong { col, len: len.max(1), message: message.into(), help: help.to_owned() }
}

/// The tokens of a line, to its comment.
fn tokens(line: &str) -> Result<Vec<Token>, Wrong> {
    let chars: Vec<char> = line.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let start = at;
        let kind = match c {
            '#' => break,
            c if c.is_whitespace() => {
                at += 1;
                continue;
            }
            '\'' | '"' => {
                let rest = chars.get(at + 1..).unwrap_or_default();
                let Some(end) = rest.iter().position(|other| *other == c) else {
                    let message = "the quotation mark is not closed";
                    return Err(wrong(
                        start + 1,
                        chars.len() - start,
                        message,
                        "put a second one after the text",
                    ));
                };
                at += end + 2;
                Kind::Text(rest.get(..end).unwrap_or_default().iter().collect())
            }
            c if is_word(c) => {
                let rest = chars.get(at..).unwrap_or_default();
                let word: String = rest.iter().take_while(|c| is_word(**c)).collect();
                at += word.chars().count();
                Kind::Word(word)
            }
            _ => {
                let rest: String = chars.get(at..).unwrap_or_default().iter().take(2).collect();
                let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) else {
                    return Err(wrong(start + 1, 1, format!("`{c}` has no meaning here"), FORM));
                };
                at += sign.len();
                Kind::Sign(sign)
            }
        };
        found.push(Token { kind, col: start + 1, len: at - start });
    }
    Ok(found)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The rest of a line.
struct Parser<'a> {
    tokens: &'a [Token],
    end: usize,
    /// How many operators and brackets there may still be.
    left: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.first()
    }

    fn next(&mut self) -> Option<&'a Token> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first)
    }

    fn take_sign(&mut self, signs: &[&str]) -> Option<&'static str> {
        match self.peek()?.kind {
            Kind::Sign(sign) if signs.contains(&sign) => {
                self.next();
                Some(sign)
            }
            _ => None,
        }
    }

    /// Takes one of these signs that makes the tree of a value deeper.
    fn take_deeper(&mut self, signs: &[&str]) -> Result<Option<&'static str>, Wrong> {
        let (col, len) = self.peek().map_or((self.end, 1), |token| (token.col, token.len));
        let sign = self.take_sign(signs);
        if sign.is_some() {
            let message = || format!("an assertion has at most {MOST} operators and brackets");
            let too_many = || wrong(col, len, message(), "write several assertions");
            self.left = self.left.checked_sub(1).ok_or_else(too_many)?;
        }
        Ok(sign)
    }

    fn expected(&self, what: &str) -> Wrong {
        match self.peek() {
            Some(token) => {
                wrong(token.col, token.len, format!("{} stands where {what} belongs", token.kind), FORM)
            }
            None => wrong(self.end, 1, format!("{what} is missing"), FORM),
        }
    }

    fn claim(&mut self) -> Result<Claim, Wrong> {
        match self.peek().map(|token| &token.kind) {
            Some(Kind::Word(word)) if word == "console" => {
                self.next();
                match self.next().map(|token| &token.kind) {
                    Some(Kind::Word(word)) if word == "contains" => Ok(Claim::Console(self.text()?)),
                    _ => Err(wrong(self.end, 1, "`contains` is missing after `console`", FORM)),
                }
            }
            Some(Kind::Word(word)) if word == "ending" => {
                self.next();
                let equal = self.take_sign(&["==", "!="]).ok_or_else(|| self.expected("`==` or `!=`"))?;
                Ok(Claim::Ending(equal == "==", self.text()?))
            }
            _ => {
                let left = self.value()?;
                let signs: Vec<&str> = Relation::ALL.iter().map(|(sign, _)| *sign).collect();
                let sign = self.take_sign(&signs).ok_or_else(|| self.expected("a comparison"))?;
                let relation = Relation::ALL.iter().find(|(known, _)| *known == sign).map(|(_, r)| *r);
                let relation = relation.ok_or_else(|| self.expected("a comparison"))?;
                Ok(Claim::Compare(left, relation, self.value()?))
            }
        }
    }

    fn text(&mut self) -> Result<String, Wrong> {
        match self.peek().map(|token| &token.kind) {
            Some(Kind::Text(text)) => {
                self.next();
                Ok(text.clone())
            }
            _ => Err(self.expected("a text between quotation marks")),
        }
    }

    fn value(&mut self) -> Result<Value, Wrong> {
        let mut left = self.product()?;
        while let Some(sign) = self.take_deeper(&["+", "-"])? {
            let operator = if sign == "+" { Operator::Plus } else { Operator::Minus };
            left = Value::Binary(Box::new(left), operator, Box::new(self.product()?));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Value, Wrong> {
        let mut left = self.factor()?;
        while let Some(sign) = self.take_deeper(&["*", "/"])? {
            let operator = if sign == "*" { Operator::Times } else { Operator::Over };
            left = Value::Binary(Box::new(left), operator, Box::new(self.factor()?));
        }
        Ok(left)
    }

    fn factor(&mut self) -> Result<Value, Wrong> {
        let Some(token) = self.peek() else { return Err(self.expected("a value")) };
        match &token.kind {
            Kind::Sign("(") => {
                self.take_deeper(&["("])?;
                let value = self.value()?;
                self.take_sign(&[")"]).ok_or_else(|| self.expected("`)`"))?;
                Ok(value)
            }
            Kind::Word(word) if word.starts_with(|c: char| c.is_ascii_digit()) => {
                self.next();
                let number = count(word).map_err(|error| {
                    wrong(
                        token.col,
                        token.len,
                        error.to_string().split("; ").next().unwrap_or_default(),
                        "write 5000, 5K, 5M or 5G",
                    )
                });
                Ok(Value::Number(number?))
            }
            Kind::Word(word) => {
                self.next();
                self.named(word, token)
            }
            _ => Err(self.expected("a value")),
        }
    }

    /// A quantity of the run, or of a program.
    fn named(&mut self, word: &str, token: &Token) -> Result<Value, Wrong> {
        if self.take_sign(&["("]).is_some() {
            let known = OfProgram::ALL.iter().find(|(name, _)| *name == word);
            let (_, of) = known.ok_or_else(|| {
                let names: Vec<&str> = OfProgram::ALL.iter().map(|(name, _)| *name).collect();
                let help = format!("of a program there are {}", names.join(" and "));
                wrong(token.col, token.len, format!("a program has no `{word}`"), &help)
            })?;
            let name = self.text()?;
            self.take_sign(&[")"]).ok_or_else(|| self.expected("`)`"))?;
            return Ok(Value::OfProgram(*of, name));
        }
        let known = Quantity::ALL.iter().find(|(name, _)| *name == word);
        known.map(|(_, quantity)| Value::Of(*quantity)).ok_or_else(|| {
            let names: Vec<&str> = Quantity::ALL.iter().map(|(name, _)| *name).collect();
            let help =
                format!("there are {}, console, ending, hits('NAME') and rpn_ops('NAME')", names.join(", "));
            wrong(token.col, token.len, format!("a run has no `{word}`"), &help)
        })
    }
}

fn assertion(number: u32, line: &str) -> Result<Option<Assertion>, Wrong> {
    let tokens = tokens(line)?;
    let Some(last) = tokens.last() else { return Ok(None) };
    let end = last.col + last.len;
    let mut parser = Parser { tokens: &tokens, end, left: MOST };
    let claim = parser.claim()?;
    if let Some(more) = parser.peek() {
        let message = format!("{} is not expected here", more.kind);
        return Err(wrong(more.col, more.len, message, "write one assertion a line; # begins a comment"));
    }
    let text: String = line.chars().take(end - 1).collect();
    Ok(Some(Assertion { line: number, text: text.trim().to_owned(), claim }))
}

/// Reads expectations; diagnostics call them `name`.
///
/// # Errors
/// Lines that are not expectations.
pub fn parse(name: &str, text: &str) -> Result<Vec<Assertion>, Diagnostics> {
    let (mut all, mut found) = (Vec::new(), Diagnostics::default());
    for (number, line) in (1..).zip(text.lines()) {
        match assertion(number, line) {
            Ok(assertion) => all.extend(assertion),
            Err(_) if found.list.len() >= Diagnostics::LIMIT => found.more += 1,
            Err(Wrong { col, len, message, help }) => found.list.push(Diagnostic {
                severity: Severity::Error,
                code: "bad-expectation",
                file: name.to_owned(),
                line: number,
                col: u32::try_from(col).unwrap_or(u32::MAX),
                len: u32::try_from(len).unwrap_or(u32::MAX),
                message,
                notes: Vec::new(),
                help: Some(help),
                source: line.to_owned(),
            }),
        }
    }
    if found.list.is_empty() { Ok(all) } else { Err(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_bind_closer_than_sums() {
        let all = parse("e", "rpn_ops('a') - 2 * hits('a') <= 5K # of each\n\n").unwrap();
        let ops = Value::OfProgram(OfProgram::RpnOps, "a".to_owned());
        let hits = Value::OfProgram(OfProgram::Hits, "a".to_owned());
        let two = Value::Binary(Box::new(Value::Number(2)), Operator::Times, Box::new(hits));
        let left = Value::Binary(Box::new(ops), Operator::Minus, Box::new(two));
        let claim = Claim::Compare(left, Relation::AtMost, Value::Number(5_000));
        let text = "rpn_ops('a') - 2 * hits('a') <= 5K".to_owned();
        assert_eq!(all, [Assertion { line: 1, text, claim }]);
    }

    #[test]
    fn texts_are_claimed_of_console_and_ending() {
        let all = parse("e", "console contains \"it's # here\"\nending != 'interrupted'").unwrap();
        assert_eq!(all[0].claim, Claim::Console("it's # here".to_owned()));
        assert_eq!(all[1].claim, Claim::Ending(false, "interrupted".to_owned()));
    }

    #[test]
    fn errors_are_reported_with_their_place() {
        for (line, col, message) in [
            ("insns", 6, "a comparison is missing"),
            ("insns <", 8, "a value is missing"),
            ("insns < 5X", 9, "`5X` is not a number"),
            ("speed < 5", 1, "a run has no `speed`"),
            ("cost('a') < 5", 1, "a program has no `cost`"),
            ("hits(a) < 5", 6, "`a` stands where a text between quotation marks belongs"),
            ("hits('a' < 5", 10, "`<` stands where `)` belongs"),
            ("hits < 5 6", 10, "`6` is not expected here"),
            ("console 'x'", 12, "`contains` is missing after `console`"),
            ("ending < 'x'", 8, "`<` stands where `==` or `!=` belongs"),
            ("hits == 'x", 9, "the quotation mark is not closed"),
            ("hits ? 5", 6, "`?` has no meaning here"),
        ] {
            let found = parse("e", line).unwrap_err().list;
            assert_eq!((found[0].col, found[0].message.as_str()), (col, message), "{line}");
        }
    }
}
