//! The [`Host`] trait: everything that a handler can read and change outside the interpreter.
//!
//! Every access is NOFAULT: it succeeds or names the address that failed, and has
//! no side effect on the guest beyond the requested one. The interpreter calls a
//! host only for instructions of a verified program.

use crate::regs::Reg;

/// Which register context an instruction names (docs/probe-language.md, "Registers").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// `r`: the CPU at the hit.
    Current,
    /// `u`: the current task's user context. A host without one returns 0 and counts the access.
    User,
}

/// A memory access failed at this address: the first byte that could not be accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault(pub u64);

/// An argument of a probe point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// `push arg, n`: argument n, from 0.
    Number(u8),
    /// `push ret`: the return value of the function.
    Returned,
}

/// Why an argument has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentError {
    /// The probe point has no such argument: INVALID_OPERAND(8, n); for `push ret` n is all ones.
    None,
    /// The probe point has such an argument, but here it is not known: INVALID_OPERAND as for one that it does not have.
    Unknown,
    /// The argument is in memory, and this address of it cannot be read: INVALID_ADDR.
    Fault(u64),
}

/// The stack of the running handler, for a host service (docs/probe-language.md, "Host services and exits").
pub trait CallkStack {
    /// Pops the top element, of the guest's width.
    fn pop(&mut self) -> u64;
    /// Pushes an element, cut to the guest's width.
    fn push(&mut self, value: u64);
}

/// How a host service ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallkError {
    /// No service is registered under the number: INVALID_OPERAND(6, number).
    Unknown,
    /// The service throws USER_EX with this u-field and parameters.
    Throw {
        /// Bits 31..16 of the exception code.
        user: u16,
        /// First parameter.
        parm1: u64,
        /// Second parameter.
        parm2: u64,
    },
}

/// A run as it is before an operation.
#[derive(Debug)]
pub struct OpState<'a> {
    /// Index of the operation in the handler.
    pub at: u32,
    /// Calls that have not returned.
    pub calls: u32,
    /// The operand stack, top last.
    pub stack: &'a [u64],
    /// What has been logged so far.
    pub log: &'a [u8],
    /// Local variables.
    pub lv: &'a [u64],
    /// Global variables.
    pub gv: &'a [u64],
}

/// The guest as a handler sees it.
pub trait Host {
    /// Whether [`Host::before`] and [`Host::threw`] are called. Constant for a type.
    #[inline(always)]
    #[must_use]
    fn observes() -> bool
    where
        Self: Sized,
    {
        false
    }

    /// An operation comes next ([`crate::Vm::run_observed`]).
    fn before(&mut self, state: &OpState<'_>) {
        let _ = state;
    }

    /// The operation that was told last, which has this index, has thrown an exception: code and parameters.
    fn threw(&mut self, at: u32, exception: [u64; 3]) {
        let _ = (at, exception);
    }

    /// Whether a host that observes is told by [`Host::step`] in place of [`Host::before`], which takes a fraction of the time.
    /// Constant for a type.
    #[inline(always)]
    #[must_use]
    fn follows() -> bool
    where
        Self: Sized,
    {
        false
    }

    /// An operation comes next: its place in the program's code ([`crate::Verified::own`]), and the top of the stack, the
    /// topmost element first.
    fn step(&mut self, at: u32, top: [u64; 3]) {
        let _ = (at, top);
    }

    /// A log operation has logged only a part of its data, and goes on because LOG_OVERFLOW is masked.
    fn cut(&mut self) {}

    /// A register of at most one word. `Gdtr`, `Idtr`, `Fr*`, `Xmm*` go through [`Host::read_wide`].
    fn read_reg(&mut self, context: Context, reg: Reg) -> u64;

    /// A wide register: 80 bits for `Fr0`..`Fr7`, 128 for `Xmm0`..`Xmm15`; for `Gdtr` and `Idtr` the base
    /// in bits 0..64 and the limit in bits 64..80.
    fn read_wide(&mut self, context: Context, reg: Reg) -> u128;

    /// Sets a general register (already zero-extended for IA32 names) or `Ds`, `Es`, `Fs`, `Gs`. Returns false if it
    /// could not: a segment register takes only a selector that the CPU would load.
    fn write_reg(&mut self, context: Context, reg: Reg, value: u64) -> bool;

    /// The guest's CPUID for a leaf, subleaf 0: eax, ebx, ecx, edx.
    fn cpuid(&mut self, leaf: u32) -> [u32; 4];

    /// A model-specific register; `None` when the guest's CPU has no such register.
    fn rdmsr(&mut self, index: u32) -> Option<u64>;

    /// Reads guest memory at a linear address; all of `buf` or nothing.
    ///
    /// # Errors
    /// The first address that cannot be read.
    fn read_mem(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), Fault>;

    /// Writes guest memory at a linear address; all of `data` or nothing.
    ///
    /// # Errors
    /// The first address that cannot be written.
    fn write_mem(&mut self, addr: u64, data: &[u8]) -> Result<(), Fault>;

    /// Whether the byte at a linear address could be read and written (`vfyrw`).
    fn can_write(&mut self, addr: u64) -> bool;

    /// Process id of the current process.
    fn pid(&mut self) -> u64;

    /// Id of the processor.
    fn procid(&mut self) -> u64;

    /// Linear address of the current task structure.
    fn task(&mut self) -> u64;

    /// An argument of the probe point, extended to 64 bits as its type asks.
    ///
    /// # Errors
    /// See [`ArgumentError`].
    fn argument(&mut self, which: Argument) -> Result<u64, ArgumentError> {
        let _ = which;
        Err(ArgumentError::None)
    }

    /// Reads an IO port; `size` is 1, 2 or 4 bytes.
    fn io_read(&mut self, port: u16, size: u8) -> u32;

    /// Writes an IO port; `size` is 1, 2 or 4 bytes.
    fn io_write(&mut self, port: u16, size: u8, value: u32);

    /// The linear address of `selector:offset`; `None` when the selector is not valid.
    fn seg2lin(&mut self, selector: u16, offset: u64) -> Option<u64>;

    /// What [`Host::callk`] would push for this service and operand, if it would pop and do nothing else. `None`: the
    /// service is called.
    #[inline]
    fn read_operand(&mut self, service: u64, operand: u64) -> Option<u64> {
        let _ = (service, operand);
        None
    }

    /// Does what [`Host::callk`] would do for this service, operand and value, if it would pop and push nothing else.
    /// Returns false if it has done nothing: then the service is called.
    #[inline]
    fn write_operand(&mut self, service: u64, operand: u64, value: u64) -> bool {
        let _ = (service, operand, value);
        false
    }

    /// Calls the host service registered under a number.
    ///
    /// # Errors
    /// No such service, or the exception it throws.
    fn callk(&mut self, number: u64, stack: &mut dyn CallkStack) -> Result<(), CallkError> {
        let _ = (number, stack);
        Err(CallkError::Unknown)
    }
}
