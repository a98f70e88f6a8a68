//! The stack of the current task, with names.

use std::sync::Arc;

use serde::Serialize;
use trapline_os::{CodePointer, KernelFrame, UserFrame};

use super::{CodeAddress, Naming, Session};

/// A frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StackFrame {
    /// Instruction pointer or return address.
    pub ip: u64,
    /// Its symbol, if there is one.
    pub symbol: Option<String>,
}

impl Session {
    /// What names addresses of code as they are now.
    pub fn naming<T>(&self, ask: impl FnOnce(&mut Naming<'_>) -> T) -> T {
        let (profile, mut unwinder) = ((self.profile)(), self.target.unwinder());
        let (target, core) = (&*self.target, self.machine.core());
        ask(&mut Naming { target, core, profile: profile.as_deref(), unwinder: &mut unwinder })
    }

    /// The symbol of the next instruction, if there is one.
    pub fn symbol_here(&self) -> Option<String> {
        let core = self.machine.core();
        self.naming(|naming| CodeAddress::of(core, core.env().eip()).symbol(naming))
    }

    /// The next instruction, disassembled.
    pub fn instruction_here(&self) -> Option<String> {
        let core = self.machine.core();
        let next = core.decode_original(core.linear_ip())?;
        Some(self.naming(|naming| naming.instruction(&next)))
    }

    /// The symbol of an address of the kernel, of one of the modules that it has loaded, or of a file that the current
    /// process has mapped, if there is one.
    pub fn symbol_of(&self, pointer: CodePointer) -> Option<String> {
        self.target.kernel_symbol(pointer).or_else(|| self.naming(|naming| naming.name(pointer)))
    }

    /// The current stack, innermost first: that of the kernel, or in user mode that of the program.
    pub fn stack(&self, most: usize) -> Vec<StackFrame> {
        self.naming(|naming| naming.stack(most))
    }
}

impl Naming<'_> {
    /// The current stack.
    pub fn stack(&mut self, most: usize) -> Vec<StackFrame> {
        if self.core.env().cpl() == 3 {
            let frames = self.unwinder.user_stack(self.core, self.profile, false, most);
            return frames.into_iter().map(|frame| self.of_user(&frame)).collect();
        }
        let frames = self.unwinder.kernel_stack(self.core, self.profile, false, most);
        frames.into_iter().map(|frame| self.of_kernel(frame)).collect()
    }

    /// A frame of a program's stack with its name.
    fn of_user(&self, frame: &UserFrame) -> StackFrame {
        let of_file = |(path, base): &(Arc<str>, u64)| self.name_in(frame.pointer(), true, (path, *base));
        StackFrame { ip: frame.ip, symbol: frame.file.as_ref().and_then(of_file) }
    }

    /// A frame of the kernel's stack with its name.
    pub(super) fn of_kernel(&mut self, frame: KernelFrame) -> StackFrame {
        StackFrame { ip: frame.ip, symbol: self.name(frame.pointer()) }
    }
}
