//! Arguments and return values of functions, as seen at their first or last instruction.

use trapline_emu::Core;
use trapline_interposer::Arguments;
use trapline_rpn::{Argument, ArgumentError};

use crate::target::Abi;

/// Numbers of general registers in the machine's order.
const AX: usize = 0;
const SP: usize = 4;
/// Arguments that are logged at an entry without a handler: those that the System V convention passes in registers.
pub const LOGGED: u8 = 6;

/// The arguments of a function at its first instruction.
#[derive(Debug, Clone, Copy)]
pub struct AtEntry(pub Abi);

impl Arguments for AtEntry {
    fn has(&self, which: Argument) -> bool {
        which != Argument::Returned
    }

    fn argument(&self, core: &Core, which: Argument) -> Result<u64, ArgumentError> {
        // The return address is on top of the stack.
        passed(self.0, core, which, 1)
    }
}

/// The same anywhere else in a function: the values in the argument registers or on top of the stack, where the
/// arguments of an imminent call are.
#[derive(Debug, Clone, Copy)]
pub struct AtOffset(pub Abi);

impl Arguments for AtOffset {
    fn has(&self, which: Argument) -> bool {
        which != Argument::Returned
    }

    fn argument(&self, core: &Core, which: Argument) -> Result<u64, ArgumentError> {
        passed(self.0, core, which, 0)
    }
}

/// The arguments by a convention, with `above` words on top of them on the stack.
fn passed(abi: Abi, core: &Core, which: Argument, above: u64) -> Result<u64, ArgumentError> {
    let Argument::Number(n) = which else { return Err(ArgumentError::None) };
    let (registers, word) = abi.shape();
    if let Some(&register) = registers.get(usize::from(n)) {
        return Ok(cut(core.env().gpr(register), word));
    }
    let slot = u64::from(n) - registers.len() as u64 + above;
    let at = cut(core.env().gpr(SP).wrapping_add(slot * word), word);
    read_word(core, core.wrap_linear(core.stack().linear(at)), word)
}

/// The return value of a function, at the instruction that ends it: argument 0 is its offset from the function's start,
/// argument 1 the value (docs/providers.md, "fbt").
#[derive(Debug, Clone, Copy)]
pub struct AtReturn {
    /// Offset of the `ret` from the function's start.
    pub offset: u64,
    /// The convention.
    pub abi: Abi,
}

impl Arguments for AtReturn {
    fn has(&self, which: Argument) -> bool {
        matches!(which, Argument::Number(0 | 1) | Argument::Returned)
    }

    fn argument(&self, core: &Core, which: Argument) -> Result<u64, ArgumentError> {
        match which {
            Argument::Number(0) => Ok(self.offset),
            Argument::Number(1) | Argument::Returned => Ok(cut(core.env().gpr(AX), self.abi.shape().1)),
            Argument::Number(_) => Err(ArgumentError::None),
        }
    }
}

/// The same at a jump to another function (a tail call): that function returns the value, so there is none yet.
#[derive(Debug, Clone, Copy)]
pub struct AtTailCall {
    /// Offset of the jump from the function's start.
    pub offset: u64,
}

impl Arguments for AtTailCall {
    fn has(&self, which: Argument) -> bool {
        which == Argument::Number(0)
    }

    fn argument(&self, _: &Core, which: Argument) -> Result<u64, ArgumentError> {
        if which == Argument::Number(0) { Ok(self.offset) } else { Err(ArgumentError::None) }
    }
}

/// No arguments.
#[derive(Debug, Clone, Copy)]
pub struct NoArguments;

impl Arguments for NoArguments {
    fn has(&self, _: Argument) -> bool {
        false
    }

    fn argument(&self, _: &Core, _: Argument) -> Result<u64, ArgumentError> {
        Err(ArgumentError::None)
    }
}

/// The word at a linear address.
fn read_word(core: &Core, at: u64, word: u64) -> Result<u64, ArgumentError> {
    core.peek_word(at, word == 8).map_err(ArgumentError::Fault)
}

fn cut(value: u64, word: u64) -> u64 {
    if word == 4 { value & 0xffff_ffff } else { value }
}
