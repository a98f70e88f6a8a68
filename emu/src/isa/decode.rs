//! Decoding, and the one table of instructions that need the machine.

use super::mended::{has_vector_prefix, is_long_mmx, mended};
use iced_x86::{
    Code, CodeSize, ConditionCode, Decoder, DecoderError, DecoderOptions, FlowControl, Instruction, Mnemonic,
    OpAccess, OpKind, Register,
};

/// Bytes of the longest instruction.
pub(crate) const LONGEST: usize = 15;

/// The prefixes other than REX and the vector prefixes.
pub(crate) const LEGACY_PREFIXES: [u8; 11] =
    [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3];

/// RDTSCP without a prefix.
pub(crate) const RDTSCP: [u8; 3] = [0x0f, 0x01, 0xf9];

/// How the machine treats an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The engine runs it.
    Plain,
    /// The machine executes it itself, or steps it in the engine and checks the result: it needs the exact count, a
    /// permission check that the engine lacks, or changes paging.
    Sensitive,
    /// RDTSC: the engine asks for the time from the middle of a block.
    Clock,
    /// RDTSCP: it ends its block with #UD in the engine, and the machine then executes it.
    ClockAndAux,
    /// A string instruction with a repeat prefix, except INS and OUTS, which are sensitive.
    Repeated,
    /// IRET in any width.
    Iret,
    /// SYSRET in any width.
    Sysret,
    /// A far CALL or JMP, which may enter an inner ring, or switch tasks: the machine does that.
    Gate,
    /// Another far transfer.
    Far,
}

impl Kind {
    /// Whether it loads EFLAGS with RF, or switches to a task or mode with other flags.
    pub fn loads_flags(self) -> bool {
        matches!(self, Self::Iret | Self::Sysret | Self::Gate | Self::Far)
    }

    /// Whether the machine executes it when EIP is at it.
    pub(crate) fn by_machine(self) -> bool {
        matches!(self, Self::Sensitive | Self::Clock | Self::ClockAndAux | Self::Gate)
    }
}

/// Classifies an instruction.
pub(crate) fn kind(i: &Instruction) -> Kind {
    use Mnemonic as M;
    match i.mnemonic() {
        M::In | M::Out | M::Insb | M::Insw | M::Insd | M::Outsb | M::Outsw | M::Outsd => Kind::Sensitive,
        M::Rdtsc => Kind::Clock,
        M::Rdtscp => Kind::ClockAndAux,
        M::Cpuid | M::Hlt | M::Rdmsr | M::Wrmsr | M::Rdpmc => Kind::Sensitive,
        // The engine raises #UD for it.
        M::Int1 => Kind::Sensitive,
        // The engine keeps the interrupt shadow over it.
        M::Pause => Kind::Sensitive,
        M::Syscall | M::Sysenter | M::Invlpg | M::Clts | M::Lmsw => Kind::Sensitive,
        // The engine accepts a null selector, and aborts when it then needs a stack from the TSS.
        M::Ltr => Kind::Sensitive,
        M::Mov if is_control(i.op0_register()) || is_control(i.op1_register()) => Kind::Sensitive,
        // The engine ignores such a prefix and runs the instruction after it; neither model has these instructions.
        _ if has_vector_prefix(i) || is_absent(i).is_some() => Kind::Sensitive,
        // The engine loses the flags of the instruction before in its block when the count runs out.
        M::Loope | M::Loopne => Kind::Sensitive,
        // With a REX prefix, the engine takes SPL for AH.
        M::Lahf | M::Sahf if i.len() > 1 => Kind::Sensitive,
        // The engine sign-extends what they add to the stack pointer.
        M::Ret if i.op_count() == 1 && i.immediate16() > 0x7fff => Kind::Sensitive,
        // The engine computes its flags from the old value.
        M::Neg if i.has_lock_prefix() => Kind::Sensitive,
        _ if is_refused_mov(i) => Kind::Sensitive,
        _ if loses_flags(i) || mended(i).is_some() => Kind::Sensitive,
        M::Iret | M::Iretd | M::Iretq => Kind::Iret,
        M::Sysret | M::Sysretq => Kind::Sysret,
        _ if is_far_jump(i) => Kind::Gate,
        _ if is_far(i) || matches!(i.mnemonic(), M::Sysexit | M::Sysexitq) => Kind::Far,
        _ if is_string(i) && (i.has_rep_prefix() || i.has_repne_prefix()) => Kind::Repeated,
        _ => Kind::Plain,
    }
}

/// Whether an instruction is a string instruction with a repeat prefix, INS and OUTS included: it may end between two
/// iterations.
pub(crate) fn repeats(i: &Instruction) -> bool {
    i.is_string_instruction() && (i.has_rep_prefix() || i.has_repne_prefix())
}

/// Whether an instruction is SETcc to memory.
pub(crate) fn is_set_in_memory(i: &Instruction) -> bool {
    is_set(i) && i.op0_kind() == OpKind::Memory
}

/// Whether the operand in memory of an instruction has an address of 16 bits.
pub(crate) fn has_narrow_address(i: &Instruction) -> bool {
    i.memory_base().size() == 2 || i.memory_index().size() == 2 || i.memory_displ_size() == 2
}

/// Whether the engine loses the flags from before the instruction when its memory access faults.
pub(crate) fn loses_flags(i: &Instruction) -> bool {
    (is_set(i) || matches!(i.mnemonic(), Mnemonic::Rcl | Mnemonic::Rcr)) && i.op0_kind() == OpKind::Memory
}

/// Whether an instruction is SETcc.
fn is_set(i: &Instruction) -> bool {
    i.condition_code() != ConditionCode::None && i.op_count() == 1 && i.flow_control() == FlowControl::Next
}

/// How the instructions before one in its block have set the flags.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Compared {
    /// The CMP or TEST that has set them.
    by: Option<Mnemonic>,
    /// Whether any instruction has set them.
    set: bool,
}

impl Compared {
    /// After instruction `i` of the same block.
    pub fn after(self, i: &Instruction) -> Self {
        match i.mnemonic() {
            _ if i.rflags_modified() == 0 => self,
            m @ (Mnemonic::Cmp | Mnemonic::Test) => Self { by: Some(m), set: true },
            _ => Self { by: None, set: true },
        }
    }

    /// Whether the engine works out the condition of SETcc `i` from what was compared, and so leaves the flags alone
    /// (its `gen_prepare_cc`). Where it does not know what set them, or for other conditions, it computes EFLAGS first.
    pub fn keeps_flags(self, i: &Instruction) -> bool {
        use ConditionCode as C;
        match self.by {
            _ if !is_set(i) => false,
            Some(Mnemonic::Cmp) => !matches!(i.condition_code(), C::o | C::no | C::p | C::np),
            Some(_) => matches!(i.condition_code(), C::e | C::ne | C::s | C::ns | C::b | C::ae),
            None => false,
        }
    }

    /// Whether the engine would do something else with the flags than at the beginning of a block, where it knows
    /// nothing about what set them. Its CMPXCHG8B and CMPXCHG16B read them from where they are then. Its BT, BTS, BTR and
    /// BTC keep the flags that the manual leaves undefined, as CPUs do, but compute them anew after arithmetic.
    pub fn depends_on_block(self, i: &Instruction) -> bool {
        use Mnemonic as M;
        let tests_bit = matches!(i.mnemonic(), M::Bt | M::Bts | M::Btr | M::Btc);
        self.set && (tests_bit || matches!(i.mnemonic(), M::Cmpxchg8b | M::Cmpxchg16b))
    }
}

fn is_control(r: Register) -> bool {
    r.is_cr() || r.is_dr()
}

/// MOVS, CMPS, STOS, LODS, SCAS (not the SSE instructions of the same mnemonic).
pub(crate) fn is_string(i: &Instruction) -> bool {
    i.is_string_instruction()
}

/// Whether the machine executes the instruction itself, or checks what the engine did: it must run at its original
/// address.
pub fn is_sensitive(i: &Instruction) -> bool {
    kind(i).by_machine()
}

/// Count register of a repeated instruction of an address size.
pub(crate) fn rep_count(bits: u32, rcx: u64) -> u64 {
    match bits {
        16 => rcx & 0xffff,
        32 => rcx & 0xffff_ffff,
        _ => rcx,
    }
}

/// Address size of a string instruction, bits.
pub(crate) fn address_bits(i: &Instruction) -> u32 {
    for n in 0..i.op_count() {
        match i.op_kind(n) {
            OpKind::MemorySegSI | OpKind::MemoryESDI | OpKind::MemorySegDI => return 16,
            OpKind::MemorySegESI | OpKind::MemoryESEDI | OpKind::MemorySegEDI => return 32,
            OpKind::MemorySegRSI | OpKind::MemoryESRDI | OpKind::MemorySegRDI => return 64,
            _ => {}
        }
    }
    64
}

/// Whether the instruction loads a segment register or reads a descriptor, so that its implicit table
/// reads are made with supervisor rights (SDM volume 3, 4.6.1).
pub(crate) fn reads_descriptors(i: &Instruction) -> bool {
    use Mnemonic as M;
    let segment_load = matches!(i.mnemonic(), M::Mov | M::Pop) && i.op0_register().is_segment_register();
    let table = matches!(
        i.mnemonic(),
        M::Lds
            | M::Les
            | M::Lfs
            | M::Lgs
            | M::Lss
            | M::Lar
            | M::Lsl
            | M::Verr
            | M::Verw
            | M::Iret
            | M::Iretd
            | M::Iretq
    );
    is_far(i) || segment_load || table
}

/// A far JMP or CALL.
fn is_far_jump(i: &Instruction) -> bool {
    i.is_call_far() || i.is_call_far_indirect() || i.is_jmp_far() || i.is_jmp_far_indirect()
}

/// A far JMP, CALL or RET.
fn is_far(i: &Instruction) -> bool {
    is_far_jump(i) || i.mnemonic() == Mnemonic::Retf
}

/// Whether the memory operand is read, changed and written back by one instruction.
pub(crate) fn is_read_modify_write(i: &Instruction) -> bool {
    use iced_x86::InstructionInfoFactory;
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(i);
    info.used_memory().iter().any(|m| matches!(m.access(), OpAccess::ReadWrite | OpAccess::ReadCondWrite))
}

/// Whether an access reads and writes. A conditional access counts as made: CMPXCHG writes its operand back even when
/// it fails (SDM volume 2), and callers handle the other conditional accesses.
pub(crate) fn directions(access: OpAccess) -> (bool, bool) {
    use OpAccess as A;
    match access {
        A::Read | A::CondRead => (true, false),
        A::Write | A::CondWrite => (false, true),
        A::ReadWrite | A::ReadCondWrite => (true, true),
        A::None | A::NoMemAccess => (false, false),
    }
}

/// Whether an instruction reads and whether it writes memory.
fn reads_and_writes(i: &Instruction) -> (bool, bool) {
    let mut factory = iced_x86::InstructionInfoFactory::new();
    let accesses = factory.info(i).used_memory().iter().map(|m| directions(m.access()));
    accesses.fold((false, false), |all, one| (all.0 | one.0, all.1 | one.1))
}

/// Whether the instruction writes memory and certainly does not jump to itself.
pub(crate) fn is_plain_store(i: &Instruction) -> bool {
    let goes_on = match i.flow_control() {
        FlowControl::Next => true,
        FlowControl::Call => i.is_call_near() && i.near_branch_target() != i.ip(),
        _ => false,
    };
    goes_on && kind(i) == Kind::Plain && reads_and_writes(i).1
}

/// Whether it is wrong for the engine to restart the instruction after it has stored into its own block. Either it
/// reads memory, which may have changed: the engine has already done the part of an unaligned store that lies before
/// the block. Or it may branch to itself, so that a restart cannot be recognised.
pub(crate) fn must_not_restart(i: &Instruction) -> bool {
    let (reads, writes) = reads_and_writes(i);
    writes && (reads || !is_plain_store(i))
}

/// Decodes one instruction; `None` when the bytes are not one. In 64-bit code the engine takes near branches with an
/// operand-size prefix as AMD's CPUs do, and so does this. A MOV that the engine refuses is marked ([`is_refused_mov`]), and an
/// instruction on MMX registers that it gets wrong (`isa/mended.rs`).
pub(crate) fn decode(bits: u32, bytes: &[u8], ip: u64) -> Option<Instruction> {
    let mut i = Decoder::with_ip(bits, bytes, ip, DecoderOptions::AMD).decode();
    if bits == 64 && (is_mov_of_group(&i) || is_long_mmx(&i)) && has_rex_r(bytes) {
        i.set_has_lock_prefix(true);
    }
    (i.code() != Code::INVALID).then_some(i)
}

/// Whether it is a MOV of an immediate by C6 or C7.
fn is_mov_of_group(i: &Instruction) -> bool {
    use Code as C;
    matches!(i.code(), C::Mov_rm8_imm8 | C::Mov_rm16_imm16 | C::Mov_rm32_imm32 | C::Mov_rm64_imm32)
}

/// Whether it is a MOV of an immediate with REX.R, for which the engine raises #UD, and CPUs ignore the bit. [`decode`] marks it
/// with a LOCK prefix, which no MOV can have.
pub(crate) fn is_refused_mov(i: &Instruction) -> bool {
    is_mov_of_group(i) && i.has_lock_prefix()
}

/// Whether the last prefix is a REX with R.
fn has_rex_r(bytes: &[u8]) -> bool {
    let prefixes = bytes.iter().take_while(|byte| LEGACY_PREFIXES.contains(byte) || **byte & 0xf0 == 0x40);
    prefixes.last().is_some_and(|byte| byte & 0xf4 == 0x44)
}

/// Bytes that a CPU looks at before it raises #UD; `None` when it does not, or when there are too few of them to know.
/// An instruction that is too long raises #GP instead.
pub(crate) fn undefined(bits: u32, bytes: &[u8]) -> Option<usize> {
    let mut decoder = Decoder::new(bits, bytes, DecoderOptions::AMD);
    let found = decoder.decode();
    let invalid = decoder.last_error() == DecoderError::InvalidInstruction;
    (invalid && found.len() < LONGEST).then_some(found.len())
}

/// Whether the engine runs the instruction although a CPU model does not have it; `Some(true)` when neither does, and
/// `Some(false)` when IA32 does not. For 64-bit code, IA32 is not considered.
pub(crate) fn is_absent(i: &Instruction) -> Option<bool> {
    use Mnemonic as M;
    match i.mnemonic() {
        // RTM, WAITPKG, CET, SSE4A.
        M::Xbegin | M::Xabort | M::Tpause | M::Umonitor | M::Umwait | M::Incsspd | M::Incsspq => Some(true),
        M::Movntss | M::Movntsd | M::Extrq | M::Insertq => Some(true),
        // SSE2 and SSE3.
        M::Lfence | M::Fisttp if i.code_size() == CodeSize::Code32 => Some(false),
        _ if matches!(i.code(), Code::Pmuludq_mm_mmm64 | Code::Psubq_mm_mmm64) => {
            (i.code_size() == CodeSize::Code32).then_some(false)
        }
        _ => None,
    }
}

/// Whether the bytes of a PAUSE in 64-bit code are XCHG of R8 and the accumulator: the decoder and the engine overlook REX.B.
pub(crate) fn is_xchg_r8(pause: &[u8]) -> bool {
    matches!(pause, [.., rex, 0x90] if rex & 0xf1 == 0x41)
}

/// Bytes up to the end of a two-byte VEX prefix, or of the first two bytes of a three-byte one.
pub(crate) fn vex_prefix(bits: u32, bytes: &[u8]) -> Option<usize> {
    let prefix = |b: &u8| LEGACY_PREFIXES.contains(b) || bits == 64 && b & 0xf0 == 0x40;
    let at = bytes.iter().take_while(|b| prefix(b)).count();
    match bytes.get(at..at + 2)? {
        // Outside 64-bit code these are LES and LDS, which take no register operand.
        [0xc4 | 0xc5, second] if bits == 64 || *second >= 0xc0 => Some(at + 2),
        _ => None,
    }
}
