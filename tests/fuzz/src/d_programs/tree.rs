//! D programs as trees, made from choices: the types, the variables, what a program may contain.

use crate::generate::Choices;

/// A type, as its number among [`TYPES`].
pub type Type = usize;

/// The types of integers: name, bytes, sign.
pub const TYPES: [(&str, u32, bool); 8] = [
    ("char", 1, true),
    ("unsigned char", 1, false),
    ("short", 2, true),
    ("unsigned short", 2, false),
    ("int", 4, true),
    ("unsigned int", 4, false),
    ("long long", 8, true),
    ("unsigned long long", 8, false),
];

pub const INT: Type = 4;
/// What `strtoll()` gives.
pub const LONG: Type = 6;
/// What `strlen()` gives.
pub const SIZE: Type = 7;

/// Whose variable it is. Each owner has one of each type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    Program,
    Clause,
    Thread,
}

pub const OWNERS: [Owner; 3] = [Owner::Program, Owner::Clause, Owner::Thread];

/// The type of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Int(Type),
    Text,
}

/// An associative array: its name, whether each thread has its own, its values (strings if `None`), its keys.
#[derive(Debug)]
pub struct Array {
    pub name: &'static str,
    pub thread: bool,
    pub value: Option<Type>,
    pub keys: &'static [Key],
}

/// The arrays of integers.
pub const ARRAYS: [Array; 4] = [
    Array { name: "a", thread: false, value: Some(INT), keys: &[Key::Int(INT)] },
    Array { name: "b", thread: false, value: Some(7), keys: &[Key::Int(0), Key::Int(3)] },
    Array { name: "c", thread: false, value: Some(2), keys: &[Key::Text, Key::Int(5)] },
    Array { name: "e", thread: true, value: Some(1), keys: &[Key::Int(6)] },
];

/// The array of strings.
pub const TEXTS: Array = Array { name: "m", thread: false, value: None, keys: &[Key::Int(INT), Key::Text] };

/// An integer that can be assigned to.
#[derive(Debug)]
pub enum Place {
    Variable(Owner, Type),
    Element(&'static Array, Vec<Expression>),
}

/// A string that can be assigned to.
#[derive(Debug)]
pub enum TextPlace {
    Variable(Owner),
    Element(Vec<Expression>),
}

/// A key, or what a statement assigns.
#[derive(Debug)]
pub enum Expression {
    Int(Tree),
    Text(Text),
}

/// An expression with an integer's value.
#[derive(Debug)]
pub enum Tree {
    Constant(u32),
    /// A read next to address 0, where nothing lies.
    Wild(Type, u32),
    Load(Place),
    Unary(&'static str, Box<Tree>),
    Binary(&'static str, Box<Tree>, Box<Tree>),
    Compare(&'static str, Box<Tree>, Box<Tree>),
    Logical(&'static str, Box<Tree>, Box<Tree>),
    Conditional(Box<[Tree; 3]>),
    Cast(Type, Box<Tree>),
    Assign(Place, Box<Tree>),
    Update(&'static str, Place, Box<Tree>),
    /// `++` and `--`: the operator, the place, and whether the value is the old one.
    Step(&'static str, Place, bool),
    Comma(Box<Tree>, Box<Tree>),
    /// `strlen()`.
    Length(Box<Text>),
    /// `index()`.
    Find(Box<Text>, Box<Text>),
    /// `strtoll()`.
    Number(Box<Text>),
    CompareTexts(&'static str, Box<Text>, Box<Text>),
}

/// An expression with a string's value. It changes no string, so that each is what it was when the statement began.
#[derive(Debug)]
pub enum Text {
    Literal(&'static str),
    Load(TextPlace),
    /// `strjoin()`.
    Join(Box<Text>, Box<Text>),
    /// `substr()`.
    Part(Box<Text>, Box<Tree>, Option<Box<Tree>>),
    /// `lltostr()`.
    Number(Box<Tree>),
    /// `toupper()`.
    Upper(Box<Text>),
    Conditional(Box<Tree>, Box<Text>, Box<Text>),
}

/// An aggregating function.
#[derive(Debug)]
pub enum Function {
    Count,
    Sum(Tree),
    Avg(Tree),
    Min(Tree),
    Max(Tree),
    Quantize(Tree, Option<Tree>),
}

#[derive(Debug)]
pub enum Statement {
    Evaluate(Tree),
    Assign(TextPlace, Text),
    /// An aggregation of its own, with its number in the text of the program.
    Aggregate(usize, Vec<Expression>, Function),
    If(Tree, Vec<Statement>, Vec<Statement>),
}

/// A clause of BEGIN.
#[derive(Debug)]
pub struct Clause {
    pub predicate: Option<Tree>,
    pub statements: Vec<Statement>,
}

/// A program, and the threads in which its probe fires, one firing after the other.
#[derive(Debug)]
pub struct Program {
    pub first: [u32; 8],
    pub clauses: Vec<Clause>,
    pub threads: Vec<u64>,
}

/// How deep expressions and statements are nested.
const DEEPEST: u32 = 5;
const DEEPEST_IF: u32 = 2;
/// Most of what one clause, one program and one run have.
const MOST_STATEMENTS: u64 = 6;
const MOST_CLAUSES: u64 = 3;
const MOST_FIRINGS: u64 = 3;
const MOST_KEYS: u64 = 2;

const ARITHMETIC: [&str; 10] = ["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"];
const COMPARISONS: [&str; 6] = ["<", "<=", ">", ">=", "==", "!="];
const LOGICAL: [&str; 3] = ["&&", "||", "^^"];
const LITERALS: [&str; 8] = ["", "a", "ab", "b", "-12", "7fold", "Zz", "a longer string"];
/// Constants: the edges of the types.
const CONSTANTS: [u32; 12] = [0, 1, 2, 7, 31, 63, 64, 127, 255, 32_768, 65_535, 2_147_483_647];

fn any_type(choices: &mut Choices<'_>) -> Type {
    choices.below(TYPES.len() as u64) as usize
}

fn keys(choices: &mut Choices<'_>, depth: u32, keys: &[Key]) -> Vec<Expression> {
    let key = |key: &Key| match key {
        Key::Int(_) => Expression::Int(Tree::generate(choices, depth + 1)),
        Key::Text => Expression::Text(Text::generate(choices, depth + 1)),
    };
    keys.iter().map(key).collect()
}

impl Place {
    fn generate(choices: &mut Choices<'_>, depth: u32) -> Self {
        if depth < DEEPEST && choices.once_in(3) {
            let array = &ARRAYS[choices.below(ARRAYS.len() as u64) as usize];
            return Self::Element(array, keys(choices, depth, array.keys));
        }
        Self::Variable(choices.pick(&OWNERS), any_type(choices))
    }

    /// The type of its value.
    pub fn ty(&self) -> Type {
        match self {
            Self::Variable(_, ty) => *ty,
            Self::Element(array, _) => array.value.unwrap_or(INT),
        }
    }
}

impl TextPlace {
    fn generate(choices: &mut Choices<'_>, depth: u32) -> Self {
        if depth < DEEPEST && choices.once_in(3) {
            return Self::Element(keys(choices, depth, TEXTS.keys));
        }
        Self::Variable(choices.pick(&OWNERS))
    }
}

impl Tree {
    fn generate(choices: &mut Choices<'_>, depth: u32) -> Self {
        let inner = |choices: &mut Choices<'_>| Box::new(Self::generate(choices, depth + 1));
        let text = |choices: &mut Choices<'_>| Box::new(Text::generate(choices, depth + 1));
        let kinds = if depth < DEEPEST { 18 } else { 2 };
        match choices.below(kinds) {
            0 => Self::Constant(choices.pick(&CONSTANTS)),
            1 => Self::Load(Place::generate(choices, depth)),
            2 => Self::Unary(choices.pick(&["-", "~", "+", "!"]), inner(choices)),
            3 | 4 => Self::Binary(choices.pick(&ARITHMETIC), inner(choices), inner(choices)),
            5 => Self::Compare(choices.pick(&COMPARISONS), inner(choices), inner(choices)),
            6 => Self::Logical(choices.pick(&LOGICAL), inner(choices), inner(choices)),
            7 => Self::Conditional(Box::new([*inner(choices), *inner(choices), *inner(choices)])),
            8 => Self::Cast(any_type(choices), inner(choices)),
            9 | 10 => Self::Assign(Place::generate(choices, depth), inner(choices)),
            11 => Self::Update(choices.pick(&ARITHMETIC), Place::generate(choices, depth), inner(choices)),
            12 => {
                let op = choices.pick(&["+", "-"]);
                Self::Step(op, Place::generate(choices, depth), choices.once_in(2))
            }
            13 => Self::Comma(inner(choices), inner(choices)),
            14 if choices.once_in(8) => Self::Wild(any_type(choices), choices.pick(&CONSTANTS) & 0xfff),
            14 => Self::Length(text(choices)),
            15 => Self::Find(text(choices), text(choices)),
            16 => Self::Number(text(choices)),
            _ => Self::CompareTexts(choices.pick(&COMPARISONS), text(choices), text(choices)),
        }
    }
}

impl Text {
    fn generate(choices: &mut Choices<'_>, depth: u32) -> Self {
        let inner = |choices: &mut Choices<'_>| Box::new(Self::generate(choices, depth + 1));
        let int = |choices: &mut Choices<'_>| Box::new(Tree::generate(choices, depth + 1));
        let kinds = if depth < DEEPEST { 8 } else { 2 };
        match choices.below(kinds) {
            0 => Self::Literal(choices.pick(&LITERALS)),
            1 | 2 => Self::Load(TextPlace::generate(choices, depth)),
            3 => Self::Join(inner(choices), inner(choices)),
            4 => {
                let length = choices.once_in(2);
                Self::Part(inner(choices), int(choices), length.then(|| int(choices)))
            }
            5 => Self::Number(int(choices)),
            6 => Self::Upper(inner(choices)),
            _ => Self::Conditional(int(choices), inner(choices), inner(choices)),
        }
    }
}

impl Function {
    fn generate(choices: &mut Choices<'_>) -> Self {
        match choices.below(6) {
            0 => Self::Count,
            1 => Self::Sum(Tree::generate(choices, 1)),
            2 => Self::Avg(Tree::generate(choices, 1)),
            3 => Self::Min(Tree::generate(choices, 1)),
            4 => Self::Max(Tree::generate(choices, 1)),
            _ => {
                let weight = choices.once_in(2);
                Self::Quantize(Tree::generate(choices, 1), weight.then(|| Tree::generate(choices, 1)))
            }
        }
    }
}

fn statements(choices: &mut Choices<'_>, aggregations: &mut usize, depth: u32) -> Vec<Statement> {
    let count = choices.below(MOST_STATEMENTS) + u64::from(depth == 0);
    let mut made = Vec::new();
    for _ in 0..count {
        made.push(match choices.below(8) {
            0..=3 => Statement::Evaluate(Tree::generate(choices, 0)),
            4 | 5 => {
                let value = Text::generate(choices, 1);
                Statement::Assign(TextPlace::generate(choices, 1), value)
            }
            6 if depth < DEEPEST_IF => {
                let condition = Tree::generate(choices, 1);
                let then = statements(choices, aggregations, depth + 1);
                Statement::If(condition, then, statements(choices, aggregations, depth + 1))
            }
            _ => {
                let number = *aggregations;
                *aggregations += 1;
                let keys = (0..choices.below(MOST_KEYS + 1)).map(|_| match choices.once_in(3) {
                    true => Expression::Text(Text::generate(choices, 1)),
                    false => Expression::Int(Tree::generate(choices, 1)),
                });
                let keys = keys.collect();
                Statement::Aggregate(number, keys, Function::generate(choices))
            }
        });
    }
    made
}

impl Program {
    pub fn generate(choices: &mut Choices<'_>) -> Self {
        let first = [0; 8].map(|_: u32| choices.pick(&CONSTANTS));
        let threads = (0..=choices.below(MOST_FIRINGS)).map(|_| choices.below(2) + 1).collect();
        let mut aggregations = 0;
        let count = 1 + choices.below(MOST_CLAUSES);
        let clause = |_| {
            let predicate = choices.once_in(3).then(|| Tree::generate(choices, 1));
            Clause { predicate, statements: statements(choices, &mut aggregations, 0) }
        };
        Self { first, threads, clauses: (0..count).map(clause).collect() }
    }
}
