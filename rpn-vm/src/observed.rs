//! A run that is observed operation by operation.
//!
//! The interpreter is the same: [`Vm::run_observed`] runs it on a host that passes everything on to another one, and that
//! asks for a look before each operation ([`Host::observes`]). A run on a host that does not ask costs nothing more.

use crate::host::{Argument, ArgumentError, CallkError, CallkStack, Context, Fault, Host, OpState};
use crate::regs::Reg;
use crate::verify::Verified;
use crate::vm::{Outcome, Unhandled, Vars, Vm};

/// A change of the guest by the operation that is executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Of memory.
    Memory {
        /// Linear address.
        address: u64,
        /// The bytes before.
        old: Vec<u8>,
        /// The bytes now.
        new: Vec<u8>,
    },
    /// Of a register.
    Register {
        /// Of the CPU, or of the user context.
        context: Context,
        /// Which.
        register: Reg,
        /// What was written.
        value: u64,
    },
    /// A port was written.
    Port {
        /// Which.
        port: u16,
        /// Bytes.
        size: u8,
        /// What was written.
        value: u32,
    },
}

/// Who is told of a run.
pub trait Observer {
    /// Whether [`Observer::step`] is called in place of [`Observer::before`].
    const FOLLOWS: bool = false;

    /// An operation comes next.
    fn before(&mut self, state: &OpState<'_>) {
        let _ = state;
    }

    /// As [`Host::step`].
    fn step(&mut self, at: u32, top: [u64; 3]) {
        let _ = (at, top);
    }

    /// As [`Host::cut`].
    fn cut(&mut self) {}

    /// The operation that was told last has thrown an exception, caught or not.
    fn threw(&mut self, exception: Unhandled);

    /// The operation that was told last has changed the guest.
    fn changed(&mut self, change: Change);
}

/// The host of an observed run.
pub(crate) struct Observed<'a, H, O> {
    host: &'a mut H,
    observer: &'a mut O,
}

impl Vm {
    /// As [`Vm::run`], and tells an observer of each operation. The result is that of [`Vm::run`].
    pub fn run_observed<H: Host, O: Observer>(
        &mut self,
        program: &Verified,
        host: &mut H,
        observer: &mut O,
        vars: Vars<'_>,
    ) -> Outcome {
        self.run(program, &mut Observed { host, observer }, vars)
    }
}

impl<H: Host, O: Observer> Host for Observed<'_, H, O> {
    #[inline(always)]
    fn observes() -> bool {
        true
    }

    fn before(&mut self, state: &OpState<'_>) {
        self.observer.before(state);
    }

    #[inline(always)]
    fn follows() -> bool {
        O::FOLLOWS
    }

    #[inline]
    fn step(&mut self, at: u32, top: [u64; 3]) {
        self.observer.step(at, top);
    }

    fn cut(&mut self) {
        self.observer.cut();
    }

    fn threw(&mut self, at: u32, [code, parm1, parm2]: [u64; 3]) {
        self.observer.threw(Unhandled { code, parm1, parm2, at, out_of_steps: false });
    }

    fn read_reg(&mut self, context: Context, reg: Reg) -> u64 {
        self.host.read_reg(context, reg)
    }

    fn read_wide(&mut self, context: Context, reg: Reg) -> u128 {
        self.host.read_wide(context, reg)
    }

    fn write_reg(&mut self, context: Context, register: Reg, value: u64) -> bool {
        let written = self.host.write_reg(context, register, value);
        if written {
            self.observer.changed(Change::Register { context, register, value });
        }
        written
    }

    fn cpuid(&mut self, leaf: u32) -> [u32; 4] {
        self.host.cpuid(leaf)
    }

    fn rdmsr(&mut self, index: u32) -> Option<u64> {
        self.host.rdmsr(index)
    }

    fn read_mem(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
        self.host.read_mem(addr, buf)
    }

    fn write_mem(&mut self, addr: u64, data: &[u8]) -> Result<(), Fault> {
        let mut old = vec![0; data.len()];
        let known = self.host.read_mem(addr, &mut old).is_ok();
        self.host.write_mem(addr, data)?;
        if known {
            self.observer.changed(Change::Memory { address: addr, old, new: data.to_vec() });
        }
        Ok(())
    }

    fn can_write(&mut self, addr: u64) -> bool {
        self.host.can_write(addr)
    }

    fn pid(&mut self) -> u64 {
        self.host.pid()
    }

    fn procid(&mut self) -> u64 {
        self.host.procid()
    }

    fn task(&mut self) -> u64 {
        self.host.task()
    }

    fn argument(&mut self, which: Argument) -> Result<u64, ArgumentError> {
        self.host.argument(which)
    }

    fn io_read(&mut self, port: u16, size: u8) -> u32 {
        self.host.io_read(port, size)
    }

    fn io_write(&mut self, port: u16, size: u8, value: u32) {
        self.host.io_write(port, size, value);
        self.observer.changed(Change::Port { port, size, value });
    }

    fn seg2lin(&mut self, selector: u16, offset: u64) -> Option<u64> {
        self.host.seg2lin(selector, offset)
    }

    // `read_operand` and `write_operand` are not forwarded: each operation of an observed run is told by itself.

    fn callk(&mut self, number: u64, stack: &mut dyn CallkStack) -> Result<(), CallkError> {
        self.host.callk(number, stack)
    }
}
