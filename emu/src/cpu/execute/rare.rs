//! Instructions that compilers do not emit, and that the engine gets wrong in some respect (SDM volume 2, each).

use super::{Memory, Place, SP};
use crate::cpu::Cpu;
use crate::cpu::fault::Fault;
use crate::cpu::outcome::{Accesses, Done, Then};
use crate::engine::Model;
use crate::mmu::Access;
use iced_x86::{Code, Instruction, Mnemonic, Register};

const BP: usize = 5;
const CF: u64 = 1;
const OF: u64 = 1 << 11;
/// PF, ZF, SF and those two. AF is undefined, and stays.
const SHIFTED: u64 = 0x8c5;

impl Cpu {
    /// ENTER. The stack must be writable where the stack pointer ends, too.
    pub(in crate::cpu) fn enter(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Result<Done, Fault> {
        let (size, register) = match i.code() {
            Code::Enterw_imm16_imm8 => (2, Register::BP),
            Code::Enterd_imm16_imm8 => (4, Register::EBP),
            _ => (8, Register::RBP),
        };
        let stack = self.stack();
        let level = u64::from(i.immediate8_2nd() % 32);
        let (first, old) = (self.env.gpr(SP).wrapping_sub(size), self.env.gpr(BP));
        let frame = stack.register(self.env.gpr(SP), first);
        let at = |cpu: &Cpu, pointer: u64| Memory {
            address: cpu.wrap_linear(stack.linear(pointer)),
            size: size as usize,
            stack: true,
        };
        // What is pushed stays in memory if a later access faults, as on a CPU; the engine would push it again.
        for n in 0..if level == 0 { 1 } else { level + 1 } {
            let value = match n {
                0 => old,
                _ if n == level => frame,
                _ => {
                    let outer = at(self, old.wrapping_sub(n * size));
                    if !matches!(self.locate(outer, Access::Read)?, Place::Ram(_)) {
                        return Ok(Done::ByEngine(Then::Nothing));
                    }
                    self.load(outer.address, size as usize, told)?
                }
            };
            let to = at(self, first.wrapping_sub(n * size));
            if !matches!(self.locate(to, Access::Write)?, Place::Ram(_)) {
                return Ok(Done::ByEngine(Then::Nothing));
            }
            self.store(to.address, value, size as usize, told)?;
        }
        let last = first.wrapping_sub(level * size + u64::from(i.immediate16()));
        self.locate(at(self, last), Access::Write)?;
        self.set_register(register, frame);
        self.set_stack_pointer(stack, last);
        Ok(Done::Next)
    }

    /// CLFLUSH, which faults as a read does.
    pub(in crate::cpu) fn flush_line(&mut self, i: &Instruction) -> Result<Done, Fault> {
        if self.model == Model::Ia32 {
            return Ok(Done::ByEngine(Then::Nothing));
        }
        self.locate(self.memory_of(i), Access::Read)?;
        Ok(Done::Next)
    }

    /// SHLD or SHRD of an operand in memory.
    pub(in crate::cpu) fn shift_double(
        &mut self,
        i: &Instruction,
        told: &mut dyn Accesses,
    ) -> Result<Done, Fault> {
        let bits = 8 * i.memory_size().size() as u32;
        let count = u32::from(i.immediate8()) & if bits == 64 { 63 } else { 31 };
        let (other, left) = (self.register(i.op1_register()), i.mnemonic() == Mnemonic::Shld);
        let mut after = self.eflags();
        let updated = self.update(i, told, |old| {
            let (value, flags) = shifted(old, other, count, bits, left);
            if count != 0 {
                after = after & !SHIFTED | flags;
            }
            value
        })?;
        if updated.is_none() {
            return Ok(Done::ByEngine(Then::Nothing));
        }
        self.env.set_eflags(after);
        Ok(Done::Next)
    }
}

/// The operand, filled with bits of the other, and the flags. More than 16 bits of a word are undefined; they come from the
/// operand again.
fn shifted(old: u64, other: u64, count: u32, bits: u32, left: bool) -> (u64, u64) {
    let mask = u64::MAX >> (64 - bits);
    let of = |value: u64, shift: u32| u128::from(value & mask) << shift;
    let (value, carry) = if left {
        // The operand in the upper third, and again in the lowest.
        let whole = if bits == 64 {
            of(old, 64) | of(other, 0)
        } else {
            of(old, 2 * bits) | of(other, bits) | of(old, 0)
        };
        let top = if bits == 64 { 64 } else { 2 * bits };
        ((whole << count >> top) as u64 & mask, whole >> (top + bits - count.max(1)) & 1)
    } else {
        let whole = of(old, 0) | of(other, bits) | if bits == 64 { 0 } else { of(old, 2 * bits) };
        ((whole >> count) as u64 & mask, whole >> (count.max(1) - 1) & 1)
    };
    let flag = |set: bool, flag: u64| if set { flag } else { 0 };
    let sign = (value ^ old) >> (bits - 1) & 1 != 0;
    let flags = flag(carry != 0, CF)
        | flag((value as u8).count_ones().is_multiple_of(2), 1 << 2)
        | flag(value == 0, 1 << 6)
        | flag(value >> (bits - 1) & 1 != 0, 1 << 7)
        | flag(sign, OF);
    (value, flags)
}
