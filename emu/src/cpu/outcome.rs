//! How an instruction that the machine executes itself ends, and who is told of its accesses.

use super::Cpu;
use crate::mmu::Paging;

/// How an instruction ended.
pub(crate) enum Done {
    /// It retired; EIP moves past it.
    Next,
    /// It retired and has changed the breakpoints of the guest; EIP moves past it.
    Breakpoints,
    /// It retired and has set EIP.
    Jumped,
    /// It is INT1, which raises #DB behind itself and leaves DR6 as it is.
    Int1,
    /// Nothing has happened yet: the engine is to execute it, and this comes after.
    ByEngine(Then),
}

/// What comes after an instruction that the engine has executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Nothing.
    Nothing,
    /// If it faults, the engine loses these flags.
    FlagsBack(u64),
    /// If paging is another than this, what is cached of the tables goes.
    Follow(Paging),
}

/// Is told of what the machine accesses for an instruction, before it does. The state is that before the instruction.
pub(crate) trait Accesses {
    /// An access to linear memory.
    fn memory(&mut self, cpu: &Cpu, address: u64, size: usize, write: bool);
    /// A value has been moved through a port.
    fn port(&mut self, cpu: &Cpu, port: u16, size: u8, value: u32, out: bool);
}
