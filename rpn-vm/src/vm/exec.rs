//! The dispatch loop and control flow.
//!
//! One match on the opcode byte; the common instructions are handled here, the
//! others in the module of their group. A step answers how to go on.

use super::throw::Stop;
use super::{Frame, MAX_CALLS, Outcome, Termination, Vars, Vm, exception};
use crate::host::{CallkError, CallkStack, Context, Host};
use crate::regs::Shape;
use crate::table::Op;
use crate::verify::{Fast, Verified};
use std::num::NonZeroU32;

/// One run of a handler. `W64` says whether the guest's word has 64 bits.
pub(super) struct Run<'a, H, const W64: bool> {
    pub vm: &'a mut Vm,
    pub program: &'a Verified,
    pub host: &'a mut H,
    lv: &'a mut [u64],
    gv: &'a mut [u64],
    jumps: u32,
    remove: bool,
}

/// What an instruction does to the flow: nothing, or it stops it.
pub(super) type Step = Result<(), Stop>;

impl<'a, H: Host, const W64: bool> Run<'a, H, W64> {
    #[inline(always)]
    pub fn new(vm: &'a mut Vm, program: &'a Verified, host: &'a mut H, vars: Vars<'a>) -> Self {
        Self { vm, program, host, lv: vars.lv, gv: vars.gv, jumps: 0, remove: false }
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

    /// The loop. Inlined into its caller, which is the hot path of every hit.
    #[inline(always)]
    pub fn run(mut self) -> Outcome {
        let program = self.program;
        let code = &program.fast[..];
        let budget = self.vm.max_steps;
        let mut steps = 0u32;
        let mut pc = 0u32;
        let termination = loop {
            let Some(insn) = code.get(pc as usize) else {
                self.fatal(exception::INVALID_OPCODE, 0, u64::from(pc));
                break self.unhandled(pc);
            };
            if steps >= budget {
                self.fatal(exception::JMP_MAX, u64::from(program.limits().jmpmax), 0);
                break self.unhandled(pc);
            }
            steps += 1;
            match self.step(insn, pc + 1) {
                Ok(next) => pc = next,
                Err(Stop::Exit) => break Termination::Exit,
                Err(Stop::Abort) => break Termination::Abort,
                Err(Stop::Throw) => match self.thrown() {
                    Some(handler) => pc = handler,
                    None => break self.unhandled(pc),
                },
                Err(Stop::ExitTo1) => break Termination::ExitTo(1),
                Err(Stop::ExitTo2) => break Termination::ExitTo(2),
                Err(Stop::ExitTo3) => break Termination::ExitTo(3),
            }
        };
        let wraps = self.vm.stack.wraps;
        Outcome { termination, remove: self.remove, wraps, steps }
    }

    /// Executes one instruction; `next` is the index of the one behind it. Answers where to go on.
    #[inline(always)]
    fn step(&mut self, insn: &Fast, next: u32) -> Result<u32, Stop> {
        let done = match insn.op {
            Op::Push => {
                self.push(insn.arg);
                Ok(())
            }
            Op::PushR => self.push_current(*insn),
            Op::LogN => self.log_n(insn.arg as usize),
            Op::Exit => Err(Stop::Exit),
            Op::Abort => Err(Stop::Abort),
            Op::Nop => Ok(()),
            Op::Jmp => return self.jump(insn.arg),
            Op::Jlt => return self.branch(Self::signed(self.vm.stack.peek()) < 0, insn.arg, next),
            Op::Jle => return self.branch(Self::signed(self.vm.stack.peek()) <= 0, insn.arg, next),
            Op::Jgt => return self.branch(Self::signed(self.vm.stack.peek()) > 0, insn.arg, next),
            Op::Jge => return self.branch(Self::signed(self.vm.stack.peek()) >= 0, insn.arg, next),
            Op::Jz => return self.branch(self.vm.stack.peek() == 0, insn.arg, next),
            Op::Jnz => return self.branch(self.vm.stack.peek() != 0, insn.arg, next),
            Op::Loop => {
                let value = Self::cut(self.vm.stack.peek().wrapping_sub(1));
                self.vm.stack.replace(value);
                return self.branch(value != 0, insn.arg, next);
            }
            Op::Call => return self.call(insn.arg, next),
            Op::Ret => return self.ret(),
            Op::Add => {
                let (a, b) = (self.pop(), self.pop());
                self.push(a.wrapping_add(b));
                Ok(())
            }
            Op::Sub => {
                let (a, b) = (self.pop(), self.pop());
                self.push(a.wrapping_sub(b));
                Ok(())
            }
            Op::IncLvN | Op::DecLvN | Op::PushLvN | Op::PopLvN | Op::MoveLvN => self.local(*insn),
            Op::PushMem8 | Op::PushMem16 | Op::PushMem32 | Op::PushMem64 => self.push_mem(insn.op),
            _ => self.seldom(*insn),
        };
        match done {
            Ok(()) => Ok(next),
            Err(stop) => Err(stop),
        }
    }

    /// `push r`: one element inline, wide registers out of line.
    #[inline(always)]
    fn push_current(&mut self, insn: Fast) -> Step {
        match insn.shape {
            Shape::Low32 => {
                let value = self.host.read_reg(Context::Current, insn.reg);
                self.vm.stack.push(value & 0xffff_ffff);
                Ok(())
            }
            Shape::Plain => {
                let value = self.host.read_reg(Context::Current, insn.reg);
                self.push(value);
                Ok(())
            }
            _ => self.push_wide(Context::Current, insn),
        }
    }

    /// Instructions that need no place in the hot match.
    fn seldom(&mut self, insn: Fast) -> Step {
        match insn.op {
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

    #[inline(always)]
    fn branch(&mut self, taken: bool, target: u64, next: u32) -> Result<u32, Stop> {
        if taken { self.jump(target) } else { Ok(next) }
    }

    #[inline(always)]
    fn jump(&mut self, target: u64) -> Result<u32, Stop> {
        let max = self.program.limits().jmpmax;
        if self.jumps >= max {
            return Err(self.fault(exception::JMP_MAX, u64::from(max), 0));
        }
        self.jumps += 1;
        Ok(target as u32)
    }

    fn call(&mut self, target: u64, next: u32) -> Result<u32, Stop> {
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

    fn ret(&mut self) -> Result<u32, Stop> {
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
