//! Assignments, which also make variables.

use super::Checker;
use super::arithmetic::extend;
use crate::ast::{Expr, ExprKind};
use crate::error::{Pos, Result};
use crate::node::{Node, NodeKind, Place};
use crate::scope::{Owner, Variable};
use crate::types::{Kind, TypeId};

impl Checker<'_> {
    /// A value as one of another type, as an assignment converts it.
    pub fn convert_assigned(&mut self, node: Node, ty: TypeId, op: &str, pos: Pos) -> Result<Node> {
        let incompatible = |types: &crate::types::TypeTable| {
            let sentence = format!(
                "operands have incompatible types: \"{}\" {op} \"{}\"",
                types.name(ty),
                types.name(node.ty)
            );
            Err(pos.error("D_OP_INCOMPAT", sentence))
        };
        if matches!(node.kind, NodeKind::Translated { .. }) {
            let same = self.types.resolve(ty) == self.types.resolve(node.ty);
            return if same { Ok(node) } else { incompatible(self.types) };
        }
        if self.types.is_string(ty) {
            let good = self.is_text(node.ty) || node.constant() == Some(0);
            return if good { Ok(self.as_string(node)) } else { incompatible(self.types) };
        }
        let same = self.types.resolve(ty) == self.types.resolve(node.ty);
        if self.types.is_scalar(ty) {
            if self.types.is_scalar(node.ty) {
                return Ok(self.held(node, ty));
            }
            let array = matches!(self.types.kind(node.ty), Kind::Array { .. });
            if array && self.types.is_pointer(ty) {
                return Ok(Node { ty, ..Self::decayed(node) });
            }
            return incompatible(self.types);
        }
        let arrays = self.types.is_char_array(ty) && self.is_text(node.ty);
        let symbols = matches!(self.types.kind(ty), Kind::Symbol | Kind::Stack) && same;
        if same || arrays || symbols { Ok(node) } else { incompatible(self.types) }
    }

    /// A scalar as a variable of a type holds it, and as a cast makes it: what was computed with 64 bits is cut to it.
    pub(super) fn held(&self, node: Node, ty: TypeId) -> Node {
        let node = self.convert(node, ty);
        if let NodeKind::Const(value) = node.kind {
            return Node { kind: NodeKind::Const(extend(value, self.types.int(ty))), ..node };
        }
        let computed = matches!(
            node.kind,
            NodeKind::Unary(..) | NodeKind::Binary(..) | NodeKind::Conditional(..) | NodeKind::Comma(..)
        );
        if !computed || self.types.int(ty).0 >= 8 {
            return node;
        }
        let (pos, alloca) = (node.pos, node.alloca);
        Node { pos, ty, kind: NodeKind::Convert(node.into()), alloca }
    }

    /// The place that can be assigned to, with its type. One that is not known yet is made for a value of type `new`.
    fn place(&mut self, left: &Expr, new: Option<TypeId>, pos: Pos) -> Result<(Place, TypeId)> {
        if let Some((owner, name)) = Self::variable_name(left) {
            let bound = self.scope.bound.last().is_some_and(|bound| bound.contains_key(name));
            let unknown = !self.scope.owned(owner).contains_key(name) && !bound;
            if unknown && owner == Owner::Program && (self.is_reserved(name) || self.scope.is_inline(name)) {
                let sentence =
                    format!("operator = can only be applied to a writable variable, and {name} is not one");
                return Err(pos.error("D_OP_WRITE", sentence));
            }
            if let Some(ty) = new.filter(|_| unknown && !name.contains('`')) {
                self.check_new(name, ty, pos)?;
                self.variable(owner, name, ty, None);
            }
        }
        if let ExprKind::Index(of, keys) = &left.kind
            && let Some((owner, name)) = Self::variable_name(of)
            && !self.scope.owned(owner).contains_key(name)
            && (owner != Owner::Program || !self.is_reserved(name))
            && let Some(ty) = new
        {
            self.check_new(name, ty, pos)?;
            let nodes = self.keys(name, keys, None, pos)?;
            let types = nodes.iter().map(|node| self.key_type(node.ty)).collect::<Vec<_>>();
            if owner == Owner::Clause {
                let sentence = format!("clause-local variable {name} may not be an array");
                return Err(pos.error("D_DECL_CLASS", sentence));
            }
            self.variable(owner, name, ty, Some(types));
        }
        let node = self.expr(left)?;
        match node.kind {
            NodeKind::Load(place) => Ok((place, node.ty)),
            _ => {
                let sentence = "operator = can only be applied to a variable, an element or a member";
                Err(pos.error("D_OP_LVAL", sentence))
            }
        }
    }

    /// The type under which values of a type are keys.
    fn key_type(&self, ty: TypeId) -> TypeId {
        if self.is_text(ty) && !self.types.is_char_pointer(ty) { self.types.builtin("string") } else { ty }
    }

    /// Refuses a type that no variable may have.
    fn check_new(&self, name: &str, ty: TypeId, pos: Pos) -> Result<()> {
        match self.types.kind(ty) {
            Kind::Void | Kind::Nothing | Kind::Stack | Kind::Symbol | Kind::Function { .. } => {
                let sentence = format!("a variable of type {} is not possible: {name}", self.types.name(ty));
                Err(pos.error("D_OP_INCOMPAT", sentence))
            }
            _ => Ok(()),
        }
    }

    /// Notes whether the value assigned to a variable is an address from `alloca()`.
    fn note_alloca(&mut self, left: &Expr, value: &Node, pos: Pos) -> Result<()> {
        let (whole, element) = match &left.kind {
            ExprKind::Index(of, _) => (of.as_ref(), true),
            _ => (left, false),
        };
        let Some((owner, name)) = Self::variable_name(whole) else { return Ok(()) };
        let of_array = self.scope.owned(owner).get(name).is_some_and(|variable| variable.keys.is_some());
        if element != of_array {
            return Ok(());
        }
        if !self.types.is_scalar(value.ty) || value.constant() == Some(0) {
            return Ok(());
        }
        let Some(Variable { alloca, .. }) = self.scope.owned(owner).get_mut(name) else { return Ok(()) };
        if alloca.is_some_and(|was| was != value.alloca) {
            let sentence = format!(
                "{name}: cannot reuse the same identifier for both alloca and non-alloca allocations"
            );
            return Err(pos.error("D_ALLOCA_INCOMPAT", sentence));
        }
        *alloca = Some(value.alloca);
        Ok(())
    }

    /// `left = right`, and with an operator before `=`.
    pub(super) fn assign(&mut self, op: &'static str, left: &Expr, right: &Expr, pos: Pos) -> Result<Node> {
        if let ExprKind::Aggregation { name, .. } = &left.kind {
            let sentence = format!("@{name} can only be assigned to in a statement of its own");
            return Err(pos.error("D_AGG_SCALAR", sentence));
        }
        if !op.is_empty() {
            return self.update(op, left, right, pos);
        }
        let value = self.assigned_value(right)?;
        let new = if self.types.is_char_array(value.ty) && matches!(value.kind, NodeKind::Text(_)) {
            self.types.builtin("string")
        } else {
            value.ty
        };
        let (place, ty) = self.place(left, Some(new), pos)?;
        self.note_alloca(left, &value, pos)?;
        let alloca = value.alloca;
        // An element that is set to 0 is removed, whatever its type.
        let deleted = matches!(place, Place::Dynamic { .. }) && value.constant() == Some(0);
        let value = if deleted { value } else { self.convert_assigned(value, ty, "=", pos)? };
        Ok(Node { pos, ty, kind: NodeKind::Assign { place, value: value.into() }, alloca })
    }

    /// The value on the right of `=`.
    fn assigned_value(&mut self, right: &Expr) -> Result<Node> {
        self.mixed = false;
        let value = self.expr(right)?;
        if self.mixed && matches!(right.kind, ExprKind::Conditional(..)) {
            let sentence =
                "ternary conditional with alloca and non-alloca branches cannot be assigned to a variable";
            return Err(right.pos.error("D_ALLOCA_INCOMPAT", sentence));
        }
        Ok(value)
    }

    fn update(&mut self, op: &'static str, left: &Expr, right: &Expr, pos: Pos) -> Result<Node> {
        let value = self.expr(right)?;
        let long = self.types.builtin("int64_t");
        let (place, ty) = self.place(left, Some(long), pos)?;
        if matches!(self.types.kind(value.ty), Kind::Pointer(to) if matches!(self.types.kind(*to), Kind::Void))
        {
            let sentence = format!("operator {op}= requires left-hand scalar operand of known size");
            return Err(pos.error("D_OP_VFPTR", sentence));
        }
        if !self.types.is_scalar(ty) || !self.types.is_integer(value.ty) {
            let sentence = format!(
                "operands have incompatible types: \"{}\" {op}= \"{}\"",
                self.types.name(ty),
                self.types.name(value.ty)
            );
            return Err(pos.error("D_OP_INCOMPAT", sentence));
        }
        let alloca = self.scope_alloca(left);
        let value = if self.types.is_pointer(ty) {
            self.scaled(ty, value, pos)?
        } else {
            let compute =
                if matches!(op, "<<" | ">>") { self.common(ty, ty) } else { self.common(ty, value.ty) };
            self.convert(value, compute)
        };
        Ok(Node { pos, ty, kind: NodeKind::Update { place, op, value: value.into(), after: false }, alloca })
    }

    fn scope_alloca(&mut self, left: &Expr) -> bool {
        let Some((owner, name)) = Self::variable_name(left) else { return false };
        self.scope.owned(owner).get(name).is_some_and(|variable| variable.alloca == Some(true))
    }

    /// A number of elements times their size in bytes.
    fn scaled(&mut self, pointer: TypeId, by: Node, pos: Pos) -> Result<Node> {
        let to = self.types.target(pointer).unwrap_or(pointer);
        let size = self.types.size(to).max(1);
        let long = self.types.builtin("long long");
        let factor = Node::new(pos, long, NodeKind::Const(size));
        let by = self.convert(by, long);
        self.arithmetic("*", by, factor, pos)
    }

    /// `++` and `--`.
    pub(super) fn step(&mut self, op: &'static str, operand: &Expr, after: bool, pos: Pos) -> Result<Node> {
        let long = self.types.builtin("int64_t");
        let (place, ty) = self.place(operand, Some(long), pos)?;
        if !self.types.is_scalar(ty) {
            let sentence = format!("operator {op} requires operand of scalar type");
            return Err(pos.error("D_OP_SCALAR", sentence));
        }
        let alloca = self.scope_alloca(operand);
        let one = self.int(pos, 1);
        let value = if self.types.is_pointer(ty) {
            self.scaled(ty, one, pos)?
        } else {
            let int = self.types.builtin("int");
            let compute = self.common(ty, int);
            self.convert(one, compute)
        };
        let op = if op == "++" { "+" } else { "-" };
        Ok(Node { pos, ty, kind: NodeKind::Update { place, op, value: value.into(), after }, alloca })
    }
}
