//! Expressions, with D's precedence.

use super::{Parser, is_keyword};
use crate::ast::{Expr, ExprKind, Link};
use crate::error::{Pos, Result};
use crate::lex::Token;

/// How tightly a binary operator binds its operands; `||` does so loosest.
fn level(mark: &str) -> Option<u8> {
    Some(match mark {
        "||" => 0,
        "^^" => 1,
        "&&" => 2,
        "|" => 3,
        "^" => 4,
        "&" => 5,
        "==" | "!=" => 6,
        "<" | "<=" | ">" | ">=" => 7,
        "<<" | ">>" => 8,
        "+" | "-" => 9,
        "*" | "/" | "%" => 10,
        _ => return None,
    })
}

/// Operators of assignment, and what they do before they assign.
const ASSIGNMENTS: &[(&str, &str)] = &[
    ("=", ""),
    ("+=", "+"),
    ("-=", "-"),
    ("*=", "*"),
    ("/=", "/"),
    ("%=", "%"),
    ("&=", "&"),
    ("|=", "|"),
    ("^=", "^"),
    ("<<=", "<<"),
    (">>=", ">>"),
];

fn expr(pos: Pos, kind: ExprKind) -> Expr {
    Expr { pos, kind }
}

impl Parser<'_> {
    /// An expression, with the comma operator.
    pub(super) fn expression(&mut self) -> Result<Expr> {
        let first = self.assignment()?;
        if !self.is(",")? {
            return Ok(first);
        }
        let (pos, mut list) = (first.pos, vec![first]);
        while self.accept(",")? {
            list.push(self.assignment()?);
        }
        Ok(expr(pos, ExprKind::Comma(list)))
    }

    pub(super) fn assignment(&mut self) -> Result<Expr> {
        self.deeper()?;
        let left = self.conditional()?;
        let mut result = left;
        if let Token::Mark(mark) = self.peek()?
            && let Some((_, op)) = ASSIGNMENTS.iter().find(|(text, _)| text == mark)
        {
            let (_, pos) = self.take()?;
            let right = self.assignment()?;
            result = expr(pos, ExprKind::Assign(op, result.into(), right.into()));
        }
        self.depth -= 1;
        Ok(result)
    }

    pub(super) fn conditional(&mut self) -> Result<Expr> {
        let condition = self.binary(0)?;
        if !self.is("?")? {
            return Ok(condition);
        }
        self.deeper()?;
        let (_, pos) = self.take()?;
        let yes = self.expression()?;
        self.expect(":")?;
        let no = self.conditional()?;
        self.depth -= 1;
        Ok(expr(pos, ExprKind::Conditional(condition.into(), yes.into(), no.into())))
    }

    /// Operands and operators that bind at least as tightly as `least` asks.
    fn binary(&mut self, least: u8) -> Result<Expr> {
        let first = self.unary()?;
        let mut links: Vec<Link> = Vec::new();
        while let Token::Mark(op) = *self.peek()?
            && let Some(level) = level(op).filter(|level| *level >= least)
        {
            let (_, pos) = self.take()?;
            let right = self.binary(level + 1)?;
            links.push(Link { pos, op, right });
        }
        // The whole is where its last operator is.
        let Some(pos) = links.last().map(|link| link.pos) else { return Ok(first) };
        Ok(expr(pos, ExprKind::Binary(first.into(), links)))
    }

    fn unary(&mut self) -> Result<Expr> {
        self.deeper()?;
        let result = self.unary_inner()?;
        self.depth -= 1;
        Ok(result)
    }

    fn unary_inner(&mut self) -> Result<Expr> {
        let pos = self.here()?;
        let cast = self.is("(")? && self.is_cast()?;
        match self.peek()? {
            Token::Mark(mark @ ("++" | "--" | "&" | "*" | "+" | "-" | "~" | "!")) => {
                let mark = *mark;
                self.take()?;
                let operand = self.unary()?;
                Ok(expr(pos, ExprKind::Unary(mark, operand.into())))
            }
            Token::Mark("(") if cast => {
                self.take()?;
                let ty = self.type_name()?;
                self.expect(")")?;
                let operand = self.unary()?;
                Ok(expr(pos, ExprKind::Cast(ty.into(), operand.into())))
            }
            Token::Word(word) if word == "sizeof" => {
                self.take()?;
                if self.is("(")? && self.is_cast()? {
                    self.take()?;
                    let ty = self.type_name()?;
                    self.expect(")")?;
                    return Ok(expr(pos, ExprKind::SizeofType(ty.into())));
                }
                let operand = self.unary()?;
                Ok(expr(pos, ExprKind::Sizeof(operand.into())))
            }
            Token::Word(word) if word == "stringof" => {
                self.take()?;
                let operand = self.unary()?;
                Ok(expr(pos, ExprKind::Stringof(operand.into())))
            }
            _ => self.postfix(),
        }
    }

    /// Whether the parenthesis that comes next holds a type.
    fn is_cast(&mut self) -> Result<bool> {
        self.lexer.skip()?;
        let Some(word) = self.lexer.name_ahead() else { return Ok(false) };
        let types = [
            "void", "char", "short", "int", "long", "signed", "unsigned", "float", "double", "string",
            "_Bool", "struct", "union", "enum", "const", "volatile", "restrict", "userland",
        ];
        Ok(types.contains(&word.as_str()) || self.is_typedef(&word))
    }

    fn postfix(&mut self) -> Result<Expr> {
        let mut value = self.primary()?;
        let outside = self.depth;
        loop {
            let pos = self.here()?;
            let Token::Mark(mark @ ("[" | "." | "->" | "++" | "--")) = *self.peek()? else {
                self.depth = outside;
                return Ok(value);
            };
            // Each operator has the ones before it inside.
            self.deeper()?;
            match mark {
                "[" => {
                    self.take()?;
                    let keys = self.arguments("]")?;
                    value = expr(pos, ExprKind::Index(value.into(), keys));
                }
                "." | "->" => {
                    self.take()?;
                    let name = self.member_name()?;
                    let of = value.into();
                    value = expr(pos, ExprKind::Member { of, name, arrow: mark == "->" });
                }
                _ => {
                    self.take()?;
                    value = expr(pos, ExprKind::After(mark, value.into()));
                }
            }
        }
    }

    /// The name of a member, which may be that of a type or a keyword of D that C does not have.
    fn member_name(&mut self) -> Result<String> {
        match self.peek()? {
            Token::Word(word) => {
                let word = word.clone();
                self.ahead = false;
                Ok(word)
            }
            _ => Err(self.unexpected()?),
        }
    }

    /// Expressions up to `close`, which is taken.
    fn arguments(&mut self, close: &str) -> Result<Vec<Expr>> {
        let mut list = Vec::new();
        if self.accept(close)? {
            return Ok(list);
        }
        loop {
            list.push(self.assignment()?);
            if self.accept(close)? {
                return Ok(list);
            }
            self.expect(",")?;
        }
    }

    fn primary(&mut self) -> Result<Expr> {
        let (token, pos) = self.take()?;
        match token {
            Token::Int(int) => Ok(expr(pos, ExprKind::Int(int))),
            Token::Str(mut text) => {
                // Adjacent strings are one.
                while matches!(self.peek()?, Token::Str(_)) {
                    if let (Token::Str(more), _) = self.take()? {
                        text.extend(more);
                    }
                }
                Ok(expr(pos, ExprKind::Str(text)))
            }
            Token::Aggregation(name) => {
                let keys = if self.accept("[")? { Some(self.arguments("]")?) } else { None };
                Ok(expr(pos, ExprKind::Aggregation { name, keys }))
            }
            Token::Mark("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Word(word) => self.named(word, pos),
            other => Err(other.unexpected(pos)),
        }
    }

    /// What a word begins, which has been taken.
    fn named(&mut self, word: String, pos: Pos) -> Result<Expr> {
        match word.as_str() {
            "self" | "this" => {
                self.expect("->")?;
                let name = self.member_name()?;
                Ok(expr(pos, ExprKind::Scoped { thread: word == "self", name }))
            }
            "offsetof" => {
                self.expect("(")?;
                let ty = self.type_name()?;
                self.expect(",")?;
                let member = self.member_name()?;
                self.expect(")")?;
                Ok(expr(pos, ExprKind::Offsetof(ty.into(), member)))
            }
            "xlate" => {
                self.expect("<")?;
                let ty = self.type_name()?;
                self.expect(">")?;
                self.expect("(")?;
                let operand = self.expression()?;
                self.expect(")")?;
                Ok(expr(pos, ExprKind::Xlate(ty.into(), operand.into())))
            }
            _ if is_keyword(&word) => Err(Token::Word(word).unexpected(pos)),
            _ if self.accept("(")? => Ok(expr(pos, ExprKind::Call(word, self.arguments(")")?))),
            _ => Ok(expr(pos, ExprKind::Name(word))),
        }
    }
}
