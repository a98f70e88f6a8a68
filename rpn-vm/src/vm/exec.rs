//! Executes one instruction: dispatches to the file of its group, and implements the RPN Execution Group.
//!
//! The loop in `hot` handles the common case of common instructions; all others come here.

use super::run::{Run, Step, Stop};
use super::stack::Stack;
use super::{Frame, MAX_CALLS, exception};
use crate::host::{CallkError, CallkStack, Host};
use crate::instructions::{Group, Op};
use crate::verify::Fast;

impl<H: Host, const W64: bool> Run<'_, H, W64> {
    /// Executes any instruction except jumps, calls and returns, which the loop executes.
    #[inline(never)]
    pub fn general(&mut self, insn: Fast) -> Step {
        match insn.op.group() {
            Group::Execution => self.execution(insn),
            Group::Logging => self.logging(insn),
            Group::Local | Group::Global => self.variables(insn),
            Group::Arithmetic => self.arithmetic(insn),
            Group::Register | Group::Data | Group::System | Group::Io | Group::Verify | Group::Misc => {
                self.data(insn)
            }
            Group::Exception => self.exceptions(insn),
            Group::Tracing => self.tracing(insn),
            Group::Internal => self.internal(insn),
        }
    }

    fn execution(&mut self, insn: Fast) -> Step {
        match insn.op {
            Op::Nop => Ok(()),
            Op::ExitN => self.exit_to(insn.arg),
            Op::Remove => {
                self.remove = true;
                Ok(())
            }
            Op::Callk => self.callk(),
            _ => self.impossible(insn),
        }
    }

    /// An instruction that its group does not implement. Verified code contains none.
    #[cold]
    pub fn impossible(&mut self, insn: Fast) -> Step {
        Err(self.fault(exception::INVALID_OPCODE, u64::from(insn.op.code()), 0))
    }

    #[inline(never)]
    pub fn call(&mut self, target: u64, next: u32) -> Result<u32, Stop> {
        let depth = self.vm.run.depth;
        let Some(frame) = self.vm.frames.get_mut(depth as usize) else {
            return Err(self.fault(exception::CALL_MAX, MAX_CALLS as u64, 0));
        };
        *frame = Frame {
            ret: next,
            sbp: self.vm.run.sbp,
            tsp: self.vm.stack.top(),
            handler: self.vm.run.handler,
            traced: false,
        };
        self.vm.run.depth = depth + 1;
        self.vm.run.handler = None;
        Ok(target as u32)
    }

    #[inline(never)]
    pub fn ret(&mut self) -> Result<u32, Stop> {
        let Some(depth) = self.vm.run.depth.checked_sub(1) else {
            return Err(self.fault(exception::CALL_MAX, 0, 0));
        };
        let frame = self.vm.frames[depth as usize];
        self.vm.run.depth = depth;
        self.vm.run.sbp = frame.sbp;
        self.vm.run.handler = frame.handler;
        Ok(frame.ret)
    }

    fn exit_to(&mut self, n: u64) -> Step {
        let kernel = self.program.limits().kernel;
        match n {
            1 if kernel => Err(Stop::ExitTo1),
            2 if kernel => Err(Stop::ExitTo2),
            3 if !kernel => Err(Stop::ExitTo3),
            1..=3 => Ok(()),
            _ => Err(self.fault(exception::INVALID_OPERAND, 4, n)),
        }
    }

    fn callk(&mut self) -> Step {
        let number = self.pop();
        match self.host.callk(number, &mut Self::elements(&mut self.vm.stack)) {
            Ok(()) => Ok(()),
            Err(error) => self.service_failed(number, error),
        }
    }

    /// The stack as a service has it.
    #[inline(always)]
    pub fn elements(stack: &mut Stack) -> Elements<'_> {
        Elements { stack, mask: Self::cut(u64::MAX) }
    }

    /// Raises the exception of a service that has failed.
    #[cold]
    pub fn service_failed(&mut self, number: u64, error: CallkError) -> Step {
        match error {
            CallkError::Unknown => Err(self.fault(exception::INVALID_OPERAND, 6, number)),
            CallkError::Throw { user, parm1, parm2 } => {
                let code = u64::from(user) << 16 | u64::from(exception::USER_EX);
                self.user_exception(code, Self::cut(parm1), Self::cut(parm2))
            }
        }
    }
}

/// The stack of a run, for a service.
pub(super) struct Elements<'s> {
    stack: &'s mut Stack,
    mask: u64,
}

impl CallkStack for Elements<'_> {
    #[inline]
    fn pop(&mut self) -> u64 {
        self.stack.pop()
    }

    #[inline]
    fn push(&mut self, value: u64) {
        self.stack.push(value & self.mask);
    }
}
