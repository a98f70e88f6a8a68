//! Functions that have a value, with their prototypes.

use super::Checker;
use super::callable::Callable;
use crate::ast::Expr;
use crate::error::{Pos, Result};
use crate::node::{Node, NodeKind, Service};
use crate::types::TypeId;
use trapline_rpn::services::d::{self, Function};

/// What an argument has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Int,
    /// An address: a pointer, an array or a string; also an integer.
    Address,
    /// A pointer to the user's memory or an integer, but no string.
    Pointer,
    /// An address from `alloca()`.
    Alloca,
    Text,
}

/// A function: its arguments, how many of them must be there, what it gives.
struct Prototype {
    function: Function,
    arguments: &'static [Kind],
    least: usize,
    gives: &'static str,
}

const fn row(function: Function, arguments: &'static [Kind], least: usize, gives: &'static str) -> Prototype {
    Prototype { function, arguments, least, gives }
}

use Kind::{Address, Alloca, Int, Pointer, Text};

/// All functions. `void *` is made a pointer below.
const PROTOTYPES: &[Prototype] = &[
    row(Function::Alloca, &[Int], 1, "void *"),
    row(Function::Breakpoint, &[], 0, "void"),
    row(Function::Chill, &[Int], 1, "void"),
    row(Function::Copyout, &[Address, Pointer, Int], 3, "void"),
    row(Function::Copyoutstr, &[Text, Pointer, Int], 3, "void"),
    row(Function::Panic, &[], 0, "void"),
    row(Function::Basename, &[Text], 1, "string"),
    row(Function::Bcopy, &[Address, Alloca, Int], 3, "void"),
    row(Function::Cleanpath, &[Text], 1, "string"),
    row(Function::Copyin, &[Pointer, Int], 2, "void *"),
    row(Function::Copyinstr, &[Pointer, Int], 1, "string"),
    row(Function::Copyinto, &[Pointer, Int, Alloca], 3, "void"),
    row(Function::DPath, &[Pointer], 1, "string"),
    row(Function::Psargs, &[Pointer, Int, Int], 3, "string"),
    row(Function::Progenyof, &[Int, Int, Int], 3, "int"),
    row(Function::Dirname, &[Text], 1, "string"),
    row(Function::Getmajor, &[Int], 1, "uint64_t"),
    row(Function::Getminor, &[Int], 1, "uint64_t"),
    row(Function::Htonl, &[Int], 1, "uint32_t"),
    row(Function::Htonll, &[Int], 1, "uint64_t"),
    row(Function::Htons, &[Int], 1, "uint16_t"),
    row(Function::Ntohl, &[Int], 1, "uint32_t"),
    row(Function::Ntohll, &[Int], 1, "uint64_t"),
    row(Function::Ntohs, &[Int], 1, "uint16_t"),
    row(Function::Index, &[Text, Text, Int], 2, "int"),
    row(Function::Rindex, &[Text, Text, Int], 2, "int"),
    row(Function::InetNtoa, &[Address], 1, "string"),
    row(Function::InetNtoa6, &[Address], 1, "string"),
    row(Function::InetNtop, &[Int, Address], 2, "string"),
    row(Function::LinkNtop, &[Int, Address], 2, "string"),
    row(Function::Lltostr, &[Int, Int], 1, "string"),
    row(Function::Rand, &[], 0, "int"),
    row(Function::Speculation, &[], 0, "int"),
    row(Function::Strchr, &[Text, Int], 2, "string"),
    row(Function::Strrchr, &[Text, Int], 2, "string"),
    row(Function::Strjoin, &[Text, Text], 2, "string"),
    row(Function::Strlen, &[Text], 1, "size_t"),
    row(Function::Strstr, &[Text, Text], 2, "string"),
    row(Function::Strtok, &[Text, Text], 2, "string"),
    row(Function::Strtoll, &[Text, Int], 1, "int64_t"),
    row(Function::Substr, &[Text, Int, Int], 2, "string"),
    row(Function::Tolower, &[Text], 1, "string"),
    row(Function::Toupper, &[Text], 1, "string"),
];

/// Functions of DTrace that are not supported yet: name, least and most arguments.
const ABSENT: &[(&str, usize, usize)] = &[
    ("mutex_owned", 1, 1),
    ("mutex_owner", 1, 1),
    ("mutex_type_adaptive", 1, 1),
    ("mutex_type_spin", 1, 1),
    ("rw_iswriter", 1, 1),
    ("rw_read_held", 1, 1),
    ("rw_write_held", 1, 1),
    ("ddi_pathname", 2, 2),
    ("getf", 1, 1),
    ("msgsize", 1, 1),
    ("msgdsize", 1, 1),
    ("json", 2, 2),
];

/// Whether the process descends from another one: an inline of the library, because it needs the kernel's types.
const PROGENYOF: &str = "progenyof";

/// What writes to a driver's channel. It is no function of DTrace.
const DTI: &str = "dti";

/// The functions, for the reference: without those that only the library calls.
pub(super) fn listed() -> Vec<Callable> {
    let word = |kind: &Kind| match kind {
        Int => "int",
        Text => "string",
        Address | Pointer => "address",
        Alloca => "alloca",
    };
    let public = PROTOTYPES.iter().filter(|row| !row.function.name().starts_with("__"));
    let mut listed: Vec<Callable> = public
        .map(|row| Callable {
            name: row.function.name(),
            gives: Some(row.gives),
            arguments: row.arguments.iter().map(word).collect(),
            least: row.least,
            more: false,
        })
        .collect();
    let own = |name, arguments, least| Callable { name, gives: Some("int"), arguments, least, more: false };
    listed.push(own(PROGENYOF, vec!["int"], 1));
    listed.push(own(DTI, vec!["string", "int", "string or address", "int"], 3));
    listed.sort_unstable_by_key(|one| one.name);
    listed
}

/// "1 arg passed", "3 args passed".
pub(super) fn passed(count: usize) -> String {
    format!("{count} arg{} passed", if count == 1 { "" } else { "s" })
}

/// The sentence about a wrong number of arguments.
pub(super) fn wrong_count(name: &str, given: usize, least: usize, most: usize) -> String {
    let expected = match (least, most) {
        (least, most) if least == most => format!("{least} expected"),
        (least, _) if given < least => format!("at least {least} expected"),
        (_, most) => format!("at most {most} expected"),
    };
    format!("{name}( ) prototype mismatch: {}, {expected}", passed(given))
}

impl Checker<'_> {
    /// Everything that can be called.
    pub(super) fn callable() -> impl Iterator<Item = &'static str> {
        let functions = PROTOTYPES.iter().map(|row| row.function.name());
        functions.chain([DTI, PROGENYOF]).chain(Self::actions()).chain(Self::aggregating())
    }

    /// Whether a name is that of a function with a value.
    pub(super) fn is_function(name: &str) -> bool {
        PROTOTYPES.iter().any(|row| row.function.name() == name)
            || ABSENT.iter().any(|(absent, ..)| *absent == name)
            || matches!(name, DTI | PROGENYOF)
    }

    /// `dti(name, priority, string)` or `dti(name, priority, address, length)`: writes to a driver's channel.
    fn dti(&mut self, arguments: &[Expr], pos: Pos) -> Result<Node> {
        if !(3..=4).contains(&arguments.len()) {
            return Err(pos.error("D_PROTO_LEN", wrong_count(DTI, arguments.len(), 3, 4)));
        }
        self.destructive(pos)?;
        let data = if arguments.len() == 4 { (Address, "an address") } else { (Text, "a string") };
        let wanted = [(Text, "a string"), (Int, "an integer"), data, (Int, "an integer")];
        let mut nodes = Vec::new();
        for (n, (argument, (kind, said))) in arguments.iter().zip(wanted).enumerate() {
            let node = self.expr(argument)?;
            if !self.suits(&node, kind) {
                return Err(self.wrong_argument(DTI, n, said, &node, pos));
            }
            nodes.push(if self.types.by_reference(node.ty) { Self::decayed(node) } else { node });
        }
        if nodes.len() == 3 {
            nodes.push(Node::new(pos, self.types.builtin("int64_t"), NodeKind::Const(i64::MIN as u64)));
        }
        let service = Service { number: d::DTI, operand: None, gives: true };
        Ok(Self::service(pos, self.types.builtin("int"), service, nodes))
    }

    fn progenyof(&mut self, arguments: &[Expr], pos: Pos) -> Result<Node> {
        if arguments.len() != 1 {
            return Err(pos.error("D_PROTO_LEN", wrong_count(PROGENYOF, arguments.len(), 1, 1)));
        }
        let Some(inline) = self.inline_of(PROGENYOF)? else {
            return Err(Self::needs_types("progenyof( )", pos));
        };
        let mut node = self.expr(&arguments[0])?;
        if !self.suits(&node, Int) {
            return Err(self.wrong_argument(PROGENYOF, 0, "an integer", &node, pos));
        }
        node.pos = pos;
        self.expand_inline(&inline, vec![node], pos)
    }

    /// `name(arguments)` with a value.
    pub(super) fn call(&mut self, name: &str, arguments: &[Expr], pos: Pos) -> Result<Node> {
        if Self::is_aggregating(name) {
            let sentence = format!("{name}( ) may only be used to assign to an aggregation");
            return Err(pos.error("D_CG_EXPR", sentence));
        }
        if Self::is_stack(name) {
            return self.stack_value(name, arguments, pos);
        }
        if Self::is_action(name) {
            return self.action(name, arguments, pos);
        }
        if name == DTI {
            return self.dti(arguments, pos);
        }
        if name == PROGENYOF {
            return self.progenyof(arguments, pos);
        }
        if let Some((_, least, most)) = ABSENT.iter().find(|(absent, ..)| *absent == name) {
            if !(*least..=*most).contains(&arguments.len()) {
                return Err(pos.error("D_PROTO_LEN", wrong_count(name, arguments.len(), *least, *most)));
            }
            return Err(pos.error("D_UNSUPPORTED", format!("{name}( ) is not supported yet")));
        }
        let Some(row) = PROTOTYPES.iter().find(|row| row.function.name() == name) else {
            let known = self.scope.functions.contains_key(name) || self.scope.globals.contains_key(name);
            let sentence = if known {
                format!("'{name}' may not be called: it is not a function of D")
            } else {
                format!("undefined function name: {name}")
            };
            let error = pos.error(if known { "D_IDENT_BADREF" } else { "D_FUNC_UNDEF" }, sentence);
            return Err(if known { error } else { error.near(name, Self::callable()) });
        };
        if !(row.least..=row.arguments.len()).contains(&arguments.len()) {
            let sentence = wrong_count(name, arguments.len(), row.least, row.arguments.len());
            return Err(pos.error("D_PROTO_LEN", sentence));
        }
        let mut nodes = Vec::new();
        for (n, (argument, kind)) in arguments.iter().zip(row.arguments).enumerate() {
            let node = self.expr(argument)?;
            if !self.suits(&node, *kind) {
                let wanted = match kind {
                    Int => "an integer",
                    Text => "a string",
                    Alloca => "a pointer out of alloca( )",
                    Address | Pointer => "an address",
                };
                return Err(self.wrong_argument(name, n, wanted, &node, pos));
            }
            // A string that is NULL by itself asks `strtok()` for the rest of the last one.
            let rest = row.function == Function::Strtok && n == 0 && node.constant() == Some(0);
            let node = if rest { Node { kind: NodeKind::Const(i64::MIN as u64), ..node } } else { node };
            nodes.push(if self.types.by_reference(node.ty) { Self::decayed(node) } else { node });
        }
        if row.function.changes() {
            self.destructive(pos)?;
            self.scope.panics |= row.function == Function::Panic;
            // A commit is refused after it, as after what records data.
            self.records(pos)?;
        }
        self.check_size(row.function, &nodes, pos)?;
        let ty = self.result_type(row);
        // This number stands for an optional argument that is missing.
        for _ in nodes.len()..row.arguments.len() {
            nodes.push(Node::new(pos, self.types.builtin("int64_t"), NodeKind::Const(i64::MIN as u64)));
        }
        let alloca = matches!(row.function, Function::Alloca | Function::Copyin);
        Ok(Node { alloca, ..self.function_node(pos, ty, row.function, nodes) })
    }

    fn result_type(&mut self, row: &Prototype) -> TypeId {
        let void = self.types.builtin("void");
        if row.gives == "void *" { self.types.pointer(void) } else { self.types.builtin(row.gives) }
    }

    /// The error of an argument that is of another type.
    pub(super) fn wrong_argument(
        &self,
        name: &str,
        n: usize,
        wanted: &str,
        node: &Node,
        pos: Pos,
    ) -> crate::Error {
        let sentence = format!(
            "{name}( ) argument #{} is incompatible with prototype:\n\tprototype: {wanted}\n\t argument: {}",
            n + 1,
            self.types.name(node.ty)
        );
        pos.error("D_PROTO_ARG", sentence)
    }

    fn suits(&self, node: &Node, kind: Kind) -> bool {
        if matches!(node.kind, NodeKind::Translated { .. }) {
            return false;
        }
        match kind {
            Int => self.types.is_integer(node.ty),
            Address => self.types.is_scalar(node.ty) || self.types.by_reference(node.ty),
            Pointer => self.types.is_scalar(node.ty),
            Alloca => self.types.is_pointer(node.ty) && (node.alloca || node.constant() == Some(0)),
            Text => self.is_text(node.ty) || node.constant() == Some(0),
        }
    }

    /// What cannot fit into scratch memory is refused before the run.
    fn check_size(&self, function: Function, nodes: &[Node], pos: Pos) -> Result<()> {
        let size = match function {
            Function::Alloca => nodes.first(),
            Function::Copyin => nodes.get(1),
            _ => None,
        };
        let most = self.options.number("scratchsize");
        match size.and_then(Node::constant) {
            Some(size) if size > most => {
                let name = function.name();
                let sentence = format!("{name}({size}) size larger than scratchsize {most}");
                Err(pos.error("D_ALLOCA_SIZE", sentence))
            }
            _ => Ok(()),
        }
    }
}
