//! The memory accesses of an instruction: its operands, explicit and implied, computed from the state before it.
//!
//! iced-x86 knows the operands of each form; this module adds what depends on more than the form: bit strings, masked
//! stores, repeated strings, the parts of FXSAVE's image that are not accessed. The result is only valid for an
//! instruction that does not fault. Accesses that the CPU makes to its own tables (descriptors, TSS, page tables,
//! exception frames) are not operands, and debug registers do not match them either (SDM volume 3, 17.2.4 speaks of the
//! data that instructions access); the stack of CALL, RET, PUSH, ENTER and IRET is.

use super::Cpu;
use crate::isa::decode::{self, directions};
use iced_x86::{
    Instruction, InstructionInfoFactory, InstructionInfoOptions, MemorySize, Mnemonic, OpKind, Register,
    UsedMemory,
};

/// One access to linear memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operand {
    pub address: u64,
    /// Bytes that are accessed, at least 1.
    pub size: u32,
    /// Bytes of the operand, as the manual gives its size. FXSAVE and FXRSTOR do not access all of them.
    pub whole: u32,
    pub reads: bool,
    pub writes: bool,
}

/// Finds the operands of one instruction after the other, in memory that it keeps.
pub(crate) struct OperandFinder(InstructionInfoFactory);

impl Default for OperandFinder {
    fn default() -> Self {
        Self(InstructionInfoFactory::new())
    }
}

/// Whether a register says which bit of a string of bits in memory the instruction accesses.
fn has_bit_string(i: &Instruction) -> bool {
    let bits = matches!(i.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc);
    bits && i.op1_kind() == OpKind::Register
}

impl Cpu {
    /// Whether `i` stores at a fixed address, whatever the general registers hold, and does not reach from below into
    /// linear `block`: kernels keep counters at such addresses. The current base of FS or GS is assumed.
    pub(crate) fn is_fixed_store(&self, i: &Instruction, block: u64) -> bool {
        use Register as R;
        let explicit = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
        let fixed = matches!(i.memory_base(), R::None | R::EIP | R::RIP) && i.memory_index() == R::None;
        let into = |o: &Operand| o.address < block && o.address.wrapping_add(o.size.into()) > block;
        let by_register = i.is_stack_instruction() || has_bit_string(i);
        explicit && fixed && !by_register && !self.operands(i).iter().any(|o| o.writes && into(o))
    }

    /// The accesses of the instruction at EIP, which has been decoded as `i`.
    pub(crate) fn operands(&self, i: &Instruction) -> Vec<Operand> {
        self.operands_by(&mut OperandFinder::default(), i)
    }

    /// As [`Cpu::operands`], with a finder that is there.
    pub(crate) fn operands_by(&self, finder: &mut OperandFinder, i: &Instruction) -> Vec<Operand> {
        let repeated = decode::is_string(i) && (i.has_rep_prefix() || i.has_repne_prefix());
        if repeated && decode::rep_count(decode::address_bits(i), self.env.gpr(1)) == 0 {
            return Vec::new();
        }
        match i.mnemonic() {
            Mnemonic::Maskmovq => return self.masked(i, 8),
            Mnemonic::Maskmovdqu => return self.masked(i, 16),
            Mnemonic::Fxsave | Mnemonic::Fxsave64 => return self.fpu_image(i, true),
            Mnemonic::Fxrstor | Mnemonic::Fxrstor64 => return self.fpu_image(i, false),
            Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq => return self.iret(i),
            _ => {}
        }
        let used = finder.0.info_options(i, InstructionInfoOptions::NO_REGISTER_USAGE).used_memory();
        let mut found: Vec<Operand> = used.iter().filter_map(|m| self.operand(i, m)).collect();
        if has_bit_string(i)
            && let Some(first) = found.first_mut()
        {
            first.address =
                self.wrap_linear(first.address.wrapping_add(self.bit_string_offset(i, first.size)));
        }
        found
    }

    fn operand(&self, i: &Instruction, m: &UsedMemory) -> Option<Operand> {
        let (reads, writes) = directions(m.access());
        let of = if m.memory_size() == MemorySize::Unknown { i.memory_size() } else { m.memory_size() };
        let size = u32::try_from(of.size()).ok().filter(|&n| n > 0 && (reads || writes))?;
        let address = m.virtual_address(0, |register, _, _| Some(self.register(register)))?;
        Some(Operand { address: self.wrap_linear(address), size, whole: size, reads, writes })
    }

    /// Bytes from the operand's address to the word that holds the bit which a register names.
    fn bit_string_offset(&self, i: &Instruction, size: u32) -> u64 {
        let raw = self.register(i.op1_register());
        let bit = match size {
            2 => i64::from(raw as i16),
            4 => i64::from(raw as i32),
            _ => raw as i64,
        };
        (bit.div_euclid(i64::from(size) * 8) * i64::from(size)) as u64
    }

    /// MASKMOVQ, MASKMOVDQU: the bytes whose mask is set, those that touch each other as one.
    fn masked(&self, i: &Instruction, size: usize) -> Vec<Operand> {
        let number = i.op_register(2).number();
        let mask = match size {
            8 => {
                let r = self.env.fpreg(number);
                u128::from(u64::from_le_bytes([r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]]))
            }
            _ => self.env.xmm(number),
        };
        let set = |n: usize| n < size && mask >> (8 * n + 7) & 1 != 0;
        let base = i.virtual_address(0, 0, |register, _, _| Some(self.register(register))).unwrap_or(0);
        let starts = (0..size).filter(|&n| set(n) && (n == 0 || !set(n - 1)));
        starts
            .map(|n| {
                let size = (n..=size).take_while(|&k| set(k)).count() as u32;
                let address = self.wrap_linear(base.wrapping_add(n as u64));
                Operand { address, size, whole: size, reads: false, writes: true }
            })
            .collect()
    }

    /// FXSAVE and FXRSTOR access neither the last 48 bytes of the image nor the registers that the mode does not have
    /// (SDM volume 1, 10.5.1).
    fn fpu_image(&self, i: &Instruction, writes: bool) -> Vec<Operand> {
        const OSFXSR: u64 = 1 << 9;
        const IMAGE: u32 = 512;
        let registers = match (self.env.cr(4) & OSFXSR != 0, self.env.code64()) {
            (false, _) => 0,
            (true, false) => 8,
            (true, true) => 16,
        };
        let size = 160 + 16 * registers;
        let address = self.wrap_linear(self.effective_address(i));
        vec![Operand { address, size, whole: IMAGE, reads: !writes, writes }]
    }

    /// IRET pops EIP, CS and EFLAGS, then ESP and SS where it leaves the ring, and always in 64-bit code.
    fn iret(&self, i: &Instruction) -> Vec<Operand> {
        let size = match i.mnemonic() {
            Mnemonic::Iret => 2,
            Mnemonic::Iretd => 4,
            _ => 8,
        };
        let sp = self.env.gpr(4);
        let at = |n: u64| {
            let base = self.register(Register::SS);
            let offset = sp.wrapping_add(n * u64::from(size));
            let narrow = self.env.hflags() & crate::engine::hflags::SS32 == 0;
            let mask = match (self.env.code64(), narrow) {
                (true, _) => u64::MAX,
                (false, false) => 0xffff_ffff,
                (false, true) => 0xffff,
            };
            self.wrap_linear(base.wrapping_add(offset & mask))
        };
        let mut cs = [0; 2];
        let outward = self.peek(at(1), &mut cs).is_ok() && cs[0] & 3 > self.env.cpl();
        let words = if self.env.code64() || outward { 5 } else { 3 };
        (0..words)
            .map(|n| Operand { address: at(n), size, whole: size, reads: true, writes: false })
            .collect()
    }
}
