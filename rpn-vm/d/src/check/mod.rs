//! From the syntax tree to typed expressions: names, types, conversions, and their errors.

mod access;
mod action;
mod aggregate;
mod arithmetic;
mod assign;
mod call;
mod callable;
mod expansion;
mod format;
mod guest;
mod names;

pub(crate) use callable::Callable;

use crate::ast::{Clause, Expr, ExprKind, Statement};
use crate::error::{Error, Pos, Result};
use crate::lex::IntLiteral;
use crate::node::{Node, NodeKind, Place, Service, Step};
use crate::options::Options;
use crate::scope::Scope;
use crate::types::{Kind, RETURN_ADDRESS, TypeId, TypeTable};
use trapline_rpn::services::d::Builtin;

/// What decides what else a clause may contain.
#[derive(Debug, Default, Clone, Copy)]
struct Done {
    speculated: bool,
    committed: bool,
    recorded: bool,
    aggregated: bool,
}

/// The value of a register by its name.
pub(crate) type Registers<'a> = &'a dyn Fn(&str) -> Option<u64>;

/// Checks a program, piece by piece.
pub(crate) struct Checker<'a> {
    pub types: &'a mut TypeTable,
    pub scope: &'a mut Scope,
    pub options: &'a Options,
    /// The probes of the clause.
    pub descriptions: Vec<String>,
    /// Whether declarations are those of the library.
    pub in_library: bool,
    done: Done,
    /// How deep the expression is that is being read, through the inlines and translators that it uses.
    depth: u32,
    /// Where the program uses the inline or translator that is being expanded.
    used_at: Option<Pos>,
    /// One branch of the last conditional is an address from `alloca()`, and the other is not.
    mixed: bool,
    /// The registers, where a text is no program: a plain name may be that of one, or a symbol of the guest.
    pub registers: Option<Registers<'a>>,
}

impl<'a> Checker<'a> {
    pub fn new(types: &'a mut TypeTable, scope: &'a mut Scope, options: &'a Options) -> Self {
        let (descriptions, in_library, depth, used_at) = (Vec::new(), false, 0, None);
        Self {
            types,
            scope,
            options,
            descriptions,
            in_library,
            done: Done::default(),
            depth,
            used_at,
            mixed: false,
            registers: None,
        }
    }

    /// What a clause does: the predicate, and the steps.
    pub fn clause(&mut self, clause: &Clause) -> Result<(Option<Node>, Vec<Step>)> {
        self.done = Done::default();
        let predicate = |own: &mut Self| {
            let found = clause.predicate.as_ref().map(|predicate| own.condition(predicate, "D_PRED_SCALAR"));
            found.transpose()
        };
        // What either of predicate and body assigns is known in the other.
        let first = predicate(self);
        let unknown = |error: &Error| matches!(error.tag, "D_IDENT_UNDEF" | "D_VAR_UNDEF");
        let early = match first {
            Err(error) if !unknown(&error) => return Err(error),
            early => early.ok(),
        };
        let mut steps = match &clause.body {
            Some(body) if !body.is_empty() => self.statements(body)?,
            _ => vec![Step::Evaluate(self.default_action(clause.pos))],
        };
        if self.done.speculated && !self.done.recorded {
            steps.push(Step::Evaluate(self.default_action(clause.pos)));
        }
        let predicate = match early {
            Some(early) => early,
            None => predicate(self)?,
        };
        Ok((predicate, steps))
    }

    /// The truth of a predicate or of the condition of `if`.
    fn condition(&mut self, expr: &Expr, tag: &'static str) -> Result<Node> {
        let node = self.expr(expr)?;
        if !self.types.is_scalar(node.ty) {
            let sentence = if tag == "D_PRED_SCALAR" {
                "predicate result must be of scalar type"
            } else {
                "the condition of if must be of scalar type"
            };
            return Err(expr.pos.error(tag, sentence));
        }
        Ok(node)
    }

    fn statements(&mut self, statements: &[Statement]) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        for statement in statements {
            match statement {
                Statement::Expression(expr) => {
                    if let Some(node) = self.statement(expr)? {
                        steps.push(Step::Evaluate(node));
                    }
                }
                Statement::If { condition, then, otherwise } => {
                    let condition = self.condition(condition, "D_OP_SCALAR")?;
                    let before = self.done;
                    let then = self.statements(then)?;
                    let after = std::mem::replace(&mut self.done, before);
                    let otherwise = self.statements(otherwise)?;
                    self.done = self.done.or(after);
                    steps.push(Step::If { condition, then, otherwise });
                }
            }
        }
        Ok(steps)
    }

    /// A statement: an action, an aggregation, or an expression whose value is not used.
    fn statement(&mut self, expr: &Expr) -> Result<Option<Node>> {
        match &expr.kind {
            ExprKind::Call(name, arguments) if Self::is_action(name) => {
                self.action(name, arguments, expr.pos).map(Some)
            }
            ExprKind::Assign("", left, right) => match &left.kind {
                ExprKind::Aggregation { name, keys } => {
                    self.aggregate(name, keys.as_deref(), right, expr.pos).map(Some)
                }
                _ => self.expr(expr).map(Some),
            },
            ExprKind::Conditional(condition, yes, no) if Self::may_be_constant(condition) => {
                match self.constant(condition)? {
                    Some(value) => self.statement(if value != 0 { yes } else { no }),
                    None => self.expr(expr).map(Some),
                }
            }
            ExprKind::Aggregation { .. } => {
                Err(expr.pos.error("D_AGG_NULL", "expression has null effect: @ must be assigned to"))
            }
            _ => self.expr(expr).map(Some),
        }
    }

    /// Whether an expression can be a constant, and evaluating it twice is what evaluating it once is.
    fn may_be_constant(expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Int(_)
            | ExprKind::Name(_)
            | ExprKind::SizeofType(_)
            | ExprKind::Sizeof(_)
            | ExprKind::Offsetof(..) => true,
            ExprKind::Unary(op, of) => !matches!(*op, "++" | "--") && Self::may_be_constant(of),
            ExprKind::Cast(_, of) => Self::may_be_constant(of),
            ExprKind::Binary(first, links) => {
                Self::may_be_constant(first) && links.iter().all(|link| Self::may_be_constant(&link.right))
            }
            ExprKind::Conditional(condition, yes, no) => {
                [condition, yes, no].into_iter().all(|part| Self::may_be_constant(part))
            }
            _ => false,
        }
    }

    /// The value of a constant expression, or `None` if it is not constant.
    pub fn constant(&mut self, expr: &Expr) -> Result<Option<u64>> {
        Ok(self.expr(expr)?.constant())
    }

    /// An integer of type `int`.
    pub fn int(&self, pos: Pos, value: u64) -> Node {
        Node::new(pos, self.types.builtin("int"), NodeKind::Const(value))
    }

    /// Any expression that has a value. Its type is known whole, and that which it leads to.
    pub fn expr(&mut self, expr: &Expr) -> Result<Node> {
        self.enter(expr.pos)?;
        let node = self.typed(expr);
        self.depth -= 1;
        let node = node?;
        self.types.settle(node.ty);
        Ok(node)
    }

    /// `left, right`: the values of all but the last are not used.
    fn comma(&mut self, list: &[Expr], pos: Pos) -> Result<Node> {
        let mut whole: Option<Node> = None;
        for expr in list {
            let node = self.expr(expr)?;
            whole = Some(match whole {
                None => node,
                Some(left) => {
                    let (ty, alloca) = (node.ty, node.alloca);
                    Node { pos, ty, kind: NodeKind::Comma(left.into(), node.into()), alloca }
                }
            });
        }
        Ok(whole.unwrap_or_else(|| self.int(pos, 0)))
    }

    fn typed(&mut self, expr: &Expr) -> Result<Node> {
        let pos = expr.pos;
        match &expr.kind {
            ExprKind::Int(int) => Ok(self.literal(int, pos)),
            ExprKind::Str(text) => {
                let address = self.scope.text(text);
                Ok(Node::new(pos, self.types.builtin("string"), NodeKind::Text(address)))
            }
            ExprKind::Name(name) => self.name(name, pos),
            ExprKind::Scoped { thread, name } => self.scoped(*thread, name, pos),
            ExprKind::Aggregation { name, .. } => {
                let error =
                    pos.error("D_AGG_SCALAR", format!("@{name} is an aggregation, which has no value here"));
                Err(error.help(format!("a statement of its own adds to it: @{name}[execname] = count()")))
            }
            ExprKind::Index(of, keys) => self.index(of, keys, pos),
            ExprKind::Call(name, arguments) => self.call(name, arguments, pos),
            ExprKind::Member { of, name, arrow } => self.member(of, name, *arrow, pos),
            ExprKind::Unary(op, operand) => self.unary(op, operand, pos),
            ExprKind::After(op, operand) => self.step(op, operand, true, pos),
            ExprKind::Binary(first, links) => self.binary(first, links),
            ExprKind::Assign(op, left, right) => self.assign(op, left, right, pos),
            ExprKind::Conditional(condition, yes, no) => self.conditional(condition, yes, no, pos),
            ExprKind::Comma(list) => self.comma(list, pos),
            ExprKind::Cast(ty, operand) => self.cast(ty, operand, pos),
            ExprKind::SizeofType(ty) => {
                let ty = self.type_name(ty)?;
                self.types.settle(ty);
                self.sizeof(ty, pos)
            }
            ExprKind::Sizeof(operand) => self.sizeof_expr(operand, pos),
            ExprKind::Offsetof(ty, member) => self.offsetof(ty, member, pos),
            ExprKind::Xlate(ty, operand) => self.xlate(ty, operand, pos),
            ExprKind::Stringof(operand) => self.stringof(operand, pos),
        }
    }

    /// The type of an integer is the first that holds it, as in C.
    fn literal(&self, int: &IntLiteral, pos: Pos) -> Node {
        let long_bits = self.types.model.word() * 8;
        let fits = |bits: u64, signed: bool| {
            let bits = bits - u64::from(signed);
            bits >= 64 || int.value >> bits == 0
        };
        let candidates: [(&str, u64, bool, u8); 6] = [
            ("int", 32, true, 0),
            ("unsigned int", 32, false, 0),
            ("long", long_bits, true, 1),
            ("unsigned long", long_bits, false, 1),
            ("long long", 64, true, 2),
            ("unsigned long long", 64, false, 2),
        ];
        let name = candidates.iter().find(|(_, bits, signed, long)| {
            let sign = if int.unsigned { !signed } else { *signed || !int.decimal };
            sign && *long >= int.long && fits(*bits, *signed) || int.character
        });
        let name = name.map_or("unsigned long long", |(name, ..)| *name);
        Node::new(pos, self.types.builtin(name), NodeKind::Const(int.value))
    }

    fn sizeof(&self, ty: TypeId, pos: Pos) -> Result<Node> {
        let size = self.types.size(ty);
        if size == 0 && !matches!(self.types.kind(ty), Kind::Array { .. } | Kind::Sou(_)) {
            let sentence = format!("cannot apply sizeof to an operand of type {}", self.types.name(ty));
            return Err(pos.error("D_SIZEOF_TYPE", sentence));
        }
        Ok(Node::new(pos, self.types.builtin("size_t"), NodeKind::Const(size)))
    }

    fn sizeof_expr(&mut self, operand: &Expr, pos: Pos) -> Result<Node> {
        if let ExprKind::Name(name) = &operand.kind
            && let Some(variable) = self.scope.globals.get(name).filter(|v| v.keys.is_some())
        {
            let _ = variable;
            return Err(self.not_scalar(name, operand.pos));
        }
        let node = self.expr(operand)?;
        if matches!(&node.kind, NodeKind::Load(Place::Memory { bits: Some(_), .. })) {
            return Err(pos.error("D_SIZEOF_BITFIELD", "cannot apply sizeof to a bit-field"));
        }
        if let NodeKind::Text(address) = node.kind {
            let length =
                self.scope.tables.constants.get((address - trapline_rpn::services::d::CONSTANTS) as usize..);
            let size = length.and_then(|text| text.iter().position(|b| *b == 0)).unwrap_or(0) as u64 + 1;
            return Ok(Node::new(pos, self.types.builtin("size_t"), NodeKind::Const(size)));
        }
        self.sizeof(node.ty, pos)
    }

    fn not_scalar(&self, name: &str, pos: Pos) -> Error {
        pos.error("D_IDENT_BADREF", format!("associative array '{name}' may not be referenced as scalar"))
    }

    fn offsetof(&mut self, ty: &crate::ast::TypeName, member: &str, pos: Pos) -> Result<Node> {
        let ty = self.type_name(ty)?;
        if self.types.composite(ty).is_none() {
            let sentence = "offsetof operand must be a struct or union type";
            return Err(pos.error("D_OFFSETOF_TYPE", sentence));
        }
        let Some(found) = self.types.member(ty, member) else {
            let sentence = format!("{member} is not a member of {}", self.types.name(ty));
            return Err(pos.error("D_TYPE_MEMBER", sentence));
        };
        if found.bits.is_some() {
            let sentence = format!("cannot take the offset of the bit-field {member}");
            return Err(pos.error("D_OFFSETOF_BITFIELD", sentence));
        }
        Ok(Node::new(pos, self.types.builtin("size_t"), NodeKind::Const(found.offset)))
    }

    /// A call of a service.
    fn service(pos: Pos, ty: TypeId, service: Service, arguments: Vec<Node>) -> Node {
        Node::new(pos, ty, NodeKind::Service { service, arguments })
    }
}

impl Done {
    fn or(self, other: Self) -> Self {
        Self {
            speculated: self.speculated || other.speculated,
            committed: self.committed || other.committed,
            recorded: self.recorded || other.recorded,
            aggregated: self.aggregated || other.aggregated,
        }
    }
}

/// The C type of a built-in variable, as dtrace(1) names it.
pub(crate) fn builtin_type(builtin: Builtin) -> &'static str {
    match names::builtin_type(builtin) {
        RETURN_ADDRESS => "uintptr_t",
        name => name,
    }
}

/// The functions that have a value.
pub(crate) fn functions() -> Vec<Callable> {
    call::listed()
}

/// The actions, and what is shown by name or as a stack.
pub(crate) fn actions() -> Vec<Callable> {
    action::listed()
}

/// The aggregating functions.
pub(crate) fn aggregating() -> Vec<Callable> {
    Checker::aggregating_listed()
}
