//! The stack of an instruction: its segment's base, and how many bits of the stack pointer count (SDM volume 1, 6.2).

use super::Cpu;
use crate::engine::{Env, Seg, hflags};

/// The stack pointer's number among the general registers.
const SP: usize = 4;

/// Where the stack segment begins, and which bits of the stack pointer say where in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackShape {
    base: u64,
    mask: u64,
}

impl StackShape {
    /// The stack of 64-bit code, which has no base.
    pub(crate) const WIDE: Self = StackShape { base: 0, mask: u64::MAX };

    /// A stack of 32 bits or, if not `big`, of 16.
    pub(crate) fn segmented(base: u64, big: bool) -> Self {
        StackShape { base, mask: if big { 0xffff_ffff } else { 0xffff } }
    }

    /// The stack of code that runs with `env`.
    #[inline]
    pub(crate) fn of(env: Env<'_>) -> Self {
        if env.code64() {
            Self::WIDE
        } else {
            Self::segmented(env.seg(Seg::Ss).base, env.hflags() & hflags::SS32 != 0)
        }
    }

    /// The linear address for stack pointer `pointer`, before it is truncated to the mode's width.
    #[inline]
    pub fn linear(self, pointer: u64) -> u64 {
        self.base.wrapping_add(pointer & self.mask)
    }

    /// The new value of the stack pointer register, which held `old`: a 16-bit stack changes its low 16 bits only.
    #[inline]
    pub fn register(self, old: u64, new: u64) -> u64 {
        if self.mask == 0xffff { (old & !0xffff) | (new & 0xffff) } else { new & self.mask }
    }
}

impl Cpu {
    /// The current stack.
    #[inline]
    pub fn stack(&self) -> StackShape {
        StackShape::of(*self.env)
    }

    /// Moves the stack pointer.
    #[inline]
    pub fn set_stack_pointer(&self, shape: StackShape, pointer: u64) {
        self.env.set_gpr(SP, shape.register(self.env.gpr(SP), pointer));
    }
}
