//! One instruction at a time: every instruction in full, and control flow.
//!
//! The loop that calls it is in `hot`, with the common instructions' common case; what the loop does not take
//! comes here, and goes on to the module of its group. A step answers how to go on.

use super::throw::Stop;
use super::{Frame, MAX_CALLS, Vars, Vm, exception};
use crate::host::{CallkError, CallkStack, Host};
use crate::table::Op;
use crate::verify::{Fast, Verified};
use std::num::NonZeroU32;

/// One run of a handler. `W64` says whether the guest's word has 64 bits.
pub(super) struct Run<'a, H, const W64: bool> {
    pub vm: &'a mut Vm,
    pub program: &'a Verified,
    pub host: &'a mut H,
    pub lv: &'a mut [u64],
    gv: &'a mut [u64],
    pub remove: bool,
}

/// What an instruction does to the flow: nothing, or it stops it.
pub(super) type Step = Result<(), Stop>;

impl<'a, H: Host, const W64: bool> Run<'a, H, W64> {
    #[inline(always)]
    pub fn new(vm: &'a mut Vm, program: &'a Verified, host: &'a mut H, vars: Vars<'a>) -> Self {
        Self { vm, program, host, lv: vars.lv, gv: vars.gv, remove: false }
    }

    /// The variables that the program has, however many the machine keeps.
    pub fn vars(&mut self, global: bool) -> &mut [u64] {
        let limits = self.program.limits();
        let (all, count) = if global { (&mut *self.gv, limits.gvars) } else { (&mut *self.lv, limits.vars) };
        let count = all.len().min(count as usize);
        &mut all[..count]
    }

    /// Bits of the guest's word.
    pub const BITS: u32 = if W64 { 64 } else { 32 };
    /// Bytes of the guest's word.
    pub const BYTES: usize = Self::BITS as usize / 8;

    /// Cuts a value to the guest's word.
    #[inline(always)]
    pub fn cut(value: u64) -> u64 {
        if W64 { value } else { value & 0xffff_ffff }
    }

    /// A word as a signed number.
    #[inline(always)]
    pub fn signed(value: u64) -> i64 {
        if W64 { value as i64 } else { i64::from(value as u32 as i32) }
    }

    #[inline(always)]
    pub fn push(&mut self, value: u64) {
        self.vm.stack.push(Self::cut(value));
    }

    #[inline(always)]
    pub fn pop(&mut self) -> u64 {
        self.vm.stack.pop()
    }

    /// Any instruction that is no jump, call or return.
    #[inline(never)]
    pub fn general(&mut self, insn: Fast) -> Step {
        match insn.op {
            Op::Nop => Ok(()),
            Op::Push => {
                self.push(insn.arg);
                Ok(())
            }
            Op::ExitN => self.exit_to(insn.arg),
            Op::Remove => {
                self.remove = true;
                Ok(())
            }
            Op::SetMinN => Self::set(&mut self.vm.run.minor, insn.arg),
            Op::SetMin => {
                let value = self.vm.stack.peek();
                Self::set(&mut self.vm.run.minor, value)
            }
            Op::SetMajN => Self::set(&mut self.vm.run.major, insn.arg),
            Op::SetMaj => {
                let value = self.vm.stack.peek();
                Self::set(&mut self.vm.run.major, value)
            }
            Op::Callk => self.callk(),
            Op::Sx => {
                self.vm.run.handler = NonZeroU32::new(insn.arg as u32 + 1);
                Ok(())
            }
            Op::Ux => {
                self.vm.run.handler = None;
                Ok(())
            }
            Op::PushX => {
                let last = self.vm.run.last;
                self.push(last.parm2);
                self.push(last.parm1);
                self.push(last.code);
                Ok(())
            }
            Op::Rx => self.raise(),
            _ => match insn.op.code() {
                0x14..=0x17 => self.logging(insn),
                0x20..=0x3a => self.variables(insn),
                0x40..=0x58 => self.arithmetic(insn),
                0x60..=0x92 => self.data(insn),
                0xa0..=0xa6 => self.tracing(insn),
                _ => self.internal(insn),
            },
        }
    }

    fn set(field: &mut Option<u32>, value: u64) -> Step {
        *field = Some(value as u32);
        Ok(())
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
        struct Elements<'s> {
            stack: &'s mut super::stack::Stack,
            mask: u64,
        }
        impl CallkStack for Elements<'_> {
            fn pop(&mut self) -> u64 {
                self.stack.pop()
            }
            fn push(&mut self, value: u64) {
                self.stack.push(value & self.mask);
            }
        }
        let number = self.pop();
        let mut stack = Elements { stack: &mut self.vm.stack, mask: Self::cut(u64::MAX) };
        match self.host.callk(number, &mut stack) {
            Ok(()) => Ok(()),
            Err(CallkError::Unknown) => Err(self.fault(exception::INVALID_OPERAND, 6, number)),
            Err(CallkError::Throw { user, parm1, parm2 }) => {
                let code = u64::from(user) << 16 | u64::from(exception::USER_EX);
                self.user_exception(code, Self::cut(parm1), Self::cut(parm2))
            }
        }
    }
}
