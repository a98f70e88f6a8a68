//! Parses conditions.
//!
//! ```text
//! condition = unary (OPERATOR unary)*             with C's precedences, to the left
//! unary     = ("!" | "-" | "+" | "~")* primary
//! primary   = NUMBER | REGISTER | SYMBOL | ("u" | "s") ("8" | "16" | "32" | "64") "[" condition "]" | "(" condition ")"
//! ```

use trapline_emu::symbols::Ambiguous;
use trapline_rpn::by_name;

use super::tokens::{FORM, Kind, Token, tokens};
use super::{Condition, ConditionError, Infix, Prefix};
use crate::numbers::count;
use crate::session::registers::is_a_word;

/// Most characters of a condition.
const LONGEST: usize = 4096;
/// Most parentheses, brackets and prefixes that may be nested.
const DEEPEST: usize = 200;

/// Memory reads: name, bytes, whether they are signed.
const READS: [(&str, usize, bool); 8] = [
    ("u8", 1, false),
    ("u16", 2, false),
    ("u32", 4, false),
    ("u64", 8, false),
    ("s8", 1, true),
    ("s16", 2, true),
    ("s32", 4, true),
    ("s64", 8, true),
];

/// The names that a condition may use besides registers.
pub trait Names {
    /// The addresses of all symbols with this name.
    fn symbols(&self, name: &str) -> Vec<u64>;
    /// A symbol with a similar name.
    fn near(&self, name: &str) -> Option<String>;
    /// Whether the guest has 64-bit registers.
    fn is_64(&self) -> bool;
}

/// Reads a condition.
///
/// # Errors
/// The text is not a condition, or contains an unknown name.
pub fn parse(text: &str, names: &dyn Names) -> Result<Condition, ConditionError> {
    let length = text.chars().count();
    if length > LONGEST {
        return Err(ConditionError {
            text: text.chars().take(40).chain("..".chars()).collect(),
            at: 0,
            len: 40,
            message: format!("a condition has at most {LONGEST} characters, and this has {length}"),
            help: FORM.to_owned(),
        });
    }
    let tokens = tokens(text)?;
    let mut parser = Parser { text, names, tokens: &tokens, end: length, deep: 0, several: None };
    let condition = parser.infix(0)?;
    parser.is_clear()?;
    match parser.peek() {
        Some(more) => Err(parser.wrong(more, format!("{} is not expected here", more.kind), FORM)),
        None => Ok(condition),
    }
}

/// The rest of a condition.
struct Parser<'a> {
    text: &'a str,
    names: &'a dyn Names,
    tokens: &'a [Token],
    end: usize,
    deep: usize,
    /// The value that was read last, if it is the name of several symbols. They can be compared with: that is to compare with
    /// each of them. Nothing else can be done with them.
    several: Option<Several<'a>>,
}

type Parsed = Result<Condition, ConditionError>;

/// A name of several symbols, and their addresses.
type Several<'a> = (&'a Token, Vec<u64>);

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.first()
    }

    fn next(&mut self) -> Option<&'a Token> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first)
    }

    fn peek_sign(&self) -> Option<&'static str> {
        match self.peek()?.kind {
            Kind::Sign(sign) => Some(sign),
            Kind::Word(_) => None,
        }
    }

    fn wrong(&self, token: &Token, message: String, help: &str) -> ConditionError {
        let (at, len) = (token.at, token.len);
        ConditionError { text: self.text.to_owned(), at, len, message, help: help.to_owned() }
    }

    fn expected(&self, what: &str) -> ConditionError {
        match self.peek() {
            Some(token) => self.wrong(token, format!("{} stands where {what} belongs", token.kind), FORM),
            None => ConditionError {
                text: self.text.to_owned(),
                at: self.end,
                len: 1,
                message: format!("{what} is missing"),
                help: FORM.to_owned(),
            },
        }
    }

    /// An expression whose operators have a higher precedence than `above`.
    fn infix(&mut self, above: u8) -> Parsed {
        let mut left = self.unary()?;
        loop {
            let sign = self.peek_sign();
            let known = Infix::ALL.iter().find(|(known, ..)| sign == Some(*known));
            let Some((_, infix, binds)) = known.filter(|(.., binds)| *binds > above) else { return Ok(left) };
            self.next();
            let of_left = self.several.take();
            let right = self.infix(*binds)?;
            let of_right = self.several.take();
            left = match (of_left, of_right) {
                (None, None) => Condition::Infix(Box::new(left), *infix, Box::new(right)),
                (Some(several), None) => self.with_each(&right, *infix, several)?,
                (None, Some(several)) => self.with_each(&left, *infix, several)?,
                (Some(several), Some(_)) => return Err(self.ambiguous(&several)),
            };
        }
    }

    /// A comparison with each of several symbols: one of them is equal, or none is.
    fn with_each(&self, value: &Condition, infix: Infix, several: Several<'_>) -> Parsed {
        let join = match infix {
            Infix::Equal => Infix::Or,
            Infix::Unequal => Infix::And,
            _ => return Err(self.ambiguous(&several)),
        };
        let one = |address: &u64| {
            Condition::Infix(Box::new(value.clone()), infix, Box::new(Condition::Number(*address)))
        };
        let all = several.1.iter().map(one);
        let joined = all.reduce(|all, one| Condition::Infix(Box::new(all), join, Box::new(one)));
        joined.ok_or_else(|| self.ambiguous(&several))
    }

    fn ambiguous(&self, (token, addresses): &Several<'_>) -> ConditionError {
        let name = self.text.chars().skip(token.at).take(token.len).collect();
        let what = Ambiguous { name, addresses: addresses.clone() };
        self.wrong(token, what.to_string(), "write one of these addresses, or compare with == or !=")
    }

    /// Refuses a name of several symbols as the value that was read last.
    fn is_clear(&mut self) -> Result<(), ConditionError> {
        self.several.take().map_or(Ok(()), |several| Err(self.ambiguous(&several)))
    }

    /// Enters one more level of nesting, at this token.
    fn within(&mut self, token: &Token, inner: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        self.deep += 1;
        if self.deep > DEEPEST {
            let message = format!("more than {DEEPEST} values are nested here");
            return Err(self.wrong(token, message, "write a simpler condition"));
        }
        let condition = inner(self);
        self.deep -= 1;
        condition
    }

    fn unary(&mut self) -> Parsed {
        let Some(token) = self.peek() else { return Err(self.expected("a value")) };
        let prefix = match token.kind {
            Kind::Sign("!") => Prefix::Not,
            Kind::Sign("-") => Prefix::Minus,
            Kind::Sign("+") => Prefix::Plus,
            Kind::Sign("~") => Prefix::Invert,
            _ => return self.primary(token),
        };
        self.next();
        let of = self.within(token, Self::unary)?;
        self.is_clear()?;
        Ok(Condition::Prefix(prefix, Box::new(of)))
    }

    fn primary(&mut self, token: &'a Token) -> Parsed {
        match &token.kind {
            Kind::Sign("(") => {
                self.next();
                self.enclosed(token, ")")
            }
            Kind::Word(word) => {
                self.next();
                self.word(word, token)
            }
            Kind::Sign(_) => Err(self.expected("a value")),
        }
    }

    /// A condition, and the token that closes `open`.
    fn enclosed(&mut self, open: &Token, close: &str) -> Parsed {
        let inner = self.within(open, |parser| parser.infix(0))?;
        if self.peek_sign() != Some(close) {
            return Err(self.expected(&format!("`{close}`")));
        }
        self.next();
        Ok(inner)
    }

    fn word(&mut self, word: &str, token: &'a Token) -> Parsed {
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let number = count(word).map_err(|error| {
                let what = error.to_string();
                let what = what.split("; ").next().unwrap_or_default();
                self.wrong(token, what.to_owned(), "write a number such as 4096 or 0x1000")
            });
            return Ok(Condition::Number(number?));
        }
        let read = READS.iter().find(|(name, ..)| *name == word);
        if let Some((_, bytes, signed)) = read.filter(|_| self.peek_sign() == Some("[")) {
            self.next();
            let at = Box::new(self.enclosed(token, "]")?);
            self.is_clear()?;
            return Ok(Condition::Memory { bytes: *bytes, signed: *signed, at });
        }
        if let Some(row) = by_name(word) {
            if row.only64 && !self.names.is_64() {
                let message = format!("this 32-bit guest has no register `{word}`");
                return Err(self.wrong(token, message, "use a register of 32 bits, such as eax"));
            }
            if !is_a_word(row) {
                let message = format!("`{word}` cannot be a part of a condition: it is not one word");
                let help = "use general, segment, control and debug registers, eflags, eip";
                return Err(self.wrong(token, message, help));
            }
            return Ok(Condition::Register(row));
        }
        let addresses = self.names.symbols(word);
        let first = addresses.first().copied();
        self.several = (addresses.len() > 1).then_some((token, addresses));
        first.map(Condition::Number).ok_or_else(|| {
            let near = self.names.near(word).map(|near| format!("; there is `{near}`")).unwrap_or_default();
            let message = format!("`{word}` is neither a register nor a symbol of the kernel{near}");
            self.wrong(token, message, "memory is read with u8[..], u16[..], u32[..], u64[..], s8[..] ..")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Guest;

    impl Names for Guest {
        fn symbols(&self, name: &str) -> Vec<u64> {
            match name {
                "jiffies" => vec![0x1000],
                "s_next" => vec![1, 2, 3],
                _ => Vec::new(),
            }
        }

        fn near(&self, name: &str) -> Option<String> {
            name.starts_with("jiff").then(|| "jiffies".to_owned())
        }

        fn is_64(&self) -> bool {
            false
        }
    }

    /// The condition with all parentheses.
    fn full(condition: &Condition) -> String {
        match condition {
            Condition::Number(number) => number.to_string(),
            Condition::Register(row) => row.name.to_owned(),
            Condition::Memory { bytes, signed, at } => {
                format!("{}{}[{}]", if *signed { 's' } else { 'u' }, bytes * 8, full(at))
            }
            Condition::Prefix(prefix, of) => format!("({prefix:?} {})", full(of)),
            Condition::Infix(a, infix, b) => {
                let sign = Infix::ALL.iter().find(|(_, known, _)| known == infix).unwrap().0;
                format!("({} {sign} {})", full(a), full(b))
            }
        }
    }

    #[test]
    fn a_name_of_several_symbols_is_compared_with_each_of_them_or_refused() {
        for (text, meant) in [
            ("eip == s_next", "(((eip == 1) || (eip == 2)) || (eip == 3))"),
            ("(s_next) != eip + 1", "((((eip + 1) != 1) && ((eip + 1) != 2)) && ((eip + 1) != 3))"),
            ("eax && s_next == eip", "(eax && (((eip == 1) || (eip == 2)) || (eip == 3)))"),
        ] {
            assert_eq!(full(&parse(text, &Guest).unwrap()), meant, "{text}");
        }
        for text in
            ["s_next", "s_next + 1 == eip", "eip < s_next", "u32[s_next]", "!s_next", "s_next == s_next"]
        {
            let error = parse(text, &Guest).unwrap_err();
            let sentence = "`s_next` is ambiguous: 3 symbols have this name, at 0x1, 0x2, 0x3";
            assert_eq!((error.message.as_str(), error.len), (sentence, 6), "{text}");
        }
    }

    #[test]
    fn operators_bind_as_in_c() {
        for (text, meant) in [
            ("1 + 2 * 3 - 4", "((1 + (2 * 3)) - 4)"),
            ("eax & 1 == 0", "(eax & (1 == 0))"),
            ("1 | 2 ^ 3 & 4", "(1 | (2 ^ (3 & 4)))"),
            ("1 || 2 && 3 || 4", "((1 || (2 && 3)) || 4)"),
            ("1 << 2 + 3 < 4 == 5 != 6", "((((1 << (2 + 3)) < 4) == 5) != 6)"),
            ("1 >= 2 <= 3", "((1 >= 2) <= 3)"),
            ("!eax == 0", "((Not eax) == 0)"),
            ("- ~+!1 % 2 / 3 >> 4", "((((Minus (Invert (Plus (Not 1)))) % 2) / 3) >> 4)"),
            ("(1 + 2) * u32[jiffies + 4] > s8[ESP]", "(((1 + 2) * u32[(4096 + 4)]) > s8[esp])"),
            ("u64[u32[0x10]]", "u64[u32[16]]"),
        ] {
            assert_eq!(full(&parse(text, &Guest).unwrap()), meant, "{text}");
        }
    }

    #[test]
    fn errors_name_the_place() {
        let deep = "(".repeat(300);
        for (text, at, message) in [
            ("", 0, "a value is missing"),
            ("eax ==", 6, "a value is missing"),
            ("eax = 5", 4, "`=` has no meaning here: a comparison is `==`"),
            ("eax == 5 6", 9, "`6` is not expected here"),
            ("eax == 5)", 8, "`)` is not expected here"),
            ("(eax == 5", 9, "`)` is missing"),
            ("u32[eax) == 5", 7, "`)` stands where `]` belongs"),
            ("eax * / 5", 6, "`/` stands where a value belongs"),
            ("5x", 0, "`5x` is not a number"),
            ("rax", 0, "this 32-bit guest has no register `rax`"),
            ("1 + xmm0", 4, "`xmm0` cannot be a part of a condition: it is not one word"),
            ("jiffie", 0, "`jiffie` is neither a register nor a symbol of the kernel; there is `jiffies`"),
            ("u32 + 1", 0, "`u32` is neither a register nor a symbol of the kernel"),
            ("eax ? 1", 4, "`?` has no meaning here"),
            (&deep, 200, "more than 200 values are nested here"),
        ] {
            let error = parse(text, &Guest).unwrap_err();
            assert_eq!((error.at, error.message.as_str()), (at, message), "{text}");
        }
        let shown = parse("eax = 5", &Guest).unwrap_err().to_string();
        assert!(shown.contains("\n  eax = 5\n      ^\n"), "{shown}");
        assert!(parse(&"1+".repeat(3000), &Guest).is_err());
    }
}
