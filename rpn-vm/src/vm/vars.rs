//! Local and Global Variable Groups.

use super::exception;
use super::run::{Run, Step, Stop};
use crate::host::Host;
use crate::instructions::{Group, Op};
use crate::verify::Fast;

/// An operation on a variable.
#[derive(Clone, Copy)]
enum Use {
    Push,
    Pop,
    Move,
    Inc,
    Dec,
}

impl<H: Host, const W64: bool> Run<'_, H, W64> {
    pub fn variables(&mut self, insn: Fast) -> Step {
        let global = insn.op.group() == Group::Global;
        match insn.op {
            Op::PushLvN => self.variable(false, Use::Push, insn.arg),
            Op::PopLvN => self.variable(false, Use::Pop, insn.arg),
            Op::MoveLvN => self.variable(false, Use::Move, insn.arg),
            Op::IncLvN => self.variable(false, Use::Inc, insn.arg),
            Op::DecLvN => self.variable(false, Use::Dec, insn.arg),
            Op::PushGvN => self.variable(true, Use::Push, insn.arg),
            Op::PopGvN => self.variable(true, Use::Pop, insn.arg),
            Op::MoveGvN => self.variable(true, Use::Move, insn.arg),
            Op::IncGvN => self.variable(true, Use::Inc, insn.arg),
            Op::DecGvN => self.variable(true, Use::Dec, insn.arg),
            Op::PushLv | Op::PushGv => self.popped(global, Use::Push),
            Op::MoveLv | Op::MoveGv => self.popped(global, Use::Move),
            Op::IncLv | Op::IncGv => self.popped(global, Use::Inc),
            Op::DecLv | Op::DecGv => self.popped(global, Use::Dec),
            Op::PopLv | Op::PopGv => {
                let (value, index) = (self.pop(), self.pop());
                *self.slot(global, index)? = value;
                Ok(())
            }
            Op::LogLv => self.log_vars(false),
            Op::LogGv => self.log_vars(true),
            _ => self.impossible(insn),
        }
    }

    fn popped(&mut self, global: bool, what: Use) -> Step {
        let index = self.pop();
        self.variable(global, what, index)
    }

    #[inline]
    fn slot(&mut self, global: bool, index: u64) -> Result<&mut u64, Stop> {
        match usize::try_from(index) {
            Ok(i) if i < self.vars(global).len() => Ok(&mut self.vars(global)[i]),
            _ => Err(self.fault(exception::INVALID_OPERAND, if global { 2 } else { 1 }, index)),
        }
    }

    #[inline]
    fn variable(&mut self, global: bool, what: Use, index: u64) -> Step {
        let top = self.vm.stack.peek();
        let slot = self.slot(global, index)?;
        let value = *slot;
        match what {
            Use::Push => self.push(value),
            Use::Pop => {
                *slot = top;
                self.vm.stack.drop(1);
            }
            Use::Move => *slot = top,
            Use::Inc => *slot = Self::cut(value.wrapping_add(1)),
            Use::Dec => *slot = Self::cut(value.wrapping_sub(1)),
        }
        Ok(())
    }
}
