//! The verifier: the only way from code to a program that can run.
//!
//! [`Verified`] has no public constructor and no way to change it. The
//! verifier checks targets, operands and registers, computes
//! whether a program is observe-only (docs/probe-language.md, "Observe-only"), and pre-decodes. Errors that it
//! cannot find before the run (variable indices from the stack, addresses) are
//! exceptions at run time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use thiserror::Error;

use crate::code::Insn;
use crate::instructions::{Effect, Op, OperandKind};
use crate::regs::{self, Reg, Shape};
use crate::routines::{Piece, Routines, Traits};
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

/// The same of several handlers, which share their procedures.
#[derive(Debug, Clone)]
pub(crate) struct UnverifiedProgram {
    /// Instructions of all routines, one after the other; a handler ends with `exit`, a procedure with `ret`.
    pub code: Vec<Insn>,
    /// Index of the first instruction of each routine, ascending from 0.
    pub routines: Vec<u32>,
    /// Which routines are handlers, and the exceptions that are generated in each ([`Limits::excpt_mask`]).
    pub handlers: BTreeMap<usize, u32>,
    /// Their other limits.
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
    /// `push` of the number of a service, which `callk` follows.
    PushCallk,
    /// `push` of the operand of a service, whose own `push` and `callk` follow ([`services::has_operand`]).
    PushOperand,
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

/// A pre-decoded instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fast {
    pub quick: Quick,
    pub op: Op,
    pub reg: Reg,
    pub shape: Shape,
    pub arg: u64,
}

/// A handler that may run, with the procedures that it calls: checked, pre-decoded, immutable. Handlers of one program
/// share its code.
#[derive(Debug)]
pub struct Verified {
    /// The program's code.
    pub(crate) fast: Arc<[Fast]>,
    /// Where the handler begins in it.
    pub(crate) entry: u32,
    /// Its first instruction.
    pub(crate) first: Quick,
    /// Whether a run may write to the stack, except by throwing an exception.
    pub(crate) writes_stack: bool,
    observe_only: bool,
    may_write_core: bool,
    may_ask_debugger: bool,
    may_write_dump: bool,
    limits: Limits,
    /// The instructions that use an argument.
    arguments: Box<[Insn]>,
    routines: Arc<Routines>,
    /// The index of the handler's routine.
    routine: usize,
    /// The code as the handler sees it, computed on demand.
    pieces: OnceLock<Box<[Piece]>>,
}

impl Verified {
    /// Whether no instruction can change the guest (docs/probe-language.md, "Observe-only").
    #[must_use]
    pub const fn observe_only(&self) -> bool {
        self.observe_only
    }

    /// Whether it has an `exit 2`, which writes a crash dump.
    #[must_use]
    pub const fn may_write_dump(&self) -> bool {
        self.may_write_dump
    }

    /// Whether it has an `exit 1`, which asks for a debugger.
    #[must_use]
    pub const fn may_ask_debugger(&self) -> bool {
        self.may_ask_debugger
    }

    /// Whether it has an `exit 3`, which writes a core file.
    #[must_use]
    pub const fn may_write_core(&self) -> bool {
        self.may_write_core
    }

    /// The limits it was verified with.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The distinct instructions that use an argument or the return value.
    #[must_use]
    pub fn arguments(&self) -> &[Insn] {
        &self.arguments
    }

    fn pieces(&self) -> &[Piece] {
        self.pieces.get_or_init(|| self.routines.pieces(self.routine).into())
    }

    /// How many instructions the handler and its procedures have.
    #[must_use]
    pub fn instructions(&self) -> usize {
        self.pieces().iter().map(|piece| piece.len as usize).sum()
    }

    /// The instructions of the handler, then those of its procedures; indices count in this way.
    #[must_use]
    pub fn code(&self) -> Vec<Insn> {
        let mut code = Vec::with_capacity(self.instructions());
        for piece in self.pieces() {
            let body = self.fast.get(piece.start as usize..).into_iter().flatten().take(piece.len as usize);
            code.extend(body.map(|insn| Insn {
                op: insn.op,
                arg: match insn.op.row().operand {
                    OperandKind::Label => {
                        insn.arg.wrapping_sub(piece.start.into()).wrapping_add(piece.own.into())
                    }
                    OperandKind::Proc => self.own(insn.arg as u32).into(),
                    _ => insn.arg,
                },
            }));
        }
        code
    }

    /// Index of the first instruction of each routine; the handler is the first.
    #[must_use]
    pub fn routines(&self) -> Vec<u32> {
        self.pieces().iter().map(|piece| piece.own).collect()
    }

    /// The handler's index for an instruction of the program.
    #[must_use]
    pub fn own(&self, at: u32) -> u32 {
        let within = |piece: &&Piece| (piece.start..piece.start + piece.len).contains(&at);
        self.pieces().iter().find(within).map_or(at, |piece| at - piece.start + piece.own)
    }

    /// The program's index for an instruction of the handler.
    #[must_use]
    pub fn of_program(&self, own: u32) -> Option<u32> {
        let within = |piece: &&Piece| (piece.own..piece.own + piece.len).contains(&own);
        self.pieces().iter().find(within).map(|piece| own - piece.own + piece.start)
    }

    /// How many instructions are stored for its program.
    #[must_use]
    pub fn program_instructions(&self) -> usize {
        self.fast.len()
    }

    /// Whether another handler belongs to the same program, so that their code is stored once.
    #[must_use]
    pub fn shares_code(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.fast, &other.fast)
    }

    /// A disassembly, one instruction per line.
    #[must_use]
    pub fn disassemble(&self) -> String {
        let mut out = String::new();
        for (i, insn) in self.code().iter().enumerate() {
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
    let handlers = BTreeMap::from([(0, limits.excpt_mask)]);
    let program = UnverifiedProgram { code, routines, handlers, limits };
    let mut verified = verify_program(program).map_err(|mut errors| errors.swap_remove(0))?;
    verified.pop().ok_or_else(|| fail(0, NO_HANDLER))
}

const NO_HANDLER: &str = "the handler is missing";

fn fail(index: usize, reason: &str) -> VerifyError {
    VerifyError { index, reason: reason.to_owned() }
}

/// Checks the code of a whole program. The result has a handler for each of [`UnverifiedProgram::handlers`].
///
/// # Errors
/// The first instruction of each routine that may not run, and why; at least one.
pub(crate) fn verify_program(program: UnverifiedProgram) -> Result<Vec<Verified>, Vec<VerifyError>> {
    let UnverifiedProgram { code, routines, handlers, limits } = program;
    if code.is_empty() || routines.first() != Some(&0) {
        return Err(vec![fail(0, NO_HANDLER)]);
    }
    if limits.logmax > 65_535 || limits.excpt_log > 65_535 || limits.vars > 65_536 || limits.gvars > 65_536 {
        return Err(vec![fail(0, "a limit of the file header is out of range")]);
    }
    let targets = jump_targets(&code);
    let is_procedure = |at: u64| {
        let routine = u32::try_from(at).ok().and_then(|at| routines.binary_search(&at).ok());
        routine.is_some_and(|routine| !handlers.contains_key(&routine))
    };
    let mut fast = Vec::with_capacity(code.len());
    let (mut traits, mut errors) = (Vec::with_capacity(routines.len()), Vec::new());
    for (n, &start) in routines.iter().enumerate() {
        let (start, end) = (start as usize, routines.get(n + 1).map_or(code.len(), |&e| e as usize));
        let Some(body) = code.get(start..end).filter(|body| !body.is_empty()) else {
            return Err(vec![fail(start, "a routine is empty or out of order")]);
        };
        let last = if handlers.contains_key(&n) { Op::Exit } else { Op::Ret };
        if body.last().is_none_or(|insn| insn.op != last) {
            errors.push(fail(end - 1, "a handler must end with `exit`, a procedure with `ret`"));
            continue;
        }
        let mut may = Traits::default();
        for (index, insn) in (start..).zip(body) {
            match check(insn, start..end, &is_procedure, &limits) {
                Ok(checked) => fast.push(checked),
                Err(reason) => {
                    errors.push(VerifyError { index, reason });
                    break;
                }
            }
            may.add(*insn, observes(&code, &targets, index));
        }
        traits.push(may);
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    join_services(&mut fast);
    let (fast, routines): (Arc<[Fast]>, _) = (fast.into(), Arc::new(Routines::new(&code, &routines)));
    routines.spread(&mut traits);
    let handler = |(routine, excpt_mask): (usize, u32)| {
        let may = traits.get(routine)?;
        let asks =
            may.arguments.iter().filter_map(|(op, arg)| Some(Insn { op: Op::from_code(*op)?, arg: *arg }));
        let entry = routines.start(routine)?;
        Some(Verified {
            fast: Arc::clone(&fast),
            entry,
            first: fast.get(entry as usize)?.quick,
            writes_stack: may.writes_stack,
            observe_only: !may.changes_guest,
            may_write_core: may.writes_core,
            may_ask_debugger: may.asks_debugger,
            may_write_dump: may.writes_dump,
            limits: Limits { excpt_mask, ..limits },
            arguments: asks.collect(),
            routines: Arc::clone(&routines),
            routine,
            pieces: OnceLock::new(),
        })
    };
    Ok(handlers.into_iter().filter_map(handler).collect())
}

/// Lets the loop run the `push` of a service's number and the `callk` after it in one go, and the `push` of its operand
/// with them.
fn join_services(fast: &mut [Fast]) {
    for n in 1..fast.len() {
        if let Some([push, callk]) = fast.get_mut(n - 1..=n)
            && push.quick == Quick::Push
            && callk.op == Op::Callk
        {
            push.quick = Quick::PushCallk;
        }
    }
    for n in 1..fast.len() {
        if let Some([operand, push]) = fast.get_mut(n - 1..=n)
            && operand.quick == Quick::Push
            && push.quick == Quick::PushCallk
            && services::has_operand(push.arg)
        {
            operand.quick = Quick::PushOperand;
        }
    }
}

/// Which instructions a jump leads to.
fn jump_targets(code: &[Insn]) -> Vec<bool> {
    let mut targets = vec![false; code.len()];
    for insn in code.iter().filter(|insn| insn.op.row().operand == OperandKind::Label) {
        if let Some(target) = usize::try_from(insn.arg).ok().and_then(|at| targets.get_mut(at)) {
            *target = true;
        }
    }
    targets
}

/// Whether an instruction does not change the guest. For a service that is known if its number is pushed right before
/// it and no jump goes between the two.
fn observes(code: &[Insn], targets: &[bool], index: usize) -> bool {
    let Some(insn) = code.get(index) else { return false };
    match insn.op.row().effect {
        Effect::Pure => true,
        Effect::Service => {
            let before = index.checked_sub(1).and_then(|n| code.get(n)).filter(|i| i.op == Op::Push);
            let named = before.is_some_and(|i| services::observes(i.arg));
            named && targets.get(index) == Some(&false)
        }
        _ => false,
    }
}

fn check(
    insn: &Insn,
    routine: std::ops::Range<usize>,
    is_procedure: &dyn Fn(u64) -> bool,
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
            if !is_procedure(arg) {
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
