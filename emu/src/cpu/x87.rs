//! Instructions of the x87 that the machine executes: those that the engine computes with the host's C library, which is not
//! the same on every host, and in double precision.
//!
//! The numbers are [`crate::x87`]'s. Here are the checks before an instruction, and what it leaves beside its results.

use super::Cpu;
use super::fault::{Fault, Vector};
use super::outcome::Done;
use crate::engine::Seg;
use crate::x87::{ES, F80, Operation, X87};

const CR0_EM: u64 = 4;
const CR0_TS: u64 = 8;
const CR0_NE: u64 = 0x20;

impl Cpu {
    /// Executes such an instruction (SDM volume 2; volume 3, 2.5 for #NM).
    pub(super) fn x87_function(&self, operation: Operation) -> Result<Done, Fault> {
        let env = &self.env;
        let control = env.cr(0);
        if control & (CR0_EM | CR0_TS) != 0 {
            return Err(Fault::without_code(Vector::DeviceNotAvailable));
        }
        // Without CR0.NE the machine, as the engine's FWAIT, has no line to report a pending exception by.
        if env.fpus() & ES != 0 && control & CR0_NE != 0 {
            return Err(Fault::without_code(Vector::FloatingPoint));
        }
        let mut x87 = X87 {
            control: env.fpuc(),
            status: env.fpus(),
            top: env.fpstt() as usize,
            empty: env.fptags().map(|tag| tag != 0),
            registers: std::array::from_fn(|n| F80::from_bytes(env.fpreg(n))),
        };
        x87.execute(operation);
        env.set_fpus(x87.status);
        env.set_fpstt(x87.top as u32);
        env.set_fptags(x87.empty.map(u8::from));
        for (n, value) in x87.registers.iter().enumerate() {
            env.set_fpreg(n, value.to_bytes());
        }
        // The operand pointer stays, as in the engine.
        env.set_fpcs(env.seg(Seg::Cs).selector as u16);
        env.set_fpip(env.eip());
        Ok(Done::Next)
    }
}
