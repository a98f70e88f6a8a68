//! The interpreter of verified programs.
//!
//! A [`Vm`] owns the RPN stack, the call stack, the log buffer and the internal
//! registers, all allocated once and reused between hits. It cannot panic,
//! cannot run longer than its step budget, and reaches the guest only through
//! the [`Host`] it is given.

mod arith;
mod data;
mod exec;
mod hot;
mod internal;
mod logging;
mod run;
mod stack;
mod throw;
mod tracing;
mod vars;

use crate::host::Host;
use crate::verify::{Verified, Width};
use stack::Stack;
use std::num::NonZeroU32;
pub use tracing::StackTrace;
use tracing::Tracing;

/// Default limit of instructions in one run of a handler (docs/probe-language.md, "Execution").
pub const DEFAULT_MAX_STEPS: u32 = 65_536;
/// Most nested calls; one more raises CALL_MAX.
pub const MAX_CALLS: usize = 32;

/// x-fields of exception codes (docs/probe-language.md, "Exceptions").
pub mod exception {
    /// A memory reference failed. Parameter 1: the address.
    pub const INVALID_ADDR: u32 = 0x0001;
    /// `seg2lin` with an invalid selector. Parameter 1: the selector.
    pub const SEG_FAULT: u32 = 0x0002;
    /// Too many jumps, or the step budget is used up. Parameter 1: `jmpmax`.
    pub const JMP_MAX: u32 = 0x0004;
    /// The 33rd nested call, or `ret` without a call. Parameter 1: nested calls.
    pub const CALL_MAX: u32 = 0x0010;
    /// Division by zero.
    pub const DIVIDE_BY_ZERO: u32 = 0x0020;
    /// An operand out of range. Parameter 1: 1 lv, 2 gv, 3 propagate bit, 4 exit code, 5 msr, 6 callk
    /// number, 7 lp/stp value, 8 argument; parameter 2: the value.
    pub const INVALID_OPERAND: u32 = 0x0040;
    /// No such opcode; cannot happen in verified code. Parameters: opcode, offset.
    pub const INVALID_OPCODE: u32 = 0x0080;
    /// The log buffer is full. Parameter 1: `logmax`.
    pub const LOG_OVERFLOW: u32 = 0x1000;
    /// Raised by `rx` or a host service.
    pub const USER_EX: u32 = 0x8000;

    /// The name of an exception, from the lowest set bit of its x-field.
    #[must_use]
    pub fn name(code: u64) -> &'static str {
        match lowest(code) {
            INVALID_ADDR => "INVALID_ADDR",
            SEG_FAULT => "SEG_FAULT",
            JMP_MAX => "JMP_MAX",
            CALL_MAX => "CALL_MAX",
            DIVIDE_BY_ZERO => "DIVIDE_BY_ZERO",
            INVALID_OPERAND => "INVALID_OPERAND",
            INVALID_OPCODE => "INVALID_OPCODE",
            LOG_OVERFLOW => "LOG_OVERFLOW",
            USER_EX => "USER_EX",
            _ => "UNKNOWN",
        }
    }

    /// The lowest set bit of a code's x-field, which is the exception it stands for.
    #[must_use]
    pub const fn lowest(code: u64) -> u32 {
        let x = (code & 0xffff) as u32;
        x & x.wrapping_neg()
    }
}

/// How a handler ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Termination {
    /// `exit`, or the end of the handler: the log is kept.
    Exit,
    /// `abort`: the log is dropped.
    Abort,
    /// `exit 1`, `exit 2` (kernel probes) or `exit 3` (user probes): the log is kept, and the program requests the
    /// debugger, a crash dump or a core dump.
    ExitTo(u8),
    /// An exception that nothing handled, [`Vm::unhandled`]: the log is kept.
    Exception,
}

/// An exception that ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unhandled {
    /// The code: u-field in bits 31..16, x-field in 15..0.
    pub code: u64,
    /// First parameter.
    pub parm1: u64,
    /// Second parameter.
    pub parm2: u64,
    /// Index of the instruction.
    pub at: u32,
    /// Whether the run had used up its step budget, as the JMP_MAX of jumps beyond `jmpmax` has not.
    pub out_of_steps: bool,
}

impl Unhandled {
    /// The x-field's lowest bit, which is what a record's termination field holds (docs/records.md, "Bytes").
    #[must_use]
    pub const fn x_field(&self) -> u16 {
        exception::lowest(self.code) as u16
    }
}

/// The result of a run besides the log; small enough to be returned in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub termination: Termination,
    /// Whether `remove` asked to disable the probe.
    pub remove: bool,
    /// Pushes that overwrote the oldest element and pops of an empty stack.
    pub wraps: u32,
    /// Instructions executed.
    pub steps: u32,
}

impl Outcome {
    /// Whether the hit is to be recorded: always, except after `abort`.
    #[must_use]
    pub const fn recorded(&self) -> bool {
        !matches!(self.termination, Termination::Abort)
    }
}

/// The variables of a run: `lv` live with the program, `gv` with the machine. One element a variable.
#[derive(Debug, Default)]
pub struct Vars<'a> {
    /// Local variables; at least as many as the program's `vars`.
    pub lv: &'a mut [u64],
    /// Global variables; at least as many as the program's `gvars`.
    pub gv: &'a mut [u64],
}

/// A call that has not returned.
#[derive(Debug, Clone, Copy, Default)]
struct Frame {
    /// Where the call returns to.
    ret: u32,
    /// SBP of the caller.
    sbp: u32,
    /// TSP of the caller when it called, for an implicit return.
    tsp: stack::Top,
    /// Exception handler of the caller.
    handler: Handler,
    /// Whether the called procedure chose values for its frame of a stack trace.
    traced: bool,
}

/// The last exception, as `push x` gives it.
#[derive(Debug, Clone, Copy, Default)]
struct Thrown {
    code: u64,
    parm1: u64,
    parm2: u64,
}

/// Where exceptions go: the index of an instruction plus one; 0 for none.
type Handler = Option<NonZeroU32>;

/// The state that is zeroed at the start of a run.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    sbp: u32,
    /// Calls that have not returned.
    depth: u32,
    handler: Handler,
    /// Where the log ends.
    lp: usize,
    /// Where its last item begins.
    plp: usize,
    last: Thrown,
    /// Set by `setmaj` and `setmin`.
    major: Option<u32>,
    minor: Option<u32>,
    /// Whether `tracing` belongs to this run.
    tracing: bool,
}

// It is zeroed at the start of each run. `make sanitize` compiles with debug assertions and shuffled layouts, whose size varies.
#[cfg(not(debug_assertions))]
const _: () = assert!(size_of::<State>() == 72);

/// The interpreter's memory, reused between runs.
#[derive(Debug)]
pub struct Vm {
    run: State,
    stack: Stack,
    frames: [Frame; MAX_CALLS],
    log: Box<[u8]>,
    tracing: Box<Tracing>,
    raised: Thrown,
    /// The instruction that raised the exception that ended the last run.
    ended_at: u32,
    /// See [`Unhandled::out_of_steps`].
    out_of_steps: bool,
    max_steps: u32,
}

impl Default for Vm {
    fn default() -> Self {
        Self::new()
    }
}

impl Vm {
    /// An interpreter with the default step budget.
    #[must_use]
    pub fn new() -> Self {
        Self {
            run: State::default(),
            stack: Stack::new(),
            frames: [Frame::default(); MAX_CALLS],
            log: vec![0; 65_536].into(),
            tracing: Box::default(),
            raised: Thrown::default(),
            ended_at: 0,
            out_of_steps: false,
            max_steps: DEFAULT_MAX_STEPS,
        }
    }

    /// Sets the number of instructions a run may execute (`--max-steps`).
    pub fn set_max_steps(&mut self, steps: u32) {
        self.max_steps = steps;
    }

    /// See [`Vm::set_max_steps`].
    #[must_use]
    pub const fn max_steps(&self) -> u32 {
        self.max_steps
    }

    /// Runs a handler. The log stays readable until the next run.
    #[inline(always)]
    pub fn run<H: Host>(&mut self, program: &Verified, host: &mut H, vars: Vars<'_>) -> Outcome {
        self.stack.reset(program.writes_stack);
        self.run = State::default();
        if !H::observes()
            && let Some(outcome) = hot::ends_at_once(program, self.max_steps)
        {
            return outcome;
        }
        match program.limits().width {
            Width::W32 => run::Run::<H, false>::new(self, program, host, vars).run(),
            Width::W64 => run::Run::<H, true>::new(self, program, host, vars).run(),
        }
    }

    /// The exception that ended the last run, when [`Termination::Exception`] did.
    #[must_use]
    pub const fn unhandled(&self) -> Unhandled {
        let Thrown { code, parm1, parm2 } = self.raised;
        Unhandled { code, parm1, parm2, at: self.ended_at, out_of_steps: self.out_of_steps }
    }

    /// Major and minor code that the last run set with `setmaj` and `setmin`.
    #[must_use]
    pub const fn codes(&self) -> (Option<u32>, Option<u32>) {
        (self.run.major, self.run.minor)
    }

    /// The data that the last run logged; after `abort`, the dropped data.
    #[must_use]
    pub fn log(&self) -> &[u8] {
        self.log.get(..self.run.lp).unwrap_or_default()
    }

    /// The stack trace records of the last run; `None` if there are none. After `abort`, the dropped
    /// records.
    #[inline]
    #[must_use]
    pub fn stack_trace(&self) -> Option<StackTrace<'_>> {
        if self.run.tracing { self.tracing.left() } else { None }
    }

    /// The RPN stack after the last run, top first; as many elements as it then held.
    #[must_use]
    pub fn stack(&self) -> Vec<u64> {
        self.stack.elements()
    }
}
