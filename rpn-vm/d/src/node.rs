//! Expressions whose names and types are resolved, from which code is generated.

use crate::error::Pos;
use crate::types::TypeId;
use trapline_rpn::services::d::{self, Function};

/// A typed expression.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub pos: Pos,
    pub ty: TypeId,
    pub kind: NodeKind,
    /// Whether it is an address from `alloca()`.
    pub alloca: bool,
}

/// A service of the virtual machine's host, and what it leaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Service {
    pub number: u64,
    /// Pushed last, after the arguments.
    pub operand: Option<u64>,
    /// Whether it pushes a value.
    pub gives: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum NodeKind {
    /// An integer, extended to 64 bits as its type asks.
    Const(u64),
    /// The address of a string of the program.
    Text(u64),
    Load(Place),
    Assign {
        place: Place,
        value: Box<Node>,
    },
    /// `+=` and the like, `++` and `--`. `value` has the type of the computation.
    Update {
        place: Place,
        op: &'static str,
        value: Box<Node>,
        after: bool,
    },
    /// `-` and `~`.
    Unary(&'static str, Box<Node>),
    /// Arithmetic on operands of the node's own type.
    Binary(&'static str, Box<Node>, Box<Node>),
    /// A comparison of operands of one type.
    Compare(&'static str, Box<Node>, Box<Node>),
    Not(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Xor(Box<Node>, Box<Node>),
    Conditional(Box<Node>, Box<Node>, Box<Node>),
    Comma(Box<Node>, Box<Node>),
    /// A conversion to the node's own type.
    Convert(Box<Node>),
    Service {
        service: Service,
        arguments: Vec<Node>,
    },
    /// The result of a translator; only its members have values.
    Translated {
        translator: usize,
        input: Box<Node>,
    },
}

/// Something that can be assigned to.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// A scalar in a variable of the virtual machine.
    Slot(u32),
    /// A string: the variable holds 0 or the address of the buffer.
    Text { slot: u32, buffer: u64 },
    /// An element of an associative array, or a thread-local variable.
    Dynamic { number: u32, keys: Vec<Node> },
    /// Memory, with the bits of a bit-field: the first, and how many.
    Memory { address: Box<Node>, bits: Option<(u8, u8)> },
}

impl Place {
    fn has_effect(&self) -> bool {
        match self {
            Self::Slot(_) | Self::Text { .. } => false,
            Self::Dynamic { keys, .. } => keys.iter().any(Node::has_effect),
            Self::Memory { address, .. } => address.has_effect(),
        }
    }
}

impl Service {
    /// Whether a second call does something else than the first one.
    fn has_effect(self) -> bool {
        use Function::{Alloca, Bcopy, Copyin, Copyinto, Rand, Speculation, Strtok};
        match self.number {
            d::CALL => {
                let function = self.operand.and_then(Function::from_number);
                let pure = |function| {
                    !matches!(function, Alloca | Bcopy | Copyin | Copyinto | Rand | Speculation | Strtok)
                };
                !function.is_some_and(pure)
            }
            d::GET | d::BUILTIN | d::LESS | d::BELOW => false,
            _ => true,
        }
    }
}

/// What a clause does, in order.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// An expression whose value is not used.
    Evaluate(Node),
    If {
        condition: Node,
        then: Vec<Step>,
        otherwise: Vec<Step>,
    },
}

impl Node {
    pub fn new(pos: Pos, ty: TypeId, kind: NodeKind) -> Self {
        Self { pos, ty, kind, alloca: false }
    }

    /// Whether evaluating it twice is something else than evaluating it once.
    pub fn has_effect(&self) -> bool {
        match &self.kind {
            NodeKind::Assign { .. } | NodeKind::Update { .. } => true,
            NodeKind::Const(_) | NodeKind::Text(_) => false,
            NodeKind::Load(place) => place.has_effect(),
            NodeKind::Unary(_, one) | NodeKind::Not(one) | NodeKind::Convert(one) => one.has_effect(),
            NodeKind::Translated { input, .. } => input.has_effect(),
            NodeKind::Binary(_, one, other)
            | NodeKind::Compare(_, one, other)
            | NodeKind::And(one, other)
            | NodeKind::Or(one, other)
            | NodeKind::Xor(one, other)
            | NodeKind::Comma(one, other) => one.has_effect() || other.has_effect(),
            NodeKind::Conditional(one, two, three) => {
                one.has_effect() || two.has_effect() || three.has_effect()
            }
            NodeKind::Service { service, arguments } => {
                service.has_effect() || arguments.iter().any(Self::has_effect)
            }
        }
    }

    /// The integer, if it is a constant.
    pub fn constant(&self) -> Option<u64> {
        match self.kind {
            NodeKind::Const(value) => Some(value),
            _ => None,
        }
    }
}
