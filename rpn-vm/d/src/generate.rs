//! From typed expressions to instructions of the virtual machine.
//!
//! Operands, keys and arguments are evaluated from left to right, each value taken when it is its turn. As in DTrace, the
//! value that `=` assigns comes before the keys or the address on its left.
//!
//! The words of a D program are 64 bits on every guest. A value on the stack is extended to 64 bits as its type asks, so
//! only a conversion that drops bits costs anything. What the machine has no instruction for is a service.

mod assign;
mod compare;
mod shifts;

use crate::error::{Pos, Result};
use crate::node::{Node, NodeKind, Place, Service, Step};
use crate::types::{TypeId, TypeTable};
use assign::Leaves;
use trapline_rpn::services::d::{self, Builtin, Function};
use trapline_rpn::{Insn, Op};

/// Instructions that a clause may have: a run may take no more.
const LONGEST: usize = 60_000;

/// Code of one clause, with the line of each instruction.
pub(crate) struct Code<'t> {
    types: &'t TypeTable,
    pub code: Vec<Insn>,
    pub lines: Vec<u32>,
    /// The same, of the text.
    pub text_lines: Vec<u32>,
    at: Pos,
    /// Where local variables of a clause begin.
    pub clause_slots: (u32, u32),
}

/// A jump whose target is not known yet.
struct Jump(usize);

impl<'t> Code<'t> {
    /// `slots` says where the clause's own variables are numbered from: as the scope has them, and as they lie.
    pub fn new(types: &'t TypeTable, clause_slots: (u32, u32)) -> Self {
        let (code, lines, text_lines) = (Vec::new(), Vec::new(), Vec::new());
        Self { types, code, lines, text_lines, at: Pos::default(), clause_slots }
    }

    fn emit(&mut self, op: Op, arg: u64) {
        self.code.push(Insn { op, arg });
        self.lines.push(self.at.line);
        self.text_lines.push(self.at.text_line);
    }

    fn push(&mut self, value: u64) {
        self.emit(Op::Push, value);
    }

    fn slot(&self, slot: u32) -> u64 {
        let (from, to) = self.clause_slots;
        u64::from(if slot >= from { slot - from + to } else { slot })
    }

    fn jump(&mut self, op: Op) -> Jump {
        self.emit(op, 0);
        Jump(self.code.len() - 1)
    }

    fn land(&mut self, jump: Jump) {
        let here = self.code.len() as u64;
        if let Some(insn) = self.code.get_mut(jump.0) {
            insn.arg = here;
        }
    }

    fn call(&mut self, service: u64) {
        self.push(service);
        self.emit(Op::Callk, 0);
    }

    fn drop(&mut self) {
        self.emit(Op::Ros, 1);
    }

    /// A whole clause.
    pub fn clause(&mut self, predicate: Option<&Node>, steps: &[Step], pos: Pos) -> Result<()> {
        self.at = pos;
        if let Some(predicate) = predicate {
            self.value(predicate);
            let holds = self.jump(Op::Jnz);
            self.emit(Op::Abort, 0);
            self.land(holds);
            self.drop();
        }
        self.steps(steps);
        self.emit(Op::Exit, 0);
        if self.code.len() > LONGEST {
            let sentence =
                format!("the clause needs {} instructions, and {LONGEST} are the most", self.code.len());
            return Err(pos.error("D_PROG_LARGE", sentence));
        }
        Ok(())
    }

    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Evaluate(node) => self.evaluate(node),
                Step::If { condition, then, otherwise } => {
                    self.value(condition);
                    let no = self.jump(Op::Jz);
                    self.drop();
                    self.steps(then);
                    let end = self.jump(Op::Jmp);
                    self.land(no);
                    self.drop();
                    self.steps(otherwise);
                    self.land(end);
                }
            }
        }
        // A jump to the end must have an instruction there.
        self.emit(Op::Nop, 0);
    }

    /// Evaluates for what it does.
    fn evaluate(&mut self, node: &Node) {
        self.at = node.pos;
        match &node.kind {
            NodeKind::Assign { place, value } => self.assign(place, value, node.ty, false),
            NodeKind::Update { place, op, value, .. } => {
                self.update(place, op, value, (node.ty, Leaves::Nothing))
            }
            NodeKind::Service { service, arguments } => {
                self.service(*service, arguments);
                if service.gives {
                    self.drop();
                }
            }
            NodeKind::Const(_) | NodeKind::Text(_) | NodeKind::Translated { .. } => {}
            NodeKind::Comma(..) => {
                let (mut rest, mut last) = (Vec::new(), node);
                while let NodeKind::Comma(left, right) = &last.kind {
                    rest.push(right);
                    last = left;
                }
                self.evaluate(last);
                rest.into_iter().rev().for_each(|node| self.evaluate(node));
            }
            _ => {
                self.value(node);
                self.drop();
            }
        }
    }

    fn service(&mut self, service: Service, arguments: &[Node]) {
        let builtin = service.operand.filter(|_| service.number == d::BUILTIN).and_then(Builtin::from_number);
        if let Some(argument) = builtin.and_then(Builtin::argument) {
            // A clause of D sees 0 where the probe has no such argument.
            self.emit(Op::PushArg, argument);
            return;
        }
        for argument in arguments {
            self.value(argument);
        }
        if let Some(operand) = service.operand {
            self.push(operand);
        }
        self.call(service.number);
        if service.number == d::CALL && service.operand == Some(Function::Speculate.number()) {
            // Without a speculation, the rest of the clause does not run.
            let active = self.jump(Op::Jnz);
            self.emit(Op::Abort, 0);
            self.land(active);
        }
    }

    /// Pushes the value of an expression.
    ///
    /// Operators whose first operands are operators are a chain of any length, which is followed in a loop.
    pub fn value(&mut self, node: &Node) {
        let mut chain = Vec::new();
        let mut last = node;
        while let Some(operand) = self.begin(last) {
            chain.push(last);
            last = operand;
        }
        self.operand(last);
        while let Some(node) = chain.pop() {
            self.operator(node);
        }
    }

    /// The operand that an operator evaluates first, after what comes before it. None for what is no operator.
    fn begin<'n>(&mut self, node: &'n Node) -> Option<&'n Node> {
        match &node.kind {
            NodeKind::Compare(op, left, right) => Some(self.begin_compare(op, left, right)),
            // Its left side has no value.
            NodeKind::Comma(..) => None,
            _ => node.first(),
        }
    }

    /// What is no operator.
    fn operand(&mut self, node: &Node) {
        match &node.kind {
            NodeKind::Const(value) | NodeKind::Text(value) => self.push(*value),
            NodeKind::Load(place) => self.load(place, node.ty),
            NodeKind::Assign { place, value } => self.assign(place, value, node.ty, true),
            NodeKind::Update { place, op, value, after } => {
                let leaves = if *after { Leaves::Old } else { Leaves::New };
                self.update(place, op, value, (node.ty, leaves));
            }
            NodeKind::Conditional(condition, yes, no) => {
                self.value(condition);
                let otherwise = self.jump(Op::Jz);
                self.drop();
                self.value(yes);
                let end = self.jump(Op::Jmp);
                self.land(otherwise);
                self.drop();
                self.value(no);
                self.land(end);
                self.emit(Op::Nop, 0);
            }
            NodeKind::Comma(left, right) => {
                self.evaluate(left);
                self.value(right);
            }
            NodeKind::Service { service, arguments } => {
                self.service(*service, arguments);
                if !service.gives {
                    self.push(0);
                }
            }
            // What a translator makes has no value; operators are not here.
            _ => self.push(0),
        }
    }

    /// An operator whose first operand is on top.
    fn operator(&mut self, node: &Node) {
        match &node.kind {
            NodeKind::Unary(op, _) => {
                self.emit(Op::Neg, 0);
                if *op == "-" {
                    self.push(1);
                    self.emit(Op::Add, 0);
                }
            }
            NodeKind::Binary(op, _, right) => match right.constant() {
                Some(count) if matches!(*op, "<<" | ">>") => self.shift_by(op, count & 63, node.ty),
                Some(by) if *op == "-" => {
                    self.push(by.wrapping_neg());
                    self.emit(Op::Add, 0);
                }
                _ => {
                    self.value(right);
                    self.arithmetic(op, node.ty);
                }
            },
            NodeKind::Compare(op, left, right) => self.compare(op, left, right),
            NodeKind::Not(_) => self.truth(Op::Jz),
            NodeKind::And(_, right) => self.short(Op::Jz, right),
            NodeKind::Or(_, right) => self.short(Op::Jnz, right),
            NodeKind::Xor(_, right) => {
                self.truth(Op::Jnz);
                self.value(right);
                self.truth(Op::Jnz);
                self.emit(Op::Xor, 0);
            }
            NodeKind::Convert(from) if self.widens(from, node.ty) => {}
            NodeKind::Convert(_) => self.cut(node.ty),
            _ => {}
        }
    }

    /// Replaces the top by 1 if the jump is taken on it, else by 0.
    fn truth(&mut self, taken: Op) {
        let yes = self.jump(taken);
        self.drop();
        self.push(0);
        let end = self.jump(Op::Jmp);
        self.land(yes);
        self.drop();
        self.push(1);
        self.land(end);
        self.emit(Op::Nop, 0);
    }

    /// `&&` and `||`: the right side is evaluated unless the jump is taken on the left one.
    fn short(&mut self, decided: Op, right: &Node) {
        let end = self.jump(decided);
        self.drop();
        self.value(right);
        self.land(end);
        self.truth(Op::Jnz);
    }

    /// Truncates the top to a type and extends it.
    fn cut(&mut self, ty: TypeId) {
        match self.types.int(ty) {
            (8.., _) | (0, _) => {}
            (size, true) => self.emit(Op::PblN, size * 8),
            (size, false) => {
                self.push((1 << (size * 8)) - 1);
                self.emit(Op::And, 0);
            }
        }
    }

    /// An operator on the two top elements, in a type.
    fn arithmetic(&mut self, op: &str, ty: TypeId) {
        let signed = self.types.int(ty).1;
        match op {
            "+" => self.emit(Op::Add, 0),
            "-" => {
                self.emit(Op::Xchg, 0);
                self.emit(Op::Sub, 0);
            }
            "*" => self.emit(Op::Mul, 0),
            "&" => self.emit(Op::And, 0),
            "|" => self.emit(Op::Or, 0),
            "^" => self.emit(Op::Xor, 0),
            "/" | "%" => {
                // The divisor is on top; the quotient ends up above the remainder.
                self.emit(if signed { Op::Idiv } else { Op::Div }, 0);
                if op == "/" {
                    self.emit(Op::Xchg, 0);
                }
                self.drop();
            }
            "<<" => {
                self.push(63);
                self.emit(Op::And, 0);
                self.emit(Op::Xchg, 0);
                self.emit(Op::Shl, 0);
            }
            _ => self.shift_right(signed),
        }
    }

    /// The address of a place in memory.
    fn address(&mut self, place: &Place) {
        match place {
            Place::Memory { address, .. } => self.target(address),
            Place::Dynamic { number, keys } => {
                self.keys(keys);
                self.push(u64::from(*number));
                self.call(d::REFERENCE);
            }
            Place::Slot(slot) | Place::Text { slot, .. } => self.emit(Op::PushLvN, self.slot(*slot)),
        }
    }

    /// An address that is written to: of an element that is not there, it is made.
    fn target(&mut self, node: &Node) {
        match &node.kind {
            NodeKind::Load(place @ Place::Dynamic { .. }) if self.types.by_reference(node.ty) => {
                self.address(place)
            }
            NodeKind::Load(Place::Memory { address, .. }) if self.types.by_reference(node.ty) => {
                self.target(address)
            }
            NodeKind::Binary("+", ..) => {
                let (mut rest, mut last) = (Vec::new(), node);
                while let NodeKind::Binary("+", left, right) = &last.kind {
                    rest.push(right);
                    last = left;
                }
                self.target(last);
                for right in rest.into_iter().rev() {
                    // The offset may come first, as in `1 + p`.
                    self.target(right);
                    self.emit(Op::Add, 0);
                }
            }
            _ => self.value(node),
        }
    }

    fn keys(&mut self, keys: &[Node]) {
        for key in keys {
            self.value(key);
        }
    }

    /// Bytes that a value has in memory.
    fn width(&self, ty: TypeId) -> u64 {
        self.types.size(ty).clamp(1, 8)
    }

    /// The value at the address on top.
    fn fetch(&mut self, ty: TypeId) {
        let width = self.width(ty);
        self.emit(
            match width {
                1 => Op::PushMem8,
                2 => Op::PushMem16,
                4 => Op::PushMem32,
                _ => Op::PushMem64,
            },
            0,
        );
        if self.types.int(ty).1 && width < 8 {
            self.emit(Op::PblN, width * 8);
        }
    }

    fn load(&mut self, place: &Place, ty: TypeId) {
        match place {
            Place::Slot(slot) | Place::Text { slot, .. } => self.emit(Op::PushLvN, self.slot(*slot)),
            Place::Dynamic { number, keys } => {
                self.keys(keys);
                self.push(u64::from(*number));
                self.call(d::GET);
            }
            Place::Memory { address, .. } if self.types.by_reference(ty) => self.value(address),
            Place::Memory { address, bits } => {
                self.value(address);
                match bits {
                    None => self.fetch(ty),
                    Some(bits) => self.fetch_bits(*bits, ty),
                }
            }
        }
    }

    fn mask(count: u8) -> u64 {
        if count >= 64 { u64::MAX } else { (1 << count) - 1 }
    }

    fn fetch_bits(&mut self, (first, count): (u8, u8), ty: TypeId) {
        self.unit(ty);
        self.emit(Op::ShrN, first.into());
        self.push(Self::mask(count));
        self.emit(Op::And, 0);
        if self.types.int(ty).1 && count < 64 {
            self.emit(Op::PblN, count.into());
        }
    }

    /// The unit that holds a bit-field, without a sign.
    fn unit(&mut self, ty: TypeId) {
        self.emit(
            match self.width(ty) {
                1 => Op::PushMem8,
                2 => Op::PushMem16,
                4 => Op::PushMem32,
                _ => Op::PushMem64,
            },
            0,
        );
    }

    /// Stores the top at the address under it, and takes both.
    fn store(&mut self, ty: TypeId) {
        self.push(self.width(ty));
        self.call(d::STORE);
    }

    /// Stores the top in the bits of the unit at the address under it, and takes both.
    fn store_bits(&mut self, (first, count): (u8, u8), ty: TypeId) {
        let mask = Self::mask(count) << first;
        self.emit(Op::ShlN, first.into());
        self.push(mask);
        self.emit(Op::And, 0);
        self.emit(Op::PushTspN, (-1i64) as u64);
        self.unit(ty);
        self.push(!mask);
        self.emit(Op::And, 0);
        self.emit(Op::Or, 0);
        self.store(ty);
    }
}
