//! Instructions of the x87 that the machine executes: those that the engine computes with the host's C library, which is not
//! the same on every host, and in double precision, and those that it computes wrong.
//!
//! The numbers are [`crate::x87`]'s. Here are the checks before an instruction, and what it leaves beside its results.

use super::Cpu;
use super::fault::Fault;
use super::outcome::{Accesses, Done, Then};
use crate::engine::Seg;
use crate::x87::{Constant, F80, Operation, Stored, X87};
use iced_x86::Instruction;

impl Cpu {
    /// Executes a function (SDM volume 2).
    pub(super) fn x87_function(&self, operation: Operation) -> Result<Done, Fault> {
        self.x87_ready(true)?;
        let mut x87 = self.x87();
        x87.execute(operation);
        self.set_x87(&x87);
        Ok(Done::Next)
    }

    /// FLDPI and the like.
    pub(super) fn x87_constant(&self, of: Constant) -> Result<Done, Fault> {
        self.x87_ready(true)?;
        let mut x87 = self.x87();
        x87.push_constant(of);
        self.set_x87(&x87);
        Ok(Done::Next)
    }

    /// FIST, FISTTP and FBSTP.
    pub(super) fn store_integer(
        &mut self,
        i: &Instruction,
        of: Stored,
        told: &mut dyn Accesses,
    ) -> Result<Done, Fault> {
        self.x87_ready(true)?;
        let mut x87 = self.x87();
        let stored = match x87.store_integer(of) {
            Some(bytes) => self.write_wide(i, &bytes[..of.size], told)?,
            None => true,
        };
        if !stored {
            return Ok(Done::ByEngine(Then::Nothing));
        }
        self.set_x87(&x87);
        Ok(Done::Next)
    }

    fn x87(&self) -> X87 {
        let env = &self.env;
        X87 {
            control: env.fpuc(),
            status: env.fpus(),
            top: env.fpstt() as usize,
            empty: env.fptags().map(|tag| tag != 0),
            registers: std::array::from_fn(|n| F80::from_bytes(env.fpreg(n))),
        }
    }

    /// Writes the state after the instruction at EIP. The operand pointer stays, as in the engine.
    fn set_x87(&self, x87: &X87) {
        let env = &self.env;
        env.set_fpus(x87.status);
        env.set_fpstt(x87.top as u32);
        env.set_fptags(x87.empty.map(u8::from));
        for (n, value) in x87.registers.iter().enumerate() {
            env.set_fpreg(n, value.to_bytes());
        }
        env.set_fpcs(env.seg(Seg::Cs).selector as u16);
        env.set_fpip(env.eip());
    }
}
