//! Operators: C's promotions and conversions, constants folded.

use super::Checker;
use crate::ast::{Expr, Link, TypeName};
use crate::error::{Pos, Result};
use crate::node::{Node, NodeKind, Place};
use crate::types::{Kind, TypeId};
use trapline_rpn::services::d::Function;

/// Extends the low `size` bytes of a value.
pub(crate) fn extend(value: u64, (size, signed): (u64, bool)) -> u64 {
    if size >= 8 || size == 0 {
        return value;
    }
    let shift = 64 - size * 8;
    if signed { ((value << shift) as i64 >> shift) as u64 } else { value << shift >> shift }
}

/// What an operator makes of constants, both of the result's type; `None` where nothing is known before the run.
fn fold(op: &str, a: u64, b: u64, signed: bool) -> Option<u64> {
    Some(match op {
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "/" if b != 0 && signed => (a as i64).wrapping_div(b as i64) as u64,
        "%" if b != 0 && signed => (a as i64).wrapping_rem(b as i64) as u64,
        "/" if b != 0 => a / b,
        "%" if b != 0 => a % b,
        "&" => a & b,
        "|" => a | b,
        "^" => a ^ b,
        "<<" => a << (b & 63),
        ">>" if signed => ((a as i64) >> (b & 63)) as u64,
        ">>" => a >> (b & 63),
        _ => return None,
    })
}

fn compare(op: &str, a: u64, b: u64, signed: bool) -> bool {
    let order = if signed { (a as i64).cmp(&(b as i64)) } else { a.cmp(&b) };
    match op {
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        ">=" => order.is_ge(),
        "==" => order.is_eq(),
        _ => order.is_ne(),
    }
}

impl Checker<'_> {
    /// A value as another scalar type.
    pub(super) fn convert(&self, node: Node, ty: TypeId) -> Node {
        let (from, to) = (self.types.int(node.ty), self.types.int(ty));
        // The type of what computes or reaches memory says how: it stays.
        let plain = matches!(
            node.kind,
            NodeKind::Const(_)
                | NodeKind::Text(_)
                | NodeKind::Service { .. }
                | NodeKind::Load(Place::Slot(_) | Place::Text { .. } | Place::Dynamic { .. })
        );
        if from == to && (plain || self.types.size(node.ty) == self.types.size(ty)) {
            return Node { ty, ..node };
        }
        if let NodeKind::Const(value) = node.kind {
            return Node { ty, kind: NodeKind::Const(extend(value, to)), ..node };
        }
        // A value that is extended to 64 bits already is the same in any wider type; but an unsigned type of less than 64
        // bits cannot hold a sign.
        let same = from == to || to.0 == 8 || (from.0 < to.0 && (!from.1 || to.1));
        if same && plain {
            return Node { ty, ..node };
        }
        let (pos, alloca) = (node.pos, node.alloca);
        Node { pos, ty, kind: NodeKind::Convert(node.into()), alloca }
    }

    /// The type in which operands of these types are computed: the wider one, without a sign if either has none. As the
    /// published tests have it, D does not promote to `int` what it adds; it computes with 64 bits, and cuts only what is
    /// assigned, cast or shown.
    pub(super) fn common(&self, a: TypeId, b: TypeId) -> TypeId {
        let ((a_size, a_signed), (b_size, b_signed)) = (self.types.int(a), self.types.int(b));
        let size = a_size.max(b_size);
        let unsigned = a_size == size && !a_signed || b_size == size && !b_signed;
        let long = if self.types.model.word() == 8 { "long" } else { "long long" };
        self.types.builtin(match (size, unsigned) {
            (1, false) => "signed char",
            (1, true) => "unsigned char",
            (2, false) => "short",
            (2, true) => "unsigned short",
            (4, false) => "int",
            (4, true) => "unsigned int",
            (_, false) => long,
            (_, true) if long == "long" => "unsigned long",
            (_, true) => "unsigned long long",
        })
    }

    /// The type in which two values are compared, or in which either is chosen: as in C, what `int` holds is promoted to it,
    /// a bit-field too. A conversion to a smaller type would change the values.
    fn promoted(&self, a: &Node, b: &Node) -> TypeId {
        let int = self.types.builtin("int");
        let own = |node: &Node| match &node.kind {
            NodeKind::Load(Place::Memory { bits: Some((_, count)), .. }) if *count < 32 => int,
            _ => node.ty,
        };
        let common = self.common(own(a), own(b));
        if self.types.int(common).0 < 4 { int } else { common }
    }

    /// Refuses what has no value to compute with.
    fn integer(&self, node: &Node, op: &str) -> Result<()> {
        if self.types.is_integer(node.ty) {
            return Ok(());
        }
        let sentence =
            format!("operator {op} requires operands of integral type, not \"{}\"", self.types.name(node.ty));
        Err(node.pos.error("D_OP_INT", sentence))
    }

    pub(super) fn scalar(&self, node: &Node, op: &str) -> Result<()> {
        if matches!(self.types.kind(node.ty), Kind::Nothing) {
            return Err(node.pos.error("D_OP_ACT", "action cannot be used in a conditional context"));
        }
        if self.types.is_scalar(node.ty) && !matches!(node.kind, NodeKind::Translated { .. }) {
            return Ok(());
        }
        let sentence = format!("operator {op} requires operand of scalar type");
        Err(node.pos.error("D_OP_SCALAR", sentence))
    }

    pub(super) fn unary(&mut self, op: &'static str, operand: &Expr, pos: Pos) -> Result<Node> {
        match op {
            "*" => return self.dereference(operand, pos),
            "&" => return self.address_of(operand, pos),
            "++" | "--" => return self.step(op, operand, false, pos),
            _ => {}
        }
        let node = self.expr(operand)?;
        if op == "!" {
            self.scalar(&node, op)?;
            let value = node.constant().map(|value| u64::from(value == 0));
            let kind = value.map_or_else(|| NodeKind::Not(node.into()), NodeKind::Const);
            return Ok(Node::new(pos, self.types.builtin("int"), kind));
        }
        self.integer(&node, op)?;
        let int = self.types.builtin("int");
        let ty = self.common(node.ty, int);
        let node = self.convert(node, ty);
        let folded = node.constant().map(|value| match op {
            "-" => value.wrapping_neg(),
            "~" => !value,
            _ => value,
        });
        let kind = match folded {
            Some(value) => NodeKind::Const(extend(value, self.types.int(ty))),
            None if op == "+" => node.kind,
            None => NodeKind::Unary(op, node.into()),
        };
        Ok(Node::new(pos, ty, kind))
    }

    /// Binary operators, one applied to what the other gives.
    pub(super) fn binary(&mut self, first: &Expr, links: &[Link]) -> Result<Node> {
        let mut node = self.expr(first)?;
        for Link { pos, op, right } in links {
            let right = self.expr(right)?;
            node = match *op {
                "&&" | "||" | "^^" => self.logical(op, node, right, *pos)?,
                "==" | "!=" | "<" | "<=" | ">" | ">=" => self.comparison(op, node, right, *pos)?,
                _ => self.arithmetic(op, node, right, *pos)?,
            };
        }
        Ok(node)
    }

    fn logical(&mut self, op: &'static str, a: Node, b: Node, pos: Pos) -> Result<Node> {
        self.scalar(&a, op)?;
        self.scalar(&b, op)?;
        let int = self.types.builtin("int");
        let kind = match (op, a.constant(), b.constant()) {
            ("&&", Some(a), Some(b)) => NodeKind::Const(u64::from(a != 0 && b != 0)),
            ("||", Some(a), Some(b)) => NodeKind::Const(u64::from(a != 0 || b != 0)),
            ("^^", Some(a), Some(b)) => NodeKind::Const(u64::from((a != 0) ^ (b != 0))),
            ("&&", ..) => NodeKind::And(a.into(), b.into()),
            ("||", ..) => NodeKind::Or(a.into(), b.into()),
            _ => NodeKind::Xor(a.into(), b.into()),
        };
        Ok(Node::new(pos, int, kind))
    }

    fn incompatible(&self, op: &str, a: TypeId, b: TypeId, pos: Pos) -> crate::Error {
        let (a, b) = (self.types.name(a), self.types.name(b));
        pos.error("D_OP_INCOMPAT", format!("operands have incompatible types: \"{a}\" {op} \"{b}\""))
    }

    /// Whether a value can stand where a string is asked for.
    pub(super) fn is_text(&self, ty: TypeId) -> bool {
        self.types.is_string(ty) || self.types.is_char_array(ty) || self.types.is_char_pointer(ty)
    }

    fn comparison(&mut self, op: &'static str, a: Node, b: Node, pos: Pos) -> Result<Node> {
        let int = self.types.builtin("int");
        let strings = self.types.is_string(a.ty) || self.types.is_string(b.ty);
        if strings {
            let null = |node: &Node| node.constant() == Some(0);
            if !(self.is_text(a.ty) || null(&a)) || !(self.is_text(b.ty) || null(&b)) {
                return Err(self.incompatible(op, a.ty, b.ty, pos));
            }
            let order = self.function_node(pos, int, Function::Compare, vec![a, b]);
            let zero = self.int(pos, 0);
            return Ok(Node::new(pos, int, NodeKind::Compare(op, order.into(), zero.into())));
        }
        let array = |node: &Node| matches!(self.types.kind(node.ty), Kind::Array { .. });
        let good = |node: &Node| self.types.is_scalar(node.ty) || array(node);
        if !good(&a) || !good(&b) {
            return Err(self.incompatible(op, a.ty, b.ty, pos));
        }
        let ty = self.promoted(&a, &b);
        let signed = self.types.int(ty).1;
        let (a, b) = (self.convert(a, ty), self.convert(b, ty));
        let kind = match (a.constant(), b.constant()) {
            (Some(a), Some(b)) => NodeKind::Const(u64::from(compare(op, a, b, signed))),
            _ => NodeKind::Compare(op, a.into(), b.into()),
        };
        Ok(Node::new(pos, int, kind))
    }

    pub(super) fn arithmetic(&mut self, op: &'static str, a: Node, b: Node, pos: Pos) -> Result<Node> {
        let pointer = |node: &Node| {
            (self.types.is_pointer(node.ty) || matches!(self.types.kind(node.ty), Kind::Array { .. }))
                .then(|| self.types.target(node.ty))
                .flatten()
        };
        match (op, pointer(&a), pointer(&b)) {
            ("+", Some(to), None) => return self.pointer_step("+", a, b, to, pos),
            ("+", None, Some(to)) => return Ok(Self::turned(self.pointer_step("+", b, a, to, pos)?)),
            ("-", Some(to), None) => return self.pointer_step("-", a, b, to, pos),
            ("-", Some(to), Some(_)) => return self.difference(a, b, to, pos),
            _ => {}
        }
        let strings = (self.types.is_string(a.ty), self.types.is_string(b.ty));
        if op == "+" && strings.0 != strings.1 {
            let (ty, by) = if strings.0 { (a.ty, &b) } else { (b.ty, &a) };
            self.integer(by, op)?;
            return Ok(Node::new(pos, ty, NodeKind::Binary(op, a.into(), b.into())));
        }
        self.integer(&a, op)?;
        self.integer(&b, op)?;
        let int = self.types.builtin("int");
        let ty = if matches!(op, "<<" | ">>") { self.common(a.ty, int) } else { self.common(a.ty, b.ty) };
        self.compute(op, a, b, ty, pos)
    }

    /// An operand of arithmetic in a type. A negative one keeps its sign in sums and products: their lower bits are the
    /// same, and the result has 64 bits.
    fn operand(&self, op: &str, node: Node, ty: TypeId) -> Node {
        let ((_, signed), (size, result)) = (self.types.int(node.ty), self.types.int(ty));
        let keeps = signed && !result && size < 8 && matches!(op, "+" | "-" | "*");
        self.convert(node, if keeps { self.types.builtin("long long") } else { ty })
    }

    /// Arithmetic in a type.
    fn compute(&mut self, op: &'static str, a: Node, b: Node, ty: TypeId, pos: Pos) -> Result<Node> {
        let shift = matches!(op, "<<" | ">>");
        let a = self.operand(op, a, ty);
        let b = if shift { b } else { self.operand(op, b, ty) };
        if matches!(op, "/" | "%") && b.constant() == Some(0) {
            return Err(pos.error("D_DIV_ZERO", "expression contains division by zero"));
        }
        let int = self.types.int(ty);
        let folded = a.constant().zip(b.constant()).and_then(|(a, b)| fold(op, a, b, int.1));
        let kind = match folded {
            Some(value) => NodeKind::Const(value),
            None => NodeKind::Binary(op, a.into(), b.into()),
        };
        Ok(Node::new(pos, ty, kind))
    }

    /// An address moved by a number of elements.
    pub(super) fn pointer_step(
        &mut self,
        op: &'static str,
        base: Node,
        by: Node,
        to: TypeId,
        pos: Pos,
    ) -> Result<Node> {
        self.integer(&by, op)?;
        let size = self.types.size(to).max(1);
        let (ty, alloca) = (self.types.pointer(to), base.alloca);
        let long = self.types.builtin("long long");
        let by = self.convert(by, long);
        let scaled = if size == 1 {
            by
        } else {
            let factor = Node::new(pos, long, NodeKind::Const(size));
            self.compute("*", by, factor, long, pos)?
        };
        let kind = match (base.constant(), scaled.constant()) {
            (Some(a), Some(b)) if op == "+" => NodeKind::Const(a.wrapping_add(b)),
            (Some(a), Some(b)) => NodeKind::Const(a.wrapping_sub(b)),
            _ => NodeKind::Binary(op, base.into(), scaled.into()),
        };
        Ok(Node { pos, ty, kind, alloca })
    }

    /// The same sum with its operands in the other order, in which they are evaluated.
    fn turned(sum: Node) -> Node {
        match sum.kind {
            NodeKind::Binary(op, base, by) => {
                let kind = NodeKind::Binary(op, (*by).into(), base.into_inner().into());
                Node { kind, ..sum }
            }
            kind => Node { kind, ..sum },
        }
    }

    fn difference(&mut self, a: Node, b: Node, to: TypeId, pos: Pos) -> Result<Node> {
        let long = self.types.builtin("long long");
        let bytes = Node::new(pos, long, NodeKind::Binary("-", a.into(), b.into()));
        let size = Node::new(pos, long, NodeKind::Const(self.types.size(to).max(1)));
        self.compute("/", bytes, size, long, pos)
    }

    /// `condition ? yes : no`. As in DTrace, a condition that is a constant chooses before the other expression is looked at.
    pub(super) fn conditional(&mut self, condition: &Expr, yes: &Expr, no: &Expr, pos: Pos) -> Result<Node> {
        let condition = self.expr(condition)?;
        if !self.types.is_scalar(condition.ty) {
            return Err(pos.error("D_OP_SCALAR", "operator ?: expression must be of scalar type"));
        }
        if let Some(value) = condition.constant() {
            return self.expr(if value != 0 { yes } else { no });
        }
        for branch in [yes, no] {
            if matches!(&branch.kind, crate::ast::ExprKind::Call(name, _) if Self::is_action(name)) {
                return Err(pos.error("D_OP_ACT", "action cannot be used in a conditional context"));
            }
        }
        let (yes, no) = (self.expr(yes)?, self.expr(no)?);
        let null = |node: &Node| node.constant() == Some(0) && self.types.is_scalar(node.ty);
        let ty = if self.is_text(yes.ty) && self.is_text(no.ty)
            || self.types.is_string(yes.ty) && null(&no)
            || self.types.is_string(no.ty) && null(&yes)
        {
            let same = self.types.resolve(yes.ty) == self.types.resolve(no.ty);
            if same { yes.ty } else { self.types.builtin("string") }
        } else if self.types.is_pointer(yes.ty) && (self.types.is_scalar(no.ty)) {
            yes.ty
        } else if self.types.is_pointer(no.ty) && self.types.is_scalar(yes.ty) {
            no.ty
        } else if self.types.is_integer(yes.ty) && self.types.is_integer(no.ty) {
            self.promoted(&yes, &no)
        } else if self.types.resolve(yes.ty) == self.types.resolve(no.ty) {
            yes.ty
        } else {
            let sentence = "operator ?: operands must have compatible types";
            return Err(pos.error("D_OP_INCOMPAT", sentence));
        };
        if yes.alloca != no.alloca && !null(&yes) && !null(&no) {
            self.mixed = true;
        }
        let alloca = yes.alloca || no.alloca;
        let integer = self.types.is_integer(ty);
        let (yes, no) = if integer { (self.convert(yes, ty), self.convert(no, ty)) } else { (yes, no) };
        let kind = NodeKind::Conditional(condition.into(), yes.into(), no.into());
        Ok(Node { pos, ty, kind, alloca })
    }

    pub(super) fn cast(&mut self, ty: &TypeName, operand: &Expr, pos: Pos) -> Result<Node> {
        let ty = self.type_name(ty)?;
        let node = self.expr(operand)?;
        if self.types.is_string(ty) {
            return self.string_of(node, pos);
        }
        let invalid = |what: &str| {
            let sentence = format!("invalid cast expression: \"{what}\" to \"{}\"", self.types.name(ty));
            Err(pos.error("D_CAST_INVAL", sentence))
        };
        if matches!(node.kind, NodeKind::Translated { .. }) {
            let pointer = if self.types.is_pointer(node.ty) { "pointer to " } else { "" };
            return invalid(&format!("{pointer}translated data"));
        }
        if matches!(self.types.kind(ty), Kind::Void) {
            return Ok(Node { ty, ..node });
        }
        let same = self.types.resolve(ty) == self.types.resolve(node.ty);
        let address = matches!(self.types.kind(node.ty), Kind::Array { .. } | Kind::Str);
        let scalars = self.types.is_scalar(ty) && (self.types.is_scalar(node.ty) || address);
        if !scalars && !same {
            return invalid(&self.types.name(node.ty));
        }
        if address && self.types.by_reference(ty) {
            return Ok(Node { ty, pos, ..node });
        }
        if address {
            return Ok(Node { ty, pos, ..Self::decayed(node) });
        }
        if self.types.is_pointer(ty) && self.types.is_pointer(node.ty) {
            return Ok(Node { ty, pos, ..node });
        }
        Ok(self.held(node, ty))
    }

    /// A value that is handled by its address, as that address.
    pub(super) fn decayed(node: Node) -> Node {
        match node.kind {
            NodeKind::Load(Place::Memory { address, bits: None }) => Node { kind: address.kind, ..node },
            kind => Node { kind, ..node },
        }
    }

    /// `stringof`, and a cast to `string`.
    pub(super) fn stringof(&mut self, operand: &Expr, pos: Pos) -> Result<Node> {
        let node = self.expr(operand)?;
        self.string_of(node, pos)
    }

    fn string_of(&mut self, node: Node, pos: Pos) -> Result<Node> {
        let good = self.is_text(node.ty) || self.types.is_scalar(node.ty);
        if !good || matches!(node.kind, NodeKind::Translated { .. }) {
            let sentence =
                format!("cannot apply stringof to a value of type \"{}\"", self.types.name(node.ty));
            return Err(pos.error("D_STRINGOF_TYPE", sentence));
        }
        Ok(Node { alloca: false, ..self.as_string(node) })
    }

    /// A string, an array of characters or a pointer to a string, as a string.
    pub(super) fn as_string(&self, node: Node) -> Node {
        let ty = self.types.builtin("string");
        if self.types.by_reference(node.ty) {
            return Node { ty, ..Self::decayed(node) };
        }
        match node.kind {
            // A pointer that lies in memory is read as what it is.
            NodeKind::Load(Place::Memory { .. }) => {
                let alloca = node.alloca;
                Node { alloca, ..Node::new(node.pos, ty, NodeKind::Convert(node.into())) }
            }
            _ => Node { ty, ..node },
        }
    }

    /// The address of a place in memory.
    fn address_of(&mut self, operand: &Expr, pos: Pos) -> Result<Node> {
        let node = self.expr(operand)?;
        let dynamic = || Err(pos.error("D_ADDROF_VAR", "cannot take address of dynamic variable"));
        let variable = match &operand.kind {
            // Without a program, a plain name is a symbol of the guest.
            crate::ast::ExprKind::Name(name) => !name.contains('`') && self.registers.is_none(),
            kind => matches!(kind, crate::ast::ExprKind::Scoped { .. }),
        };
        match node.kind {
            NodeKind::Load(Place::Memory { bits: Some(_), .. }) => {
                Err(pos.error("D_ADDROF_BITFIELD", "cannot take address of bit-field"))
            }
            NodeKind::Load(Place::Memory { .. }) if variable => dynamic(),
            NodeKind::Load(Place::Memory { address, .. }) => {
                let ty = self.types.pointer(node.ty);
                let mut address = address;
                // The first member of a struct lies where the struct does, which is not loaded.
                while self.types.by_reference(address.ty)
                    && let NodeKind::Load(Place::Memory { address: outer, .. }) = address.kind
                {
                    address = outer;
                }
                Ok(Node { pos, ty, kind: address.kind, alloca: node.alloca })
            }
            NodeKind::Load(_) => dynamic(),
            _ => Err(pos.error("D_ADDROF_LVAL", "unacceptable operand for unary & operator")),
        }
    }
}
