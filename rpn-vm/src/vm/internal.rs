//! Instructions using the interpreter's internal registers: LP, PLP, SBP, TSP.

use super::exception;
use super::run::{Run, Step};
use crate::host::Host;
use crate::instructions::Op;
use crate::verify::Fast;

impl<H: Host, const W64: bool> Run<'_, H, W64> {
    pub fn internal(&mut self, insn: Fast) -> Step {
        let disp = insn.arg as u32;
        match insn.op {
            Op::PushLp => self.push(self.vm.run.lp as u64),
            Op::PushPlp => self.push(self.vm.run.plp as u64),
            Op::PopLp => {
                let value = self.pop();
                match usize::try_from(value) {
                    Ok(lp) if lp <= self.vm.run.lp => {
                        self.vm.run.lp = lp;
                        // It never is ahead of LP.
                        self.vm.run.plp = self.vm.run.plp.min(lp);
                    }
                    _ => return Err(self.fault(exception::INVALID_OPERAND, 7, value)),
                }
            }
            Op::SaveSbp => self.push(u64::from(self.vm.run.sbp)),
            Op::RestoreSbp => self.vm.run.sbp = self.pop() as u32 & 1023,
            Op::SaveTsp => self.push(u64::from(self.vm.stack.tsp())),
            Op::RestoreTsp => {
                let value = self.pop();
                self.vm.stack.set_tsp(value);
            }
            Op::PushSbpN => self.push(self.vm.stack.get(self.vm.run.sbp.wrapping_add(disp))),
            Op::PopSbpN => {
                let value = self.pop();
                self.vm.stack.set(self.vm.run.sbp.wrapping_add(disp), value);
            }
            Op::CopySbpN => {
                let value = self.vm.stack.peek();
                self.vm.stack.set(self.vm.run.sbp.wrapping_add(disp), value);
            }
            Op::PushSbp => {
                let n = self.pop() as u32;
                self.push(self.vm.stack.get(self.vm.run.sbp.wrapping_add(n)));
            }
            Op::PopSbp => {
                let (value, n) = (self.pop(), self.pop() as u32);
                self.vm.stack.set(self.vm.run.sbp.wrapping_add(n), value);
            }
            Op::CopySbp => {
                let n = self.pop() as u32;
                let value = self.vm.stack.peek();
                self.vm.stack.set(self.vm.run.sbp.wrapping_add(n), value);
            }
            _ => return self.relative_to_top(insn, disp),
        }
        Ok(())
    }

    /// TSP as it was before the instruction for immediate forms, after the pops for the others.
    fn relative_to_top(&mut self, insn: Fast, disp: u32) -> Step {
        let before = self.vm.stack.tsp();
        match insn.op {
            Op::PushTspN => self.push(self.vm.stack.get(before.wrapping_add(disp))),
            Op::PopTspN => {
                let value = self.pop();
                self.vm.stack.set(before.wrapping_add(disp), value);
            }
            Op::CopyTspN => {
                let value = self.vm.stack.peek();
                self.vm.stack.set(before.wrapping_add(disp), value);
            }
            Op::PushTsp => {
                let n = self.pop() as u32;
                self.push(self.vm.stack.get(self.vm.stack.tsp().wrapping_add(n)));
            }
            Op::PopTsp => {
                let (value, n) = (self.pop(), self.pop() as u32);
                self.vm.stack.set(self.vm.stack.tsp().wrapping_add(n), value);
            }
            Op::CopyTsp => {
                let n = self.pop() as u32;
                let value = self.vm.stack.peek();
                self.vm.stack.set(self.vm.stack.tsp().wrapping_add(n), value);
            }
            _ => return self.impossible(insn),
        }
        Ok(())
    }
}
