//! Programs that a compiler has to refuse: those that divide by a constant 0.

use super::naive::{chosen, converted};
use super::tree::{Clause, Expression, Function, Place, Program, Statement, Text, TextPlace, Tree};

impl Program {
    /// Whether a compiler has to refuse it.
    pub fn divides_by_constant_zero(&self) -> bool {
        let clause = |clause: &Clause| {
            clause.predicate.iter().any(Tree::divides) || clause.statements.iter().any(Statement::divides)
        };
        self.clauses.iter().any(clause)
    }
}

impl Statement {
    fn divides(&self) -> bool {
        match self {
            Self::Evaluate(tree) => tree.divides(),
            Self::Assign(place, text) => place.divides() || text.divides(),
            Self::Aggregate(_, keys, function) => {
                let value = match function {
                    Function::Count => false,
                    Function::Quantize(value, weight) => {
                        value.divides() || weight.as_ref().is_some_and(Tree::divides)
                    }
                    Function::Sum(value)
                    | Function::Avg(value)
                    | Function::Min(value)
                    | Function::Max(value) => value.divides(),
                };
                value || keys.iter().any(Expression::divides)
            }
            Self::If(condition, then, otherwise) => {
                condition.divides() || then.iter().chain(otherwise).any(Self::divides)
            }
        }
    }
}

impl Expression {
    fn divides(&self) -> bool {
        match self {
            Self::Int(tree) => tree.divides(),
            Self::Text(text) => text.divides(),
        }
    }
}

impl Place {
    fn divides(&self) -> bool {
        match self {
            Self::Variable(..) => false,
            Self::Element(_, keys) => keys.iter().any(Expression::divides),
        }
    }
}

impl TextPlace {
    fn divides(&self) -> bool {
        match self {
            Self::Variable(_) => false,
            Self::Element(keys) => keys.iter().any(Expression::divides),
        }
    }
}

impl Tree {
    /// Whether a divisor in it is the constant 0, which is refused before the run.
    fn divides(&self) -> bool {
        match self {
            Self::Constant(_) | Self::Wild(..) => false,
            Self::Load(place) | Self::Step(_, place, _) => place.divides(),
            Self::Unary(_, of) | Self::Cast(_, of) => of.divides(),
            Self::Assign(place, of) | Self::Update(_, place, of) => place.divides() || of.divides(),
            Self::Binary(op, a, b) => {
                let own = matches!(*op, "/" | "%")
                    && b.constant().is_some_and(|value| converted(value, b.ty(), self.ty()) == 0);
                own || a.divides() || b.divides()
            }
            Self::Compare(_, a, b) | Self::Logical(_, a, b) | Self::Comma(a, b) => a.divides() || b.divides(),
            Self::Conditional(of) => match chosen(of) {
                Some(taken) => of[0].divides() || taken.divides(),
                None => of.iter().any(Self::divides),
            },
            Self::Length(of) | Self::Number(of) => of.divides(),
            Self::Find(a, b) | Self::CompareTexts(_, a, b) => a.divides() || b.divides(),
        }
    }
}

impl Text {
    fn divides(&self) -> bool {
        match self {
            Self::Literal(_) => false,
            Self::Load(place) => place.divides(),
            Self::Join(a, b) => a.divides() || b.divides(),
            Self::Part(of, from, length) => {
                of.divides() || from.divides() || length.as_ref().is_some_and(|length| length.divides())
            }
            Self::Number(of) => of.divides(),
            Self::Upper(of) => of.divides(),
            Self::Conditional(condition, yes, no) => {
                let of = |text: &Self| text.divides();
                condition.divides()
                    || match condition.constant() {
                        Some(0) => of(no),
                        Some(_) => of(yes),
                        None => of(yes) || of(no),
                    }
            }
        }
    }
}
