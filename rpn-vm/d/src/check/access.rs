//! Elements, members and what pointers lead to.

use super::Checker;
use crate::ast::{Expr, ExprKind};
use crate::error::{Pos, Result};
use crate::node::{Node, NodeKind, Place};
use crate::scope::{Owner, Variable};
use crate::types::{Kind, TypeId};
use trapline_rpn::services::d::Function;

/// Most keys of an associative array: `-x tregs` of dtrace(1).
const MOST_KEYS: usize = 8;

impl Checker<'_> {
    /// `of[keys]`.
    pub(super) fn index(&mut self, of: &Expr, keys: &[Expr], pos: Pos) -> Result<Node> {
        if let ExprKind::Name(name) = &of.kind {
            let declared = self.scope.globals.contains_key(name) || self.scope.is_inline(name);
            if matches!(name.as_str(), "args" | "uregs" | "fds") && !declared {
                return self.builtin_array(name, keys, pos);
            }
            if let Some(inline) = self.inline_of(name)?.filter(|inline| !inline.parameters.is_empty()) {
                let types: Vec<TypeId> = inline.parameters.iter().map(|(_, ty)| *ty).collect();
                let keys = self.keys(name, keys, Some(&types), pos)?;
                return self.expand_inline(&inline, keys, pos);
            }
        }
        if let Some((owner, name)) = Self::variable_name(of) {
            let there = self.scope.owned(owner).get(name).cloned();
            match there {
                Some(variable) if variable.keys.is_some() => {
                    let keys = self.keys(name, keys, variable.keys.as_deref(), pos)?;
                    return Ok(self.load(&variable, keys, pos));
                }
                None if owner != Owner::Program || !self.is_known(name) => {
                    // The keys come first, as in DTrace: an unknown name among them is what is told.
                    self.keys(name, keys, None, pos)?;
                    let sentence = format!("failed to resolve {name}: Unknown variable name");
                    return Err(of.pos.error("D_IDENT_UNDEF", sentence));
                }
                _ => {}
            }
        }
        self.element(of, keys, pos)
    }

    /// Whether a plain name means something other than a variable.
    fn is_known(&self, name: &str) -> bool {
        self.scope.bound.last().is_some_and(|bound| bound.contains_key(name))
            || self.scope.enumerators.contains_key(name)
            || self.scope.is_inline(name)
            || self.is_reserved(name)
            || name.contains('`')
    }

    /// The owner and name of a variable.
    pub(super) fn variable_name(expr: &Expr) -> Option<(Owner, &str)> {
        match &expr.kind {
            ExprKind::Name(name) => Some((Owner::Program, name)),
            ExprKind::Scoped { thread: true, name } => Some((Owner::Thread, name)),
            ExprKind::Scoped { name, .. } => Some((Owner::Clause, name)),
            _ => None,
        }
    }

    /// Keys of an associative array, as values of the types that it has.
    pub(super) fn keys(
        &mut self,
        name: &str,
        keys: &[Expr],
        types: Option<&[TypeId]>,
        pos: Pos,
    ) -> Result<Vec<Node>> {
        if keys.len() > MOST_KEYS {
            let sentence = format!("{name}[ ] has {} keys, and {MOST_KEYS} are the most", keys.len());
            return Err(pos.error("D_PROTO_LEN", sentence));
        }
        let mut nodes = Vec::new();
        for key in keys {
            nodes.push(self.key(key)?);
        }
        let Some(types) = types else { return Ok(nodes) };
        if types.len() != nodes.len() {
            let (given, wanted) = (nodes.len(), types.len());
            let plural = if given == 1 { "" } else { "s" };
            let sentence =
                format!("{name}[ ] prototype mismatch: {given} key{plural} passed, {wanted} expected");
            return Err(pos.error("D_PROTO_LEN", sentence));
        }
        let mut converted = Vec::new();
        for (n, (node, ty)) in nodes.into_iter().zip(types).enumerate() {
            let shown = self.types.name(node.ty);
            let found = self.convert_assigned(node, *ty, "=", pos);
            converted.push(found.map_err(|_| {
                let sentence = format!(
                    "{name}[ ] key #{} is incompatible with prototype:\n\tprototype: {}\n\t argument: {shown}",
                    n + 1,
                    self.types.name(*ty)
                );
                pos.error("D_PROTO_ARG", sentence)
            })?);
        }
        Ok(converted)
    }

    /// A key: a scalar, a string or a stack.
    pub(super) fn key(&mut self, key: &Expr) -> Result<Node> {
        if let ExprKind::Call(name, arguments) = &key.kind
            && Self::is_stack(name)
        {
            return self.stack_value(name, arguments, key.pos);
        }
        let node = self.expr(key)?;
        if matches!(self.types.kind(node.ty), Kind::Nothing | Kind::Void) {
            let sentence = format!("a key may not be of type {}", self.types.name(node.ty));
            return Err(key.pos.error("D_KEY_TYPE", sentence));
        }
        Ok(node)
    }

    fn builtin_array(&mut self, name: &str, keys: &[Expr], pos: Pos) -> Result<Node> {
        let [key] = keys else {
            let sentence = format!("{name}[ ] prototype mismatch: {} keys passed, 1 expected", keys.len());
            return Err(pos.error("D_PROTO_LEN", sentence));
        };
        let index = self.expr(key)?;
        if !self.types.is_integer(index.ty) {
            let sentence = format!("index of {name} must be an integer, not {}", self.types.name(index.ty));
            return Err(pos.error("D_PROTO_ARG", sentence));
        }
        if name == "args"
            && let Some(number) = index.constant()
            && let Some(node) = self.typed_argument(number, pos)?
        {
            return Ok(node);
        }
        if name == "args" {
            let sentence = match index.constant() {
                None => "args[ ] must be indexed with a constant".to_owned(),
                Some(n) => {
                    format!("index {n} is out of range for args[ ]: the probe's arguments have no types")
                }
            };
            return Err(
                pos.error(if index.constant().is_some() { "D_ARGS_IDX" } else { "D_ARGS_TYPE" }, sentence)
            );
        }
        if name == "fds" {
            return Err(Self::needs_types("fds[ ]", pos));
        }
        let ty = self.types.builtin("uint64_t");
        Ok(self.function_node(pos, ty, Function::Uregs, vec![index]))
    }

    /// An element of an array, or the value this many elements after a pointer.
    fn element(&mut self, of: &Expr, keys: &[Expr], pos: Pos) -> Result<Node> {
        let base = self.expr(of)?;
        let [key] = keys else {
            let sentence = "an array is indexed with one integer".to_owned();
            return Err(pos.error("D_ARR_BADREF", sentence));
        };
        let index = self.expr(key)?;
        if self.types.is_string(base.ty) {
            let char = self.types.builtin("char");
            let address = self.pointer_step("+", base, index, char, pos)?;
            return self.loaded(address, char, pos);
        }
        let Some(to) = self.types.target(base.ty) else {
            let sentence = format!("{} cannot be indexed", self.types.name(base.ty));
            return Err(pos.error("D_ARR_BADREF", sentence));
        };
        if !self.types.is_integer(index.ty) {
            let sentence = format!("index of an array must be an integer, not {}", self.types.name(index.ty));
            return Err(pos.error("D_ARR_BADREF", sentence));
        }
        if let (Kind::Array { length, .. }, Some(value)) = (self.types.kind(base.ty), index.constant())
            && value >= *length
            && *length > 0
        {
            let sentence = format!("index outside array bounds: {}, max is {length}", value as i64);
            return Err(pos.error("D_ARR_BOUNDS", sentence));
        }
        self.no_void(to, pos)?;
        let bound = match (self.types.kind(base.ty), index.constant()) {
            (Kind::Array { length, .. }, None) if *length > 0 => Some(*length),
            _ => None,
        };
        let index = match bound {
            Some(length) => self.bounded(index, length, pos),
            None => index,
        };
        let address = self.pointer_step("+", base, index, to, pos)?;
        self.loaded(address, to, pos)
    }

    /// An index that the run checks against the length of its array.
    fn bounded(&self, index: Node, length: u64, pos: Pos) -> Node {
        let long = self.types.builtin("long long");
        let length = Node::new(pos, long, NodeKind::Const(length));
        self.function_node(pos, long, Function::Bounds, vec![index, length])
    }

    fn no_void(&self, to: TypeId, pos: Pos) -> Result<()> {
        match self.types.kind(to) {
            Kind::Void => Err(pos.error("D_DEREF_VOID", "cannot dereference pointer to void")),
            Kind::Function { .. } => Err(pos.error("D_DEREF_FUNC", "cannot dereference pointer to function")),
            _ => Ok(()),
        }
    }

    /// What lies at an address.
    pub(super) fn loaded(&mut self, address: Node, ty: TypeId, pos: Pos) -> Result<Node> {
        let alloca = address.alloca;
        let kind = NodeKind::Load(Place::Memory { address: address.into(), bits: None });
        Ok(Node { pos, ty, kind, alloca })
    }

    /// `*operand`.
    pub(super) fn dereference(&mut self, operand: &Expr, pos: Pos) -> Result<Node> {
        let node = self.expr(operand)?;
        let to = self.types.target(node.ty).filter(|_| !matches!(node.kind, NodeKind::Translated { .. }));
        let Some(to) = to else {
            return Err(pos.error("D_DEREF_NONPTR", "cannot dereference non-pointer type"));
        };
        self.no_void(to, pos)?;
        self.loaded(node, to, pos)
    }

    /// `of.name` and `of->name`.
    pub(super) fn member(&mut self, of: &Expr, name: &str, arrow: bool, pos: Pos) -> Result<Node> {
        let base = self.expr(of)?;
        if let NodeKind::Translated { translator, input } = &base.kind {
            return self.translated(*translator, input, name, pos);
        }
        let op = if arrow { "->" } else { "." };
        let sou = if arrow {
            if !self.types.is_pointer(base.ty) {
                return Err(pos.error("D_OP_PTR", "operator -> must be applied to a pointer"));
            }
            self.types.target(base.ty).unwrap_or(base.ty)
        } else {
            base.ty
        };
        let Some(composite) = self.types.composite(sou) else {
            let (pointer, article) =
                if arrow { ("pointer to ", "a struct or union pointer") } else { ("", "a struct or union") };
            let sentence = format!(
                "operator {op} cannot be applied to {pointer}type \"{}\"; must be applied to {article}",
                self.types.name(sou)
            );
            return Err(pos.error("D_OP_SOU", sentence));
        };
        if composite.members.is_none() {
            let sentence = format!(
                "operator {op} cannot be applied to a forward declaration: no {} definition is available",
                composite.name
            );
            return Err(pos.error("D_OP_INCOMPLETE", sentence));
        }
        let Some(member) = self.types.member(sou, name) else {
            let sentence = format!("{name} is not a member of {}", self.types.name(sou));
            let members = self.types.composite(sou).and_then(|sou| sou.members.as_ref());
            let known = members.into_iter().flatten().map(|member| member.name.as_str());
            return Err(pos.error("D_TYPE_MEMBER", sentence).near(name, known));
        };
        let char = self.types.builtin("char");
        let alloca = base.alloca;
        let offset = self.int(pos, member.offset);
        let address =
            if member.offset == 0 { base } else { self.pointer_step("+", base, offset, char, pos)? };
        let kind = NodeKind::Load(Place::Memory { address: address.into(), bits: member.bits });
        Ok(Node { pos, ty: member.ty, kind, alloca })
    }

    /// A variable, made if there is none, for a value of this type.
    pub(super) fn variable(
        &mut self,
        owner: Owner,
        name: &str,
        ty: TypeId,
        keys: Option<Vec<TypeId>>,
    ) -> Variable {
        match self.scope.owned(owner).get(name) {
            Some(there) => there.clone(),
            None => self.scope.declare(self.types, (owner, name), ty, keys),
        }
    }
}
