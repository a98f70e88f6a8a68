//! Stacks of the guest: return addresses, found without running anything in it and without side effects.
//!
//! Each way to find a caller is a module: `orc` (the tables of Linux on x86-64), `cfi` (`.eh_frame` and
//! `.debug_frame`), `frame` (frame pointers, and `struct pt_regs` after one), with `setup` (how the code of a function
//! makes its frame). `kernel` and `user` choose among them,
//! frame by frame. All of them read memory through [`Memory`] alone, and do not trust tables and stacks: unreadable
//! memory and invalid addresses end the walk, and so does a stack pointer that falls more than [`MAX_SWITCHES`] times,
//! as it does where a walk switches to another stack. A walk never has more frames than requested.

use std::collections::BTreeMap;

use trapline_emu::{Core, StackShape};

mod cfi;
mod frame;
mod kernel;
mod orc;
mod setup;
mod unwound;
mod user;

pub use kernel::{KernelFrame, KernelImage, has_unknown_orc};
pub use unwound::{Edge, Unwound};
pub use user::{CodePlace, FindProgram, UserFrame};

pub(crate) use frame::ORDER32 as REGISTERS32;
pub(crate) use orc::ORDER as REGISTERS64;

use kernel::{Kernel, KnownModule};
use user::Programs;

/// Times that a walk may continue at a lower stack pointer: from an NMI's stack to an interrupt's, an exception's, a
/// task's, with some to spare.
const MAX_SWITCHES: u32 = 8;

/// The system's name in the profile of Linux.
const LINUX: &str = "linux";

const SP: usize = 4;
const BP: usize = 5;

/// NOFAULT memory, by words of the code that is unwound. Addresses are offsets in its segments.
trait Memory {
    /// The word at `va` of the stack; `None` when not all of it can be read.
    fn word(&self, va: u64) -> Option<u64>;

    /// Up to `to.len()` bytes of code at `va`; returns the number of bytes read.
    fn code(&self, va: u64, to: &mut [u8]) -> usize;

    /// Whether words have 8 bytes, not 4.
    fn wide(&self) -> bool;

    /// `base + offset`, wrapped as addresses are.
    fn add(&self, base: u64, offset: i64) -> u64 {
        let sum = base.wrapping_add_signed(offset);
        if self.wide() { sum } else { sum & u64::from(u32::MAX) }
    }

    /// Bytes of a word.
    fn size(&self) -> i64 {
        if self.wide() { 8 } else { 4 }
    }
}

/// The guest's memory in the address space that it is in.
struct Linear<'a> {
    core: &'a Core,
    wide: bool,
    /// The stack and the base of the code; none for segments without a base.
    segments: Option<(StackShape, u64)>,
}

impl<'a> Linear<'a> {
    /// The memory of code whose segments have no base.
    fn flat(core: &'a Core, wide: bool) -> Self {
        Self { core, wide, segments: None }
    }

    /// The memory of the code that runs now.
    fn current(core: &'a Core, wide: bool) -> Self {
        let code = if core.env().code64() { 0 } else { core.env().cs_base() };
        Self { core, wide, segments: Some((core.stack(), code)) }
    }
}

impl Memory for Linear<'_> {
    fn word(&self, va: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let at = self.segments.map_or(va, |(stack, _)| self.core.wrap_linear(stack.linear(va)));
        self.core.peek(at, bytes.get_mut(..self.size() as usize)?).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    fn code(&self, va: u64, to: &mut [u8]) -> usize {
        let at = self.segments.map_or(va, |(_, base)| self.core.wrap_linear(base.wrapping_add(va)));
        self.core.peek_prefix(at, to)
    }

    fn wide(&self) -> bool {
        self.wide
    }
}

/// Registers at one frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    /// General registers in the machine's order; `None` where a callee may have changed them.
    gpr: [Option<u64>; 16],
    /// Instruction pointer, or return address.
    ip: u64,
    /// Whether the instruction at `ip` is about to run, and is not the target of a return.
    exact: bool,
    /// Times that the stack pointer has fallen.
    switches: u32,
}

impl State {
    fn new(gpr: [u64; 16], ip: u64) -> Self {
        Self { gpr: gpr.map(Some), ip, exact: true, switches: 0 }
    }

    /// The CPU's registers.
    fn of(core: &Core) -> Self {
        Self::new(std::array::from_fn(|n| core.env().gpr(n)), core.env().eip())
    }

    /// An address in the frame's instruction: a call may be the last one of its function.
    fn within(&self) -> u64 {
        if self.exact { self.ip } else { self.ip.wrapping_sub(1) }
    }

    fn sp(&self) -> Option<u64> {
        self.gpr[SP]
    }

    fn bp(&self) -> Option<u64> {
        self.gpr[BP]
    }

    /// Goes to the caller at `ip` with the stack pointer `sp`.
    fn return_to(&mut self, ip: u64, sp: u64) {
        (self.ip, self.exact, self.gpr[SP]) = (ip, false, Some(sp));
    }

    /// Whether a walk that was at the stack pointer `before` may continue here.
    fn goes_on(&mut self, before: Option<u64>) -> bool {
        if self.sp() <= before {
            self.switches += 1;
        }
        self.ip != 0 && self.switches <= MAX_SWITCHES
    }
}

/// An address of code, and what leads there.
///
/// The two are looked up in different ways, so whatever names code takes this and not a number: a call may be the last
/// instruction of its function, and then it returns to the beginning of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodePointer {
    /// The address itself: of the instruction that runs next, of a function, or of data.
    At(u64),
    /// An address to which a call returns. It is named by the call.
    Return(u64),
}

impl CodePointer {
    /// The address in a frame of a stack; `exact` if the instruction there is about to run.
    pub fn of(ip: u64, exact: bool) -> Self {
        if exact { Self::At(ip) } else { Self::Return(ip) }
    }

    /// The value of a word of a stack: it is a return address if a call precedes the address.
    pub fn in_stack(core: &Core, value: u64) -> Self {
        let is_back = setup::follows_call(&Linear::flat(core, core.env().long_mode()), value);
        Self::of(value, !is_back)
    }

    /// The address.
    pub fn address(self) -> u64 {
        let (Self::At(address) | Self::Return(address)) = self;
        address
    }

    /// The address that is looked up: within the instruction that this is about.
    pub fn within(self) -> u64 {
        self.address().wrapping_sub(self.back())
    }

    /// Bytes from [`CodePointer::within`] to the address.
    pub fn back(self) -> u64 {
        match self {
            Self::At(_) => 0,
            Self::Return(_) => 1,
        }
    }
}

/// The result of looking for a frame's caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The caller was found: the state is the caller's.
    Caller,
    /// Nothing: the stack is complete.
    End,
    /// The caller is unknown.
    Lost,
}

/// Finds stacks. It caches tables of files and modules, but nothing of a stack.
pub struct Unwinder {
    image: Option<KernelImage>,
    /// Made when it is first needed.
    kernel: Option<Kernel>,
    modules: BTreeMap<String, KnownModule>,
    programs: Programs,
}

impl Default for Unwinder {
    /// An unwinder without tables, which follows frame pointers only.
    fn default() -> Self {
        Self::new(None, Box::new(|_| None), Vec::new())
    }
}

#[cfg(test)]
mod testing;
