//! The effect of an instruction on the stack, as far as its text tells: a view of the instruction table.

use crate::ast::{Instr, Operand};
use crate::instructions::{Op, OperandKind, Throws, VARIES};
use crate::regs::{self, Shape};

/// Elements read, popped and pushed. `None` if that is known only at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Effect {
    /// Number of elements that it reads, from the top.
    pub reads: u32,
    pub pops: u32,
    /// Least and most elements pushed; they differ by the width.
    pub pushes: (u32, u32),
}

const fn fixed(reads: u32, pops: u32, pushes: u32) -> Option<Effect> {
    Some(Effect { reads, pops, pushes: (pushes, pushes) })
}

/// The number of an immediate operand.
pub(super) fn number(instr: &Instr) -> Option<u64> {
    match &instr.operand {
        Operand::Number(n) => u64::try_from(*n).ok(),
        _ => None,
    }
}

/// The value that a `push` pushes, if it has no symbols; not yet cut to a width.
pub(super) fn constant(instr: &Instr) -> Option<u64> {
    match &instr.operand {
        Operand::Value(expr) if instr.op == Op::Push => expr.constant().map(|n| n as u64),
        _ => None,
    }
}

fn small(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn register(instr: &Instr) -> Option<Effect> {
    let Operand::Register(index) = instr.operand else { return None };
    let pushes = |least, most| Some(Effect { reads: 0, pops: 0, pushes: (least, most) });
    match regs::by_index(index)?.shape {
        Shape::Plain | Shape::Low32 => fixed(0, 0, 1),
        Shape::Wide80 => pushes(2, 3),
        Shape::Wide128 => pushes(2, 4),
        Shape::Table => fixed(0, 0, 2),
        Shape::Cpuid => fixed(1, 1, 4),
        Shape::Msr => Some(Effect { reads: 1, pops: 1, pushes: (1, 2) }),
    }
}

/// The effect of one instruction; `None` if the stack's depth is not known after it.
pub(super) fn effect(instr: &Instr) -> Option<Effect> {
    let row = instr.op.row();
    match instr.op {
        Op::PushR | Op::PushU => register(instr),
        Op::LogN => number(instr).and_then(|n| fixed(small(n), small(n), 0)),
        // Popping all 1,024 elements leaves the stack as it is.
        Op::Ros => number(instr).and_then(|n| fixed(small(n % 1024), small(n % 1024), 0)),
        // Further rounds push over what the first one has pushed.
        Op::DupN => number(instr).and_then(|n| fixed(1, 0, small(n.min(1024 + n % 1024)))),
        Op::PushMem64 => Some(Effect { reads: 1, pops: 1, pushes: (1, 2) }),
        Op::Call | Op::Callk | Op::Log | Op::Dup | Op::PopMem64 | Op::RestoreTsp => None,
        Op::Jlt | Op::Jle | Op::Jgt | Op::Jge | Op::Jz | Op::Jnz | Op::Loop => fixed(1, 0, 0),
        Op::SetMin | Op::SetMaj | Op::MoveLvN | Op::MoveGvN | Op::CopySbpN | Op::CopyTspN => fixed(1, 0, 0),
        Op::MoveLv | Op::MoveGv | Op::CopySbp | Op::CopyTsp => fixed(2, 1, 0),
        _ if row.pops == VARIES || row.pushes == VARIES => None,
        _ => fixed(row.pops.into(), row.pops.into(), row.pushes.into()),
    }
}

/// Least number of elements that an instruction reads, even if its effect is unknown.
pub(super) fn reads(instr: &Instr) -> u32 {
    match instr.op {
        Op::Call => 0,
        Op::Callk | Op::Log | Op::RestoreTsp => 1,
        Op::Dup => 2,
        Op::PopMem64 => 2,
        _ => effect(instr).map_or(0, |e| e.reads),
    }
}

/// Whether an instruction can raise an exception, apart from a jump. `mask` is `excpt_mask`.
pub(super) fn may_throw(instr: &Instr, mask: u32) -> bool {
    match instr.op.row().throws {
        Throws::Never => false,
        Throws::May => true,
        Throws::Overflow => mask & 0x1000 != 0,
        Throws::Register => {
            let Operand::Register(index) = instr.operand else { return true };
            let written = matches!(instr.op.row().operand, OperandKind::PopR | OperandKind::PopU);
            regs::by_index(index).is_some_and(|r| r.shape == Shape::Msr || (written && r.reg.is_segment()))
        }
    }
}
