//! Instructions of the x87 that the machine executes: those that the engine computes with the host's C library, which is not
//! the same on every host, and in double precision, those that it computes wrong, and all while an exception is not masked.
//!
//! The numbers are [`crate::x87`]'s. Here are the checks before an instruction, and what it leaves beside its results.

use super::Cpu;
use super::fault::Fault;
use super::outcome::{Accesses, Done, Then};
use crate::engine::{Seg, hflags};
use crate::isa::condition_holds;
use crate::isa::mended::{Floats, floats};
use crate::simd::float::order_flags;
use crate::x87::arithmetic::{Binary, Source, Unary};
use crate::x87::narrow::Format;
use crate::x87::{Constant, F80, Operation, Stored, X87};
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

/// CF, PF, AF, ZF, SF and OF.
const ARITHMETIC: u64 = 0x8d5;

impl Cpu {
    /// Executes a function (SDM volume 2).
    pub(super) fn x87_function(&self, operation: Operation) -> Result<Done, Fault> {
        self.x87_ready(true)?;
        let mut x87 = self.x87();
        x87.execute(operation);
        self.set_x87(&x87);
        Ok(Done::Next)
    }

    /// FLDPI and the like.
    pub(super) fn x87_constant(&self, of: Constant) -> Result<Done, Fault> {
        self.x87_ready(true)?;
        let mut x87 = self.x87();
        x87.push_constant(of);
        self.set_x87(&x87);
        Ok(Done::Next)
    }

    /// FIST, FISTTP and FBSTP.
    pub(super) fn store_integer(
        &mut self,
        i: &Instruction,
        of: Stored,
        told: &mut dyn Accesses,
    ) -> Result<Done, Fault> {
        self.x87_ready(true)?;
        let mut x87 = self.x87();
        let stored = match x87.store_integer(of) {
            Some(bytes) => self.write_wide(i, &bytes[..of.size], told)?,
            None => self.can_write(i)?,
        };
        if !stored {
            return Ok(Done::ByEngine(Then::Nothing));
        }
        self.set_x87(&x87);
        Ok(Done::Next)
    }

    /// Whether the machine executes the instruction although the engine does so while all exceptions are masked.
    pub(super) fn computes_exactly(&self, i: &Instruction) -> bool {
        let modes = self.env.hflags();
        self.env.is_exact()
            && match floats(i) {
                None => false,
                Some(Floats::Sse(_)) => modes & hflags::EXACT_SSE != 0,
                Some(Floats::X87 | Floats::Mmx) => modes & hflags::EXACT_X87 != 0,
            }
    }

    /// Executes such an instruction, or has the engine do so.
    pub(super) fn compute_exactly(
        &mut self,
        i: &Instruction,
        what: Floats,
        told: &mut dyn Accesses,
    ) -> Result<Done, Fault> {
        match what {
            _ if !self.computes_exactly(i) => Ok(Done::ByEngine(Then::Nothing)),
            Floats::Sse(of) => self.float(i, of, told),
            Floats::X87 => self.x87_exactly(i, told),
            Floats::Mmx => {
                self.mmx_ready()?;
                Ok(Done::ByEngine(Then::Nothing))
            }
        }
    }

    /// An instruction that neither is a function nor shows the exceptions.
    pub(super) fn x87_exactly(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Result<Done, Fault> {
        use Mnemonic as M;
        self.x87_ready(true)?;
        let in_memory = i.op_count() > 0 && i.op0_kind() == OpKind::Memory;
        if in_memory && matches!(i.mnemonic(), M::Fst | M::Fstp | M::Fist | M::Fistp) {
            return self.store_x87(i, told);
        }
        let source = if in_memory {
            let Some(bytes) = self.vector(i, 0, told)? else { return Ok(Done::ByEngine(Then::Nothing)) };
            number(i, bytes)
        } else {
            Source::Register(numbers(i).unwrap_or((0, 1)).1)
        };
        let mut x87 = self.x87();
        let mut flags = None;
        match execute(&mut x87, i, source, self.eflags()) {
            Some(Effect::Flags(found)) => flags = Some(self.eflags() & !ARITHMETIC | found),
            Some(Effect::Done) => {}
            None => return Ok(Done::ByEngine(Then::Nothing)),
        }
        self.set_x87(&x87);
        if let Some(flags) = flags {
            self.env.set_eflags(flags);
        }
        Ok(Done::Next)
    }

    /// FST, FSTP, FIST or FISTP to memory.
    fn store_x87(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Result<Done, Fault> {
        use Mnemonic as M;
        let size = i.memory_size().size();
        let pops = matches!(i.mnemonic(), M::Fstp | M::Fistp);
        if matches!(i.mnemonic(), M::Fist | M::Fistp) {
            return self.store_integer(i, Stored { size, truncated: false, pops }, told);
        }
        let mut x87 = self.x87();
        let format = match size {
            4 => Some(Format::Single),
            8 => Some(Format::Double),
            _ => None,
        };
        let stored = match x87.store(format, pops.into()) {
            Some(bytes) => self.write_wide(i, &bytes[..size.min(10)], told)?,
            None => self.can_write(i)?,
        };
        if !stored {
            return Ok(Done::ByEngine(Then::Nothing));
        }
        self.set_x87(&x87);
        Ok(Done::Next)
    }

    fn x87(&self) -> X87 {
        let env = &self.env;
        X87 {
            control: env.fpuc(),
            status: env.fpus(),
            top: env.fpstt() as usize,
            empty: env.fptags().map(|tag| tag != 0),
            registers: std::array::from_fn(|n| F80::from_bytes(env.fpreg(n))),
        }
    }

    /// Writes the state after the instruction at EIP. The operand pointer stays, as in the engine.
    fn set_x87(&self, x87: &X87) {
        let env = &self.env;
        env.set_fpus(x87.status);
        env.set_fpstt(x87.top as u32);
        env.set_fptags(x87.empty.map(u8::from));
        for (n, value) in x87.registers.iter().enumerate() {
            env.set_fpreg(n, value.to_bytes());
        }
        env.set_fpcs(env.seg(Seg::Cs).selector as u16);
        env.set_fpip(env.eip());
    }
}

/// What an instruction changes beside the x87.
enum Effect {
    Done,
    /// ZF, PF and CF.
    Flags(u64),
}

/// The numbers of the registers that an instruction names, counted from the top: those of its destination and its source.
fn numbers(i: &Instruction) -> Option<(usize, usize)> {
    let number = |register: Register| register.is_st().then(|| register.number());
    match i.op_count() {
        0 => None,
        1 => number(i.op0_register()).map(|n| (n, n)),
        _ => number(i.op0_register()).zip(number(i.op1_register())),
    }
}

/// The number that an instruction loads.
fn number(i: &Instruction, bytes: u128) -> Source {
    use Mnemonic as M;
    let integer = matches!(
        i.mnemonic(),
        M::Fild | M::Fiadd | M::Fisub | M::Fisubr | M::Fimul | M::Fidiv | M::Fidivr | M::Ficom | M::Ficomp
    );
    match i.memory_size().size() {
        10 if i.mnemonic() == M::Fbld => Source::Extended(F80::decimal(bytes)),
        2 => Source::Integer((bytes as i16).into()),
        4 if integer => Source::Integer((bytes as i32).into()),
        8 if integer => Source::Integer(bytes as i64),
        4 => Source::Number(Format::Single, bytes as u32 as u64),
        8 => Source::Number(Format::Double, bytes as u64),
        _ => Source::Extended(F80::from_bytes(std::array::from_fn(|n| (bytes >> (8 * n)) as u8))),
    }
}

/// Executes an instruction that does not store; `None` if it is none of the x87's arithmetic, comparisons and moves.
fn execute(x87: &mut X87, i: &Instruction, source: Source, flags: u64) -> Option<Effect> {
    use Mnemonic as M;
    let (to, from) = numbers(i).unwrap_or((0, 1));
    let pops = usize::from(matches!(
        i.mnemonic(),
        M::Faddp
            | M::Fsubp
            | M::Fsubrp
            | M::Fmulp
            | M::Fdivp
            | M::Fdivrp
            | M::Fcomp
            | M::Ficomp
            | M::Fucomp
            | M::Fcomip
            | M::Fucomip
            | M::Fstp
            | M::Fstpnce
            | M::Ffreep
    ));
    let mut combine = |what, reversed| x87.combine(what, reversed, to, source, pops);
    match i.mnemonic() {
        M::Fadd | M::Faddp | M::Fiadd => combine(Binary::Add, false),
        M::Fsub | M::Fsubp | M::Fisub => combine(Binary::Subtract, false),
        M::Fsubr | M::Fsubrp | M::Fisubr => combine(Binary::Subtract, true),
        M::Fmul | M::Fmulp | M::Fimul => combine(Binary::Multiply, false),
        M::Fdiv | M::Fdivp | M::Fidiv => combine(Binary::Divide, false),
        M::Fdivr | M::Fdivrp | M::Fidivr => combine(Binary::Divide, true),
        M::Fcom | M::Fcomp | M::Ficom | M::Ficomp => conditions(x87, source, true, pops),
        M::Fucom | M::Fucomp => conditions(x87, source, false, pops),
        M::Fcompp => conditions(x87, source, true, 2),
        M::Fucompp => conditions(x87, source, false, 2),
        M::Ftst => conditions(x87, Source::Integer(0), true, 0),
        M::Fcomi | M::Fcomip | M::Fucomi | M::Fucomip => {
            let signals = matches!(i.mnemonic(), M::Fcomi | M::Fcomip);
            if let Ok(found) = x87.compare(source, signals, pops) {
                return Some(Effect::Flags(order_flags(found)));
            }
        }
        M::Fxam => x87.examine(),
        M::Fsqrt => x87.replace(Unary::Root),
        M::Frndint => x87.replace(Unary::Integer),
        M::Fchs => x87.replace(Unary::Negate),
        M::Fabs => x87.replace(Unary::Magnitude),
        M::Fld | M::Fild | M::Fbld => x87.push(source),
        M::Fld1 => x87.push_constant(Constant::One),
        M::Fldz => x87.push_constant(Constant::Zero),
        M::Fst | M::Fstp | M::Fstpnce => x87.copy(to, pops),
        M::Fxch => x87.exchange(from),
        M::Ffree | M::Ffreep => x87.free(to, pops),
        M::Fincstp => x87.rotate(true),
        M::Fdecstp => x87.rotate(false),
        _ => x87.move_if(condition_holds(moves_on(i.mnemonic())?, flags), from),
    }
    Some(Effect::Done)
}

fn conditions(x87: &mut X87, source: Source, signals: bool, pops: usize) {
    if let Ok(found) = x87.compare(source, signals, pops) {
        x87.set_conditions(found);
    }
}

/// The condition of FCMOVcc.
fn moves_on(mnemonic: Mnemonic) -> Option<ConditionCode> {
    use Mnemonic as M;
    Some(match mnemonic {
        M::Fcmovb => ConditionCode::b,
        M::Fcmove => ConditionCode::e,
        M::Fcmovbe => ConditionCode::be,
        M::Fcmovu => ConditionCode::p,
        M::Fcmovnb => ConditionCode::ae,
        M::Fcmovne => ConditionCode::ne,
        M::Fcmovnbe => ConditionCode::a,
        M::Fcmovnu => ConditionCode::np,
        _ => return None,
    })
}
