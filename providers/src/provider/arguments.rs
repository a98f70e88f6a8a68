//! Arguments and return values of functions, as seen at their first or last instruction.

use std::sync::Arc;

use trapline_emu::Core;
use trapline_interposer::{Arguments, Later};
use trapline_rpn::{Argument, ArgumentError};

use crate::object::flow::instructions;
use crate::target::{Abi, Target};

/// Numbers of general registers in the machine's order.
const AX: usize = 0;
const SP: usize = 4;
/// Most bytes of a function that are decoded.
const LONGEST: usize = 1 << 20;
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

/// The same at a jump to another function (a tail call). That function returns the value, so it is not known before.
#[derive(Debug, Clone)]
pub struct AtTailCall {
    /// Offset of the jump from the function's start.
    pub offset: u64,
    /// How the return is met, if it is.
    pub back: Option<Back>,
}

/// A return that can be met, because the code of its caller is known.
#[derive(Debug, Clone)]
pub struct Back {
    /// The arguments then.
    pub at: AtReturn,
    /// Where functions of the kernel lie.
    pub code: Arc<KernelCode>,
}

impl Arguments for AtTailCall {
    fn has(&self, which: Argument) -> bool {
        which == Argument::Number(0) || self.back.as_ref().is_some_and(|back| back.at.has(which))
    }

    fn argument(&self, _: &Core, which: Argument) -> Result<u64, ArgumentError> {
        match which {
            Argument::Number(0) => Ok(self.offset),
            Argument::Number(1) | Argument::Returned => Err(ArgumentError::Unknown),
            Argument::Number(_) => Err(ArgumentError::None),
        }
    }

    fn later(&self) -> Option<&dyn Later> {
        self.back.as_ref().map(|back| back as &dyn Later)
    }
}

impl Later for Back {
    fn argument(&self, core: &Core, which: Argument) -> Result<u64, ArgumentError> {
        self.at.argument(core, which)
    }

    fn is_code(&self, core: &Core, address: u64) -> bool {
        self.code.begins(core, address)
    }
}

/// The functions of a kernel, to tell where its instructions begin.
#[derive(Debug)]
pub struct KernelCode {
    /// Starts and sizes, ascending.
    functions: Vec<(u64, u64)>,
    bits: u32,
}

impl KernelCode {
    /// Those of a target.
    pub fn new(target: &Target) -> Self {
        let functions = target.symbols().functions().map(|symbol| (symbol.addr, symbol.size));
        let mut functions: Vec<(u64, u64)> = functions.collect();
        functions.sort_unstable();
        Self { functions, bits: target.image().plan().width.bits() }
    }

    /// Whether an instruction begins at an address: a function does, or decoding its bytes in memory comes there.
    fn begins(&self, core: &Core, address: u64) -> bool {
        let next = self.functions.partition_point(|(start, _)| *start <= address);
        let Some((start, size)) = next.checked_sub(1).and_then(|at| self.functions.get(at)) else {
            return false;
        };
        if *start == address {
            return true;
        }
        let mut bytes = vec![0; usize::try_from(*size).unwrap_or_default().min(LONGEST)];
        core.peek(*start, &mut bytes).is_ok()
            && instructions(&bytes, *start, self.bits).any(|(at, _)| start + at as u64 == address)
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
