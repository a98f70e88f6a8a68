//! Vector instructions that the engine computes wrong, and operands that are wider than a general register.

use super::Place;
use crate::cpu::Cpu;
use crate::cpu::fault::{Fault, Vector};
use crate::cpu::outcome::{Accesses, Done, Then};
use crate::engine::Model;
use crate::isa::decode;
use crate::mmu::Access;
use crate::simd::float::Float;
use crate::simd::{Operation, strings};
use crate::x87::narrow::Sse;
use iced_x86::{CpuidFeature, Instruction, Mnemonic, OpKind, Register};

const AX: usize = 0;
const CX: usize = 1;
const DX: usize = 2;
const ARITHMETIC: u64 = 0x8d5;
const CR4_OSXMMEXCPT: u64 = 0x400;

impl Cpu {
    /// An operation on elements of vectors.
    pub(in crate::cpu) fn lanes(
        &mut self,
        i: &Instruction,
        of: Operation,
        told: &mut dyn Accesses,
    ) -> Result<Done, Fault> {
        let to = i.op0_register();
        if to.is_mm() {
            self.mmx_ready()?
        } else {
            self.sse_ready()?
        }
        let Some(source) = self.vector(i, 1, told)? else { return Ok(Done::ByEngine(Then::Nothing)) };
        let immediate = if i.op_count() > 2 { i.immediate8() } else { 0 };
        let result = of.apply(self.vector_register(to), source, immediate, to.size() as u32);
        self.set_vector_register(to, result);
        Ok(Done::Next)
    }

    /// Floating point of SSE.
    pub(in crate::cpu) fn float(
        &mut self,
        i: &Instruction,
        of: Float,
        told: &mut dyn Accesses,
    ) -> Result<Done, Fault> {
        if self.model == Model::Ia32 && i.cpuid_features() != [CpuidFeature::SSE] {
            return Err(Fault::ud());
        }
        let (to, from) = (i.op0_register(), i.op1_register());
        let mmx = to.is_mm() || from.is_mm();
        self.sse_ready()?;
        if mmx {
            self.mmx_ready()?;
        }
        let memory = i.op1_kind() == OpKind::Memory;
        if memory && i.memory_size().size() == 16 && !self.effective_address(i).is_multiple_of(16) {
            return Err(Fault::gp(0));
        }
        let source = if from.is_gpr() { Some(self.register(from).into()) } else { self.vector(i, 1, told)? };
        let Some(b) = source else { return Ok(Done::ByEngine(Then::Nothing)) };
        let mut sse = Sse::new(self.env.mxcsr());
        let a = if to.is_gpr() { 0 } else { self.vector_register(to) };
        let (mut result, mut flags) = (a, self.eflags());
        match of {
            Float::Arithmetic(of) => {
                let immediate = if i.op_count() > 2 { i.immediate8() } else { 0 };
                result = of.apply(&mut sse, a, b, immediate);
            }
            Float::Conversion(of) => result = of.apply(&mut sse, a, b),
            Float::Order(of) => flags = flags & !ARITHMETIC | of.flags(&mut sse, a, b),
        }
        self.env.set_mxcsr(sse.mxcsr());
        if sse.stops() {
            let reported = self.env.cr(4) & CR4_OSXMMEXCPT != 0;
            return Err(if reported { Fault::without_code(Vector::SimdFloatingPoint) } else { Fault::ud() });
        }
        match of {
            Float::Order(_) => self.env.set_eflags(flags),
            _ if to.is_gpr() => self.set_register(to, result as u64),
            _ => self.set_vector_register(to, result),
        }
        if from.is_mm() {
            self.set_vector_register(from, b);
        }
        Ok(Done::Next)
    }

    /// PCMPESTRI and the like.
    pub(in crate::cpu) fn compare_strings(
        &mut self,
        i: &Instruction,
        control: strings::Control,
        told: &mut dyn Accesses,
    ) -> Result<Done, Fault> {
        use Mnemonic as M;
        self.sse_ready()?;
        let Some(b) = self.vector(i, 1, told)? else { return Ok(Done::ByEngine(Then::Nothing)) };
        let a = self.vector_register(i.op0_register());
        let wide = matches!(i.mnemonic(), M::Pcmpestri64 | M::Pcmpestrm64);
        let (of_a, of_b) = match i.mnemonic() {
            M::Pcmpistri | M::Pcmpistrm => (control.length(a), control.length(b)),
            _ => (control.explicit(self.env.gpr(AX), wide), control.explicit(self.env.gpr(DX), wide)),
        };
        let found = control.compare((a, of_a), (b, of_b));
        if matches!(i.mnemonic(), M::Pcmpestrm | M::Pcmpestrm64 | M::Pcmpistrm) {
            self.env.set_xmm(0, control.mask(found.bits));
        } else {
            self.env.set_gpr(CX, control.index(found.bits).into());
        }
        self.env.set_eflags(self.eflags() & !ARITHMETIC | found.flags);
        Ok(Done::Next)
    }

    /// Writes the operand in memory; false if that is not in RAM, and nothing has happened.
    pub(in crate::cpu) fn write_wide(
        &mut self,
        i: &Instruction,
        bytes: &[u8],
        told: &mut dyn Accesses,
    ) -> Result<bool, Fault> {
        if !self.can_write(i)? {
            return Ok(false);
        }
        let memory = self.memory_of(i);
        told.operand(self, &memory.operand(false, true));
        self.store_bytes(memory.address, bytes, self.env.cpl() == 3)?;
        Ok(true)
    }

    /// Whether the operand in memory is in RAM and can be written.
    pub(in crate::cpu) fn can_write(&mut self, i: &Instruction) -> Result<bool, Fault> {
        let memory = self.memory_of(i);
        let narrow = decode::has_narrow_address(i);
        Ok(!narrow && matches!(self.locate(memory, Access::Write)?, Place::Ram(_)))
    }

    /// Operand `n`; `None` if it is in memory, but not in RAM, and nothing has happened.
    pub(in crate::cpu) fn vector(
        &mut self,
        i: &Instruction,
        n: u32,
        told: &mut dyn Accesses,
    ) -> Result<Option<u128>, Fault> {
        if i.op_kind(n) == OpKind::Register {
            return Ok(Some(self.vector_register(i.op_register(n))));
        }
        let memory = self.memory_of(i);
        let narrow = decode::has_narrow_address(i);
        if narrow || !matches!(self.locate(memory, Access::Read)?, Place::Ram(_)) {
            return Ok(None);
        }
        told.operand(self, &memory.operand(true, false));
        let mut bytes = [0; 16];
        self.load_bytes(memory.address, &mut bytes[..memory.size.min(16)], self.env.cpl() == 3)?;
        Ok(Some(u128::from_le_bytes(bytes)))
    }

    fn vector_register(&self, register: Register) -> u128 {
        if register.is_xmm() {
            return self.env.xmm(register.number());
        }
        let [m0, m1, m2, m3, m4, m5, m6, m7, ..] = self.env.fpreg(register.number());
        u64::from_le_bytes([m0, m1, m2, m3, m4, m5, m6, m7]).into()
    }

    /// Writes a register. MMX makes all of the x87's valid (SDM volume 1, 9.5.1).
    fn set_vector_register(&self, register: Register, value: u128) {
        if register.is_xmm() {
            return self.env.set_xmm(register.number(), value);
        }
        let mut bytes = [0xff; 10];
        bytes[..8].copy_from_slice(&(value as u64).to_le_bytes());
        self.env.set_fpreg(register.number(), bytes);
        self.env.set_fpstt(0);
        self.env.set_fptags([0; 8]);
    }
}
