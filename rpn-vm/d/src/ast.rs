//! The syntax tree: what the parser saw, without names and types resolved.

use crate::error::Pos;
use crate::lex::IntLiteral;

/// A whole text.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub items: Vec<Item>,
}

/// A clause, or a declaration outside of clauses.
#[derive(Debug)]
pub(crate) enum Item {
    Clause(Clause),
    Declaration(Declaration),
    Inline(Inline),
    Translator(Translator),
}

/// `descriptions /predicate/ { body }`.
#[derive(Debug)]
pub(crate) struct Clause {
    pub pos: Pos,
    pub descriptions: Vec<String>,
    pub predicate: Option<Expr>,
    /// `None` if there are no braces: the default action.
    pub body: Option<Vec<Statement>>,
}

#[derive(Debug)]
pub(crate) enum Statement {
    Expression(Expr),
    If { condition: Expr, then: Vec<Statement>, otherwise: Vec<Statement> },
}

/// `inline TYPE name = expression;`, with parameters for one that is indexed.
#[derive(Debug)]
pub(crate) struct Inline {
    pub pos: Pos,
    pub base: Base,
    pub declarator: Declarator,
    pub value: Expr,
}

/// `translator OUT < IN name > { member = expression; .. };`
#[derive(Debug)]
pub(crate) struct Translator {
    pub pos: Pos,
    pub output: TypeName,
    pub input: TypeName,
    pub name: String,
    pub members: Vec<(Pos, String, Expr)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Declaration {
    pub pos: Pos,
    pub base: Base,
    pub declarators: Vec<Declarator>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    Typedef,
    Extern,
    Static,
    Auto,
    Register,
    SelfVariable,
    ThisVariable,
}

/// The storage class and the type before the declarators.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    pub pos: Pos,
    pub storage: Option<Storage>,
    pub spec: Spec,
}

#[derive(Debug, Clone)]
pub(crate) enum Spec {
    /// `unsigned long int`, word by word; also `void`, `string`.
    Words(Vec<String>),
    Typedef(String),
    Sou {
        union: bool,
        name: Option<String>,
        members: Option<Vec<Declaration>>,
    },
    Enum {
        name: Option<String>,
        items: Option<Vec<(Pos, String, Option<Expr>)>>,
    },
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Declarator {
    pub pos: Pos,
    pub name: Option<String>,
    /// What a declarator makes of the base type, in that order.
    pub derived: Vec<Derived>,
    pub bits: Option<Expr>,
}

#[derive(Debug, Clone)]
pub(crate) enum Derived {
    Pointer,
    Array(Option<Expr>),
    Function(Vec<Parameter>),
    /// The keys of an associative array.
    Keys(Vec<Parameter>),
}

#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub ty: TypeName,
    pub name: Option<String>,
    pub variadic: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct TypeName {
    pub base: Base,
    pub derived: Vec<Derived>,
}

#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub pos: Pos,
    pub kind: ExprKind,
}

/// A binary operator with its right operand.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub pos: Pos,
    pub op: &'static str,
    pub right: Expr,
}

#[derive(Debug, Clone)]
pub(crate) enum ExprKind {
    Int(IntLiteral),
    Str(Vec<u8>),
    Name(String),
    /// `self->name`, `this->name`.
    Scoped {
        thread: bool,
        name: String,
    },
    Aggregation {
        name: String,
        keys: Option<Vec<Expr>>,
    },
    Index(Box<Expr>, Vec<Expr>),
    Call(String, Vec<Expr>),
    Member {
        of: Box<Expr>,
        name: String,
        arrow: bool,
    },
    Unary(&'static str, Box<Expr>),
    /// `x++` and `x--`.
    After(&'static str, Box<Expr>),
    /// An operand, and the operators that are applied to it one after the other, each with its right operand.
    Binary(Box<Expr>, Vec<Link>),
    /// An assignment; the operator without its `=`.
    Assign(&'static str, Box<Expr>, Box<Expr>),
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Expressions with commas between them, two or more.
    Comma(Vec<Expr>),
    Cast(Box<TypeName>, Box<Expr>),
    SizeofType(Box<TypeName>),
    Sizeof(Box<Expr>),
    Offsetof(Box<TypeName>, String),
    Xlate(Box<TypeName>, Box<Expr>),
    Stringof(Box<Expr>),
}
