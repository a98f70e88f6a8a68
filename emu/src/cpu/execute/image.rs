//! FXSAVE and FXRSTOR (SDM volume 2): kernels execute them at each switch of tasks.
//!
//! As in the engine, the image has neither an opcode, an operand pointer nor selectors, and no pointer is loaded from it.

use crate::cpu::Cpu;
use crate::cpu::fault::Fault;
use crate::cpu::mended::MXCSR_MASK;
use crate::cpu::operands::Operand;
use crate::cpu::outcome::{Accesses, Done};
use crate::isa::decode;
use crate::mmu::Access;
use crate::ram::PAGE;
use iced_x86::Instruction;

const CR4_OSFXSR: u64 = 0x200;
/// Of the part that is accessed, at most.
const BYTES: usize = 416;
/// Where the registers of the x87 and those of SSE begin; each has 16 bytes.
const X87: usize = 32;
const SSE: usize = 160;
const TOP: u16 = 7 << 11;

fn array<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut to = [0; N];
    to.iter_mut().zip(&from[at..]).for_each(|(to, from)| *to = *from);
    to
}

impl Cpu {
    /// Stores the state of the x87 and of SSE.
    pub(in crate::cpu) fn save_floats(
        &mut self,
        i: &Instruction,
        told: &mut dyn Accesses,
    ) -> Result<Done, Fault> {
        let Some(operand) = self.image(i, Access::Write)? else { return Ok(self.moved_by_engine()) };
        told.operand(self, &operand);
        let env = *self.env;
        let status = env.fpus() & !TOP | (env.fpstt() as u16) << 11;
        let valid = env.fptags().iter().enumerate().fold(0, |all, (n, tag)| all | u16::from(*tag == 0) << n);
        let words = [env.fpuc(), status, valid].map(u16::to_le_bytes).concat();
        self.part(&operand, 0, &words)?;
        self.part(&operand, 8, &[env.fpip().to_le_bytes(), [0; 8]].concat())?;
        for n in 0..8 {
            self.part(&operand, X87 + 16 * n, &env.fpreg(env.fpstt() as usize + n))?;
        }
        if self.env.cr(4) & CR4_OSFXSR != 0 {
            self.part(&operand, 24, &[env.mxcsr(), MXCSR_MASK].map(u32::to_le_bytes).concat())?;
            let registers = (operand.size as usize - SSE) / 16;
            let all: Vec<u8> = (0..registers).flat_map(|n| env.xmm(n).to_le_bytes()).collect();
            self.part(&operand, SSE, &all)?;
        }
        Ok(Done::Next)
    }

    /// Loads it.
    pub(in crate::cpu) fn restore_floats(
        &mut self,
        i: &Instruction,
        told: &mut dyn Accesses,
    ) -> Result<Done, Fault> {
        let Some(operand) = self.image(i, Access::Read)? else { return Ok(self.moved_by_engine()) };
        let mut image = [0; BYTES];
        self.load_bytes(operand.address, &mut image[..operand.size as usize], self.env.cpl() == 3)?;
        let word = |at| u16::from_le_bytes(array(&image, at));
        let mxcsr = u32::from_le_bytes(array(&image, 24));
        let sse = self.env.cr(4) & CR4_OSFXSR != 0;
        if sse && mxcsr & !MXCSR_MASK != 0 {
            return Err(Fault::gp(0));
        }
        told.operand(self, &operand);
        let env = *self.env;
        let top = u32::from(word(2) >> 11 & 7);
        env.set_fpuc(word(0));
        env.set_fpus(word(2) & !TOP);
        env.set_fpstt(top);
        env.set_fptags(std::array::from_fn(|n| u8::from(image[4] >> n & 1 == 0)));
        (0..8).for_each(|n| env.set_fpreg(top as usize + n, array(&image, X87 + 16 * n)));
        if sse {
            env.set_mxcsr(mxcsr);
            let registers = (operand.size as usize - SSE) / 16;
            (0..registers).for_each(|n| env.set_xmm(n, u128::from_le_bytes(array(&image, SSE + 16 * n))));
        }
        Ok(Done::Next)
    }

    /// The operand, if it is in RAM and aligned: else the engine accesses it, or raises #GP.
    fn image(&mut self, i: &Instruction, access: Access) -> Result<Option<Operand>, Fault> {
        self.x87_ready(false)?;
        let aligned =
            |operand: &Operand| operand.address.is_multiple_of(16) && !decode::has_narrow_address(i);
        let Some(operand) = self.operands(i).first().copied().filter(aligned) else { return Ok(None) };
        let user = self.env.cpl() == 3;
        // The first byte of the second page, if there is one.
        let last = self.wrap_linear(operand.address.wrapping_add(u64::from(operand.size) - 1)) & !(PAGE - 1);
        let first = self.translate(operand.address, access, user)?;
        let last = self.translate(last.max(operand.address), access, user)?;
        Ok((self.ram.contains(first, 1) && self.ram.contains(last, 1)).then_some(operand))
    }

    fn part(&mut self, of: &Operand, offset: usize, bytes: &[u8]) -> Result<(), Fault> {
        let at = self.wrap_linear(of.address.wrapping_add(offset as u64));
        self.store_bytes(at, bytes, self.env.cpl() == 3)
    }
}
