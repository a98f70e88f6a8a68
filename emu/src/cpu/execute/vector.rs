//! Vector instructions that the engine computes wrong, and operands that are wider than a general register.

use super::Place;
use crate::cpu::Cpu;
use crate::cpu::fault::Fault;
use crate::cpu::outcome::{Accesses, Done, Then};
use crate::isa::decode;
use crate::mmu::Access;
use crate::simd::{Operation, strings};
use crate::x87::narrow::{Format, Sse, dot_double, dot_single, lane};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

const AX: usize = 0;
const CX: usize = 1;
const DX: usize = 2;
const ARITHMETIC: u64 = 0x8d5;

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

    /// DPPS or DPPD.
    pub(in crate::cpu) fn dot_product(
        &mut self,
        i: &Instruction,
        of: Format,
        told: &mut dyn Accesses,
    ) -> Result<Done, Fault> {
        self.sse_ready()?;
        let Some(source) = self.vector(i, 1, told)? else { return Ok(Done::ByEngine(Then::Nothing)) };
        let mut sse = Sse::new(self.env.mxcsr());
        let dot = if of == Format::Single { dot_single } else { dot_double };
        let result = dot(&mut sse, self.vector_register(i.op0_register()), source, i.immediate8());
        self.env.set_mxcsr(sse.mxcsr());
        self.set_vector_register(i.op0_register(), result);
        Ok(Done::Next)
    }

    /// MINPS and the like.
    pub(in crate::cpu) fn choose(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Result<Done, Fault> {
        use Mnemonic as M;
        let double = matches!(i.mnemonic(), M::Minpd | M::Minsd | M::Maxpd | M::Maxsd);
        self.sse_ready()?;
        let Some(b) = self.vector(i, 1, told)? else { return Ok(Done::ByEngine(Then::Nothing)) };
        let a = self.vector_register(i.op0_register());
        let single = matches!(i.mnemonic(), M::Minss | M::Minsd | M::Maxss | M::Maxsd);
        let larger = matches!(i.mnemonic(), M::Maxps | M::Maxss | M::Maxpd | M::Maxsd);
        let (format, bits) = if double { (Format::Double, 64) } else { (Format::Single, 32) };
        let mut sse = Sse::new(self.env.mxcsr());
        let result = (0..if single { 1 } else { 128 / bits }).fold(a, |result, n| {
            let chosen = sse.choose(format, larger, lane(a, n, bits), lane(b, n, bits));
            result & !(u128::from(u64::MAX >> (64 - bits)) << (n * bits)) | u128::from(chosen) << (n * bits)
        });
        self.env.set_mxcsr(sse.mxcsr());
        self.set_vector_register(i.op0_register(), result);
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
        let memory = self.memory_of(i);
        let narrow = decode::has_narrow_address(i);
        if narrow || !matches!(self.locate(memory, Access::Write)?, Place::Ram(_)) {
            return Ok(false);
        }
        told.operand(self, &memory.operand(false, true));
        self.store_bytes(memory.address, bytes, self.env.cpl() == 3)?;
        Ok(true)
    }

    /// Operand `n`; `None` if it is in memory, but not in RAM, and nothing has happened.
    fn vector(&mut self, i: &Instruction, n: u32, told: &mut dyn Accesses) -> Result<Option<u128>, Fault> {
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
