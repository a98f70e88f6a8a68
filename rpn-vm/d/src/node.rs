//! Expressions whose names and types are resolved, from which code is generated.

mod first;

use crate::error::Pos;
use crate::types::TypeId;
use trapline_rpn::services::d::{self, Function};

pub(crate) use first::First;

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
    Unary(&'static str, First),
    /// Arithmetic on operands of the node's own type.
    Binary(&'static str, First, Box<Node>),
    /// A comparison of operands of one type.
    Compare(&'static str, First, Box<Node>),
    Not(First),
    And(First, Box<Node>),
    Or(First, Box<Node>),
    Xor(First, Box<Node>),
    Conditional(Box<Node>, Box<Node>, Box<Node>),
    Comma(First, Box<Node>),
    /// A conversion to the node's own type.
    Convert(First),
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
    /// The expressions in it.
    fn parts(&self) -> &[Node] {
        match self {
            Self::Slot(_) | Self::Text { .. } => &[],
            Self::Dynamic { keys, .. } => keys,
            Self::Memory { address, .. } => std::slice::from_ref(&**address),
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
        let mut open = vec![self];
        while let Some(node) = open.pop() {
            let own = match &node.kind {
                NodeKind::Assign { .. } | NodeKind::Update { .. } => true,
                NodeKind::Service { service, .. } => service.has_effect(),
                _ => false,
            };
            if own {
                return true;
            }
            open.extend(node.first());
            open.extend(node.inner());
        }
        false
    }

    /// The number of nodes in it, and how deep they are one inside the other. First operands do not count as inside.
    pub fn measure(&self) -> (u64, u32) {
        let (mut count, mut deepest) = (0, 0);
        let mut open = vec![(self, 0)];
        while let Some((node, depth)) = open.pop() {
            (count, deepest) = (count + 1, depth.max(deepest));
            open.extend(node.first().map(|first| (first, depth)));
            open.extend(node.inner().map(|inner| (inner, depth + 1)));
        }
        (count, deepest)
    }

    /// The integer, if it is a constant.
    pub fn constant(&self) -> Option<u64> {
        match self.kind {
            NodeKind::Const(value) => Some(value),
            _ => None,
        }
    }
}
