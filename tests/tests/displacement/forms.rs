//! Instructions from iced's tables: each form with operands of each shape.

use super::common::{CODE, DATA};
use iced_x86::{
    Code, Encoder, EncodingKind, Instruction, MemoryOperand, OpCodeOperandKind as K, OpKind, Register,
};

/// A linear address that is not mapped.
pub const ABSENT: u64 = DATA + 0x8000;
/// General registers at each case's start, by number; the stack pointer keeps its own.
pub const REGISTERS: [u64; 16] = [
    0x1122_3344,
    3,
    0x80,
    DATA + 0x100,
    0,
    DATA + 0x400,
    DATA + 0x200,
    DATA + 0x300,
    0x0101_0101_0202_0202,
    9,
    10,
    ABSENT,
    12,
    13,
    14,
    15,
];
/// Where branches go.
pub const TARGET: u64 = CODE + 0x180;

/// How the operands that may be a register or memory are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Registers.
    Register,
    /// `[ebx + 0x10]`.
    Base,
    /// `[ebx + esi * 1 + ..]`, in DATA.
    Index,
    /// An address alone; relative to RIP in 64-bit code.
    Absolute,
    /// Unmapped memory.
    Absent,
    /// Memory whose second half is unmapped.
    Torn,
}

/// All of them.
pub const SHAPES: [Shape; 6] =
    [Shape::Register, Shape::Base, Shape::Index, Shape::Absolute, Shape::Absent, Shape::Torn];

/// One opcode form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form(pub Code);

impl Form {
    /// Every form that can be encoded in code of `bits` without VEX and other vector prefixes, which no model here has.
    pub fn all(bits: u32) -> impl Iterator<Item = Form> {
        Code::values().map(Form).filter(move |f| {
            let op = f.0.op_code();
            // Names that assemblers do not accept, and instructions of CPUs that are not modelled.
            let odd =
                matches!(f.0, Code::Jmpe_disp16 | Code::Jmpe_disp32 | Code::Jmpe_rm16 | Code::Jmpe_rm32);
            // A Cyrix form that is MOVMSKPS with a memory operand elsewhere: #UD, but the engine runs it as if the
            // operand were a register, and the count of a block that continues after it is undefined.
            let odd = odd || f.0 == Code::Paveb_mm_mmm64;
            // Their memory operand is addressed with 16 bits, or with 32 in 64-bit code.
            let narrow = format!("{:?}", f.0).ends_with(if bits == 64 { "_r32_m512" } else { "_r16_m512" });
            let old = !odd && !narrow && matches!(op.encoding(), EncodingKind::Legacy | EncodingKind::D3NOW);
            old && op.is_instruction() && if bits == 64 { op.mode64() } else { op.mode32() }
        })
    }

    /// The bytes of this form at `at`, with its operands of `shape`; `None` when it has no such operand.
    pub fn encode(self, bits: u32, shape: Shape, at: u64) -> Option<Vec<u8>> {
        let op = self.0.op_code();
        let mut i = Instruction::default();
        i.set_code(self.0);
        let mut uses_memory = false;
        for n in 0..op.op_count() {
            uses_memory |= operand(&mut i, n, op.op_kind(n), bits, shape)?;
        }
        let takes_memory = (0..op.op_count()).any(|n| format!("{:?}", op.op_kind(n)).contains("mem"));
        if shape != Shape::Register && !(takes_memory && uses_memory) {
            return None;
        }
        let mut encoder = Encoder::new(bits);
        encoder.encode(&i, at).ok()?;
        Some(encoder.take_buffer())
    }
}

fn memory(bits: u32, shape: Shape) -> MemoryOperand {
    let wide = bits == 64;
    let (bx, si) = if wide { (Register::RBX, Register::RSI) } else { (Register::EBX, Register::ESI) };
    let size = if wide { 8 } else { 4 };
    let alone = |address: u64| {
        let base = if wide { Register::RIP } else { Register::None };
        MemoryOperand::new(base, Register::None, 1, address as i64, size, false, Register::None)
    };
    match shape {
        Shape::Register | Shape::Base => {
            MemoryOperand::new(bx, Register::None, 1, 0x10, 1, false, Register::None)
        }
        Shape::Index => {
            let back = -(DATA as i64 + 0x200) + 0x40;
            MemoryOperand::new(bx, si, 1, back, size, false, Register::None)
        }
        Shape::Absolute => alone(DATA + 0x80),
        Shape::Absent => alone(ABSENT),
        Shape::Torn => alone(ABSENT - 1),
    }
}

/// Sets operand `n`; whether it is memory. `None` when this kind has no such shape.
fn operand(i: &mut Instruction, n: u32, kind: K, bits: u32, shape: Shape) -> Option<bool> {
    let text = format!("{kind:?}");
    if text.contains("or_mem") && shape != Shape::Register || text == "mem" || text.starts_with("mem_m") {
        if shape == Shape::Register && text != "mem" && !text.starts_with("mem_m") {
            return None;
        }
        set_memory(i, n, memory(bits, shape));
        return Some(true);
    }
    if let Some(register) = register(kind, n) {
        i.set_op_kind(n, OpKind::Register);
        i.set_op_register(n, register);
        return Some(false);
    }
    let near = |i: &mut Instruction, kind| {
        i.set_op_kind(n, kind);
        i.set_near_branch64(TARGET);
    };
    match kind {
        K::br16_1 | K::br16_2 => near(i, OpKind::NearBranch16),
        K::br32_1 | K::br32_4 | K::brdisp_4 => near(i, OpKind::NearBranch32),
        K::br64_1 | K::br64_4 => near(i, OpKind::NearBranch64),
        K::farbr2_2 => far(i, n, OpKind::FarBranch16),
        K::farbr4_2 => far(i, n, OpKind::FarBranch32),
        K::imm8_const_1 => immediate(i, n, OpKind::Immediate8, 1),
        K::imm8 if n > 0 && matches!(i.op_kind(n - 1), OpKind::Immediate8 | OpKind::Immediate16) => {
            immediate(i, n, OpKind::Immediate8_2nd, 1)
        }
        K::imm8 => immediate(i, n, OpKind::Immediate8, 5),
        K::imm8sex16 => immediate(i, n, OpKind::Immediate8to16, 5),
        K::imm8sex32 => immediate(i, n, OpKind::Immediate8to32, 5),
        K::imm8sex64 => immediate(i, n, OpKind::Immediate8to64, 5),
        K::imm16 => immediate(i, n, OpKind::Immediate16, 0x1234),
        K::imm32 => immediate(i, n, OpKind::Immediate32, 0x1234_5678),
        K::imm32sex64 => immediate(i, n, OpKind::Immediate32to64, 0x1234_5678),
        K::imm64 => immediate(i, n, OpKind::Immediate64, 0x1234_5678_9abc),
        K::mem_offs => {
            let size = if bits == 64 { 8 } else { 4 };
            let at = if shape == Shape::Absent { ABSENT } else { DATA + 0x90 };
            set_memory(
                i,
                n,
                MemoryOperand::new(Register::None, Register::None, 1, at as i64, size, false, Register::None),
            );
            return Some(true);
        }
        K::seg_rSI => i.set_op_kind(n, if bits == 64 { OpKind::MemorySegRSI } else { OpKind::MemorySegESI }),
        K::es_rDI => i.set_op_kind(n, if bits == 64 { OpKind::MemoryESRDI } else { OpKind::MemoryESEDI }),
        K::seg_rDI => i.set_op_kind(n, if bits == 64 { OpKind::MemorySegRDI } else { OpKind::MemorySegEDI }),
        K::seg_rBX_al => {
            let bx = if bits == 64 { Register::RBX } else { Register::EBX };
            set_memory(i, n, MemoryOperand::new(bx, Register::AL, 1, 0, 0, false, Register::None));
        }
        K::xbegin_2 | K::xbegin_4 | K::brdisp_2 => {
            near(i, if bits == 64 { OpKind::NearBranch64 } else { OpKind::NearBranch32 })
        }
        _ => return None,
    }
    Some(false)
}

fn set_memory(i: &mut Instruction, n: u32, m: MemoryOperand) {
    i.set_op_kind(n, OpKind::Memory);
    i.set_memory_base(m.base);
    i.set_memory_index(m.index);
    i.set_memory_index_scale(m.scale);
    i.set_memory_displacement64(m.displacement as u64);
    i.set_memory_displ_size(m.displ_size);
}

fn far(i: &mut Instruction, n: u32, kind: OpKind) {
    i.set_op_kind(n, kind);
    i.set_far_branch_selector(8);
    i.set_far_branch32(TARGET as u32);
    i.set_op_kind(n, kind);
}

fn immediate(i: &mut Instruction, n: u32, kind: OpKind, value: u64) {
    i.set_op_kind(n, kind);
    match kind {
        OpKind::Immediate8_2nd => i.set_immediate8_2nd(value as u8),
        OpKind::Immediate8 => i.set_immediate8(value as u8),
        OpKind::Immediate16 => i.set_immediate16(value as u16),
        OpKind::Immediate32 => i.set_immediate32(value as u32),
        OpKind::Immediate64 => i.set_immediate64(value),
        OpKind::Immediate8to16 => i.set_immediate8to16(value as i16),
        OpKind::Immediate8to32 => i.set_immediate8to32(value as i32),
        OpKind::Immediate8to64 => i.set_immediate8to64(value as i64),
        _ => i.set_immediate32to64(value as i64),
    }
}

/// The register for an operand kind: the destination is AX where it can be, the source DX.
fn register(kind: K, n: u32) -> Option<Register> {
    let pick = |a: Register, b: Register| Some(if n == 0 { a } else { b });
    use Register as R;
    match kind {
        K::r8_or_mem | K::r8_reg | K::r8_opcode => pick(R::AL, R::DL),
        K::r16_or_mem | K::r16_reg | K::r16_rm | K::r16_opcode => pick(R::AX, R::DX),
        K::r32_or_mem | K::r32_reg | K::r32_rm | K::r32_opcode | K::r32_or_mem_mpx => pick(R::EAX, R::EDX),
        K::r64_or_mem | K::r64_reg | K::r64_rm | K::r64_opcode | K::r64_or_mem_mpx => pick(R::RAX, R::RDX),
        K::r16_reg_mem => Some(R::BX),
        K::r32_reg_mem => Some(R::EBX),
        K::r64_reg_mem => Some(R::RBX),
        K::r32_vvvv => Some(R::ECX),
        K::r64_vvvv => Some(R::RCX),
        K::mm_or_mem | K::mm_reg | K::mm_rm => pick(R::MM0, R::MM1),
        K::xmm_or_mem | K::xmm_reg | K::xmm_rm | K::xmm_vvvv | K::xmmp3_vvvv | K::xmm_is4 | K::xmm_is5 => {
            pick(R::XMM0, R::XMM1)
        }
        K::ymm_or_mem | K::ymm_reg | K::ymm_rm | K::ymm_vvvv | K::ymm_is4 | K::ymm_is5 => {
            pick(R::YMM0, R::YMM1)
        }
        K::seg_reg => Some(R::ES),
        K::cr_reg => Some(R::CR0),
        K::dr_reg => Some(R::DR3),
        K::tr_reg => Some(R::TR3),
        K::bnd_reg | K::bnd_or_mem_mpx => pick(R::BND0, R::BND1),
        K::es => Some(R::ES),
        K::cs => Some(R::CS),
        K::ss => Some(R::SS),
        K::ds => Some(R::DS),
        K::fs => Some(R::FS),
        K::gs => Some(R::GS),
        K::al => Some(R::AL),
        K::cl => Some(R::CL),
        K::ax => Some(R::AX),
        K::dx => Some(R::DX),
        K::eax => Some(R::EAX),
        K::rax => Some(R::RAX),
        K::st0 => Some(R::ST0),
        K::sti_opcode => Some(R::ST3),
        _ => None,
    }
}
