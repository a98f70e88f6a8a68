//! The stack of the current task, with names.

use std::sync::Arc;

use serde::Serialize;
use trapline_emu::Core;
use trapline_os::{KernelFrame, OsProfile, Unwinder};
use trapline_providers::Target;

use super::{CodeAddress, Session};

/// A frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StackFrame {
    /// Instruction pointer or return address.
    pub ip: u64,
    /// Its symbol, if there is one.
    pub symbol: Option<String>,
}

impl Session {
    /// The symbol of the next instruction, if there is one.
    pub fn symbol_here(&self) -> Option<String> {
        let core = self.machine.core();
        CodeAddress::of(core, core.env().eip()).symbol(&self.target)
    }

    /// The symbol of an address of the kernel or of one of the modules that it has loaded, if there is one.
    pub fn symbol_of(&self, address: u64) -> Option<String> {
        let of_module = || {
            let (core, profile) = (self.machine.core(), (self.profile)());
            let mut unwinder = self.target.unwinder();
            let (name, base) = unwinder.kernel_module(core, profile.as_deref(), address)?;
            let found = unwinder.module_symbol(&name, address.wrapping_sub(base))?;
            Some(format!("{name}:{}", plain(found)))
        };
        self.target.symbol(address).or_else(of_module)
    }

    /// The current stack, innermost first: that of the kernel, or in user mode that of the program.
    pub fn stack(&self, most: usize) -> Vec<StackFrame> {
        let profile = (self.profile)();
        stack_at(&self.target, self.machine.core(), profile.as_deref(), &mut self.target.unwinder(), most)
    }
}

/// The same for a running machine.
pub fn stack_at(
    target: &Target,
    core: &Core,
    profile: Option<&dyn OsProfile>,
    unwinder: &mut Unwinder,
    most: usize,
) -> Vec<StackFrame> {
    let mut found = Vec::new();
    if core.env().cpl() == 3 {
        for frame in unwinder.user_stack(core, profile, false, most) {
            let of_file = |(path, base): &(Arc<str>, u64)| {
                target.file_symbol(path, frame.ip.wrapping_sub(*base)).map(plain)
            };
            let symbol = frame.file.as_ref().and_then(of_file).or_else(|| target.symbol(frame.ip));
            found.push(StackFrame { ip: frame.ip, symbol });
        }
        return found;
    }
    let frames = unwinder.kernel_stack(core, profile, false, most);
    frames.into_iter().map(|frame| named(target, core, profile, unwinder, frame)).collect()
}

/// A frame of the kernel's stack with its name.
pub(super) fn named(
    target: &Target,
    core: &Core,
    profile: Option<&dyn OsProfile>,
    unwinder: &mut Unwinder,
    frame: KernelFrame,
) -> StackFrame {
    let of_module = || {
        let (name, base) = unwinder.kernel_module(core, profile, frame.within())?;
        let found = unwinder.module_symbol(&name, frame.ip.wrapping_sub(base))?;
        Some(format!("{name}:{}", plain(found)))
    };
    let symbol = target.symbol(frame.ip).or_else(of_module);
    StackFrame { ip: frame.ip, symbol }
}

fn plain((name, offset): (String, u64)) -> String {
    format!("{name}+{offset:#x}")
}
