//! Names: variables, built-in ones, enumerators, inlines, symbols of the guest; translators.

use super::{Checker, Registers};
use crate::ast::{Expr, TypeName};
use crate::error::{Error, Pos, Result};
use crate::library;
use crate::node::{Node, NodeKind, Service};
use crate::scope::{InlineName, Owner, Variable};
use crate::types::{RETURN_ADDRESS, TypeId};
use std::collections::BTreeMap;
use trapline_rpn::services::d::{self, Builtin, Function};

/// Most inlines and translators that one may use the other of.
const DEEPEST: usize = 32;

/// Names of faults, as ERROR's `arg4` has them.
const FAULTS: &[(&str, u64)] = &[
    ("DTRACEFLT_UNKNOWN", 0),
    ("DTRACEFLT_BADADDR", 1),
    ("DTRACEFLT_BADALIGN", 2),
    ("DTRACEFLT_ILLOP", 3),
    ("DTRACEFLT_DIVZERO", 4),
    ("DTRACEFLT_NOSCRATCH", 5),
    ("DTRACEFLT_KPRIV", 6),
    ("DTRACEFLT_UPRIV", 7),
    ("DTRACEFLT_TUPOFLOW", 8),
    ("DTRACEFLT_BADSTACK", 9),
    ("DTRACEFLT_BADSIZE", 10),
    ("DTRACEFLT_BADINDEX", 11),
];

/// The C type of a built-in variable.
pub(super) fn builtin_type(builtin: Builtin) -> &'static str {
    match builtin {
        Builtin::Execname
        | Builtin::Probefunc
        | Builtin::Probemod
        | Builtin::Probename
        | Builtin::Probeprov => "string",
        Builtin::Caller | Builtin::Ucaller => RETURN_ADDRESS,
        Builtin::Cpu => "processorid_t",
        Builtin::Epid | Builtin::Id | Builtin::Ipl => "uint_t",
        Builtin::Errno => "int",
        Builtin::Gid => "gid_t",
        Builtin::Uid => "uid_t",
        Builtin::Pid | Builtin::Ppid => "pid_t",
        Builtin::Tid => "id_t",
        Builtin::Stackdepth | Builtin::Ustackdepth => "uint32_t",
        Builtin::Timestamp | Builtin::Vtimestamp => "uint64_t",
        Builtin::Icount | Builtin::Hit => "uint64_t",
        _ => "int64_t",
    }
}

impl Checker<'_> {
    /// Whether a name is that of a built-in variable or a function.
    pub fn is_reserved(&self, name: &str) -> bool {
        Builtin::from_name(name).is_some()
            || Self::is_action(name)
            || Self::is_function(name)
            || matches!(name, "args" | "uregs" | "curpsinfo" | "curlwpsinfo" | "curcpu" | "fds" | "NULL")
    }

    /// A plain name.
    pub(super) fn name(&mut self, name: &str, pos: Pos) -> Result<Node> {
        if let Some(node) = self.scope.bound.last().and_then(|bound| bound.get(name)) {
            let (count, _) = node.measure();
            let node = node.clone();
            self.spend(count, pos)?;
            return Ok(node);
        }
        if let Some(variable) = self.scope.globals.get(name).cloned() {
            if variable.keys.is_some() {
                return Err(self.not_scalar(name, pos));
            }
            return Ok(self.load(&variable, Vec::new(), pos));
        }
        if let Some((value, ty)) = self.scope.enumerators.get(name) {
            return Ok(Node::new(pos, *ty, NodeKind::Const(*value as u64)));
        }
        if let Some(inline) = self.inline_of(name)? {
            if !inline.parameters.is_empty() {
                return Err(self.not_scalar(name, pos));
            }
            return self.expand_inline(&inline, Vec::new(), pos);
        }
        self.builtin(name, pos)
    }

    fn builtin(&mut self, name: &str, pos: Pos) -> Result<Node> {
        if name == "NULL" {
            return Ok(self.int(pos, 0));
        }
        if name == "args" || name == "uregs" || name == "fds" {
            let sentence = format!("array '{name}' may not be referenced as scalar");
            return Err(pos.error("D_IDENT_BADREF", sentence));
        }
        if name.contains('`') {
            return self.symbol(name, pos);
        }
        if let Some((_, value)) = FAULTS.iter().find(|(fault, _)| *fault == name) {
            return Ok(self.int(pos, *value));
        }
        if name == "ppid" || matches!(name, "curpsinfo" | "curlwpsinfo") {
            return Err(Self::needs_types(name, pos));
        }
        if let Some(builtin) = Builtin::from_name(name) {
            self.scope.vtimestamp |= builtin == Builtin::Vtimestamp;
            let ty = match self.thread_type().filter(|_| builtin == Builtin::Curthread) {
                Some(task) => self.types.pointer(task),
                None => self.types.builtin(builtin_type(builtin)),
            };
            let service = Service { number: d::BUILTIN, operand: Some(builtin.number()), gives: true };
            return Ok(Self::service(pos, ty, service, Vec::new()));
        }
        if Self::is_action(name) || Self::is_function(name) {
            let sentence = format!("function '{name}' may not be referenced as scalar");
            return Err(pos
                .error("D_IDENT_BADREF", sentence)
                .help(format!("a function is called: {name}()")));
        }
        if let Some((value, ty)) = self.types.imports.guest.enumerator(name) {
            let ty = self.types.import(ty);
            return Ok(Node::new(pos, ty, NodeKind::Const(value as u64)));
        }
        if let Some(node) =
            self.registers.and_then(|registers| self.looked_up(name, registers, pos).transpose())
        {
            return node;
        }
        let error = pos.error("D_IDENT_UNDEF", format!("failed to resolve {name}: Unknown variable name"));
        let own =
            self.scope.globals.keys().chain(self.scope.inlines.keys()).chain(self.scope.enumerators.keys());
        let library = library::inlines(&self.scope.library);
        let built_in = Builtin::ALL.iter().map(|builtin| builtin.name());
        Err(error.near(name, own.map(String::as_str).chain(library).chain(built_in)))
    }

    /// A symbol without a backquote, of which no type need be known; or a register.
    fn looked_up(&mut self, name: &str, registers: Registers<'_>, pos: Pos) -> Result<Option<Node>> {
        let found = self.types.imports.guest.symbol(None, name);
        let found = found.map_err(|ambiguous| {
            pos.error("D_IDENT_AMBIG", format!("{ambiguous}; use one of these addresses"))
        })?;
        if found.is_some_and(|symbol| symbol.ty.is_some()) {
            return self.symbol(&format!("`{name}"), pos).map(Some);
        }
        let value = found.map(|symbol| symbol.address).or_else(|| registers(name));
        let ty = self.types.builtin("uintptr_t");
        Ok(value.map(|value| Node::new(pos, ty, NodeKind::Const(value))))
    }

    /// The error of a name of the library that this guest lacks.
    pub(super) fn needs_types(name: &str, pos: Pos) -> Error {
        let sentence = format!(
            "{name} needs the types of a Linux kernel, from BTF or from debugging information, and this guest has none"
        );
        pos.error("D_UNSUPPORTED", sentence)
    }

    /// `self->name` and `this->name`.
    pub(super) fn scoped(&mut self, thread: bool, name: &str, pos: Pos) -> Result<Node> {
        let (owner, word) = if thread { (Owner::Thread, "self") } else { (Owner::Clause, "this") };
        let Some(variable) = self.scope.owned(owner).get(name).cloned() else {
            let sentence = format!("{word}->{name} has not yet been declared or assigned");
            return Err(pos.error("D_VAR_UNDEF", sentence));
        };
        if variable.keys.is_some() {
            return Err(self.not_scalar(&format!("{word}->{name}"), pos));
        }
        Ok(self.load(&variable, Vec::new(), pos))
    }

    /// The value of a variable or an element.
    pub(super) fn load(&mut self, variable: &Variable, keys: Vec<Node>, pos: Pos) -> Node {
        let uintptr = self.types.builtin("uintptr_t");
        let place = variable.place(keys, |at| Node::new(pos, uintptr, NodeKind::Const(at)));
        let alloca = variable.alloca == Some(true);
        Node { pos, ty: variable.ty, kind: NodeKind::Load(place), alloca }
    }

    /// The expression of an inline, with its arguments.
    pub fn expand_inline(&mut self, inline: &InlineName, arguments: Vec<Node>, pos: Pos) -> Result<Node> {
        let names = inline.parameters.iter().map(|(name, _)| name.clone().unwrap_or_default());
        let (arguments, first): (Vec<_>, Vec<_>) =
            arguments.into_iter().map(|argument| self.once(argument)).unzip();
        self.bind(names.zip(arguments).collect(), pos)?;
        let node = self.expr(&inline.value);
        self.scope.bound.pop();
        let value = node.and_then(|node| self.convert_assigned(node, inline.ty, "=", pos));
        let value = value.map_err(|error| {
            if inline.library { Self::in_library(error, "this variable", pos) } else { error }
        })?;
        self.expanded(&value, pos)?;
        Ok(Self::after(first, value))
    }

    /// A value that is used any number of times, and what is evaluated once before it: an argument with an effect has it
    /// once, as an argument of a function has.
    fn once(&mut self, node: Node) -> (Node, Option<Node>) {
        if !node.has_effect() {
            return (node, None);
        }
        let (pos, ty, alloca) = (node.pos, node.ty, node.alloca);
        // What a translator makes has no value; what it is given has one.
        if let NodeKind::Translated { translator, input } = node.kind {
            let (input, first) = self.once(*input);
            let kind = NodeKind::Translated { translator, input: input.into() };
            return (Node { pos, ty, kind, alloca }, first);
        }
        let place = self.scope.temporary();
        let kind = NodeKind::Assign { place: place.clone(), value: node.into() };
        (Node { pos, ty, kind: NodeKind::Load(place), alloca }, Some(Node { pos, ty, kind, alloca }))
    }

    /// A value after what is evaluated before it.
    fn after(first: Vec<Option<Node>>, value: Node) -> Node {
        first.into_iter().flatten().rev().fold(value, |value, first| {
            let (pos, ty, alloca) = (value.pos, value.ty, value.alloca);
            let kind = match value.kind {
                NodeKind::Translated { translator, input } => {
                    let input = Self::after(vec![Some(first)], *input);
                    NodeKind::Translated { translator, input: input.into() }
                }
                _ => NodeKind::Comma(first.into(), value.into()),
            };
            Node { pos, ty, kind, alloca }
        })
    }

    /// An error in an expression of the library, at the place that uses it.
    fn in_library(error: Error, what: &str, pos: Pos) -> Error {
        let sentence = format!("{what} cannot be read in this kernel: {}", error.message);
        pos.error("D_XLATE_MEMB", sentence)
    }

    /// Gives names to nodes until they are popped from `bound`.
    fn bind(&mut self, names: BTreeMap<String, Node>, pos: Pos) -> Result<()> {
        if self.scope.bound.len() >= DEEPEST {
            let sentence = format!("inlines and translators use each other more than {DEEPEST} deep");
            return Err(pos.error("D_SYNTAX", sentence));
        }
        if self.scope.bound.is_empty() {
            self.used_at = Some(pos);
        }
        self.scope.bound.push(names);
        Ok(())
    }

    /// `xlate < type > (expression)`.
    pub(super) fn xlate(&mut self, ty: &TypeName, operand: &Expr, pos: Pos) -> Result<Node> {
        let wanted = self.type_name(ty)?;
        let input = self.expr(operand)?;
        self.translate(wanted, input, pos)
    }

    /// What a translator makes of a value.
    pub(super) fn translate(&mut self, wanted: TypeId, input: Node, pos: Pos) -> Result<Node> {
        let output = match self.types.target(wanted) {
            Some(to) if self.types.is_pointer(wanted) => to,
            _ => wanted,
        };
        let resolved = self.types.resolve(output);
        let same = |one: TypeId, other: TypeId, types: &crate::types::TypeTable| {
            types.resolve(one) == types.resolve(other)
                || types.name(types.resolve(one)) == types.name(types.resolve(other))
        };
        let found = self.scope.translators.iter().position(|translator| {
            self.types.resolve(translator.output) == resolved && same(translator.input, input.ty, self.types)
        });
        let Some(translator) = found else {
            let sentence = format!(
                "cannot translate from \"{}\" to \"{}\"",
                self.types.name(input.ty),
                self.types.name(output)
            );
            return Err(pos.error("D_XLATE_NONE", sentence));
        };
        Ok(Node::new(pos, wanted, NodeKind::Translated { translator, input: input.into() }))
    }

    /// A member of what a translator makes.
    pub(super) fn translated(&mut self, number: usize, input: &Node, member: &str, pos: Pos) -> Result<Node> {
        let Some(translator) = self.scope.translators.get(number).cloned() else {
            return Err(pos.error("D_XLATE_NONE", "there is no such translator"));
        };
        let Some(found) = self.types.member(translator.output, member) else {
            let sentence = format!("{member} is not a member of {}", self.types.name(translator.output));
            let known = translator.members.iter().map(|(name, _)| name.as_str());
            return Err(pos.error("D_TYPE_MEMBER", sentence).near(member, known));
        };
        let Some((_, value)) = translator.members.iter().find(|(name, _)| name == member) else {
            let sentence = format!("translator does not define conversion for member: {member}");
            return Err(pos.error("D_XLATE_MEMB", sentence));
        };
        self.spend(input.measure().0, pos)?;
        let (input, first) = self.once(input.clone());
        let typed = Node { ty: translator.input, ..input };
        self.bind(BTreeMap::from([(translator.name.clone(), typed)]), pos)?;
        let node = self.expr(value);
        self.scope.bound.pop();
        let value = node.and_then(|node| self.convert_assigned(node, found.ty, "=", pos));
        let value = value
            .map_err(|error| if translator.library { Self::in_library(error, member, pos) } else { error })?;
        self.expanded(&value, pos)?;
        Ok(Self::after(vec![first], value))
    }

    /// Checks a member of a translator that has just been declared.
    pub fn check_translator_member(&mut self, number: usize, member: &str, pos: Pos) -> Result<()> {
        let Some(translator) = self.scope.translators.get(number) else { return Ok(()) };
        let input = Node::new(pos, translator.input, NodeKind::Const(0));
        self.translated(number, &input, member, pos).map(|_| ())
    }

    /// A call of one of D's functions with the arguments given.
    pub(super) fn function_node(
        &self,
        pos: Pos,
        ty: TypeId,
        function: Function,
        arguments: Vec<Node>,
    ) -> Node {
        let number = if function.changes() { d::CHANGE } else { d::CALL };
        let service = Service { number, operand: Some(function.number()), gives: true };
        Self::service(pos, ty, service, arguments)
    }
}
