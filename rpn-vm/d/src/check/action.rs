//! Actions: what a clause leaves for its consumer, and what it asks of the run.

use super::Checker;
use super::call::wrong_count;
use super::callable::Callable;
use crate::ast::{Expr, ExprKind};
use crate::error::{Pos, Result};
use crate::node::{Node, NodeKind, Service};
use crate::scope::{AggName, field};
use crate::types::{Kind, TypeId};
use trapline_rpn::services::d::{self, Function};
use trapline_trace::d::{Action, Field, Format, PrintMember, PrintType, Record};

/// The actions: name, least and most arguments.
const ACTIONS: &[(&str, usize, usize)] = &[
    ("trace", 1, 1),
    ("tracemem", 2, 3),
    ("printf", 1, usize::MAX),
    ("printa", 1, usize::MAX),
    ("print", 1, 1),
    ("exit", 1, 1),
    ("assert", 1, 1),
    ("speculate", 1, 1),
    ("commit", 1, 1),
    ("discard", 1, 1),
    ("clear", 1, 1),
    ("trunc", 1, 2),
    ("normalize", 2, 2),
    ("denormalize", 1, 1),
    ("setopt", 1, 2),
    ("freopen", 1, usize::MAX),
    ("ftruncate", 0, 0),
    ("system", 1, usize::MAX),
    ("stop", 0, 0),
    ("raise", 1, 1),
    ("pcap", 2, 2),
];

/// Values that are shown by name or as stacks: name, least and most arguments, type.
const STACKS: &[(&str, usize, usize, &str)] = &[
    ("stack", 0, 1, "stack"),
    ("ustack", 0, 2, "stack"),
    ("jstack", 0, 2, "stack"),
    ("sym", 1, 1, "_symsym"),
    ("func", 1, 1, "_symsym"),
    ("mod", 1, 1, "_symmod"),
    ("usym", 1, 1, "_symsym"),
    ("ufunc", 1, 1, "_symsym"),
    ("umod", 1, 1, "_symmod"),
    ("uaddr", 1, 1, "_symaddr"),
];

/// The actions and stacks, for the reference.
pub(super) fn listed() -> Vec<Callable> {
    let actions = ACTIONS.iter().map(|(name, least, most)| Callable::of_any(name, *least, *most));
    let stacks = STACKS.iter().map(|(name, least, most, _)| Callable::of_any(name, *least, *most));
    actions.chain(stacks).collect()
}

/// Nesting to which `print()` follows types.
const DEEPEST: u32 = 16;
/// Members that it follows them to.
const MOST_MEMBERS: u32 = 1 << 16;

impl Checker<'_> {
    pub(super) fn is_action(name: &str) -> bool {
        ACTIONS.iter().any(|(action, ..)| *action == name) || Self::is_stack(name)
    }

    pub(super) fn is_stack(name: &str) -> bool {
        STACKS.iter().any(|(action, ..)| *action == name)
    }

    /// The names of all actions.
    pub(super) fn actions() -> impl Iterator<Item = &'static str> {
        ACTIONS.iter().map(|(name, ..)| *name).chain(STACKS.iter().map(|(name, ..)| *name))
    }

    fn nothing(&self) -> TypeId {
        self.types.builtin("<action>")
    }

    /// A part of the record.
    fn record(&mut self, pos: Pos, action: Action, nodes: Vec<Node>) -> Node {
        let fields = nodes.iter().map(|node| field(self.types, node.ty)).collect();
        self.record_as(pos, action, fields, nodes)
    }

    fn record_as(&mut self, pos: Pos, action: Action, fields: Vec<Field>, nodes: Vec<Node>) -> Node {
        self.scope.tables.records.push(Record { action, fields });
        let operand = Some(self.scope.tables.records.len() as u64 - 1);
        Self::service(pos, self.nothing(), Service { number: d::RECORD, operand, gives: false }, nodes)
    }

    /// A clause without actions.
    pub(super) fn default_action(&mut self, pos: Pos) -> Node {
        self.record(pos, Action::Default, Vec::new())
    }

    /// An action that changes the guest or the host.
    pub(super) fn destructive(&mut self, pos: Pos) -> Result<()> {
        if self.done.speculated {
            return Err(pos.error("D_ACT_SPEC", "destructive actions may not follow speculate( )"));
        }
        self.scope.destructive = true;
        Ok(())
    }

    /// What records data may not follow `commit()`.
    pub(super) fn records(&mut self, pos: Pos) -> Result<()> {
        if self.done.committed {
            return Err(pos.error("D_DREC_COMM", "data-recording actions may not follow commit( )"));
        }
        self.done.recorded = true;
        Ok(())
    }

    /// A statement that is an action.
    pub(super) fn action(&mut self, name: &str, arguments: &[Expr], pos: Pos) -> Result<Node> {
        if Self::is_stack(name) {
            self.records(pos)?;
            let node = self.stack_value(name, arguments, pos)?;
            return Ok(self.record(pos, Action::Stack, vec![node]));
        }
        let row = ACTIONS.iter().find(|(action, ..)| *action == name);
        let Some((_, least, most)) = row else {
            let error = pos.error("D_FUNC_UNDEF", format!("undefined function name: {name}"));
            return Err(error.near(name, Self::callable()));
        };
        if !(*least..=*most).contains(&arguments.len()) {
            let sentence = wrong_count(name, arguments.len(), *least, *most);
            return Err(pos.error("D_PROTO_LEN", sentence));
        }
        match name {
            "speculate" | "commit" | "discard" => return self.speculation(name, arguments, pos),
            "assert" => return self.assertion(arguments, pos),
            "clear" | "trunc" | "normalize" | "denormalize" => {
                return self.on_aggregation(name, arguments, pos);
            }
            "stop" | "raise" => {
                let sentence = format!(
                    "{name}( ) is refused: only the guest's kernel can send a signal to its process; breakpoint( ) stops the whole guest"
                );
                return Err(pos.error("D_UNSUPPORTED", sentence));
            }
            "pcap" => return Err(pos.error("D_UNSUPPORTED", "pcap( ) is not supported yet")),
            "freopen" | "system" => {
                self.destructive(pos)?;
                self.scope.commands |= name == "system";
            }
            "exit" if self.done.speculated => {
                return Err(pos.error("D_EXIT_SPEC", "exit( ) may not follow speculate( )"));
            }
            _ => {}
        }
        self.records(pos)?;
        match name {
            "trace" => self.trace(arguments, pos),
            "tracemem" => self.tracemem(arguments, pos),
            "print" => self.print(arguments, pos),
            "printa" => self.printa(arguments, pos),
            "exit" => self.exit(arguments, pos),
            "setopt" => self.setopt(arguments, pos),
            "ftruncate" => Ok(self.record(pos, Action::Ftruncate, Vec::new())),
            _ => {
                let (format, nodes) = self.formatted(name, arguments, pos)?;
                let action = match name {
                    "freopen" => Action::Freopen(format),
                    "system" => Action::System(format),
                    _ => Action::Printf(format),
                };
                Ok(self.record(pos, action, nodes))
            }
        }
    }

    /// `stack()`, `sym(address)` and the like.
    pub(super) fn stack_value(&mut self, name: &str, arguments: &[Expr], pos: Pos) -> Result<Node> {
        let Some((_, least, most, ty)) = STACKS.iter().find(|(action, ..)| *action == name) else {
            let error = pos.error("D_FUNC_UNDEF", format!("undefined function name: {name}"));
            return Err(error.near(name, Self::callable()));
        };
        if !(*least..=*most).contains(&arguments.len()) {
            let sentence = wrong_count(name, arguments.len(), *least, *most);
            return Err(pos.error("D_PROTO_LEN", sentence));
        }
        let mut nodes = Vec::new();
        for (n, argument) in arguments.iter().enumerate() {
            let node = self.expr(argument)?;
            if !self.types.is_scalar(node.ty) {
                return Err(self.wrong_argument(name, n, "an integer", &node, pos));
            }
            nodes.push(node);
        }
        if *most == 1 && *least == 1 {
            let Some(node) = nodes.pop() else { return Ok(self.default_action(pos)) };
            return Ok(Node { pos, ..self.shown_by_name(node, ty) });
        }
        let ty = self.types.builtin(ty);
        let (function, option) = match name {
            "stack" => (Function::Stack, "stackframes"),
            "jstack" => (Function::UserStack, "jstackframes"),
            _ => (Function::UserStack, "ustackframes"),
        };
        let frames = match nodes.into_iter().next() {
            Some(node) => match node.constant() {
                Some(frames) if frames > 0 && frames <= 65_535 => frames,
                Some(_) => {
                    let sentence = format!("{name}( ) argument #1 must be a positive number of frames");
                    return Err(pos.error("D_STACK_SIZE", sentence));
                }
                None => {
                    let sentence = format!("{name}( ) argument #1 must be a constant number of frames");
                    return Err(pos.error("D_STACK_PROTO", sentence));
                }
            },
            None => self.options.number(option),
        };
        let frames = self.int(pos, frames);
        Ok(self.function_node(pos, ty, function, vec![frames]))
    }

    /// An address that is shown by the name of what it is in, as a value of the type `ty`.
    pub(super) fn shown_by_name(&mut self, node: Node, ty: &'static str) -> Node {
        let ty = match (ty, self.types.is_return_address(node.ty)) {
            ("_symsym", true) => "_retsym",
            ("_symmod", true) => "_retmod",
            (_, true) => "_retaddr",
            (ty, false) => ty,
        };
        let (pos, ty) = (node.pos, self.types.builtin(ty));
        let word = self.types.builtin("unsigned long long");
        let node = self.convert(node, word);
        Node { pos, ty, kind: NodeKind::Convert(node.into()), alloca: false }
    }

    fn trace(&mut self, arguments: &[Expr], pos: Pos) -> Result<Node> {
        let Some(argument) = arguments.first() else { return Ok(self.default_action(pos)) };
        if let ExprKind::Aggregation { name, .. } = &argument.kind {
            let sentence = format!("trace( ) may not be applied to the aggregation @{name}");
            return Err(pos.error("D_TRACE_AGG", sentence));
        }
        let node = self.expr(argument)?;
        if matches!(self.types.kind(node.ty), Kind::Void | Kind::Nothing) {
            return Err(pos.error("D_TRACE_VOID", "trace( ) may not be applied to a void expression"));
        }
        if matches!(node.kind, NodeKind::Translated { .. }) {
            let sentence = "trace( ) may not be applied to a translated pointer";
            return Err(pos.error("D_TRACE_DYN", sentence));
        }
        Ok(self.record(pos, Action::Trace, vec![node]))
    }

    fn tracemem(&mut self, arguments: &[Expr], pos: Pos) -> Result<Node> {
        let mut nodes = Vec::new();
        for argument in arguments {
            nodes.push(self.expr(argument)?);
        }
        let mut nodes = nodes.into_iter();
        let (Some(address), Some(size)) = (nodes.next(), nodes.next()) else {
            return Ok(self.default_action(pos));
        };
        if !(self.types.is_scalar(address.ty) || self.types.by_reference(address.ty)) {
            let sentence = "tracemem( ) argument #1 is incompatible with prototype: an address is expected";
            return Err(pos.error("D_TRACEMEM_ADDR", sentence));
        }
        if !self.types.is_integer(size.ty) {
            return Err(self.wrong_argument("tracemem", 1, "an integer constant", &size, pos));
        }
        let size = match size.constant() {
            Some(size) if size > 0 && size <= 65_536 => size as u32,
            _ => {
                let sentence =
                    "tracemem( ) argument #2 must be a non-zero positive integral constant expression";
                return Err(pos.error("D_TRACEMEM_SIZE", sentence));
            }
        };
        let mut fields = vec![Field::Bytes(size)];
        let mut list = vec![address];
        if let Some(shown) = nodes.next() {
            if !self.types.is_integer(shown.ty) {
                return Err(self.wrong_argument("tracemem", 2, "an integer", &shown, pos));
            }
            fields.push(field(self.types, shown.ty));
            list.push(shown);
        }
        let dynamic = fields.len() > 1;
        Ok(self.record_as(pos, Action::Tracemem { dynamic }, fields, list))
    }

    fn exit(&mut self, arguments: &[Expr], pos: Pos) -> Result<Node> {
        let Some(argument) = arguments.first() else { return Ok(self.default_action(pos)) };
        let node = self.expr(argument)?;
        if !self.types.is_integer(node.ty) {
            return Err(self.wrong_argument("exit", 0, "int", &node, pos));
        }
        let int = self.types.builtin("int");
        let node = self.convert(node, int);
        Ok(self.record(pos, Action::Exit, vec![node]))
    }

    fn setopt(&mut self, arguments: &[Expr], pos: Pos) -> Result<Node> {
        let mut nodes = Vec::new();
        for (n, argument) in arguments.iter().enumerate() {
            let node = self.expr(argument)?;
            if !self.is_text(node.ty) {
                return Err(self.wrong_argument("setopt", n, "string", &node, pos));
            }
            nodes.push(self.as_string(node));
        }
        Ok(self.record(pos, Action::Setopt, nodes))
    }

    /// `assert(expr)`: a fault if the expression is 0, which `trapline fuzz` looks for.
    fn assertion(&mut self, arguments: &[Expr], pos: Pos) -> Result<Node> {
        let Some(argument) = arguments.first() else { return Ok(self.default_action(pos)) };
        let node = self.expr(argument)?;
        if !self.types.is_integer(node.ty) {
            return Err(self.wrong_argument("assert", 0, "an integer", &node, pos));
        }
        let ty = self.nothing();
        Ok(self.function_node(pos, ty, Function::Assert, vec![node]))
    }

    fn speculation(&mut self, name: &str, arguments: &[Expr], pos: Pos) -> Result<Node> {
        let Some(argument) = arguments.first() else { return Ok(self.default_action(pos)) };
        let node = self.expr(argument)?;
        if !self.types.is_integer(node.ty) {
            return Err(self.wrong_argument(name, 0, "an integer", &node, pos));
        }
        let refuse = |tag, sentence: &str| Err(pos.error(tag, sentence));
        let function = match name {
            "speculate" => {
                if self.done.speculated {
                    return refuse("D_SPEC_SPEC", "speculate( ) may not follow speculate( )");
                }
                if self.done.committed {
                    return refuse("D_SPEC_COMM", "speculate( ) may not follow commit( )");
                }
                if self.done.recorded {
                    return refuse("D_SPEC_DREC", "speculate( ) may not follow data-recording actions");
                }
                if self.done.aggregated {
                    return refuse("D_SPEC_DREC", "speculate( ) may not follow aggregating actions");
                }
                self.done.speculated = true;
                Function::Speculate
            }
            "commit" => {
                if self.done.recorded {
                    return refuse("D_COMM_DREC", "commit( ) may not follow data-recording actions");
                }
                self.done.committed = true;
                Function::Commit
            }
            _ => Function::Discard,
        };
        let ty = self.nothing();
        Ok(self.function_node(pos, ty, function, vec![node]))
    }

    /// The aggregation that an argument names.
    pub(super) fn named_aggregation(&self, argument: &Expr) -> Option<Result<AggName>> {
        let ExprKind::Aggregation { name, .. } = &argument.kind else { return None };
        let found = self.scope.aggregations.get(name).cloned();
        Some(
            found.ok_or_else(|| argument.pos.error("D_AGG_UNDEF", format!("undefined aggregation: @{name}"))),
        )
    }

    fn on_aggregation(&mut self, name: &str, arguments: &[Expr], pos: Pos) -> Result<Node> {
        let (function, tag) = match name {
            "clear" => (Function::Clear, "D_CLEAR_AGGARG"),
            "trunc" => (Function::Trunc, "D_TRUNC_AGGARG"),
            "normalize" => (Function::Normalize, "D_NORMALIZE_AGGARG"),
            _ => (Function::Denormalize, "D_NORMALIZE_AGGARG"),
        };
        let Some(aggregation) = arguments.first().and_then(|argument| self.named_aggregation(argument))
        else {
            let sentence =
                format!("{name}( ) argument #1 is incompatible with prototype:\n\tprototype: aggregation");
            return Err(pos.error(tag, sentence));
        };
        let number = aggregation?.number;
        let mut nodes = vec![self.int(pos, number.into())];
        match arguments.get(1) {
            Some(argument) => {
                if matches!(argument.kind, ExprKind::Aggregation { .. }) {
                    let sentence = format!(
                        "{name}( ) argument #2 is incompatible with prototype:\n\tprototype: int\n\t argument: aggregation"
                    );
                    return Err(pos.error("D_PROTO_ARG", sentence));
                }
                let node = self.expr(argument)?;
                if !self.types.is_integer(node.ty) {
                    return Err(self.wrong_argument(name, 1, "int", &node, pos));
                }
                nodes.push(node);
            }
            None if function == Function::Trunc => nodes.push(self.int(pos, 0)),
            None => {}
        }
        self.done.recorded |= !self.done.committed;
        let ty = self.nothing();
        Ok(self.function_node(pos, ty, function, nodes))
    }

    fn printa(&mut self, arguments: &[Expr], pos: Pos) -> Result<Node> {
        let format = match arguments.first().map(|argument| &argument.kind) {
            Some(ExprKind::Str(text)) => {
                let parsed = Format::parse(text).map_err(|error| pos.error("D_SYNTAX", error.to_string()))?;
                Some(parsed)
            }
            _ => None,
        };
        let rest = arguments.get(usize::from(format.is_some())..).unwrap_or_default();
        let mut found: Vec<(String, AggName)> = Vec::new();
        for argument in rest {
            let Some(aggregation) = self.named_aggregation(argument) else {
                let sentence = "printa( ) argument is incompatible with prototype:\n\tprototype: aggregation";
                return Err(pos.error("D_PRINTA_AGGARG", sentence));
            };
            let ExprKind::Aggregation { name, .. } = &argument.kind else { continue };
            found.push((name.clone(), aggregation?));
        }
        if found.is_empty() {
            let sentence = "printa( ) requires an aggregation";
            return Err(pos.error("D_PRINTA_AGGARG", sentence));
        }
        self.same_keys(&found, pos)?;
        if let (Some(format), Some((_, first))) = (&format, found.first()) {
            self.check_printa(format, &first.keys, pos)?;
        }
        let aggregations = found.iter().map(|(_, aggregation)| aggregation.number).collect();
        Ok(self.record(pos, Action::Printa { format, aggregations }, Vec::new()))
    }

    /// Aggregations that are printed together have the same keys.
    fn same_keys(&self, found: &[(String, AggName)], pos: Pos) -> Result<()> {
        let Some((first_name, first)) = found.first() else { return Ok(()) };
        let keys = |count: usize| format!("{count} key{}", if count == 1 { "" } else { "s" });
        for (name, aggregation) in found.iter().skip(1) {
            if aggregation.keys.len() != first.keys.len() {
                let sentence = format!(
                    "printa( ): @{first_name} and @{name} do not have matching key signatures: @{first_name} has {}, @{name} has {}",
                    keys(first.keys.len()),
                    keys(aggregation.keys.len())
                );
                return Err(pos.error("D_PRINTA_AGGKEY", sentence));
            }
            for (n, (one, other)) in first.keys.iter().zip(&aggregation.keys).enumerate() {
                if field(self.types, *one) != field(self.types, *other) {
                    let sentence = format!(
                        "printa( ): @{name}[ ] key #{n} is incompatible with @{first_name}:\n{:>9} key #{n}: {}\n{:>9} key #{n}: {}",
                        first_name,
                        self.types.name(*one),
                        name,
                        self.types.name(*other),
                        n = n + 1
                    );
                    return Err(pos.error("D_PRINTA_AGGPROTO", sentence));
                }
            }
        }
        Ok(())
    }

    fn print(&mut self, arguments: &[Expr], pos: Pos) -> Result<Node> {
        let Some(argument) = arguments.first() else { return Ok(self.default_action(pos)) };
        if let ExprKind::Aggregation { name, .. } = &argument.kind {
            let sentence = format!("print( ) may not be applied to the aggregation @{name}");
            return Err(pos.error("D_PRINT_AGG", sentence));
        }
        let node = self.expr(argument)?;
        if matches!(self.types.kind(node.ty), Kind::Void | Kind::Nothing) {
            return Err(pos.error("D_PRINT_VOID", "print( ) may not be applied to a void expression"));
        }
        if matches!(node.kind, NodeKind::Translated { .. }) {
            return Err(pos.error("D_PRINT_DYN", "print( ) may not be applied to a translated pointer"));
        }
        let (mut ty, mut by_address) = (node.ty, false);
        if let Kind::Pointer(to) = self.types.kind(node.ty)
            && matches!(self.types.kind(*to), Kind::Sou(_))
        {
            (ty, by_address) = (*to, true);
            if self.types.size(ty) == 0 {
                let sentence = format!(
                    "print( ) cannot be applied to {}, whose size is not known",
                    self.types.name(node.ty)
                );
                return Err(pos.error("D_PRINT_SIZE", sentence));
            }
        }
        let printed = self.print_type(ty, 0, &mut { MOST_MEMBERS });
        let name = self.types.name(node.ty);
        let size = u32::try_from(self.types.size(ty)).unwrap_or(u32::MAX);
        let action = Action::Print { ty: printed, name, by_address };
        if by_address {
            let word = self.types.builtin("unsigned long long");
            let address = self.convert(node.clone(), word);
            let fields = vec![Field::Int { size: 8, signed: false }, Field::Bytes(size)];
            return Ok(self.record_as(pos, action, fields, vec![address, node]));
        }
        Ok(self.record(pos, action, vec![node]))
    }

    /// How a value is shown. `left` is how many members and elements' types may still be followed.
    fn print_type(&self, ty: TypeId, depth: u32, left: &mut u32) -> PrintType {
        let other = PrintType::Other(u32::try_from(self.types.size(ty)).unwrap_or(u32::MAX));
        if depth > DEEPEST || *left == 0 {
            return other;
        }
        *left -= 1;
        match self.types.kind(ty) {
            Kind::Int { size, signed } => {
                let character = *size == 1 && self.types.name(self.types.resolve(ty)) == "char";
                PrintType::Int { size: *size, signed: *signed, character }
            }
            // A value by itself has 64 bits; in memory it is as wide as the guest's.
            Kind::Pointer(_) if depth == 0 => PrintType::Pointer(8),
            Kind::Pointer(_) => PrintType::Pointer(self.types.model.word() as u8),
            Kind::Str => PrintType::Text(0),
            Kind::Array { length, .. } if self.types.is_char_array(ty) => PrintType::Text(*length as u32),
            Kind::Array { of, length } => PrintType::Array {
                of: Box::new(self.print_type(*of, depth + 1, left)),
                length: *length,
                size: self.types.size(*of),
            },
            Kind::Float { size } => PrintType::Float((*size).into()),
            Kind::Enum(n) => {
                let items = self.types.enums.get(*n).and_then(|known| known.items.clone());
                let (size, signed) = self.types.int(ty);
                PrintType::Enum { items: items.unwrap_or_default(), size: size as u8, signed }
            }
            Kind::Sou(n) => {
                let members = self.types.sous.get(*n).and_then(|sou| sou.members.clone()).unwrap_or_default();
                if members.is_empty() && self.types.size(ty) > 0 {
                    return other;
                }
                let mut shown = |member: crate::types::Member| PrintMember {
                    type_name: self.types.name(member.ty),
                    ty: self.print_type(member.ty, depth + 1, left),
                    name: member.name,
                    offset: member.offset,
                    bits: member.bits,
                };
                PrintType::Sou { members: members.into_iter().map(&mut shown).collect() }
            }
            _ => other,
        }
    }
}
