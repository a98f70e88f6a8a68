//! The text of a template, as `fmt` statements give it, to nodes.
//!
//! A control is `%`, optionally `r` or `p`, a count where one is allowed, and a letter. The parser refuses meaningless
//! templates: unknown controls, counts where none is allowed, a repetition that consumes no data.

use std::fmt;

use super::error::{Errors, Place};
use super::scan::Letter;

/// Largest count of bytes.
const MAX_COUNT: u32 = 65_535;
/// Largest integer of `%d` and `%u`, in bytes.
const MAX_INTEGER: u32 = 16;
/// Deepest nesting of `%r( .. )`.
const MAX_DEPTH: usize = 16;
/// The controls, for messages about an unknown one.
const CONTROLS: &str = "after `%` write one of c d f i p r s u x z, or %% %( %) for the character itself";

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Literal(String),
    Do(Op),
}

/// A control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Op {
    /// `%<n>c`
    Chars(usize),
    /// `%<n>d`
    Signed(usize),
    /// `%<n>f`
    Float(usize),
    /// `%<n>i`
    Skip(usize),
    /// `%s`
    Text,
    /// `%<n>u`
    Unsigned(usize),
    /// `%<n>x`
    Hex(usize),
    /// `%z`
    Dump,
    /// `%p`, alone or with the control that it applies to
    Prefixed(Option<Box<Op>>),
    /// `%r` with the control or the group that it repeats
    Repeat(Vec<Node>),
}

impl fmt::Display for Op {
    /// Without its `%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |f: &mut fmt::Formatter<'_>, n: usize, letter: char| match n {
            1 => write!(f, "{letter}"),
            n => write!(f, "{n}{letter}"),
        };
        match self {
            Self::Chars(n) => counted(f, *n, 'c'),
            Self::Signed(n) => counted(f, *n, 'd'),
            Self::Float(n) => counted(f, *n, 'f'),
            Self::Skip(n) => counted(f, *n, 'i'),
            Self::Text => write!(f, "s"),
            Self::Unsigned(n) => counted(f, *n, 'u'),
            Self::Hex(n) => counted(f, *n, 'x'),
            Self::Dump => write!(f, "z"),
            Self::Prefixed(None) => write!(f, "p"),
            Self::Prefixed(Some(op)) => write!(f, "p{op}"),
            Self::Repeat(nodes) => match nodes.as_slice() {
                [Node::Do(op)] => write!(f, "r{op}"),
                _ => write!(f, "r(..)"),
            },
        }
    }
}

/// A sentence and where it belongs.
type Wrong = (Place, String);

/// Parses one template and reports its first error. `end` is its end, for errors about missing text.
pub(super) fn template(letters: &[Letter], end: &Place, errors: &mut Errors) -> Vec<Node> {
    let mut parser = Parser { letters, at: 0, end };
    parser.nodes(0, None).unwrap_or_else(|(place, message)| {
        errors.add(place, message);
        Vec::new()
    })
}

struct Parser<'l> {
    letters: &'l [Letter],
    at: usize,
    end: &'l Place,
}

impl Parser<'_> {
    fn peek(&self) -> Option<Letter> {
        self.letters.get(self.at).copied()
    }

    /// The next character, unless it is escaped: an escaped character is always text.
    fn control_char(&self) -> Option<char> {
        self.peek().filter(|letter| !letter.escaped).map(|letter| letter.char)
    }

    fn place_of(&self, at: usize) -> Place {
        let place = |l: &Letter| Place { file: self.end.file.clone(), line: l.line, col: l.col };
        self.letters.get(at).map_or_else(|| self.end.clone(), place)
    }

    /// The text from `start` to here, as written.
    fn text(&self, start: usize) -> String {
        self.letters.get(start..self.at).unwrap_or_default().iter().map(|l| l.char).collect()
    }

    fn wrong<T>(&self, start: usize, message: String) -> Result<T, Wrong> {
        Err((self.place_of(start), message))
    }

    /// Nodes up to the end, or up to the `)` of the group whose `(` is at `open`.
    fn nodes(&mut self, depth: usize, open: Option<usize>) -> Result<Vec<Node>, Wrong> {
        let mut nodes = Vec::new();
        let mut literal = String::new();
        loop {
            let start = self.at;
            let control = self.control_char();
            let Some(letter) = self.peek() else {
                if let Some(open) = open {
                    return self.wrong(open, "`%r(` has no end; close the group with `)`".to_owned());
                }
                break;
            };
            self.at += 1;
            match control {
                Some(')') if open.is_some() => break,
                Some(c @ ('(' | ')')) => {
                    let message = format!(
                        "`{c}` is outside a group; write `%{c}` for the character, `%r( .. )` for a group"
                    );
                    return self.wrong(start, message);
                }
                Some('%') => match self.control_char() {
                    Some(c @ ('%' | '(' | ')')) => {
                        self.at += 1;
                        literal.push(c);
                    }
                    _ => {
                        let op = self.op(start, depth, false)?;
                        if !literal.is_empty() {
                            nodes.push(Node::Literal(std::mem::take(&mut literal)));
                        }
                        nodes.push(Node::Do(op));
                    }
                },
                _ => literal.push(letter.char),
            }
        }
        if !literal.is_empty() {
            nodes.push(Node::Literal(literal));
        }
        Ok(nodes)
    }

    /// A control after its `%`, which is at `start`; `prefixed` if it follows `%p`.
    fn op(&mut self, start: usize, depth: usize, prefixed: bool) -> Result<Op, Wrong> {
        let count = self.count(start)?;
        let Some(letter) = self.control_char() else {
            self.at += usize::from(self.peek().is_some());
            return self
                .wrong(start, format!("`{}` is not a control; {CONTROLS}", self.text(start).escape_debug()));
        };
        self.at += 1;
        let shown = self.text(start);
        if count.is_some() && matches!(letter, 'p' | 'r' | 's' | 'z') {
            return self.wrong(start, format!("`{shown}` has a count; write `%{letter}` without one"));
        }
        if prefixed && matches!(letter, 'r' | 'u') {
            return self.wrong(
                start,
                format!("`{shown}`: %p can be combined with c d f i s x z, not with {letter}"),
            );
        }
        let n = count.unwrap_or(1);
        let bytes = n as usize;
        Ok(match letter {
            'c' => Op::Chars(bytes),
            'i' => Op::Skip(bytes),
            'x' => Op::Hex(bytes),
            'd' | 'u' if n > MAX_INTEGER => {
                let message =
                    format!("`{shown}` is an integer of {n} bytes; at most {MAX_INTEGER} are allowed");
                return self.wrong(start, message);
            }
            'd' => Op::Signed(bytes),
            'u' => Op::Unsigned(bytes),
            'f' if !matches!(n, 4 | 8 | 10) => {
                let message = format!("`{shown}` has the size {n}; use %4f, %8f or %10f");
                return self.wrong(start, message);
            }
            'f' => Op::Float(bytes),
            's' => Op::Text,
            'z' => Op::Dump,
            'p' => Op::Prefixed(self.after_p(start, depth)?),
            'r' => Op::Repeat(self.after_r(start, depth)?),
            _ => {
                return self.wrong(start, format!("`{}` is not a control; {CONTROLS}", shown.escape_debug()));
            }
        })
    }

    /// The digits of a count.
    fn count(&mut self, start: usize) -> Result<Option<u32>, Wrong> {
        let mut count: Option<u32> = None;
        while let Some(digit) = self.control_char().and_then(|c| c.to_digit(10)) {
            self.at += 1;
            count = Some(count.unwrap_or(0).saturating_mul(10).saturating_add(digit));
        }
        match count {
            Some(n) if n == 0 || n > MAX_COUNT => {
                self.wrong(start, format!("`{}` has the count {n}; use 1 to {MAX_COUNT}", self.text(start)))
            }
            count => Ok(count),
        }
    }

    /// The control that a `%p` is combined with, if there is one.
    fn after_p(&mut self, start: usize, depth: usize) -> Result<Option<Box<Op>>, Wrong> {
        let combined = |c: char| c.is_ascii_digit() || "cdfiprsuxz".contains(c);
        match self.control_char() {
            Some('p') => {
                self.at += 1;
                self.wrong(start, format!("`{}`: each p skips one prefix; write one p", self.text(start)))
            }
            Some(c) if combined(c) => Ok(Some(Box::new(self.op(start, depth, true)?))),
            _ => Ok(None),
        }
    }

    /// The control or group that a `%r` repeats.
    fn after_r(&mut self, start: usize, depth: usize) -> Result<Vec<Node>, Wrong> {
        if depth == MAX_DEPTH {
            return self.wrong(start, format!("`%r` is nested more than {MAX_DEPTH} deep; use fewer levels"));
        }
        let nodes = match self.control_char() {
            Some('(') => {
                self.at += 1;
                self.nodes(depth + 1, Some(start))?
            }
            Some(c) if c.is_ascii_digit() || c.is_ascii_alphabetic() => {
                vec![Node::Do(self.op(start, depth + 1, false)?)]
            }
            _ => {
                let message =
                    "`%r` repeats nothing; write a control after it, as in %r4x, or a group, as in %r( .. )";
                return self.wrong(start, message.to_owned());
            }
        };
        if !nodes.iter().any(|node| matches!(node, Node::Do(_))) {
            let message =
                format!("`{}` consumes no data; write a control inside it", self.text(start).escape_debug());
            return self.wrong(start, message);
        }
        Ok(nodes)
    }
}
