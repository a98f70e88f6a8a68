//! The instructions that the engine computes wrong, and that the machine therefore executes.

use crate::simd::float::Float;
use crate::simd::{Operation as Lanes, strings::Control};
use crate::x87::{Constant, Operation, Stored};
use iced_x86::{Code, CodeSize, EncodingKind, Instruction, Mnemonic, OpCodeTableKind, OpKind};

/// Such an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mended {
    /// A function of the x87, which the engine leaves to the host's C library.
    Function(Operation),
    /// A constant of the x87. The engine ignores RC.
    Constant(Constant),
    /// A store of an integer or a decimal number by the x87. The engine stores another value if it is out of range, or notes no
    /// exception.
    Integer(Stored),
    /// FBLD, of which the engine reads the upper bytes first, and FSQRT, after which it does not say in C1 whether the root was rounded
    /// up.
    Exact,
    /// An instruction that shows or changes the exceptions of the x87 or of SSE. The engine shows none.
    Status(Status),
    /// A vector of integers. The engine writes the destination before it has read the source, or takes REX.R for a bit of the
    /// register's number.
    Lanes(Lanes),
    /// A search for a string in another. The engine does not find one that the end cuts, and cuts lengths of 64 bits.
    Strings(Control),
    /// Floating point of SSE that is wrong whatever MXCSR says ([`Float::is_mended`]).
    Float(Float),
    /// CMPXCHG of 32-bit registers in 64-bit code. The engine zeroes the upper half of the one that is not written, too.
    CompareExchange,
    /// ENTER. The engine does not look at the stack that it makes.
    Enter,
    /// CLFLUSH. The engine does not look at its operand.
    Flush,
    /// SHLD or SHRD by an immediate of an operand whose address depends on EIP. The engine computes that without the immediate.
    DoubleShift,
    /// TEST by its second encoding. The engine raises #UD.
    Test,
    /// A NOP with a register operand. The engine raises #UD.
    Nothing,
}

/// What an instruction does with the exceptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// FNSTSW AX.
    Read,
    /// FNCLEX.
    Clear,
    /// FWAIT and FNOP, which raise a pending exception; FWAIT does not look at CR0.EM.
    Wait,
    Nop,
    LoadMxcsr,
    StoreMxcsr,
    /// FLDCW. The engine keeps bits that there are not.
    LoadControl,
    /// FXSAVE and FXRSTOR.
    Save,
    Restore,
    /// The engine moves or clears them, once it has them.
    Moved,
}

/// Whether and why the engine computes the instruction wrong.
pub(crate) fn mended(i: &Instruction) -> Option<Mended> {
    if has_vector_prefix(i) {
        return None;
    }
    x87_function(i)
        .map(Mended::Function)
        .or_else(|| x87(i))
        .or_else(|| status(i).map(Mended::Status))
        .or_else(|| vector(i))
        .or_else(|| whole_number(i))
}

/// Instructions that the machine executes while an exception is not masked, or MXCSR has FZ or DAZ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Floats {
    Sse(Float),
    X87,
    /// The engine executes it, if no exception of the x87 is pending.
    Mmx,
}

/// Whether the instruction is one of these.
pub(crate) fn floats(i: &Instruction) -> Option<Floats> {
    use Mnemonic as M;
    if has_vector_prefix(i) {
        return None;
    }
    // The engine moves the words and the registers of the x87 as they are.
    let moved = matches!(i.mnemonic(), M::Fnstcw | M::Fneni | M::Fndisi | M::Fnsetpm | M::Frstpm | M::Fnop);
    match Float::of(i) {
        Some(float) => Some(Floats::Sse(float)),
        None if is_x87(i) => (!moved).then_some(Floats::X87),
        None => {
            let mmx = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Register && i.op_register(n).is_mm());
            (mmx || i.mnemonic() == M::Emms).then_some(Floats::Mmx)
        }
    }
}

/// An instruction of the x87 FPU, which keeps its address: the escape opcodes.
pub(crate) fn is_x87(i: &Instruction) -> bool {
    let form = i.op_code();
    let first = form.op_code() >> (8 * (form.op_code_len() - 1));
    matches!(first, 0xd8..=0xdf) && form.table() == OpCodeTableKind::Normal
}

/// Whether an instruction is encoded with a vector prefix (VEX, EVEX, XOP).
pub(crate) fn has_vector_prefix(i: &Instruction) -> bool {
    !matches!(i.code().encoding(), EncodingKind::Legacy | EncodingKind::D3NOW)
}

/// The function that an instruction computes which the engine leaves to the host's C library.
fn x87_function(i: &Instruction) -> Option<Operation> {
    use Mnemonic as M;
    Some(match i.mnemonic() {
        M::F2xm1 => Operation::F2xm1,
        M::Fyl2x => Operation::Fyl2x,
        M::Fptan => Operation::Fptan,
        M::Fpatan => Operation::Fpatan,
        M::Fxtract => Operation::Fxtract,
        M::Fprem1 => Operation::Fprem1,
        M::Fprem => Operation::Fprem,
        M::Fyl2xp1 => Operation::Fyl2xp1,
        M::Fsincos => Operation::Fsincos,
        M::Fscale => Operation::Fscale,
        M::Fsin => Operation::Fsin,
        M::Fcos => Operation::Fcos,
        _ => return None,
    })
}

fn x87(i: &Instruction) -> Option<Mended> {
    use Mnemonic as M;
    let stored = |truncated| {
        let size = i.memory_size().size();
        Some(Mended::Integer(Stored { size, truncated, pops: i.mnemonic() != M::Fist }))
    };
    Some(Mended::Constant(match i.mnemonic() {
        M::Fldpi => Constant::Pi,
        M::Fldl2t => Constant::Log2Of10,
        M::Fldl2e => Constant::Log2OfE,
        M::Fldlg2 => Constant::Log10Of2,
        M::Fldln2 => Constant::LnOf2,
        M::Fisttp => return stored(true),
        M::Fbstp => return stored(false),
        M::Fbld | M::Fsqrt => return Some(Mended::Exact),
        _ if matches!(i.code(), Code::Fist_m16int | Code::Fistp_m16int) => return stored(false),
        _ => return None,
    }))
}

fn status(i: &Instruction) -> Option<Status> {
    use Mnemonic as M;
    Some(match i.mnemonic() {
        _ if i.code() == Code::Fnstsw_AX => Status::Read,
        M::Fnclex => Status::Clear,
        M::Wait => Status::Wait,
        M::Fnop => Status::Nop,
        M::Ldmxcsr => Status::LoadMxcsr,
        M::Stmxcsr => Status::StoreMxcsr,
        M::Fldcw => Status::LoadControl,
        M::Fnstsw | M::Fnstenv | M::Fnsave | M::Fldenv | M::Frstor | M::Fninit => Status::Moved,
        M::Fxsave | M::Fxsave64 => Status::Save,
        M::Fxrstor | M::Fxrstor64 => Status::Restore,
        _ => return None,
    })
}

fn vector(i: &Instruction) -> Option<Mended> {
    use Mnemonic as M;
    match i.mnemonic() {
        // The engine cuts lengths of 64 bits to 32, and reads beyond the operands where one is 80000000h: it takes the absolute
        // value of that for a negative one.
        M::Pcmpestri64 | M::Pcmpestrm64 | M::Pcmpestri | M::Pcmpestrm => {
            return Some(Mended::Strings(Control(i.immediate8())));
        }
        M::Pcmpistri | M::Pcmpistrm => {
            let control = Some(Control(i.immediate8())).filter(|control| control.is_mended());
            return control.map(Mended::Strings);
        }
        _ => {}
    }
    if let Some(float) = Float::of(i) {
        return float.is_mended(i).then_some(Mended::Float(float));
    }
    let lanes = Lanes::of(i.mnemonic())?;
    let same = i.op1_kind() == OpKind::Register && i.op0_register() == i.op1_register();
    (lanes.is_horizontal() && same || is_beyond(i)).then_some(Mended::Lanes(lanes))
}

fn whole_number(i: &Instruction) -> Option<Mended> {
    use Code as C;
    match i.code() {
        C::Cmpxchg_rm32_r32 if i.op0_kind() == OpKind::Register && i.code_size() == CodeSize::Code64 => {
            Some(Mended::CompareExchange)
        }
        C::Enterw_imm16_imm8 | C::Enterd_imm16_imm8 | C::Enterq_imm16_imm8 => Some(Mended::Enter),
        C::Clflush_m8 => Some(Mended::Flush),
        _ if matches!(i.mnemonic(), Mnemonic::Shld | Mnemonic::Shrd) => {
            let relative = i.is_ip_rel_memory_operand() && i.op2_kind() == OpKind::Immediate8;
            relative.then_some(Mended::DoubleShift)
        }
        C::Test_rm8_imm8_F6r1
        | C::Test_rm16_imm16_F7r1
        | C::Test_rm32_imm32_F7r1
        | C::Test_rm64_imm32_F7r1 => Some(Mended::Test),
        C::Reservednop_rm16_r16_0F18 | C::Reservednop_rm32_r32_0F18 | C::Reservednop_rm64_r64_0F18
            if i.op0_kind() == OpKind::Register =>
        {
            Some(Mended::Nothing)
        }
        _ => None,
    }
}

/// Whether it is an instruction on MMX registers of a feature whose opcodes have three bytes.
pub(super) fn is_long_mmx(i: &Instruction) -> bool {
    i.op0_register().is_mm() && i.op_code().table() != OpCodeTableKind::T0F
}

/// Whether it is such an instruction with REX.R. CPUs ignore the bit; the engine writes beyond its registers.
/// [`super::decode::decode`] marks it with a LOCK prefix, which it cannot have.
fn is_beyond(i: &Instruction) -> bool {
    is_long_mmx(i) && i.has_lock_prefix()
}
