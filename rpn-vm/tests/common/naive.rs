//! The oracle: a second interpreter, slow and obvious, written from dprobes.lang(8) and `docs/probe-language.md` alone.
//!
//! It runs the instruction list on vectors, one function per rule; memory is accessed byte by byte. It shares no code
//! with the interpreter, not even constants.

#![allow(dead_code, reason = "each test binary uses its part")]

#[path = "naive_rules.rs"]
mod rules;
#[path = "naive_tracing.rs"]
mod tracing;

use tracing::{Buffer, Wishes};
use trapline_rpn::{CallkStack, Host, Insn, Limits, Op, Termination, Width};

/// The result of a program, besides its effects on guest and variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub termination: Termination,
    /// The exception that ended it: code, parameters, instruction.
    pub exception: Option<(u64, u64, u64, u32)>,
    pub log: Vec<u8>,
    /// Top first.
    pub stack: Vec<u64>,
    pub lv: Vec<u64>,
    pub gv: Vec<u64>,
    pub wraps: u32,
    pub steps: u32,
    pub remove: bool,
    pub major: Option<u32>,
    pub minor: Option<u32>,
    /// Stack trace records, their number, and how many did not fit.
    pub trace: Option<(Vec<u8>, u16, u32)>,
}

/// The control flow after an instruction.
pub enum Flow {
    Next,
    To(usize),
    End(Termination),
    /// Code and parameters.
    Throw(u64, u64, u64),
    /// The same, of an exception that is simply not generated when it is masked.
    Maskable(u64, u64, u64),
}

/// A call: what was called and where it returns to, SBP, TSP and elements of the caller, its exception handler; the
/// values that the callee chose for its trace.
pub struct Call {
    pub called: usize,
    pub back: usize,
    sbp: usize,
    tsp: usize,
    held: u64,
    handler: Option<usize>,
    pub wishes: Wishes,
}

/// The circular stack of 1024 elements, zeroed at each run.
#[derive(Debug, Clone)]
pub struct Ring {
    elements: Vec<u64>,
    /// Index of the top element.
    pub tsp: usize,
    /// Elements from the bottom to TSP.
    held: u64,
    wraps: u64,
    width: Width,
}

impl Ring {
    /// The place of `n` elements from a pointer register; negative `n` reaches older ones.
    fn place(from: usize, n: i64) -> usize {
        (from as i64 + n % 1024).rem_euclid(1024) as usize
    }

    pub fn element(&self, from: usize, n: i64) -> u64 {
        self.elements[Self::place(from, n)]
    }

    fn set(&mut self, from: usize, n: i64, value: u64) {
        self.elements[Self::place(from, n)] = value;
    }

    /// Pops elements without using them. Popping never faults; popping an empty stack is counted.
    pub fn discard(&mut self, count: u64) {
        self.tsp = Self::place(self.tsp, -((count % 1024) as i64));
        let there = count.min(self.held);
        self.held -= there;
        self.wraps = self.wraps.saturating_add(count - there);
    }

    /// Any value given to `restore tsp` counts modulo 1024; TSP is 0 when the stack is empty.
    fn restore_tsp(&mut self, value: u64) {
        self.tsp = (value % 1024) as usize;
        self.held = value % 1024;
    }
}

impl CallkStack for Ring {
    /// Pushing the 1025th overwrites the oldest, and counts.
    fn push(&mut self, value: u64) {
        self.tsp = Self::place(self.tsp, 1);
        self.elements[self.tsp] = value & self.width.mask();
        if self.held == 1024 {
            self.wraps = self.wraps.saturating_add(1);
        } else {
            self.held += 1;
        }
    }

    fn pop(&mut self) -> u64 {
        let value = self.elements[self.tsp];
        self.discard(1);
        value
    }
}

pub struct Naive<'a> {
    pub host: &'a mut dyn Host,
    pub limits: Limits,
    pub stack: Ring,
    pub sbp: usize,
    pub lv: Vec<u64>,
    pub gv: Vec<u64>,
    pub log: Vec<u8>,
    pub plp: usize,
    pub calls: Vec<Call>,
    handler: Option<usize>,
    /// The last exception generated.
    pub last: (u64, u64, u64),
    /// Where it went.
    pub last_handler: Option<usize>,
    pub trace: Buffer,
    /// The values that the handler itself chose for its trace.
    pub wishes: Wishes,
    jumps: u64,
    steps: u32,
    pub major: Option<u32>,
    pub minor: Option<u32>,
    remove: bool,
}

/// Runs code with these variables.
pub fn run(
    code: &[Insn],
    limits: Limits,
    host: &mut dyn Host,
    (lv, gv): (&[u64], &[u64]),
    max_steps: u32,
) -> Ended {
    let mut naive = Naive {
        host,
        limits,
        stack: Ring { elements: vec![0; 1024], tsp: 0, held: 0, wraps: 0, width: limits.width },
        sbp: 0,
        lv: lv.to_vec(),
        gv: gv.to_vec(),
        log: Vec::new(),
        plp: 0,
        calls: Vec::new(),
        handler: None,
        last: (0, 0, 0),
        last_handler: None,
        trace: Buffer::default(),
        wishes: Wishes::default(),
        jumps: 0,
        steps: 0,
        major: None,
        minor: None,
        remove: false,
    };
    let (termination, exception) = naive.interpret(code, max_steps);
    let stack = (0..naive.stack.held).map(|n| naive.element(naive.stack.tsp, -(n as i64))).collect();
    Ended {
        termination,
        exception,
        stack,
        log: naive.log,
        lv: naive.lv,
        gv: naive.gv,
        wraps: u32::try_from(naive.stack.wraps).unwrap_or(u32::MAX),
        steps: naive.steps,
        remove: naive.remove,
        major: naive.major,
        minor: naive.minor,
        trace: naive.trace.left(),
    }
}

type End = (Termination, Option<(u64, u64, u64, u32)>);

impl Naive<'_> {
    fn interpret(&mut self, code: &[Insn], max_steps: u32) -> End {
        let mut at = 0;
        loop {
            // The budget ends a handler as JMP_MAX does when nothing handles it (docs/probe-language.md, "Execution").
            if self.steps == max_steps {
                let jmpmax = self.limits.jmpmax.into();
                if self.generated(0x0004) {
                    self.last = (0x0004, jmpmax, 0);
                    self.trace_exception(None);
                }
                return (Termination::Exception, Some((0x0004, jmpmax, 0, at as u32)));
            }
            self.steps += 1;
            match self.execute(code[at], at) {
                Flow::Next => at += 1,
                Flow::To(target) => at = target,
                Flow::End(how) => return (how, None),
                // "Maskable exceptions are not generated if they are masked."
                Flow::Maskable(code, _, _) if !self.generated(code) => at += 1,
                Flow::Throw(code, parm1, parm2) | Flow::Maskable(code, parm1, parm2) => {
                    let unhandled = (Termination::Exception, Some((code, parm1, parm2, at as u32)));
                    match self.throw(code, parm1, parm2) {
                        Some(handler) => at = handler,
                        None => return unhandled,
                    }
                }
            }
        }
    }

    /// A set bit of `excpt_mask` means generated; of several x-field bits the lowest counts.
    pub fn generated(&self, code: u64) -> bool {
        (0..16).find(|bit| code >> bit & 1 == 1).is_some_and(|bit| self.limits.excpt_mask >> bit & 1 == 1)
    }

    /// The rules 1 to 5 of exception handling. Returns the handler.
    fn throw(&mut self, code: u64, parm1: u64, parm2: u64) -> Option<usize> {
        // A masked exception ends the handler where it occurs.
        if !self.generated(code) {
            return None;
        }
        // Rule 5: the last exception is remembered.
        self.last = (code, parm1, parm2);
        let handlers = self.calls.iter().map(|call| call.handler).chain([self.handler]);
        let innermost = handlers.rev().find_map(|handler| handler);
        self.trace_exception(innermost);
        // Rule 4: it propagates up the call chain; TSP and SBP are those of the call.
        while self.handler.is_none() && !self.calls.is_empty() {
            let call = self.calls.pop().unwrap();
            (self.stack.tsp, self.stack.held) = (call.tsp, call.held);
            (self.sbp, self.handler) = (call.sbp, call.handler);
        }
        self.push_exception(code, parm1, parm2);
        // Rule 3: the handler is implicitly reset.
        self.handler.take()
    }

    /// From the top: code, parameter 1, parameter 2.
    fn push_exception(&mut self, code: u64, parm1: u64, parm2: u64) {
        self.push(parm2);
        self.push(parm1);
        self.push(code);
    }

    pub fn bits(&self) -> u32 {
        if self.limits.width == Width::W32 { 32 } else { 64 }
    }

    pub fn bytes(&self) -> usize {
        self.bits() as usize / 8
    }

    /// A value cut to the word.
    pub fn word(&self, value: u64) -> u64 {
        value & self.limits.width.mask()
    }

    pub fn signed(&self, value: u64) -> i64 {
        if self.bits() == 32 { i64::from(value as u32 as i32) } else { value as i64 }
    }

    pub fn push(&mut self, value: u64) {
        self.stack.push(value);
    }

    /// Pushes a value again and again. When the stack holds nothing else, only TSP and the wraps change.
    pub fn push_often(&mut self, value: u64, count: u64) {
        let mut left = count;
        while left > 0 {
            if left > 4096 {
                let rounds = left / 1024 - 2;
                (0..1024).for_each(|_| self.push(value));
                self.stack.wraps = self.stack.wraps.saturating_add(1024 * (rounds - 1));
                left -= 1024 * rounds;
            } else {
                self.push(value);
                left -= 1;
            }
        }
    }

    pub fn pop(&mut self) -> u64 {
        self.stack.pop()
    }

    pub fn tos(&self) -> u64 {
        self.stack.element(self.stack.tsp, 0)
    }

    pub fn element(&self, from: usize, n: i64) -> u64 {
        self.stack.element(from, n)
    }

    pub fn set_element(&mut self, from: usize, n: i64, value: u64) {
        self.stack.set(from, n, value);
    }

    /// Taken jumps and loops count; one beyond jmpmax throws.
    fn jump(&mut self, target: u64) -> Flow {
        self.jumps += 1;
        if self.jumps > u64::from(self.limits.jmpmax) {
            return Flow::Throw(0x0004, self.limits.jmpmax.into(), 0);
        }
        Flow::To(target as usize)
    }

    fn jump_if(&mut self, taken: bool, target: u64) -> Flow {
        if taken { self.jump(target) } else { Flow::Next }
    }

    /// "Decrement TOS and jump if TOS != 0", in place.
    fn loop_to(&mut self, target: u64) -> Flow {
        let value = self.word(self.tos().wrapping_sub(1));
        self.set_element(self.stack.tsp, 0, value);
        self.jump_if(value != 0, target)
    }

    /// The 33rd nested call throws, with the number of nested calls.
    fn call(&mut self, target: u64, at: usize) -> Flow {
        if self.calls.len() == 32 {
            return Flow::Throw(0x0010, 32, 0);
        }
        let handler = self.handler.take();
        let Ring { tsp, held, .. } = self.stack;
        let (called, wishes) = (target as usize, Wishes::default());
        self.calls.push(Call { called, back: at + 1, sbp: self.sbp, tsp, held, handler, wishes });
        Flow::To(target as usize)
    }

    /// SBP comes back, and the scope of an exception handler ends at the subroutine boundary.
    fn ret(&mut self) -> Flow {
        let Some(call) = self.calls.pop() else { return Flow::Throw(0x0010, 0, 0) };
        (self.sbp, self.handler) = (call.sbp, call.handler);
        Flow::To(call.back)
    }

    /// 1 and 2 of a kernel probe, 3 of a user probe; in the other mode a no-op.
    fn exit_n(&self, n: u64) -> Flow {
        match (n, self.limits.kernel) {
            (1 | 2, true) | (3, false) => Flow::End(Termination::ExitTo(n as u8)),
            (1..=3, _) => Flow::Next,
            _ => Flow::Throw(0x0040, 4, n),
        }
    }

    /// Executes an instruction.
    fn execute(&mut self, insn: Insn, at: usize) -> Flow {
        let arg = insn.arg;
        let tos = self.signed(self.tos());
        match insn.op {
            Op::Nop => Flow::Next,
            Op::Jmp => self.jump(arg),
            Op::Jlt => self.jump_if(tos < 0, arg),
            Op::Jle => self.jump_if(tos <= 0, arg),
            Op::Jgt => self.jump_if(tos > 0, arg),
            Op::Jge => self.jump_if(tos >= 0, arg),
            Op::Jz => self.jump_if(tos == 0, arg),
            Op::Jnz => self.jump_if(tos != 0, arg),
            Op::Loop => self.loop_to(arg),
            Op::Call => self.call(arg, at),
            Op::Ret => self.ret(),
            Op::Callk => self.callk(),
            Op::Abort => Flow::End(Termination::Abort),
            Op::Exit => Flow::End(Termination::Exit),
            Op::ExitN => self.exit_n(arg),
            Op::Sx => self.then(|n| n.handler = Some(arg as usize)),
            Op::Ux => self.then(|n| n.handler = None),
            Op::PushX => self.then(|n| n.push_exception(n.last.0, n.last.1, n.last.2)),
            Op::Rx => self.raise(),
            Op::Remove => self.then(|n| n.remove = true),
            Op::SetMinN => self.then(|n| n.minor = Some(arg as u32)),
            Op::SetMin => self.then(|n| n.minor = Some(n.tos() as u32)),
            Op::SetMajN => self.then(|n| n.major = Some(arg as u32)),
            Op::SetMaj => self.then(|n| n.major = Some(n.tos() as u32)),
            Op::Push => self.then(|n| n.push(arg)),
            Op::SaveSbp => self.then(|n| n.push(n.sbp as u64)),
            Op::SaveTsp => self.then(|n| n.push(n.stack.tsp as u64)),
            Op::RestoreSbp => self.then(|n| n.sbp = (n.pop() % 1024) as usize),
            Op::RestoreTsp => self.then(|n| {
                let value = n.pop();
                n.stack.restore_tsp(value);
            }),
            _ => self.rule(insn),
        }
    }

    pub fn then(&mut self, effect: impl FnOnce(&mut Self)) -> Flow {
        effect(self);
        Flow::Next
    }

    /// Code on top, then the parameters; a masked or zero code is a no-op.
    fn raise(&mut self) -> Flow {
        let (code, parm1, parm2) = (self.pop(), self.pop(), self.pop());
        Flow::Maskable(code, parm1, parm2)
    }
}
