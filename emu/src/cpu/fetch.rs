//! The CPU's position: its code segment, the next instruction, and the guest's own bytes there.

use super::Cpu;
use crate::isa::decode::{LONGEST, decode};
use iced_x86::Instruction;

impl Cpu {
    /// Bits of the current code segment: 64, 32 or 16.
    pub fn code_bits(&self) -> u32 {
        use crate::engine::hflags;
        let h = self.env.hflags();
        if h & hflags::CS64 != 0 {
            64
        } else if h & hflags::CS32 != 0 {
            32
        } else {
            16
        }
    }

    /// Linear address of the next instruction.
    #[inline]
    pub fn linear_ip(&self) -> u64 {
        self.env.cs_base().wrapping_add(self.env.eip())
    }

    /// Wraps an instruction pointer to the code size.
    #[inline]
    pub fn wrap_ip(&self, ip: u64) -> u64 {
        match self.code_bits() {
            64 => ip,
            32 => ip & 0xffff_ffff,
            _ => ip & 0xffff,
        }
    }

    /// Decodes the data view at a linear address: what the guest itself put there.
    pub fn decode_original(&self, linear: u64) -> Option<Instruction> {
        let mut bytes = [0u8; LONGEST];
        let n = self.peek_prefix(linear, &mut bytes);
        decode(self.code_bits(), &bytes[..n], linear.wrapping_sub(self.env.cs_base()))
    }
}
