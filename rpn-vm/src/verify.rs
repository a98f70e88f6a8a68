//! The verifier: the only way from code to a program that can run.
//!
//! [`Verified`] has no public constructor and no way to change it. The
//! verifier checks targets, operands and registers, computes
//! whether a program is observe-only (docs/probe-language.md, "Observe-only"), and pre-decodes. Errors that it
//! cannot find before the run (variable indices from the stack, addresses) are
//! exceptions at run time.

use std::fmt;

use thiserror::Error;

use crate::code::Insn;
use crate::instructions::{Effect, Op, OperandKind};
use crate::regs::{self, Reg, Shape};
use crate::services;

/// The guest's word: the width of stack elements, variables and parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// 32 bits, IA32.
    W32,
    /// 64 bits, x86-64.
    W64,
}

impl Width {
    /// In bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::W32 => 32,
            Self::W64 => 64,
        }
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.bits() as usize / 8
    }

    /// All ones of this width.
    #[must_use]
    pub const fn mask(self) -> u64 {
        match self {
            Self::W32 => 0xffff_ffff,
            Self::W64 => u64::MAX,
        }
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bits())
    }
}

/// The limits of a program for one run, from its headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The guest's word.
    pub width: Width,
    /// Bytes of log, at most 65,535.
    pub logmax: u32,
    /// Taken jumps and loops.
    pub jmpmax: u32,
    /// Local variables.
    pub vars: u32,
    /// Global variables.
    pub gvars: u32,
    /// Exceptions that can be caught, by x-field bit.
    pub excpt_mask: u32,
    /// Whether the probe runs in kernel mode, for `exit n`.
    pub kernel: bool,
    /// Bytes of the stack trace buffer, at most 65,535.
    pub excpt_log: u32,
    /// Whether each exception leaves a stack trace record.
    pub autostacktrace: bool,
}

/// Untrusted code and its limits, from the linker or a file.
#[derive(Debug, Clone)]
pub struct Unverified {
    /// Instructions of all routines, one after the other; each routine ends with `exit` or `ret`.
    pub code: Vec<Insn>,
    /// Index of the first instruction of each routine, ascending; the first is the handler, at 0.
    pub routines: Vec<u32>,
    /// Limits.
    pub limits: Limits,
}

/// Why code cannot run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("instruction {index}: {reason}")]
pub struct VerifyError {
    /// Index of the instruction.
    pub index: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// How the hot loop executes an instruction; the verifier chooses it once. A view of [`Op`]: instructions without an
/// entry here are [`Quick::General`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Quick {
    General,
    Nop,
    Push,
    PushRegister,
    PushRegisterLow,
    LogN,
    Exit,
    Abort,
    Jmp,
    Jlt,
    Jle,
    Jgt,
    Jge,
    Jz,
    Jnz,
    Loop,
    Call,
    Ret,
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
    Neg,
    Xchg,
    ShlN,
    ShrN,
    Dup1,
    PushLv,
    PopLv,
    MoveLv,
    IncLv,
    DecLv,
    PushMem8,
    PushMem16,
    PushMem32,
    PushMem64,
    PushArg,
}

impl Quick {
    fn of(op: Op, shape: Shape, arg: u64, width: Width) -> Self {
        match op {
            Op::Nop => Self::Nop,
            Op::Push => Self::Push,
            Op::PushR if shape == Shape::Plain => Self::PushRegister,
            Op::PushR if shape == Shape::Low32 => Self::PushRegisterLow,
            Op::LogN => Self::LogN,
            Op::Exit => Self::Exit,
            Op::Abort => Self::Abort,
            Op::Jmp => Self::Jmp,
            Op::Jlt => Self::Jlt,
            Op::Jle => Self::Jle,
            Op::Jgt => Self::Jgt,
            Op::Jge => Self::Jge,
            Op::Jz => Self::Jz,
            Op::Jnz => Self::Jnz,
            Op::Loop => Self::Loop,
            Op::Call => Self::Call,
            Op::Ret => Self::Ret,
            Op::Add => Self::Add,
            Op::Sub => Self::Sub,
            Op::Mul => Self::Mul,
            Op::And => Self::And,
            Op::Or => Self::Or,
            Op::Xor => Self::Xor,
            Op::Neg => Self::Neg,
            Op::Xchg => Self::Xchg,
            Op::ShlN if arg < u64::from(width.bits()) => Self::ShlN,
            Op::ShrN if arg < u64::from(width.bits()) => Self::ShrN,
            Op::DupN if arg == 1 => Self::Dup1,
            Op::PushLvN => Self::PushLv,
            Op::PopLvN => Self::PopLv,
            Op::MoveLvN => Self::MoveLv,
            Op::IncLvN => Self::IncLv,
            Op::DecLvN => Self::DecLv,
            Op::PushArg => Self::PushArg,
            Op::PushMem8 => Self::PushMem8,
            Op::PushMem16 => Self::PushMem16,
            Op::PushMem32 => Self::PushMem32,
            Op::PushMem64 if width == Width::W64 => Self::PushMem64,
            _ => Self::General,
        }
    }
}

/// Whether an instruction can never push, nor change an element of the stack.
fn leaves_stack(op: Op) -> bool {
    use Op::{Abort, DecLvN, Exit, IncLvN, Nop, Remove, SetMajN, SetMinN};
    matches!(op, Abort | DecLvN | Exit | IncLvN | Nop | Remove | SetMajN | SetMinN)
}

/// A pre-decoded instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fast {
    pub quick: Quick,
    pub op: Op,
    pub reg: Reg,
    pub shape: Shape,
    pub arg: u64,
}

/// A program that may run: checked, pre-decoded, immutable.
#[derive(Debug)]
pub struct Verified {
    pub(crate) fast: Box<[Fast]>,
    /// Whether a run may write to the stack, except by throwing an exception.
    pub(crate) writes_stack: bool,
    code: Box<[Insn]>,
    routines: Box<[u32]>,
    limits: Limits,
    observe_only: bool,
}

impl Verified {
    /// Whether no instruction can change the guest (docs/probe-language.md, "Observe-only").
    #[must_use]
    pub const fn observe_only(&self) -> bool {
        self.observe_only
    }

    /// The limits it was verified with.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The instructions.
    #[must_use]
    pub fn code(&self) -> &[Insn] {
        &self.code
    }

    /// Index of the first instruction of each routine; the handler is the first.
    #[must_use]
    pub fn routines(&self) -> &[u32] {
        &self.routines
    }

    /// A disassembly, one instruction per line.
    #[must_use]
    pub fn disassemble(&self) -> String {
        let mut out = String::new();
        for (i, insn) in self.code.iter().enumerate() {
            out.push_str(&format!("{i:5}  {}\n", insn.to_text()));
        }
        out
    }
}

/// Checks code. Only verified code can run.
///
/// # Errors
/// The first instruction that may not run, and why.
pub fn verify(program: Unverified) -> Result<Verified, VerifyError> {
    let Unverified { code, routines, limits } = program;
    let fail = |index: usize, reason: &str| VerifyError { index, reason: reason.to_owned() };
    if code.is_empty() || routines.first() != Some(&0) {
        return Err(fail(0, "the handler is missing"));
    }
    if limits.logmax > 65_535 || limits.excpt_log > 65_535 || limits.vars > 65_536 || limits.gvars > 65_536 {
        return Err(fail(0, "a limit of the file header is out of range"));
    }
    let mut fast = Vec::with_capacity(code.len());
    let mut observe_only = true;
    for (n, &start) in routines.iter().enumerate() {
        let end = routines.get(n + 1).map_or(code.len(), |&e| e as usize);
        let start = start as usize;
        if end > code.len() || start >= end {
            return Err(fail(start, "a routine is empty or out of order"));
        }
        let last = code[end - 1].op;
        if last != if n == 0 { Op::Exit } else { Op::Ret } {
            return Err(fail(end - 1, "a handler must end with `exit`, a procedure with `ret`"));
        }
        for (index, insn) in code.iter().enumerate().take(end).skip(start) {
            let decoded = check(insn, start..end, &routines, &limits);
            fast.push(decoded.map_err(|reason| VerifyError { index, reason })?);
            observe_only &= observes(&code, index);
        }
    }
    let writes_stack = !code.iter().all(|i| leaves_stack(i.op));
    let (fast, code, routines) = (fast.into(), code.into(), routines.into());
    Ok(Verified { fast, writes_stack, code, routines, limits, observe_only })
}

/// Whether an instruction does not change the guest. For a service that is known if its number is pushed right before
/// it and no jump goes between the two.
fn observes(code: &[Insn], index: usize) -> bool {
    let Some(insn) = code.get(index) else { return false };
    match insn.op.row().effect {
        Effect::Pure => true,
        Effect::Service => {
            let before = index.checked_sub(1).and_then(|n| code.get(n)).filter(|i| i.op == Op::Push);
            let named = before.and_then(|i| services::service(i.arg)).is_some_and(|s| s.observes);
            let target =
                |i: &Insn| i.op.row().operand == OperandKind::Label && usize::try_from(i.arg) == Ok(index);
            named && !code.iter().any(target)
        }
        _ => false,
    }
}

fn check(
    insn: &Insn,
    routine: std::ops::Range<usize>,
    routines: &[u32],
    limits: &Limits,
) -> Result<Fast, String> {
    let row = insn.op.row();
    let arg = insn.arg;
    let mut fast = Fast { quick: Quick::General, op: insn.op, reg: Reg::Ax, shape: Shape::Plain, arg };
    let at_most = |max: u64| if arg <= max { Ok(()) } else { Err(format!("operand {arg} is above {max}")) };
    match row.operand {
        OperandKind::None => fast.arg = 0,
        OperandKind::Label => {
            if !usize::try_from(arg).is_ok_and(|a| routine.contains(&a)) {
                return Err(format!("target {arg} is outside the routine"));
            }
        }
        OperandKind::Proc => {
            if !routines.iter().skip(1).any(|&r| u64::from(r) == arg) {
                return Err(format!("{arg} is not the start of a procedure"));
            }
        }
        OperandKind::Value => {
            if arg & !limits.width.mask() != 0 {
                return Err(format!("value {arg:#x} does not fit {} bits", limits.width));
            }
        }
        OperandKind::Count8 => at_most(255)?,
        OperandKind::Count16 => at_most(65_535)?,
        OperandKind::U32 => at_most(u64::from(u32::MAX))?,
        OperandKind::Disp => {
            if i32::try_from(arg as i64).is_err() {
                return Err("the displacement does not fit 32 bits".to_owned());
            }
        }
        OperandKind::Lv | OperandKind::Gv => {
            let limit = if row.operand == OperandKind::Lv { limits.vars } else { limits.gvars };
            if arg >= u64::from(limit) {
                return Err(format!("variable {arg} does not exist, there are {limit}"));
            }
        }
        kind => {
            let reg = u8::try_from(arg).ok().and_then(regs::by_index);
            let reg = reg.ok_or_else(|| format!("there is no register with index {arg:#x}"))?;
            reg.permits(kind)?;
            if reg.only64 && limits.width == Width::W32 {
                return Err(format!("`{}` exists on x86-64 only, and this program is for IA32", reg.name));
            }
            (fast.reg, fast.shape) = (reg.reg, reg.shape);
        }
    }
    fast.quick = Quick::of(fast.op, fast.shape, fast.arg, limits.width);
    Ok(fast)
}
