//! Comparisons: by a difference, or by a service where 64 bits do not hold the difference.

use super::Code;
use crate::node::{Node, NodeKind};
use crate::types::TypeId;
use trapline_rpn::Op;
use trapline_rpn::services::d;

/// How two operands are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By the sign of their difference.
    Difference,
    /// The service gets them in their order.
    Service,
    /// The service gets them in the other order: both lie on the stack, where they are exchanged.
    Exchanged,
    /// The same, and the right one is a constant, which can be pushed first.
    RightFirst,
    /// The same, and the left one is a constant, which can be pushed last.
    LeftLast,
}

impl Code<'_> {
    /// Whether a value is extended as its type asks, so that two of less than 64 bits can be compared by a difference.
    fn is_exact(node: &Node) -> bool {
        match &node.kind {
            NodeKind::Load(_) | NodeKind::Convert(_) => true,
            NodeKind::Const(value) => i32::try_from(*value as i64).is_ok(),
            _ => false,
        }
    }

    /// Whether a value is the same in this wider type.
    pub(super) fn widens(&self, from: &Node, to: TypeId) -> bool {
        let (from_int, to) = (self.types.int(from.ty), self.types.int(to));
        Self::is_exact(from) && from_int.0 < to.0 && (!from_int.1 || to.1)
    }

    fn way(&self, op: &str, left: &Node, right: &Node) -> Way {
        let (size, signed) = self.types.int(left.ty);
        let exact = size < 8 && Self::is_exact(left) && Self::is_exact(right);
        if matches!(op, "==" | "!=") || exact || signed && right.constant() == Some(0) {
            return Way::Difference;
        }
        // The service asks whether the first is less. Of two operands the left one is evaluated first.
        match (matches!(op, ">" | "<="), right.constant(), left.constant()) {
            (false, ..) => Way::Service,
            (true, Some(_), _) => Way::RightFirst,
            (true, None, Some(_)) => Way::LeftLast,
            (true, None, None) => Way::Exchanged,
        }
    }

    /// The operand that is evaluated first, after a constant that is pushed before it.
    pub(super) fn begin_compare<'n>(&mut self, op: &str, left: &'n Node, right: &'n Node) -> &'n Node {
        match self.way(op, left, right) {
            Way::LeftLast => right,
            Way::RightFirst => {
                self.value(right);
                left
            }
            _ => left,
        }
    }

    /// Compares the top, which [`Code::begin_compare`] has chosen, with the other operand.
    pub(super) fn compare(&mut self, op: &str, left: &Node, right: &Node) {
        let way = self.way(op, left, right);
        if way == Way::Difference {
            let equality = matches!(op, "==" | "!=");
            if right.constant() != Some(0) {
                self.value(right);
                if !equality {
                    self.emit(Op::Xchg, 0);
                }
                self.emit(Op::Sub, 0);
            }
            self.truth(match op {
                "==" => Op::Jz,
                "!=" => Op::Jnz,
                "<" => Op::Jlt,
                "<=" => Op::Jle,
                ">" => Op::Jgt,
                _ => Op::Jge,
            });
            return;
        }
        match way {
            Way::RightFirst | Way::Difference => {}
            Way::LeftLast => self.value(left),
            Way::Service => self.value(right),
            Way::Exchanged => {
                self.value(right);
                self.emit(Op::Xchg, 0);
            }
        }
        let signed = self.types.int(left.ty).1;
        self.call(if signed { d::LESS } else { d::BELOW });
        if matches!(op, "<=" | ">=") {
            self.push(1);
            self.emit(Op::Xor, 0);
        }
    }
}
