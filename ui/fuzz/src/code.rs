//! The code of the handlers, as far as the search needs it: where values are compared, and which operations were reached.

use std::sync::Arc;

use trapline_interposer::ProgramId;
use trapline_rpn::{Op, OperandKind, Reg, Shape, Verified, by_index, services};

use crate::hits::{Handler, Hits};
use crate::units::is_same;

/// How an operation compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compares {
    /// It does not.
    Nothing,
    /// The two topmost elements.
    Two,
    /// The topmost element with 0.
    Zero,
    /// By a service, whose number is on top of the two.
    Service,
}

/// Slots of the map for one comparison: the number of equal low bits.
pub const SLOTS: usize = 66;

/// The code of a [`Unit`](crate::units::Unit) that is searched.
pub struct Code {
    /// The program.
    program: ProgramId,
    /// The name of its unit.
    pub name: String,
    /// How each operation compares, and the number of the comparison.
    pub compares: Vec<(Compares, u32)>,
    /// Which operations were reached.
    pub reached: Vec<bool>,
    /// Handlers: the probe point, the handler.
    pub handlers: Vec<(usize, Arc<Verified>)>,
    /// Whether a handler asks for what is not kept with a hit: then the machine must be at the hit.
    pub needs_machine: bool,
}

fn compares(op: Op) -> Compares {
    match op {
        Op::Sub | Op::Xor => Compares::Two,
        Op::Jlt | Op::Jle | Op::Jgt | Op::Jge | Op::Jz | Op::Jnz | Op::Div | Op::Idiv => Compares::Zero,
        Op::Callk => Compares::Service,
        _ => Compares::Nothing,
    }
}

/// Whether the machine is asked by an operation directly.
fn asks_machine(verified: &Verified) -> bool {
    let code = verified.code();
    code.iter().enumerate().any(|(n, insn)| {
        let number =
            n.checked_sub(1).and_then(|before| code.get(before)).filter(|before| before.op == Op::Push);
        match insn.op {
            Op::Callk => {
                use services::d;
                let harmless =
                    [services::STOP, services::FREEZE, services::RESUME, services::ASSERT, d::LESS, d::BELOW];
                number.is_none_or(|number| !harmless.contains(&number.arg))
            }
            Op::Seg2lin => true,
            _ => {
                let register = matches!(insn.op.row().operand, OperandKind::PushR | OperandKind::PushU)
                    .then(|| u8::try_from(insn.arg).ok().and_then(by_index))
                    .flatten();
                register.is_some_and(|row| {
                    !matches!(row.shape, Shape::Plain | Shape::Low32)
                        || matches!(row.reg, Reg::Cpuid | Reg::Msr)
                })
            }
        }
    })
}

impl Code {
    /// Whether it is that of a handler.
    fn holds(&self, handler: &Handler) -> bool {
        let same = |(_, own): &(usize, Arc<Verified>)| is_same(own, &handler.verified);
        self.program == handler.program && self.handlers.first().is_some_and(same)
    }

    /// That of a handler, without what its operations do.
    fn of(handler: &Handler, name: &str) -> Self {
        let length = handler.verified.program_instructions();
        Self {
            program: handler.program,
            name: name.to_owned(),
            compares: vec![(Compares::Nothing, 0); length],
            reached: vec![false; length],
            handlers: Vec::new(),
            needs_machine: false,
        }
    }

    /// Adds the handler of a probe point; there were so many comparisons before.
    fn add(&mut self, handler: &Handler, count: &mut u32) {
        if self.handlers.iter().any(|(point, _)| *point == handler.point) {
            return;
        }
        let verified = &handler.verified;
        self.handlers.push((handler.point, Arc::clone(verified)));
        self.needs_machine |= asks_machine(verified);
        for (own, insn) in (0u32..).zip(verified.code()) {
            let Some(place) = verified.of_program(own) else { continue };
            let kind = compares(insn.op);
            if let Some(slot) = self.compares.get_mut(place as usize)
                && slot.0 == Compares::Nothing
                && kind != Compares::Nothing
            {
                *slot = (kind, *count);
                *count += 1;
            }
        }
    }
}

/// The code of the handlers of these hits; where each handler of each hit has its own; and the number of comparisons.
#[must_use]
pub fn of_hits(hits: &Hits) -> (Vec<Code>, Vec<Vec<usize>>, usize) {
    let mut all: Vec<Code> = Vec::new();
    let (mut places, mut count) = (Vec::new(), 0);
    for hit in &hits.list {
        let mut own = Vec::new();
        for handler in &hit.handlers {
            let at = all.iter().position(|code| code.holds(handler)).unwrap_or_else(|| {
                all.push(Code::of(handler, hits.name(handler)));
                all.len() - 1
            });
            own.push(at);
            if let Some(code) = all.get_mut(at) {
                code.add(handler, &mut count);
            }
        }
        places.push(own);
    }
    (all, places, count as usize)
}
