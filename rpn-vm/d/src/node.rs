//! Expressions whose names and types are resolved, from which code is generated.

use crate::error::Pos;
use crate::types::TypeId;

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

    /// The integer, if it is a constant.
    pub fn constant(&self) -> Option<u64> {
        match self.kind {
            NodeKind::Const(value) => Some(value),
            _ => None,
        }
    }
}
