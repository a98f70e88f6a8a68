//! The operand that an operator evaluates first.
//!
//! First operands form chains of any length, `a + b + c ..`, so whatever visits one goes along the chain: a function that
//! called itself for each operand would exhaust the stack of the host.

use super::{Node, NodeKind};
use crate::error::Pos;
use crate::types::TypeId;
use std::ops::Deref;

/// A first operand.
#[derive(Debug)]
pub(crate) struct First(Box<Node>);

impl First {
    pub fn into_inner(mut self) -> Node {
        self.take()
    }

    /// The operand, with a constant left in its place.
    fn take(&mut self) -> Node {
        let nothing = Node::new(Pos::default(), TypeId::default(), NodeKind::Const(0));
        std::mem::replace(&mut *self.0, nothing)
    }
}

impl Deref for First {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.0
    }
}

impl From<Node> for First {
    fn from(node: Node) -> Self {
        Self(node.into())
    }
}

impl Clone for First {
    fn clone(&self) -> Self {
        let mut chain = Vec::new();
        let mut last: &Node = self;
        while let Some(first) = last.first() {
            chain.push(last);
            last = first;
        }
        chain.into_iter().rev().fold(last.clone(), |first, node| node.with(first)).into()
    }
}

impl Drop for First {
    fn drop(&mut self) {
        let mut next = self.0.first_mut().map(Self::take);
        while let Some(mut node) = next {
            next = node.first_mut().map(Self::take);
        }
    }
}

impl Node {
    /// The first operand of an operator.
    pub fn first(&self) -> Option<&Node> {
        match &self.kind {
            NodeKind::Unary(_, first)
            | NodeKind::Not(first)
            | NodeKind::Convert(first)
            | NodeKind::Binary(_, first, _)
            | NodeKind::Compare(_, first, _)
            | NodeKind::And(first, _)
            | NodeKind::Or(first, _)
            | NodeKind::Xor(first, _)
            | NodeKind::Comma(first, _) => Some(first),
            _ => None,
        }
    }

    fn first_mut(&mut self) -> Option<&mut First> {
        match &mut self.kind {
            NodeKind::Unary(_, first)
            | NodeKind::Not(first)
            | NodeKind::Convert(first)
            | NodeKind::Binary(_, first, _)
            | NodeKind::Compare(_, first, _)
            | NodeKind::And(first, _)
            | NodeKind::Or(first, _)
            | NodeKind::Xor(first, _)
            | NodeKind::Comma(first, _) => Some(first),
            _ => None,
        }
    }

    /// A copy of an operator with another first operand; a copy of anything else.
    fn with(&self, first: Node) -> Self {
        let first = First::from(first);
        let kind = match &self.kind {
            NodeKind::Unary(op, _) => NodeKind::Unary(op, first),
            NodeKind::Not(_) => NodeKind::Not(first),
            NodeKind::Convert(_) => NodeKind::Convert(first),
            NodeKind::Binary(op, _, right) => NodeKind::Binary(op, first, right.clone()),
            NodeKind::Compare(op, _, right) => NodeKind::Compare(op, first, right.clone()),
            NodeKind::And(_, right) => NodeKind::And(first, right.clone()),
            NodeKind::Or(_, right) => NodeKind::Or(first, right.clone()),
            NodeKind::Xor(_, right) => NodeKind::Xor(first, right.clone()),
            NodeKind::Comma(_, right) => NodeKind::Comma(first, right.clone()),
            other => other.clone(),
        };
        Self { pos: self.pos, ty: self.ty, kind, alloca: self.alloca }
    }

    /// What lies inside it beside the first operand.
    pub fn inner(&self) -> impl Iterator<Item = &Node> {
        let (one, two): (&[Node], &[Node]) = match &self.kind {
            NodeKind::Load(of) => (of.parts(), &[]),
            NodeKind::Assign { place: of, value } | NodeKind::Update { place: of, value, .. } => {
                (of.parts(), std::slice::from_ref(&**value))
            }
            NodeKind::Binary(_, _, right)
            | NodeKind::Compare(_, _, right)
            | NodeKind::And(_, right)
            | NodeKind::Or(_, right)
            | NodeKind::Xor(_, right)
            | NodeKind::Comma(_, right) => (std::slice::from_ref(&**right), &[]),
            NodeKind::Service { arguments, .. } => (arguments, &[]),
            NodeKind::Translated { input, .. } => (std::slice::from_ref(&**input), &[]),
            _ => (&[], &[]),
        };
        let branches = match &self.kind {
            NodeKind::Conditional(condition, yes, no) => [Some(&**condition), Some(yes), Some(no)],
            _ => [None; 3],
        };
        one.iter().chain(two).chain(branches.into_iter().flatten())
    }
}
