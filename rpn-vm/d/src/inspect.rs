//! Expressions of D over a guest that stands still, for who looks at its memory: no program, no clause, no code.
//!
//! The checker finds what a text means, as in a clause, and so types, members, casts and translators are D's. The typed expression
//! is then evaluated here, because a looker wants what no clause can give: the place of what an expression names.

mod fields;

pub use fields::{Field, Fields};

use crate::check::Checker;
use crate::compile::Compiler;
use crate::error::{Error, Result};
use crate::guest::{TypeTag, Types, scoped};
use crate::node::{Node, NodeKind, Place, Service};
use crate::options::Options;
use crate::parse::{Reading, parse_expression};
use crate::types::{Kind, Model, TypeId};
use std::sync::Arc;
use trapline_rpn::services::d::{self, Builtin, Function};

/// A guest that stands still.
pub trait Standing {
    /// Reads memory at a linear address; returns how many bytes can be read.
    fn read(&self, address: u64, to: &mut [u8]) -> usize;

    /// The value of a register by its name, in lower case.
    fn register(&self, name: &str) -> Option<u64>;

    /// The value of one of D's built-in variables, if it has one outside of clauses: `curthread`.
    fn builtin(&self, name: &str) -> Option<u64>;

    /// What an address is called.
    fn symbol(&self, address: u64) -> Option<String>;
}

/// A value of the guest in memory, with its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    ty: TypeId,
    address: u64,
    /// The first bit, and how many, of a bit-field.
    bits: Option<(u8, u8)>,
}

impl Seen {
    /// Its linear address.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }
}

/// What an expression names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Bytes at this address, of which no type is known: the expression is a number, or a pointer to no type.
    Bytes(u64),
    /// A value with a type.
    Value(Seen),
}

/// Evaluates expressions, and shows what they name.
#[derive(Clone)]
pub struct Inspector {
    compiler: Compiler,
}

impl std::fmt::Debug for Inspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspector").finish_non_exhaustive()
    }
}

impl Inspector {
    /// For a guest with these types.
    #[must_use]
    pub fn new(model: Model, guest: Arc<dyn Types>) -> Self {
        Self { compiler: Compiler::new(model, Options::default()).with_types(guest) }
    }

    /// What the expression names: a struct, an array or a number in memory; of a pointer to a struct, the struct. A name is one of
    /// D's, a symbol of the kernel or a register.
    ///
    /// # Errors
    /// The text is no expression, or uses a name that is not known, or what it reads is not mapped.
    pub fn evaluate(&mut self, text: &str, guest: &dyn Standing) -> std::result::Result<Found, Error> {
        let node = self.checked(text, guest)?;
        let types = &self.compiler.types;
        let evaluation = Evaluation { word: types.model.word(), compiler: &self.compiler, guest };
        if types.is_string(node.ty) {
            return evaluation.address(&node).map(Found::Bytes);
        }
        if types.by_reference(node.ty) {
            return Ok(Found::Value(Seen { ty: node.ty, address: evaluation.address(&node)?, bits: None }));
        }
        let place = match &node.kind {
            NodeKind::Load(Place::Memory { address, bits }) => {
                Some(Seen { ty: node.ty, address: evaluation.address(address)?, bits: *bits })
            }
            _ => None,
        };
        let value = evaluation.address(&node)?;
        let Some(to) = types.target(node.ty) else {
            return Ok(place.map_or(Found::Bytes(value), Found::Value));
        };
        let is_text = types.is_char_pointer(node.ty);
        self.compiler.types.settle(to);
        let types = &self.compiler.types;
        let is_declared = types.composite(to).map(|sou| sou.members.is_some());
        match (place, is_declared) {
            // A pointer in memory is a value; where it leads to a struct, that is what was asked for.
            (Some(seen), None | Some(false)) => Ok(Found::Value(seen)),
            (Some(seen), _) if value == 0 => Ok(Found::Value(seen)),
            (None, Some(false)) => {
                let sentence =
                    format!("the guest has no type `{}`; types are from BTF or DWARF", types.name(to));
                Err(node.pos.error("D_OP_INCOMPLETE", sentence))
            }
            _ if is_text || matches!(types.kind(to), Kind::Void | Kind::Function { .. }) => {
                Ok(Found::Bytes(value))
            }
            _ => Ok(Found::Value(Seen { ty: to, address: value, bits: None })),
        }
    }

    /// The typed expression.
    fn checked(&mut self, text: &str, guest: &dyn Standing) -> Result<Node> {
        let compiler = &mut self.compiler;
        compiler.libraries(text.as_bytes())?;
        let types = Arc::clone(&compiler.types.imports.guest);
        let of_guest = |name: &str| {
            let (module, name) = scoped(name);
            types.type_named(TypeTag::Typedef, module, name).is_some()
        };
        let known = |name: &str| compiler.types.is_typedef(name);
        // gdb writes a register with a dollar.
        let dollar =
            |name: &str| guest.register(&name.to_lowercase()).map(|value| value.to_string().into_bytes());
        let reading =
            Reading { macros: &dollar, known: &known, of_guest: &of_guest, descriptions_first: false };
        let expr = parse_expression(text, reading)?;
        let register = |name: &str| guest.register(&name.to_lowercase());
        let mut checker = Checker::new(&mut compiler.types, &mut compiler.scope, &compiler.options);
        checker.registers = Some(&register);
        checker.expr(&expr)
    }
}

/// Evaluates a typed expression.
struct Evaluation<'i> {
    compiler: &'i Compiler,
    guest: &'i dyn Standing,
    word: u64,
}

impl Evaluation<'_> {
    /// A value that is an address.
    fn address(&self, node: &Node) -> Result<u64> {
        let value = self.value(node)?;
        Ok(if self.word < 8 { value & 0xffff_ffff } else { value })
    }

    /// First operands form chains of any length, which are followed in a loop.
    fn value(&self, node: &Node) -> Result<u64> {
        let (mut chain, mut last) = (Vec::new(), node);
        while let Some(first) = last.first() {
            chain.push(last);
            last = first;
        }
        let mut value = self.operand(last)?;
        for node in chain.into_iter().rev() {
            value = self.operator(node, value)?;
        }
        Ok(value)
    }

    fn operand(&self, node: &Node) -> Result<u64> {
        match &node.kind {
            NodeKind::Const(value) => Ok(*value),
            NodeKind::Load(Place::Memory { address, .. }) if self.compiler.types.by_reference(node.ty) => {
                self.value(address)
            }
            NodeKind::Load(Place::Memory { address, bits }) => {
                let address = self.address(address)?;
                let (size, signed) = self.compiler.types.int(node.ty);
                let size = if self.compiler.types.is_pointer(node.ty) { self.word } else { size };
                number(self.guest, address, size, *bits, signed).ok_or_else(|| {
                    node.pos.error("D_ADDR", format!("nothing is mapped at {address:#x}, which this reads"))
                })
            }
            NodeKind::Conditional(condition, yes, no) => {
                self.value(if self.value(condition)? == 0 { no } else { yes })
            }
            NodeKind::Service { service, arguments } => self.service(node, *service, arguments),
            NodeKind::Load(_) | NodeKind::Assign { .. } | NodeKind::Update { .. } => {
                let sentence = "memory is only looked at here: no variable of a program is read, and nothing is assigned";
                Err(node.pos.error("D_ACT", sentence))
            }
            NodeKind::Text(_) => {
                Err(node.pos.error("D_ACT", "a string of a program is not in the guest's memory"))
            }
            _ => Err(node.pos.error("D_ACT", "what a translator makes has no value; its members have")),
        }
    }

    fn service(&self, node: &Node, service: Service, arguments: &[Node]) -> Result<u64> {
        let in_clause =
            |what: &str| node.pos.error("D_ACT", format!("{what} has a value only in a clause of a program"));
        match (service.number, service.operand) {
            (d::BUILTIN, Some(number)) => {
                let name = Builtin::from_number(number).map_or("this variable", Builtin::name);
                self.guest.builtin(name).ok_or_else(|| in_clause(name))
            }
            (_, Some(number)) if number == Function::Bounds.number() && service.number == d::CALL => {
                let [index, length] = arguments else { return Err(in_clause("this index")) };
                let (index, length) = (self.value(index)?, self.value(length)?);
                let sentence =
                    || format!("index outside array bounds: {}, the array has {length}", index as i64);
                (index < length).then_some(index).ok_or_else(|| node.pos.error("D_ARR_BOUNDS", sentence()))
            }
            _ => Err(in_clause("what a function gives")),
        }
    }

    /// An operator whose first operand has this value.
    fn operator(&self, node: &Node, first: u64) -> Result<u64> {
        let (size, signed) = self.compiler.types.int(node.ty);
        Ok(match &node.kind {
            NodeKind::Unary("-", _) => first.wrapping_neg(),
            NodeKind::Unary(..) => !first,
            NodeKind::Binary(op, _, right) => {
                let right = self.value(right)?;
                arithmetic(op, signed, first, right)
                    .ok_or_else(|| node.pos.error("D_DIV_ZERO", "expression contains division by zero"))?
            }
            NodeKind::Compare(op, left, right) => {
                let (right, signed) = (self.value(right)?, self.compiler.types.int(left.ty).1);
                let order = if signed { (first as i64).cmp(&(right as i64)) } else { first.cmp(&right) };
                u64::from(match *op {
                    "==" => order.is_eq(),
                    "!=" => order.is_ne(),
                    "<" => order.is_lt(),
                    "<=" => order.is_le(),
                    ">" => order.is_gt(),
                    _ => order.is_ge(),
                })
            }
            NodeKind::Not(_) => u64::from(first == 0),
            NodeKind::And(_, right) => u64::from(first != 0 && self.value(right)? != 0),
            NodeKind::Or(_, right) => u64::from(first != 0 || self.value(right)? != 0),
            NodeKind::Xor(_, right) => u64::from((first != 0) != (self.value(right)? != 0)),
            NodeKind::Comma(_, right) => self.value(right)?,
            _ => cut(first, size * 8, signed),
        })
    }
}

/// An operator of arithmetic on 64 bits, as the machine's instructions compute it; `None`: a division by zero.
fn arithmetic(op: &str, signed: bool, left: u64, right: u64) -> Option<u64> {
    let count = (right & 63) as u32;
    Some(match op {
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        "&" => left & right,
        "|" => left | right,
        "^" => left ^ right,
        "<<" => left << count,
        ">>" if signed => ((left as i64) >> count) as u64,
        ">>" => left >> count,
        _ if right == 0 => return None,
        "/" if signed => (left as i64).wrapping_div(right as i64) as u64,
        "/" => left / right,
        _ if signed => (left as i64).wrapping_rem(right as i64) as u64,
        _ => left % right,
    })
}

/// The low bits, extended.
fn cut(value: u64, bits: u64, signed: bool) -> u64 {
    let shift = 64_u64.saturating_sub(bits).min(63);
    if bits == 0 {
        return value;
    }
    let value = value << shift;
    if signed { ((value as i64) >> shift) as u64 } else { value >> shift }
}

/// A number of so many bytes in memory; of a bit-field, its bits.
fn number(
    guest: &dyn Standing,
    address: u64,
    size: u64,
    bits: Option<(u8, u8)>,
    signed: bool,
) -> Option<u64> {
    let mut bytes = [0; 8];
    let wanted = bytes.get_mut(..size.clamp(1, 8) as usize)?;
    let length = wanted.len();
    (guest.read(address, wanted) == length).then_some(())?;
    let all = u64::from_le_bytes(bytes);
    let (first, count) = bits.unwrap_or((0, (length * 8) as u8));
    Some(cut(all >> first.min(63), count.into(), signed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::NoTypes;

    /// Memory from 0x1000 on that counts, and `rax`, which is 0x1010.
    struct Counting;

    impl Standing for Counting {
        fn read(&self, address: u64, to: &mut [u8]) -> usize {
            let all = (0x1000..0x1100).contains(&address);
            to.iter_mut().zip(address..).for_each(|(to, at)| *to = at as u8);
            if all { to.len() } else { 0 }
        }

        fn register(&self, name: &str) -> Option<u64> {
            (name == "rax").then_some(0x1010)
        }

        fn builtin(&self, name: &str) -> Option<u64> {
            (name == "pid").then_some(0x1020)
        }

        fn symbol(&self, _: u64) -> Option<String> {
            None
        }
    }

    fn evaluated(text: &str) -> std::result::Result<Found, Error> {
        Inspector::new(Model::Lp64, Arc::new(NoTypes)).evaluate(text, &Counting)
    }

    #[test]
    fn numbers_registers_and_casts_are_those_of_d() {
        for (text, address) in [
            ("0x1000", 0x1000),
            ("rax + 8", 0x1018),
            ("$rax * 2 - 1", 0x201f),
            ("RAX", 0x1010),
            ("pid", 0x1020),
            ("(uint8_t)rax", 0x10),
            ("(int8_t)0x90 == -112 ? 7 : 8", 7),
            ("-8 >> 1 == -4 && 7 / 2 == 3 && -7 % 4 == -3", 1),
            ("sizeof (long)", 8),
            ("*(uint8_t *)rax * 256", 0x1000),
            ("(char *)rax", 0x1010),
            ("stringof(rax)", 0x1010),
            ("((uint16_t *)0x1000)[1] & ~0xff", 0x300),
        ] {
            assert_eq!(evaluated(text), Ok(Found::Bytes(address)), "{text}");
        }
        for text in ["*(int *)rax", "((struct { int a; int b; } *)rax)->b", "(int *)0x1010"] {
            let found = evaluated(text);
            assert!(matches!(found, Ok(Found::Value(_))), "{text}: {found:?}");
        }
    }

    #[test]
    fn what_cannot_be_looked_at_is_refused_with_a_sentence() {
        for (text, why) in [
            ("rax +", "syntax error"),
            ("rax rax", "syntax error"),
            ("nothing", "Unknown variable name"),
            ("*(int *)0x2000 + 1", "nothing is mapped at 0x2000"),
            ("1 / (rax - rax)", "division by zero"),
            ("arg0", "only in a clause"),
            ("x = 1", "nothing is assigned"),
            ("@a", "is an aggregation"),
        ] {
            let found = evaluated(text);
            assert!(found.as_ref().is_err_and(|error| error.message.contains(why)), "{text}: {found:?}");
        }
    }
}
