//! From tokens to the syntax tree: the grammar of the DTrace guide.
//!
//! The parser knows which names are types, as every parser of C must. It resolves nothing else.

mod declaration;
mod expression;

use std::collections::BTreeSet;

use crate::ast::{Clause, Expr, Inline, Item, Script, Statement, Translator, TypeName};
use crate::error::{Error, Pos, Result};
use crate::lex::{Lexer, Token};
use crate::pragma::Pragma;

/// How deep brackets, blocks and operators may be nested: deeper nesting would exhaust the stack.
const DEEPEST: u32 = 100;

/// Words that cannot be names of variables, sorted.
const KEYWORDS: &[&str] = &[
    "auto",
    "break",
    "case",
    "char",
    "const",
    "continue",
    "counter",
    "default",
    "do",
    "double",
    "else",
    "enum",
    "extern",
    "float",
    "for",
    "goto",
    "if",
    "import",
    "inline",
    "int",
    "long",
    "offsetof",
    "provider",
    "register",
    "restrict",
    "return",
    "self",
    "short",
    "signed",
    "sizeof",
    "static",
    "string",
    "stringof",
    "struct",
    "switch",
    "this",
    "translator",
    "typedef",
    "union",
    "unsigned",
    "userland",
    "void",
    "volatile",
    "while",
    "xlate",
];

/// Keywords that may begin a declaration, sorted.
const DECLARING: &[&str] = &[
    "_Bool",
    "auto",
    "char",
    "const",
    "double",
    "enum",
    "extern",
    "float",
    "inline",
    "int",
    "long",
    "provider",
    "register",
    "restrict",
    "self",
    "short",
    "signed",
    "static",
    "string",
    "struct",
    "this",
    "translator",
    "typedef",
    "union",
    "unsigned",
    "userland",
    "void",
    "volatile",
];

/// Whether a word cannot be the name of a variable.
fn is_keyword(word: &str) -> bool {
    KEYWORDS.binary_search(&word).is_ok()
}

/// How a text is read.
pub(crate) struct Reading<'t> {
    /// The values of `$1` and the other macro arguments.
    pub macros: &'t dyn Fn(&str) -> Option<Vec<u8>>,
    /// Whether a name is that of a type that is known already.
    pub known: &'t dyn Fn(&str) -> bool,
    /// Whether the guest has a typedef of a name.
    pub of_guest: &'t dyn Fn(&str) -> bool,
    /// `-xpspec`: a word outside of clauses is a probe description even if it could begin a declaration.
    pub descriptions_first: bool,
}

/// What was read.
pub(crate) struct Parsed {
    pub script: Script,
    pub pragmas: Vec<(Pos, Pragma)>,
    /// The last line.
    pub end: Pos,
    /// The first syntax error. The items before it are whole, and may be wrong too.
    pub error: Option<Error>,
}

pub(crate) struct Parser<'t> {
    lexer: Lexer<'t>,
    token: Token,
    pos: Pos,
    /// Names of types that the text has declared.
    types: BTreeSet<String>,
    known: &'t dyn Fn(&str) -> bool,
    of_guest: &'t dyn Fn(&str) -> bool,
    depth: u32,
    /// A token has been read that is not used up.
    ahead: bool,
    descriptions_first: bool,
}

/// Reads a text, up to the first thing that is not D.
pub(crate) fn parse(text: &[u8], reading: Reading<'_>) -> Parsed {
    let mut parser = Parser::new(text, reading);
    let mut script = Script::default();
    let error = loop {
        match parser.item() {
            Ok(Some(item)) => script.items.push(item),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    let end = parser.lexer.pos();
    Parsed { script, pragmas: parser.lexer.pragmas, end, error }
}

/// Reads a type as C writes it.
pub(crate) fn parse_type(
    text: &str,
    known: &dyn Fn(&str) -> bool,
    of_guest: &dyn Fn(&str) -> bool,
) -> Result<TypeName> {
    let mut parser = Parser::new(
        text.as_bytes(),
        Reading { macros: &|_| None, known, of_guest, descriptions_first: false },
    );
    let found = parser.type_name()?;
    parser.ended(found)
}

/// Reads an expression.
pub(crate) fn parse_expression(text: &str, reading: Reading<'_>) -> Result<Expr> {
    let mut parser = Parser::new(text.as_bytes(), reading);
    let found = parser.expression()?;
    parser.ended(found)
}

impl<'t> Parser<'t> {
    fn new(text: &'t [u8], reading: Reading<'t>) -> Self {
        Self {
            lexer: Lexer::new(text, reading.macros),
            token: Token::End,
            pos: Pos::default(),
            types: BTreeSet::new(),
            known: reading.known,
            of_guest: reading.of_guest,
            depth: 0,
            ahead: false,
            descriptions_first: reading.descriptions_first,
        }
    }

    /// What was found, if nothing follows it.
    fn ended<T>(mut self, found: T) -> Result<T> {
        if *self.peek()? == Token::End { Ok(found) } else { Err(self.unexpected()?) }
    }
}

impl Parser<'_> {
    /// The next token, not taken.
    fn peek(&mut self) -> Result<&Token> {
        if !self.ahead {
            (self.token, self.pos) = self.lexer.token()?;
            self.ahead = true;
        }
        Ok(&self.token)
    }

    fn take(&mut self) -> Result<(Token, Pos)> {
        self.peek()?;
        self.ahead = false;
        Ok((std::mem::replace(&mut self.token, Token::End), self.pos))
    }

    fn here(&mut self) -> Result<Pos> {
        self.peek()?;
        Ok(self.pos)
    }

    fn is(&mut self, mark: &str) -> Result<bool> {
        Ok(matches!(self.peek()?, Token::Mark(m) if *m == mark))
    }

    fn accept(&mut self, mark: &str) -> Result<bool> {
        let found = self.is(mark)?;
        self.ahead &= !found;
        Ok(found)
    }

    fn expect(&mut self, mark: &str) -> Result<()> {
        if self.accept(mark)? { Ok(()) } else { Err(self.unexpected()?) }
    }

    fn is_word(&mut self, word: &str) -> Result<bool> {
        Ok(matches!(self.peek()?, Token::Word(w) if w == word))
    }

    fn accept_word(&mut self, word: &str) -> Result<bool> {
        let found = self.is_word(word)?;
        self.ahead &= !found;
        Ok(found)
    }

    /// The error of a token that cannot stand here.
    fn unexpected(&mut self) -> Result<Error> {
        let pos = self.here()?;
        Ok(self.token.unexpected(pos))
    }

    /// A name that is not a keyword.
    fn name(&mut self) -> Result<String> {
        match self.peek()? {
            Token::Word(word) if !is_keyword(word) => {
                let word = word.clone();
                self.ahead = false;
                Ok(word)
            }
            _ => Err(self.unexpected()?),
        }
    }

    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > DEEPEST { Err(self.too_deep()) } else { Ok(()) }
    }

    fn too_deep(&self) -> Error {
        let sentence = format!(
            "the program is nested deeper than {DEEPEST} levels here; put the inner part into a variable or a typedef"
        );
        self.pos.error("D_SYNTAX", sentence)
    }

    /// A clause or declaration; `None` at the end.
    fn item(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(clause) = self.described()? {
                return Ok(Some(clause));
            }
            if !self.accept(";")? {
                break;
            }
        }
        let item = match self.peek()? {
            Token::End => return Ok(None),
            Token::Word(word) if word == "inline" => Item::Inline(self.inline()?),
            Token::Word(word) if word == "translator" => Item::Translator(self.translator()?),
            _ => Item::Declaration(self.declaration()?),
        };
        Ok(Some(item))
    }

    /// A clause, if a probe description comes next.
    fn described(&mut self) -> Result<Option<Item>> {
        if !self.ahead {
            self.lexer.skip()?;
            if self.lexer.ended() {
                return Ok(None);
            }
            let declares = self.lexer.name_ahead().filter(|word| {
                !self.descriptions_first
                    && (DECLARING.binary_search(&word.as_str()).is_ok() || self.is_typedef(word))
            });
            let pos = self.lexer.pos();
            if declares.is_none()
                && let Some(description) = self.lexer.description()
            {
                return Ok(Some(Item::Clause(self.clause(description, pos)?)));
            }
        }
        Ok(None)
    }

    fn clause(&mut self, first: String, pos: Pos) -> Result<Clause> {
        let mut descriptions = vec![first];
        loop {
            self.lexer.skip()?;
            if !self.accept(",")? {
                break;
            }
            self.lexer.skip()?;
            match self.lexer.description() {
                Some(description) => descriptions.push(description),
                None => return Err(self.unexpected()?),
            }
        }
        let predicate = if self.accept("/")? {
            self.lexer.predicate(true);
            let predicate = self.expression()?;
            let closed = matches!(self.peek()?, Token::EndPredicate);
            self.lexer.predicate(false);
            if !closed {
                return Err(self.unexpected()?);
            }
            self.ahead = false;
            Some(predicate)
        } else {
            None
        };
        if !self.is("{")? {
            let ends = self.accept(";")?;
            if ends && predicate.is_none() || matches!(self.peek()?, Token::End) && predicate.is_none() {
                return Ok(Clause { pos, descriptions, predicate, body: None });
            }
            if ends || matches!(self.peek()?, Token::End) {
                return Ok(Clause { pos, descriptions, predicate, body: None });
            }
            let sentence = "expected predicate and/or actions following probe description";
            return Err(self.pos.error("D_SYNTAX", sentence));
        }
        let body = Some(self.block()?);
        Ok(Clause { pos, descriptions, predicate, body })
    }

    /// `{ statements }`.
    fn block(&mut self) -> Result<Vec<Statement>> {
        self.deeper()?;
        self.expect("{")?;
        let mut statements = Vec::new();
        loop {
            while self.accept(";")? {}
            if self.accept("}")? {
                self.depth -= 1;
                return Ok(statements);
            }
            statements.push(self.statement()?);
        }
    }

    fn statement(&mut self) -> Result<Statement> {
        if self.accept_word("if")? {
            self.expect("(")?;
            let condition = self.expression()?;
            self.expect(")")?;
            let then = self.branch()?;
            let otherwise = if self.accept_word("else")? { self.branch()? } else { Vec::new() };
            return Ok(Statement::If { condition, then, otherwise });
        }
        let expression = self.expression()?;
        if !self.is("}")? {
            self.expect(";")?;
        }
        Ok(Statement::Expression(expression))
    }

    fn branch(&mut self) -> Result<Vec<Statement>> {
        if self.is("{")? {
            return self.block();
        }
        if self.accept(";")? {
            return Ok(Vec::new());
        }
        self.deeper()?;
        let statement = self.statement()?;
        self.depth -= 1;
        Ok(vec![statement])
    }

    fn inline(&mut self) -> Result<Inline> {
        self.take()?;
        let pos = self.here()?;
        let base = self.base()?;
        let declarator = self.declarator()?;
        if !self.accept("=")? {
            return Err(self.unexpected()?);
        }
        let value = self.assignment()?;
        self.expect(";")?;
        Ok(Inline { pos, base, declarator, value })
    }

    fn translator(&mut self) -> Result<Translator> {
        let (_, pos) = self.take()?;
        let output = self.type_name()?;
        self.expect("<")?;
        let base = self.base()?;
        let declarator = self.declarator()?;
        let Some(name) = declarator.name else { return Err(self.unexpected()?) };
        self.expect(">")?;
        self.expect("{")?;
        let mut members = Vec::new();
        while !self.accept("}")? {
            let pos = self.here()?;
            let member = self.name()?;
            self.expect("=")?;
            let value = self.assignment()?;
            self.expect(";")?;
            members.push((pos, member, value));
        }
        self.expect(";")?;
        let input = crate::ast::TypeName { base, derived: declarator.derived };
        Ok(Translator { pos, output, input, name, members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_sorted_for_their_search() {
        assert!(KEYWORDS.is_sorted() && DECLARING.is_sorted());
    }
}
