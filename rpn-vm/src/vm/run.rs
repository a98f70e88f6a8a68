//! The state of one run of a handler, and the helpers that all groups of instructions use.

use super::{Vars, Vm};
use crate::host::Host;
use crate::verify::Verified;

/// Why execution stops. One byte, so that the result of a step fits a register; the exception is in `Vm::raised`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// `exit 1`, `exit 2`, `exit 3`.
    ExitTo1,
    ExitTo2,
    ExitTo3,
    /// An exception that a handler may catch.
    Throw,
}

/// One run of a handler. `W64` says whether the guest's word has 64 bits.
pub(super) struct Run<'a, H, const W64: bool> {
    pub vm: &'a mut Vm,
    pub program: &'a Verified,
    pub host: &'a mut H,
    pub lv: &'a mut [u64],
    pub gv: &'a mut [u64],
    pub remove: bool,
}

/// The result of an instruction: execution continues or stops.
pub(super) type Step = Result<(), Stop>;

impl<'a, H: Host, const W64: bool> Run<'a, H, W64> {
    #[inline(always)]
    pub fn new(vm: &'a mut Vm, program: &'a Verified, host: &'a mut H, vars: Vars<'a>) -> Self {
        Self { vm, program, host, lv: vars.lv, gv: vars.gv, remove: false }
    }

    /// The variables of the program; the machine may have more.
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
}
