//! Reading code: the bodies of handlers and procedures from sections CODE and RELO. Labels get canonical names, `L`
//! and the number of their instruction.

use std::collections::BTreeSet;

use super::MAX_INSTRUCTIONS;
use super::cursor::{Cursor, wrong};
use super::error::PpdfError;
use super::sections::Section;
use crate::ast::{Atom, Expr, FileHeader, Instr, Operand, Routine, Term};
use crate::code::{CodeError, Insn, decode_one};
use crate::instructions::OperandKind;
use crate::regs;
use crate::source::Span;

/// Operands that are more than a number: instruction, expression and its place.
pub(super) type Relocations = std::iter::Peekable<std::vec::IntoIter<(usize, Expr, usize)>>;

pub(super) fn expressions(section: Section<'_>) -> Result<Relocations, PpdfError> {
    let mut at = Cursor::new(section);
    let count = at.count("the number of operands with symbols", MAX_INSTRUCTIONS, 8)?;
    let mut list = Vec::with_capacity(count);
    let mut next = 0;
    for _ in 0..count {
        let offset = at.offset();
        let number = at.u32("the instruction of an operand")? as usize;
        if number < next {
            let right = format!("it must be at least {next}");
            return Err(wrong(offset, "the instruction of an operand", number, right));
        }
        next = number + 1;
        let expr = at.expr("an operand")?;
        if let Some(n) = expr.constant().filter(|n| *n < i128::from(i64::MIN) || *n > i128::from(u64::MAX)) {
            return Err(wrong(offset, "an operand", n, "it must fit into 64 bits".to_owned()));
        }
        list.push((number, expr, offset));
    }
    at.finish()?;
    Ok(list.into_iter().peekable())
}

/// Section CODE, and the data needed to read it.
pub(super) struct Code<'a> {
    pub code: Section<'a>,
    pub header: &'a FileHeader,
    /// Instructions of each handler, then of each procedure.
    pub counts: &'a [usize],
    pub probes: usize,
    pub procs: &'a [Routine],
}

impl Code<'_> {
    /// The bodies in the order of `counts`.
    pub fn read(&self, mut relocations: Relocations) -> Result<Vec<Vec<Instr>>, PpdfError> {
        let (mut at, mut number) = (0, 0);
        let mut bodies = Vec::with_capacity(self.counts.len());
        for (routine, &count) in self.counts.iter().enumerate() {
            let room = self.code.bytes.len() - at;
            let mut body = Vec::with_capacity(count.min(room));
            let mut targets = BTreeSet::new();
            for _ in 0..count {
                let offset = self.code.offset + at;
                let expr = relocations.next_if(|(instruction, ..)| *instruction == number);
                let (insn, next) = self.decode(at, routine)?;
                let operand = self.operand(insn, offset + 1, count, expr)?;
                if insn.op.row().operand == OperandKind::Label {
                    targets.insert(insn.arg);
                }
                body.push(Instr { labels: Vec::new(), op: insn.op, operand, span: Span::default() });
                (at, number) = (next, number + 1);
            }
            for target in targets {
                if let Some(instr) = usize::try_from(target).ok().and_then(|n| body.get_mut(n)) {
                    instr.labels.push(label(target));
                }
            }
            bodies.push(body);
        }
        if let Some((instruction, _, offset)) = relocations.next() {
            let right = format!("it must be less than {number}");
            return Err(wrong(offset, "the instruction of an operand", instruction, right));
        }
        match self.code.bytes.len() - at {
            0 => Ok(bodies),
            left => Err(PpdfError::Trailing { offset: self.code.offset + at, section: self.code.name, left }),
        }
    }

    fn decode(&self, at: usize, routine: usize) -> Result<(Insn, usize), PpdfError> {
        let ends =
            |what: String| PpdfError::Ends { offset: self.code.offset + at, section: self.code.name, what };
        match decode_one(self.code.bytes, at) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(ends(match routine.checked_sub(self.probes) {
                None => format!("the handler of probe point {routine}"),
                Some(n) => format!("procedure {n}"),
            })),
            Err(CodeError::Truncated { .. }) => Err(ends("an instruction".to_owned())),
            Err(CodeError::Opcode { code, .. }) => {
                let right = "this version has no such opcode".to_owned();
                Err(wrong(self.code.offset + at, "an opcode", format!("{code:#04x}"), right))
            }
        }
    }

    /// The operand of an instruction of a routine with `count` instructions.
    fn operand(
        &self,
        insn: Insn,
        offset: usize,
        count: usize,
        expr: Option<(usize, Expr, usize)>,
    ) -> Result<Operand, PpdfError> {
        let kind = insn.op.row().operand;
        let arg = insn.arg;
        let below = |what: &str, limit: u64| match arg < limit {
            true => Ok(()),
            false => Err(wrong(offset, what, arg, format!("it must be less than {limit}"))),
        };
        if let (Some((_, _, offset)), false) = (&expr, kind == OperandKind::Value) {
            let right = "it must be an instruction whose operand is a `value`".to_owned();
            return Err(wrong(
                *offset,
                "the instruction of an operand",
                format!("`{}`", insn.op.row().form),
                right,
            ));
        }
        Ok(match kind {
            OperandKind::None => Operand::None,
            OperandKind::Value => Operand::Value(match expr {
                Some((_, expr, _)) => expr,
                None => number(arg),
            }),
            OperandKind::Label => {
                below("the target of a jump", count as u64)?;
                Operand::Name(label(arg))
            }
            OperandKind::Proc => {
                below("the procedure of a call", self.procs.len() as u64)?;
                let called = usize::try_from(arg).ok().and_then(|n| self.procs.get(n));
                Operand::Name(called.map(|p| p.name.clone()).unwrap_or_default())
            }
            OperandKind::Lv | OperandKind::Gv => {
                let local = kind == OperandKind::Lv;
                let limit = if local { self.header.vars } else { self.header.gvars };
                below("a variable index", u64::from(limit))?;
                Operand::Number(arg as i64)
            }
            OperandKind::Count8 | OperandKind::Count16 | OperandKind::U32 | OperandKind::Disp => {
                Operand::Number(arg as i64)
            }
            OperandKind::PushR | OperandKind::PushU | OperandKind::PopR | OperandKind::PopU => {
                let row = u8::try_from(arg).ok().and_then(regs::by_index).ok_or_else(|| {
                    let right = "it must be the index of a register".to_owned();
                    wrong(offset, "a register", format!("{arg:#04x}"), right)
                })?;
                row.permits(kind).map_err(|why| wrong(offset, "a register", format!("{arg:#04x}"), why))?;
                Operand::Register(row.index)
            }
        })
    }
}

fn label(target: u64) -> String {
    format!("L{target}")
}

fn number(n: u64) -> Expr {
    let term = Term { negative: false, atom: Atom::Number(n), span: Span::default() };
    Expr { terms: vec![term], span: Span::default() }
}
