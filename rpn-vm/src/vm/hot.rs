//! The dispatch loop, with the common case of the common instructions.
//!
//! A [`Hot`] run of instructions keeps its state in locals: TSP, the place in the code, the
//! budgets as countdowns. It ends at everything uncommon: an instruction without an arm here, the
//! end of the window, a full log, a call, an exception. Then [`Run::general`], which is complete, executes one
//! instruction; so each arm here may decline. Steps are counted per stretch, from a jump's target to the next jump.
//! The slice of code that may run ends at the step budget, so one check covers both.

use super::logging::read_wrapping;
use super::run::{Run, Stop};
use super::{Outcome, Termination, Thrown, Vm, exception};
use crate::host::{Argument, CallkError, Context, Host, OpState};
use crate::services;
use crate::verify::{Fast, Quick, Verified};
use std::slice::Iter;

/// Position and remaining budgets of the run.
struct Flow<'c> {
    code: &'c [Fast],
    /// The instructions from here to the end of the code or of the step budget.
    ahead: Iter<'c, Fast>,
    /// Their number at the start of the current stretch of consecutive instructions.
    ahead_then: usize,
    /// Index of the first instruction of the stretch.
    start: usize,
    /// Steps left at the start of the stretch.
    steps: u32,
    jumps: u32,
}

impl<'c> Flow<'c> {
    #[inline(always)]
    fn new(program: &'c Verified, steps: u32) -> Self {
        let (code, jumps) = (&*program.fast, program.limits().jmpmax);
        let mut new = Self { code, ahead: code.iter(), ahead_then: 0, start: 0, steps, jumps };
        new.begin(program.entry as usize);
        new
    }

    #[inline(always)]
    fn begin(&mut self, start: usize) {
        let ahead = self.code.get(start..).unwrap_or_default();
        let ahead = ahead.get(..self.steps as usize).unwrap_or(ahead);
        (self.ahead, self.ahead_then, self.start) = (ahead.iter(), ahead.len(), start);
    }

    /// Instructions taken in this stretch.
    #[inline(always)]
    fn taken(&self) -> usize {
        self.ahead_then - self.ahead.len()
    }

    /// Steps left now.
    #[inline(always)]
    fn steps_left(&self) -> u32 {
        self.steps - self.taken() as u32
    }

    /// Index of the instruction that comes next.
    #[inline(always)]
    fn next(&self) -> usize {
        self.start + self.taken()
    }

    /// Continues at another instruction.
    #[inline(always)]
    fn turn(&mut self, target: usize) {
        self.steps = self.steps_left();
        self.begin(target);
    }
}

/// How the loop continues after the common case of an instruction.
enum Next {
    /// With the next instruction.
    On,
    /// At its target, with a jump that counts.
    Taken,
    /// Not the common case; nothing was changed.
    General,
    Call,
    Ret,
    /// Calls a service with the instruction after it.
    Service,
    /// Calls a service with the two instructions after it.
    Operand,
    End(Termination),
}

impl Next {
    #[inline(always)]
    fn done(done: bool) -> Self {
        if done { Self::On } else { Self::General }
    }

    #[inline(always)]
    fn taken(taken: bool) -> Self {
        if taken { Self::Taken } else { Self::On }
    }
}

/// Why the loop stopped.
enum Event<'c> {
    /// [`Run::general`] must execute this instruction.
    General(&'c Fast),
    /// This procedure is called.
    Call(u64),
    Ret,
    /// The service of this number has failed.
    Failed(u64, CallkError),
    End(Termination),
    /// A jump more than `jmpmax`.
    Jumps,
    /// A step more than the budget.
    Steps,
    /// One instruction was executed, and the host observes each.
    One,
}

/// The result of a handler that only ends. Many handlers only record that they were hit, and for these even the loop's
/// set-up would be noticeable.
#[inline(always)]
pub(super) fn ends_at_once(program: &Verified, budget: u32) -> Option<Outcome> {
    let termination = match program.first {
        Quick::Exit => Termination::Exit,
        Quick::Abort => Termination::Abort,
        _ => return None,
    };
    (budget > 0).then_some(Outcome { termination, remove: false, wraps: 0, steps: 1 })
}

impl<H: Host, const W64: bool> Run<'_, H, W64> {
    /// The run. Inlined into its caller, which is the hot path of every hit.
    #[inline(always)]
    pub fn run(mut self) -> Outcome {
        let program = self.program;
        let budget = self.vm.max_steps;
        let mut flow = Flow::new(program, budget);
        let termination = loop {
            if H::observes() && flow.ahead.len() > 0 {
                self.observe(flow.next() as u32);
            }
            let turn = match self.hot(&mut flow) {
                Event::One => continue,
                Event::End(termination) => break termination,
                Event::General(insn) => match self.general(*insn) {
                    Ok(()) => continue,
                    Err(stop) => Err(stop),
                },
                Event::Call(target) => self.call(target, flow.next() as u32),
                Event::Ret => self.ret(),
                Event::Failed(number, error) => match self.service_failed(number, error) {
                    Ok(()) => continue,
                    Err(stop) => Err(stop),
                },
                Event::Jumps => Err(self.too_many_jumps()),
                Event::Steps => break self.out_of_steps(flow.next()),
            };
            let target = match turn {
                Ok(target) => target,
                Err(stop) => match self.stopped(stop, flow.next() as u32 - 1) {
                    Ok(handler) => handler,
                    Err(termination) => break termination,
                },
            };
            flow.turn(target as usize);
        };
        let steps = budget - flow.steps_left();
        Outcome { termination, remove: self.remove, wraps: self.vm.stack.wraps, steps }
    }

    /// Runs common instructions in their common case.
    #[inline(always)]
    fn hot<'c>(&mut self, flow: &mut Flow<'c>) -> Event<'c> {
        let top = self.vm.stack.tsp();
        let mut hot =
            Hot::<H, W64> { vm: self.vm, program: self.program, host: self.host, lv: self.lv, at: top };
        let event = loop {
            let Some(insn) = flow.ahead.next() else { break Event::Steps };
            match hot.common(insn) {
                Next::On => {}
                Next::Taken if flow.jumps > 0 => {
                    flow.jumps -= 1;
                    flow.turn(insn.arg as usize);
                }
                Next::Taken => break Event::Jumps,
                Next::End(termination) => break Event::End(termination),
                Next::Call => break Event::Call(insn.arg),
                Next::Ret => break Event::Ret,
                // The number is pushed, and `callk`, which comes next, pops it again.
                Next::Service if !H::observes() && flow.ahead.next().is_some() => {
                    if let Err(error) = hot.service(insn.arg) {
                        break Event::Failed(insn.arg, error);
                    }
                }
                // The operand is pushed too.
                Next::Operand if !H::observes() && hot.operand(insn.arg, flow.ahead.as_slice()) => {
                    flow.ahead.nth(1);
                }
                Next::Service | Next::Operand if hot.hot_push(insn.arg) => {}
                Next::Service | Next::Operand | Next::General => break Event::General(insn),
            }
            if H::observes() {
                break Event::One;
            }
        };
        hot.vm.stack.move_top(hot.at);
        event
    }

    /// The end of the run, or the exception handler to continue with after an exception of the instruction `at`.
    #[inline(always)]
    fn stopped(&mut self, stop: Stop, at: u32) -> Result<u32, Termination> {
        Err(match stop {
            Stop::ExitTo1 => Termination::ExitTo(1),
            Stop::ExitTo2 => Termination::ExitTo(2),
            Stop::ExitTo3 => Termination::ExitTo(3),
            Stop::Throw => {
                self.tell_thrown(at);
                match self.thrown() {
                    Some(handler) => return Ok(handler),
                    None => self.unhandled(at),
                }
            }
        })
    }

    /// Tells a host that observes of the instruction that comes next.
    fn observe(&mut self, next: u32) {
        if H::follows() {
            let (stack, top) = (&self.vm.stack, self.vm.stack.tsp());
            let elements = [0, 1, 2].map(|below| stack.get(top.wrapping_sub(below)));
            return self.host.step(next, elements);
        }
        let mut stack = self.vm.stack.elements();
        stack.reverse();
        let state = OpState {
            at: self.program.own(next),
            calls: self.vm.run.depth,
            stack: &stack,
            log: self.vm.log.get(..self.vm.run.lp).unwrap_or_default(),
            lv: self.lv,
            gv: self.gv,
        };
        self.host.before(&state);
    }

    /// Tells a host that observes of the exception that was raised at this instruction.
    #[inline(always)]
    fn tell_thrown(&mut self, at: u32) {
        if H::observes() {
            let Thrown { code, parm1, parm2 } = self.vm.raised;
            self.host.threw(self.program.own(at), [code, parm1, parm2]);
        }
    }

    #[cold]
    #[inline(never)]
    fn too_many_jumps(&mut self) -> Stop {
        self.fault(exception::JMP_MAX, u64::from(self.program.limits().jmpmax), 0)
    }

    /// Ends a run at this index because the step budget is used up. (Verified code never runs past its end.)
    #[cold]
    #[inline(never)]
    fn out_of_steps(&mut self, pc: usize) -> Termination {
        let within = pc < self.program.fast.len();
        if within {
            self.fatal(exception::JMP_MAX, u64::from(self.program.limits().jmpmax), 0);
        } else {
            self.fatal(exception::INVALID_OPCODE, 0, pc as u64);
        }
        self.tell_thrown(pc as u32);
        let ended = self.unhandled(pc as u32);
        self.vm.out_of_steps = within;
        ended
    }
}

/// The operands of common instructions, in a separate struct so that they can stay in registers.
struct Hot<'a, H, const W64: bool> {
    vm: &'a mut Vm,
    host: &'a mut H,
    lv: &'a mut [u64],
    program: &'a Verified,
    /// TSP; that of the stack is updated when the loop stops.
    at: u32,
}

impl<H: Host, const W64: bool> Hot<'_, H, W64> {
    /// The common case of an instruction: one arm each, and one jump to it.
    #[inline(always)]
    fn common(&mut self, insn: &Fast) -> Next {
        let arg = insn.arg;
        Next::done(match insn.quick {
            Quick::General => false,
            Quick::Exit => return Next::End(Termination::Exit),
            Quick::Abort => return Next::End(Termination::Abort),
            Quick::Jmp => return Next::Taken,
            Quick::Jlt => return Next::taken(self.signed() < 0),
            Quick::Jle => return Next::taken(self.signed() <= 0),
            Quick::Jgt => return Next::taken(self.signed() > 0),
            Quick::Jge => return Next::taken(self.signed() >= 0),
            Quick::Jz => return Next::taken(self.top() == 0),
            Quick::Jnz => return Next::taken(self.top() != 0),
            Quick::Loop => return Next::taken(self.hot_replace(|v| v.wrapping_sub(1)) != 0),
            Quick::Call => return Next::Call,
            Quick::Ret => return Next::Ret,
            Quick::Nop => true,
            Quick::Push => self.hot_push(arg),
            Quick::PushCallk => {
                return if self.vm.stack.can_push(self.at) { Next::Service } else { Next::General };
            }
            Quick::PushOperand => return Next::Operand,
            Quick::PushRegister => self.hot_register(insn, Run::<H, W64>::cut(u64::MAX)),
            Quick::PushRegisterLow => self.hot_register(insn, 0xffff_ffff),
            Quick::PushArg => self.hot_argument(arg as u8),
            Quick::Dup1 => self.hot_push(self.top()),
            Quick::LogN => self.hot_log(arg as usize),
            Quick::Add => self.hot_binary(u64::wrapping_add),
            Quick::Sub => self.hot_binary(u64::wrapping_sub),
            Quick::Mul => self.hot_binary(u64::wrapping_mul),
            Quick::And => self.hot_binary(|a, b| a & b),
            Quick::Or => self.hot_binary(|a, b| a | b),
            Quick::Xor => self.hot_binary(|a, b| a ^ b),
            Quick::Neg => self.vm.stack.can_pop(self.at, 1) && self.hot_change(|v| !v),
            Quick::Xchg => self.hot_xchg(),
            // Not a pop: the top is changed in place, even if the stack is empty.
            Quick::ShlN => self.hot_change(|v| v << (arg & 63)),
            Quick::ShrN => self.hot_change(|v| v >> (arg & 63)),
            Quick::PushLv => match self.lv.get(arg as usize) {
                Some(&value) => self.hot_push(value),
                None => false,
            },
            Quick::PopLv => self.hot_pop_lv(insn),
            Quick::MoveLv => self.hot_lv(insn, self.top(), |_, top| top),
            Quick::IncLv => self.hot_lv(insn, 1, u64::wrapping_add),
            Quick::DecLv => self.hot_lv(insn, 1, u64::wrapping_sub),
            Quick::PushMem8 => self.hot_load::<1>(),
            Quick::PushMem16 => self.hot_load::<2>(),
            Quick::PushMem32 => self.hot_load::<4>(),
            Quick::PushMem64 => self.hot_load::<8>(),
        })
    }

    #[inline(always)]
    fn top(&self) -> u64 {
        self.vm.stack.get(self.at)
    }

    #[inline(always)]
    fn signed(&self) -> i64 {
        Run::<H, W64>::signed(self.top())
    }

    /// Pushes a value that is already cut to the width.
    #[inline(always)]
    fn hot_push(&mut self, value: u64) -> bool {
        if !self.vm.stack.can_push(self.at) {
            return false;
        }
        self.at += 1;
        self.vm.stack.put(self.at, value);
        true
    }

    #[inline(always)]
    fn hot_binary(&mut self, f: impl Fn(u64, u64) -> u64) -> bool {
        if !self.vm.stack.can_pop(self.at, 2) {
            return false;
        }
        let (a, b) = (self.top(), self.vm.stack.get(self.at - 1));
        self.at -= 1;
        self.vm.stack.put(self.at, Run::<H, W64>::cut(f(a, b)));
        true
    }

    /// Changes the top element in place.
    #[inline(always)]
    fn hot_replace(&mut self, f: impl Fn(u64) -> u64) -> u64 {
        let value = Run::<H, W64>::cut(f(self.top()));
        self.vm.stack.put(self.at, value);
        value
    }

    #[inline(always)]
    fn hot_change(&mut self, f: impl Fn(u64) -> u64) -> bool {
        self.hot_replace(f);
        true
    }

    #[inline(always)]
    fn hot_xchg(&mut self) -> bool {
        if !self.vm.stack.can_pop(self.at, 2) {
            return false;
        }
        let (top, under) = (self.top(), self.vm.stack.get(self.at - 1));
        self.vm.stack.put(self.at, under);
        self.vm.stack.put(self.at - 1, top);
        true
    }

    #[inline(always)]
    fn hot_register(&mut self, insn: &Fast, mask: u64) -> bool {
        if !self.vm.stack.can_push(self.at) {
            return false;
        }
        let value = self.host.read_reg(Context::Current, insn.reg);
        self.hot_push(value & mask)
    }

    /// Calls the service whose number would be on top; the element keeps it.
    #[inline(always)]
    fn service(&mut self, number: u64) -> Result<(), CallkError> {
        self.vm.stack.put(self.at + 1, number);
        self.vm.stack.move_top(self.at);
        let done = self.host.callk(number, &mut Run::<H, W64>::elements(&mut self.vm.stack));
        self.at = self.vm.stack.tsp();
        done
    }

    /// Lets the host serve what the next two instructions call, and leaves the stack as they would.
    #[inline(always)]
    fn operand(&mut self, operand: u64, ahead: &[Fast]) -> bool {
        let [number, _callk, ..] = ahead else { return false };
        if !self.vm.stack.can_push(self.at + 1) {
            return false;
        }
        if number.arg == services::d::PUT {
            if !self.vm.stack.can_pop(self.at, 1) || !self.host.write_operand(number.arg, operand, self.top())
            {
                return false;
            }
            self.vm.stack.put(self.at + 1, operand);
            self.vm.stack.put(self.at + 2, number.arg);
            self.at -= 1;
            return true;
        }
        let Some(value) = self.host.read_operand(number.arg, operand) else { return false };
        self.vm.stack.put(self.at + 2, number.arg);
        self.hot_push(Run::<H, W64>::cut(value))
    }

    #[inline(always)]
    fn hot_argument(&mut self, n: u8) -> bool {
        if !self.vm.stack.can_push(self.at) {
            return false;
        }
        match self.host.argument(Argument::Number(n)) {
            Ok(value) => self.hot_push(Run::<H, W64>::cut(value)),
            Err(_) => false,
        }
    }

    #[inline(always)]
    fn hot_lv(&mut self, insn: &Fast, with: u64, f: impl Fn(u64, u64) -> u64) -> bool {
        let Some(slot) = self.lv.get_mut(insn.arg as usize) else { return false };
        *slot = Run::<H, W64>::cut(f(*slot, with));
        true
    }

    #[inline(always)]
    fn hot_pop_lv(&mut self, insn: &Fast) -> bool {
        let done = self.vm.stack.can_pop(self.at, 1) && self.hot_lv(insn, self.top(), |_, top| top);
        self.at -= u32::from(done);
        done
    }

    #[inline(always)]
    fn hot_load<const N: usize>(&mut self) -> bool {
        let addr = self.top();
        let mut raw = [0u8; N];
        if !self.vm.stack.can_pop(self.at, 1) || read_wrapping::<H, W64>(self.host, addr, &mut raw).is_err() {
            return false;
        }
        let mut wide = [0u8; 8];
        wide[..N].copy_from_slice(&raw);
        self.vm.stack.put(self.at, u64::from_le_bytes(wide));
        true
    }

    /// `log <count>` when all of it is there and fits.
    #[inline(always)]
    fn hot_log(&mut self, count: usize) -> bool {
        let (lp, bytes) = (self.vm.run.lp, count * Run::<H, W64>::BYTES);
        if !self.vm.stack.can_pop(self.at, count as u32)
            || bytes > (self.program.limits().logmax as usize).saturating_sub(lp)
        {
            return false;
        }
        let Some(to) = self.vm.log.get_mut(lp..lp + bytes) else { return false };
        for word in to.chunks_exact_mut(Run::<H, W64>::BYTES) {
            let element = self.vm.stack.get(self.at);
            word.copy_from_slice(&element.to_le_bytes()[..Run::<H, W64>::BYTES]);
            self.at = self.at.wrapping_sub(1);
        }
        (self.vm.run.plp, self.vm.run.lp) = (lp + bytes, lp + bytes);
        true
    }
}
