//! The fetch view, as bytes and as instructions.

use super::Core;
use crate::isa::decode::{LONGEST, decode};
use iced_x86::Instruction;

impl Core {
    /// As [`Core::peek_prefix`], but of the fetch view.
    pub fn peek_code(&self, va: u64, to: &mut [u8]) -> usize {
        self.cpu.prefix(va, to, |ram, paddr, part| {
            let read = ram.read_code(paddr, part);
            self.views.as_traps(&self.cpu.ram, paddr, part);
            read
        })
    }

    /// Decodes the fetch view at a linear address, without any side effect on the guest.
    pub(crate) fn decode_at(&self, linear: u64) -> Option<Instruction> {
        let mut bytes = [0u8; LONGEST];
        let n = self.peek_code(linear, &mut bytes);
        decode(self.cpu.code_bits(), &bytes[..n], linear.wrapping_sub(self.cpu.env.cs_base()))
    }
}
