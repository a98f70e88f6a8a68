//! How an instruction that the machine executes itself ends, and the trait through which its accesses are reported.

use super::Cpu;
use super::operands::Operand;
use super::user::UserContext;
use crate::mmu::Paging;

/// How an instruction ended.
pub(crate) enum Done {
    /// It retired; EIP moves past it.
    Next,
    /// It retired and has changed the breakpoints of the guest; EIP moves past it.
    Breakpoints,
    /// It retired and has set EIP.
    Jumped,
    /// It is INT1, which raises #DB after itself and leaves DR6 unchanged.
    Int1,
    /// Nothing has happened: the guest uses what the machine does not support.
    Unsupported(String),
    /// Nothing has happened yet: the engine is to execute it, followed by this action.
    ByEngine(Then),
}

/// What to do after the engine has executed an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Nothing.
    Nothing,
    /// If it faults, restore these flags, which the engine loses.
    FlagsBack(u64),
    /// If it has entered an inner ring, note these registers of the outer one.
    NoteEntry(UserContext),
    /// Take over what it has loaded into the status word of the x87 and MXCSR.
    Adopt,
    /// If paging differs from this, drop what is cached from the page tables.
    Follow(Paging),
}

/// What switches tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Call,
    Jump,
    Return,
    /// An exception or interrupt: the EXT bit of error codes, and the error code to push.
    Event {
        ext: u32,
        error: Option<u32>,
    },
}

impl By {
    /// Whether the new task is to return to the old one.
    pub(super) fn nests(self) -> bool {
        matches!(self, Self::Call | Self::Event { .. })
    }

    pub(super) fn ext(self) -> u32 {
        if let Self::Event { ext, .. } = self { ext } else { 0 }
    }
}

/// Receives each access of an instruction that the machine executes, before the access is made. The CPU state is that
/// before the instruction.
pub(crate) trait Accesses {
    /// An access to an operand in linear memory.
    fn operand(&mut self, cpu: &Cpu, operand: &Operand);
    /// A read or write of linear memory.
    fn memory(&mut self, cpu: &Cpu, address: u64, size: usize, write: bool) {
        let size = size as u32;
        self.operand(cpu, &Operand { address, size, whole: size, reads: !write, writes: write });
    }
    /// `size` bytes at a physical address have been read from a device, or written to it. What an instruction moves in
    /// parts is told part by part, in the order of the addresses.
    fn device(&mut self, paddr: u64, value: u32, size: u8, write: bool);
    /// A value has been moved through a port.
    fn port(&mut self, cpu: &Cpu, port: u16, size: u8, value: u32, out: bool);
}
