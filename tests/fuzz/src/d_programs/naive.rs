//! What a program means: its tree, interpreted node by node. It shares no code with the compiler or with what runs
//! compiled programs; the rules are those of docs/d.md and of the D guide.
//!
//! Operators compute with 64 bits in the wider type of their operands, without a sign if either has none; what is compared,
//! or chosen by `?:`, is an `int` if that holds it. A value is cut to its type when it is assigned, cast, a key, or converted to a type that is narrower or has another sign; but an
//! operand of a sum or a product keeps its sign.
//! Operands are evaluated from left to right; of `=` the right side comes before the keys on the left. 0 and a string
//! that is null are the same as no value.

use super::tree::{
    Clause, Expression, Function, INT, Key, LONG, Owner, Place, Program, SIZE, Statement, TEXTS, TYPES, Text,
    TextPlace, Tree, Type,
};
use std::collections::BTreeMap;

/// Bytes of a string (`strsize`).
const LONGEST: usize = 256;

/// How a clause ends early: the kind of the fault as DTrace numbers them, and the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub kind: u64,
    pub address: u64,
}

const DIVISION: Fault = Fault { kind: 4, address: 0 };

const fn bad_address(address: u64) -> Fault {
    Fault { kind: 1, address }
}

/// A value, or a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Int(u64),
    Text(Vec<u8>),
}

/// The name of a value that is there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    Variable(Owner, Option<Type>),
    Element(&'static str, Vec<Value>),
}

/// All values, by thread (0 where threads have none of their own) and name.
pub type Values = BTreeMap<(u64, Name), Value>;

/// What a run leaves.
#[derive(Debug, Default)]
pub struct State {
    pub values: Values,
    /// By the number of the aggregation and the bytes of the key.
    pub aggregations: BTreeMap<usize, BTreeMap<Vec<u8>, Vec<u64>>>,
    /// How many faults there were, and the last one with the number of its clause.
    pub faults: u64,
    pub last: Option<(usize, Fault)>,
    thread: u64,
}

type Evaluated<T> = Result<T, Fault>;

/// The low bytes of a value, extended.
pub fn cut(value: u64, ty: Type) -> u64 {
    let (_, size, signed) = TYPES[ty];
    let shift = 64 - size * 8;
    if signed { ((value << shift) as i64 >> shift) as u64 } else { value << shift >> shift }
}

/// A value of one type as one of another.
pub fn converted(value: u64, from: Type, to: Type) -> u64 {
    if from == to { value } else { cut(value, to) }
}

/// An operand of arithmetic: a negative one keeps its sign in sums and products without a sign.
fn operand(op: &str, value: u64, from: Type, to: Type) -> u64 {
    let ((_, _, signed), (_, size, result)) = (TYPES[from], TYPES[to]);
    let keeps = signed && !result && size < 8 && matches!(op, "+" | "-" | "*");
    if keeps { value } else { converted(value, from, to) }
}

/// The type in which two values are compared, or in which either is chosen: what `int` holds is an `int`, as in C.
fn promoted(a: Type, b: Type) -> Type {
    let common = common(a, b);
    if TYPES[common].1 < 4 { INT } else { common }
}

/// The type in which two types are computed.
fn common(a: Type, b: Type) -> Type {
    let ((_, a_size, a_signed), (_, b_size, b_signed)) = (TYPES[a], TYPES[b]);
    let size = a_size.max(b_size);
    let unsigned = a_size == size && !a_signed || b_size == size && !b_signed;
    TYPES.iter().position(|(_, own, signed)| (*own, *signed) == (size, !unsigned)).unwrap_or(INT)
}

fn compute(op: &str, a: u64, b: u64, ty: Type) -> Evaluated<u64> {
    let signed = TYPES[ty].2;
    if matches!(op, "/" | "%") && b == 0 {
        return Err(DIVISION);
    }
    Ok(match op {
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "/" if signed => (a as i64).wrapping_div(b as i64) as u64,
        "/" => a / b,
        "%" if signed => (a as i64).wrapping_rem(b as i64) as u64,
        "%" => a % b,
        "&" => a & b,
        "|" => a | b,
        "^" => a ^ b,
        "<<" => a << (b & 63),
        _ if signed => (a as i64 >> (b & 63)) as u64,
        _ => a >> (b & 63),
    })
}

fn holds(op: &str, order: std::cmp::Ordering) -> u64 {
    u64::from(match op {
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        ">=" => order.is_ge(),
        "==" => order.is_eq(),
        _ => order.is_ne(),
    })
}

/// A string that must be there.
fn there(text: Option<Vec<u8>>) -> Evaluated<Vec<u8>> {
    text.ok_or(bad_address(0))
}

/// The number that a text begins with.
fn number(text: &[u8]) -> u64 {
    let (sign, digits) = match text.strip_prefix(b"-") {
        Some(rest) => (-1i64, rest),
        None => (1, text),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let value =
        digits.fold(0i64, |value, digit| value.wrapping_mul(10).wrapping_add(i64::from(digit - b'0')));
    value.wrapping_mul(sign) as u64
}

/// `substr()`: from a place, or that many characters before the end; a length, or that many characters before the end.
fn part(text: &[u8], from: i64, length: Option<i64>) -> Vec<u8> {
    let size = text.len() as i64;
    let start = if from < 0 { from + size } else { from };
    let end = match length {
        None => size,
        Some(length) if length < 0 => size + length,
        // What would lie before the beginning counts.
        Some(length) => start + length,
    };
    let (start, end) = (start.max(0), end.min(size));
    if start >= end { Vec::new() } else { text[start as usize..end as usize].to_vec() }
}

/// The operand of `?:` that a constant condition chooses; the other one is not looked at.
pub fn chosen([condition, yes, no]: &[Tree; 3]) -> Option<&Tree> {
    Some(if condition.constant()? != 0 { yes } else { no })
}

impl Tree {
    pub fn ty(&self) -> Type {
        match self {
            Self::Constant(_) | Self::Compare(..) | Self::Logical(..) | Self::Unary("!", _) => INT,
            Self::Find(..) | Self::CompareTexts(..) => INT,
            Self::Wild(ty, _) | Self::Cast(ty, _) => *ty,
            Self::Load(place)
            | Self::Assign(place, _)
            | Self::Update(_, place, _)
            | Self::Step(_, place, _) => place.ty(),
            Self::Unary(_, of) => common(of.ty(), INT),
            Self::Binary("<<" | ">>", a, _) => common(a.ty(), INT),
            Self::Binary(_, a, b) => common(a.ty(), b.ty()),
            Self::Conditional(of) => match chosen(of) {
                Some(taken) => taken.ty(),
                None => promoted(of[1].ty(), of[2].ty()),
            },
            Self::Comma(_, b) => b.ty(),
            Self::Length(_) => SIZE,
            Self::Number(_) => LONG,
        }
    }

    /// The value, where it is known without a run.
    pub fn constant(&self) -> Option<u64> {
        match self {
            Self::Constant(value) => Some((*value).into()),
            Self::Unary(_, of) | Self::Cast(_, of) => {
                of.constant()?;
                self.value(&mut State::default()).ok()
            }
            Self::Binary(_, a, b) | Self::Compare(_, a, b) => {
                a.constant()?;
                b.constant()?;
                self.value(&mut State::default()).ok()
            }
            Self::Logical(_, a, b) => {
                a.constant()?;
                b.constant()?;
                self.value(&mut State::default()).ok()
            }
            Self::Conditional(of) => chosen(of)?.constant(),
            _ => None,
        }
    }

    /// What it gives in this state, which it may change.
    fn value(&self, state: &mut State) -> Evaluated<u64> {
        Ok(match self {
            Self::Constant(value) => u64::from(*value),
            Self::Wild(_, address) => return Err(bad_address((*address).into())),
            Self::Load(place) => {
                let name = place.name(state)?;
                state.int(&name)
            }
            Self::Unary("!", of) => u64::from(of.value(state)? == 0),
            Self::Unary(op, of) => {
                let value = converted(of.value(state)?, of.ty(), self.ty());
                let value = match *op {
                    "-" => value.wrapping_neg(),
                    "~" => !value,
                    _ => value,
                };
                // What the compiler computes is of the type.
                if of.constant().is_some() { cut(value, self.ty()) } else { value }
            }
            Self::Binary(op, a, b) => {
                let (left, right) = (a.value(state)?, b.value(state)?);
                let left = operand(op, left, a.ty(), self.ty());
                let shift = matches!(*op, "<<" | ">>");
                let right = if shift { right } else { operand(op, right, b.ty(), self.ty()) };
                compute(op, left, right, self.ty())?
            }
            Self::Compare(op, a, b) => {
                let ty = promoted(a.ty(), b.ty());
                let left = converted(a.value(state)?, a.ty(), ty);
                let right = converted(b.value(state)?, b.ty(), ty);
                holds(op, if TYPES[ty].2 { (left as i64).cmp(&(right as i64)) } else { left.cmp(&right) })
            }
            Self::Logical("&&", a, b) => u64::from(a.value(state)? != 0 && b.value(state)? != 0),
            Self::Logical("||", a, b) => u64::from(a.value(state)? != 0 || b.value(state)? != 0),
            Self::Logical(_, a, b) => {
                let left = a.value(state)? != 0;
                u64::from(left ^ (b.value(state)? != 0))
            }
            Self::Conditional(of) => {
                let [condition, yes, no] = &**of;
                let taken = if condition.value(state)? != 0 { yes } else { no };
                converted(taken.value(state)?, taken.ty(), self.ty())
            }
            Self::Cast(ty, of) => cut(of.value(state)?, *ty),
            Self::Comma(a, b) => {
                a.value(state)?;
                b.value(state)?
            }
            Self::Length(of) => there(of.value(state)?)?.len() as u64,
            Self::Find(of, wanted) => {
                let (of, wanted) = (of.value(state)?, wanted.value(state)?);
                let (of, wanted) = (there(of)?, there(wanted)?);
                let found = (0..=of.len()).find(|at| of[*at..].starts_with(&wanted));
                found.map_or(u64::MAX, |at| at as u64)
            }
            Self::Number(of) => number(&there(of.value(state)?)?),
            Self::CompareTexts(op, a, b) => {
                let (a, b) = (a.value(state)?, b.value(state)?);
                holds(op, a.cmp(&b))
            }
            Self::Assign(place, of) => {
                let value = cut(of.value(state)?, place.ty());
                let name = place.name(state)?;
                state.set(name, value)
            }
            Self::Update(op, place, of) => {
                let shift = matches!(*op, "<<" | ">>");
                let ty = if shift { place.ty() } else { common(place.ty(), of.ty()) };
                let name = place.name(state)?;
                let old = state.int(&name);
                let right = converted(of.value(state)?, of.ty(), ty);
                let value = compute(op, converted(old, place.ty(), ty), right, ty)?;
                state.set(name, cut(value, place.ty()))
            }
            Self::Step(op, place, after) => {
                let ty = common(place.ty(), INT);
                let name = place.name(state)?;
                let old = state.int(&name);
                let value = compute(op, converted(old, place.ty(), ty), 1, ty)?;
                let new = state.set(name, cut(value, place.ty()));
                if *after { old } else { new }
            }
        })
    }
}

impl Text {
    fn value(&self, state: &mut State) -> Evaluated<Option<Vec<u8>>> {
        let made = match self {
            Self::Literal(text) => text.as_bytes().to_vec(),
            Self::Load(place) => {
                let name = place.name(state)?;
                return Ok(match state.values.get(&name) {
                    Some(Value::Text(text)) => Some(text.clone()),
                    _ => None,
                });
            }
            Self::Conditional(condition, yes, no) => {
                let taken = if condition.value(state)? != 0 { yes } else { no };
                return taken.value(state);
            }
            Self::Join(a, b) => {
                let (a, b) = (a.value(state)?, b.value(state)?);
                [there(a)?, there(b)?].concat()
            }
            Self::Part(of, from, length) => {
                let of = of.value(state)?;
                let from = cut(from.value(state)?, INT) as i64;
                let length = match length {
                    Some(length) => Some(cut(length.value(state)?, INT) as i64),
                    None => None,
                };
                part(&there(of)?, from, length)
            }
            Self::Number(of) => (of.value(state)? as i64).to_string().into_bytes(),
            Self::Upper(of) => there(of.value(state)?)?.to_ascii_uppercase(),
        };
        Ok(Some(made.get(..LONGEST).unwrap_or(&made).to_vec()))
    }
}

/// The keys of an array, cut to the types that it has.
fn keys(of: &[Expression], types: &[Key], state: &mut State) -> Evaluated<Vec<Value>> {
    let mut keys = Vec::new();
    for (key, ty) in of.iter().zip(types) {
        keys.push(match (key, ty) {
            (Expression::Int(tree), Key::Int(ty)) => Value::Int(cut(tree.value(state)?, *ty)),
            (Expression::Text(text), _) => Value::Text(text.value(state)?.unwrap_or_default()),
            (Expression::Int(tree), Key::Text) => Value::Int(tree.value(state)?),
        });
    }
    Ok(keys)
}

impl Place {
    fn name(&self, state: &mut State) -> Evaluated<(u64, Name)> {
        Ok(match self {
            Self::Variable(owner, ty) => (state.own(*owner), Name::Variable(*owner, Some(*ty))),
            Self::Element(array, of) => {
                let keys = keys(of, array.keys, state)?;
                (if array.thread { state.thread } else { 0 }, Name::Element(array.name, keys))
            }
        })
    }
}

impl TextPlace {
    fn name(&self, state: &mut State) -> Evaluated<(u64, Name)> {
        Ok(match self {
            Self::Variable(owner) => (state.own(*owner), Name::Variable(*owner, None)),
            Self::Element(of) => (0, Name::Element(TEXTS.name, keys(of, TEXTS.keys, state)?)),
        })
    }
}

/// The bucket of `quantize()`: powers of two, of both signs.
fn bucket(value: i64) -> usize {
    let bits = 64 - value.unsigned_abs().leading_zeros() as usize;
    if value < 0 { 63 - bits.min(63) } else { 63 + bits }
}

impl Function {
    fn add(
        &self,
        state: &mut State,
        number: usize,
        key: impl FnOnce(&mut State) -> Evaluated<Vec<u8>>,
    ) -> Evaluated<()> {
        let key = key(state)?;
        let mut of = |tree: &Tree| Ok((tree.value(state)?, TYPES[tree.ty()].2));
        let ((value, signed), weight) = match self {
            Self::Count => ((1, true), 1),
            Self::Sum(tree) | Self::Avg(tree) | Self::Min(tree) | Self::Max(tree) => (of(tree)?, 1),
            Self::Quantize(tree, None) => (of(tree)?, 1),
            Self::Quantize(tree, Some(weight)) => (of(tree)?, of(weight)?.0),
        };
        let old = state.aggregations.entry(number).or_default();
        let new = !old.contains_key(&key);
        let old = old.entry(key).or_default();
        let less = |a: u64, b: u64| if signed { (a as i64) < b as i64 } else { a < b };
        match self {
            _ if new => match self {
                Self::Avg(_) => *old = vec![1, value],
                // The second word says that there is a value.
                Self::Min(_) | Self::Max(_) => *old = vec![value, 1],
                Self::Quantize(..) => {
                    *old = vec![0; 127];
                    old[bucket(value as i64)] = weight;
                }
                _ => *old = vec![value],
            },
            Self::Count => old[0] += 1,
            Self::Sum(_) => old[0] = old[0].wrapping_add(value),
            Self::Avg(_) => *old = vec![old[0] + 1, old[1].wrapping_add(value)],
            Self::Min(_) if less(value, old[0]) => old[0] = value,
            Self::Max(_) if less(old[0], value) => old[0] = value,
            Self::Min(_) | Self::Max(_) => {}
            Self::Quantize(..) => {
                let bucket = bucket(value as i64);
                old[bucket] = old[bucket].wrapping_add(weight);
            }
        }
        Ok(())
    }
}

/// The bytes of an aggregation's key.
fn key_bytes(of: &[Expression], state: &mut State) -> Evaluated<Vec<u8>> {
    let mut bytes = Vec::new();
    for key in of {
        match key {
            Expression::Int(tree) => bytes.extend(cut(tree.value(state)?, tree.ty()).to_le_bytes()),
            Expression::Text(text) => {
                let text = text.value(state)?.unwrap_or_default();
                bytes.extend((text.len() as u32).to_le_bytes());
                bytes.extend(text);
            }
        }
    }
    Ok(bytes)
}

fn run(statements: &[Statement], state: &mut State) -> Evaluated<()> {
    for statement in statements {
        match statement {
            Statement::Evaluate(tree) => {
                tree.value(state)?;
            }
            Statement::Assign(place, text) => {
                let value = text.value(state)?;
                let name = place.name(state)?;
                match value {
                    Some(text) => drop(state.values.insert(name, Value::Text(text))),
                    None => drop(state.values.remove(&name)),
                }
            }
            Statement::Aggregate(number, keys, function) => {
                function.add(state, *number, |state| key_bytes(keys, state))?;
            }
            Statement::If(condition, then, otherwise) => {
                run(if condition.value(state)? != 0 { then } else { otherwise }, state)?;
            }
        }
    }
    Ok(())
}

impl State {
    /// The thread that a variable belongs to.
    fn own(&self, owner: Owner) -> u64 {
        if owner == Owner::Thread { self.thread } else { 0 }
    }

    pub fn int(&self, name: &(u64, Name)) -> u64 {
        match self.values.get(name) {
            Some(Value::Int(value)) => *value,
            _ => 0,
        }
    }

    fn set(&mut self, name: (u64, Name), value: u64) -> u64 {
        if value == 0 {
            self.values.remove(&name);
        } else {
            self.values.insert(name, Value::Int(value));
        }
        value
    }

    fn clause(&mut self, clause: &Clause, first: Option<&[u32; 8]>) -> Evaluated<()> {
        if let Some(predicate) = &clause.predicate
            && predicate.value(self)? == 0
        {
            return Ok(());
        }
        for (ty, value) in first.into_iter().flatten().enumerate() {
            self.set((0, Name::Variable(Owner::Program, Some(ty))), cut((*value).into(), ty));
        }
        run(&clause.statements, self)
    }
}

impl Program {
    /// Runs the program: its probe fires once for each of its threads.
    pub fn meaning(&self) -> State {
        let mut state = State::default();
        for thread in &self.threads {
            state.thread = *thread;
            state.values.retain(|(_, name), _| !matches!(name, Name::Variable(Owner::Clause, _)));
            for (n, clause) in self.clauses.iter().enumerate() {
                let first = (n == 0 && clause.predicate.is_none()).then_some(&self.first);
                if let Err(fault) = state.clause(clause, first) {
                    state.faults += 1;
                    state.last = Some((n, fault));
                }
            }
        }
        state
    }
}
