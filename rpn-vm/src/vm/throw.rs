//! Exceptions: masks, propagation up the call chain, `rx` (docs/probe-language.md, "Exceptions").

use super::run::{Run, Step, Stop};
use super::{Termination, Thrown, exception};
use crate::host::Host;
use crate::instructions::Op;
use crate::verify::Fast;
use std::num::NonZeroU32;

impl<H: Host, const W64: bool> Run<'_, H, W64> {
    /// Exception related instructions.
    pub fn exceptions(&mut self, insn: Fast) -> Step {
        match insn.op {
            Op::Sx => self.vm.run.handler = NonZeroU32::new(insn.arg as u32 + 1),
            Op::Ux => self.vm.run.handler = None,
            Op::PushX => {
                let last = self.vm.run.last;
                self.push(last.parm2);
                self.push(last.parm1);
                self.push(last.code);
            }
            Op::Rx => return self.raise(),
            _ => return self.impossible(insn),
        }
        Ok(())
    }

    /// Raises an exception of the interpreter.
    #[cold]
    pub fn fault(&mut self, x_field: u32, parm1: u64, parm2: u64) -> Stop {
        self.vm.raised = Thrown { code: u64::from(x_field), parm1, parm2 };
        Stop::Throw
    }

    /// Raises an exception that cannot be caught, because no instructions are left for a handler.
    #[cold]
    pub fn fatal(&mut self, x_field: u32, parm1: u64, parm2: u64) {
        let _ = self.fault(x_field, parm1, parm2);
        if self.generated(u64::from(x_field)) {
            self.vm.run.last = self.vm.raised;
            self.generating(None);
        }
    }

    /// How the run ends if no handler catches the exception of the instruction `at`.
    #[cold]
    pub fn unhandled(&mut self, at: u32) -> Termination {
        self.vm.ended_at = self.program.own(at);
        self.vm.out_of_steps = false;
        Termination::Exception
    }

    /// Whether the mask allows this exception to be caught.
    pub fn generated(&self, code: u64) -> bool {
        self.program.limits().excpt_mask & exception::lowest(code) != 0
    }

    /// Finds the handler for an exception, returning implicitly from calls that have none. `None`: it is
    /// masked, or nothing handles it, and the run ends.
    #[cold]
    pub fn thrown(&mut self) -> Option<u32> {
        let Thrown { code, parm1, parm2 } = self.vm.raised;
        if !self.generated(code) {
            return None;
        }
        self.vm.run.last = Thrown { code, parm1, parm2 };
        let called = self.vm.frames.get(..self.vm.run.depth as usize).unwrap_or_default();
        let handler = self.vm.run.handler.or_else(|| called.iter().rev().find_map(|frame| frame.handler));
        self.generating(handler);
        while self.vm.run.handler.is_none() {
            let Some(depth) = self.vm.run.depth.checked_sub(1) else { break };
            let frame = self.vm.frames[depth as usize];
            self.vm.run.depth = depth;
            self.vm.stack.set_top(frame.tsp);
            self.vm.run.sbp = frame.sbp;
            self.vm.run.handler = frame.handler;
        }
        // A program that pushes nothing else does not mark the stack as written.
        self.vm.stack.set_top(self.vm.stack.top());
        self.push(parm2);
        self.push(parm1);
        self.push(code);
        self.vm.run.handler.take().map(|h| h.get() - 1)
    }

    /// `rx`: takes code and parameters from the stack; with a masked or zero code nothing is raised.
    fn raise(&mut self) -> Step {
        let (code, parm1, parm2) = (self.pop(), self.pop(), self.pop());
        self.user_exception(code, parm1, parm2)
    }

    pub fn user_exception(&mut self, code: u64, parm1: u64, parm2: u64) -> Step {
        if self.generated(code) {
            self.vm.raised = Thrown { code, parm1, parm2 };
            return Err(Stop::Throw);
        }
        Ok(())
    }
}
