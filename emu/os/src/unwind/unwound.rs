//! Stacks with the registers of each frame, as a debugger wants them.

use trapline_emu::Core;

use super::{State, Unwinder};
use crate::profile::{OsProfile, Switched};

/// What leads from a place in the kernel's code to its caller, where that is not a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// An interrupt or an exception: the caller is the code that it has interrupted.
    Interrupts,
    /// Nothing: it has no caller.
    Ends,
}

/// A frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwound {
    /// Instruction pointer or return address.
    pub ip: u64,
    /// General registers in the machine's order, as far as they are known.
    pub gpr: [Option<u64>; 16],
}

impl From<State> for Unwound {
    fn from(State { ip, gpr, .. }: State) -> Self {
        Self { ip, gpr }
    }
}

impl Unwinder {
    /// The stack of the code that runs, the kernel's or the program's: innermost first, `most` frames at most.
    pub fn unwound(&mut self, core: &Core, profile: Option<&dyn OsProfile>, most: usize) -> Vec<Unwound> {
        let states = match core.env().cpl() {
            3 => self.user_states(core, profile, most),
            _ => self.kernel_walk(core, profile, false, most),
        };
        states.into_iter().map(Unwound::from).collect()
    }

    /// The stack of a task that does not run, from where it continues.
    pub fn unwound_of(
        &mut self,
        core: &Core,
        profile: &dyn OsProfile,
        at: Switched,
        most: usize,
    ) -> Vec<Unwound> {
        self.switched_walk(core, profile, at, most).into_iter().map(Unwound::from).collect()
    }
}
