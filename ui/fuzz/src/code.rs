//! The code of the handlers, as far as the search needs it: where values are compared, and which operations were reached.

use std::sync::Arc;

use trapline_interposer::ProgramId;
use trapline_rpn::{Op, OperandKind, Reg, Shape, Verified, by_index, services};

use crate::hits::Hit;

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

/// Code that is stored once: of one RPN program, or of one clause of D.
pub struct Code {
    /// The program.
    program: ProgramId,
    /// Its name; with the line if the program has other code too.
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
    /// Whether it is that of a hit.
    fn holds(&self, hit: &Hit) -> bool {
        let shares = |(_, handler): &(usize, Arc<Verified>)| handler.shares_code(&hit.handler);
        self.program == hit.program && self.handlers.iter().any(shares)
    }
}

/// How the handler of each hit is called: as its program, with the line if other handlers of this program have hits too.
#[must_use]
pub fn names(hits: &[Hit]) -> Vec<String> {
    let several = |hit: &Hit| hits.iter().any(|other| other.program == hit.program && other.line != hit.line);
    let name = |hit: &Hit| if several(hit) { format!("{}:{}", hit.name, hit.line) } else { hit.name.clone() };
    hits.iter().map(name).collect()
}

/// The code of the handlers of these hits, where each hit has its own, and the number of comparisons.
#[must_use]
pub fn of_hits(hits: &[Hit]) -> (Vec<Code>, Vec<usize>, usize) {
    let mut all: Vec<Code> = Vec::new();
    let (mut places, mut count) = (Vec::new(), 0);
    for hit in hits {
        let at = all.iter().position(|code| code.holds(hit)).unwrap_or_else(|| {
            let length = hit.handler.program_instructions();
            all.push(Code {
                program: hit.program,
                name: String::new(),
                compares: vec![(Compares::Nothing, 0); length],
                reached: vec![false; length],
                handlers: Vec::new(),
                needs_machine: false,
            });
            all.len() - 1
        });
        places.push(at);
        let Some(code) = all.get_mut(at) else { continue };
        if code.handlers.iter().any(|(point, _)| *point == hit.point) {
            continue;
        }
        code.handlers.push((hit.point, Arc::clone(&hit.handler)));
        code.needs_machine |= asks_machine(&hit.handler);
        for (own, insn) in (0u32..).zip(hit.handler.code()) {
            let Some(place) = hit.handler.of_program(own) else { continue };
            let kind = compares(insn.op);
            if let Some(slot) = code.compares.get_mut(place as usize)
                && slot.0 == Compares::Nothing
                && kind != Compares::Nothing
            {
                *slot = (kind, count);
                count += 1;
            }
        }
    }
    for (place, code) in all.iter_mut().enumerate() {
        let hit = hits.iter().zip(&places).find(|(_, at)| **at == place).map(|(hit, _)| hit);
        let Some(hit) = hit else { continue };
        let alone = hits.iter().zip(&places).all(|(other, at)| other.program != hit.program || *at == place);
        code.name = if alone { hit.name.clone() } else { format!("{}:{}", hit.name, hit.line) };
    }
    (all, places, count as usize)
}
