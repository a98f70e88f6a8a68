//! The instructions that the engine computes wrong, executed (`isa/mended.rs` says which, and why).

use super::Cpu;
use super::fault::{Fault, Vector};
use super::outcome::{Accesses, Done, Then};
use crate::engine::Model;
use crate::isa::mended::{Mended, Status};
use iced_x86::Instruction;

const CR0_MP: u64 = 2;
const CR0_EM: u64 = 4;
const CR0_TS: u64 = 8;
const CR0_NE: u64 = 0x20;
const CR4_OSFXSR: u64 = 0x200;
/// The bits of MXCSR that there are.
pub(super) const MXCSR_MASK: u32 = 0xffff;
/// The exceptions, the stack fault and what says that one is pending.
const CLEARED: u16 = 0x80ff;
const ES: u16 = 0x80;

impl Cpu {
    /// Executes such an instruction at EIP.
    pub(super) fn mended(
        &mut self,
        i: &Instruction,
        what: Mended,
        told: &mut dyn Accesses,
    ) -> Result<Done, Fault> {
        match what {
            Mended::Function(of) => self.x87_function(of),
            Mended::Constant(of) => self.x87_constant(of),
            Mended::Integer(of) => self.store_integer(i, of, told),
            Mended::Exact => self.x87_exactly(i, told),
            Mended::Status(of) => self.float_status(i, of, told),
            // They are later than its SSE.
            Mended::Lanes(_) | Mended::Strings(_) if self.model == Model::Ia32 => Err(Fault::ud()),
            Mended::Lanes(of) => self.lanes(i, of, told),
            Mended::Strings(of) => self.compare_strings(i, of, told),
            Mended::Float(of) => self.float(i, of, told),
            Mended::CompareExchange => {
                self.compare_exchange(i);
                Ok(Done::Next)
            }
            Mended::Enter => self.enter(i, told),
            Mended::Flush => self.flush_line(i),
            Mended::DoubleShift => self.shift_double(i, told),
            Mended::Test => self.execute_or_engine(i, told),
            Mended::Nothing => Ok(Done::Next),
        }
    }

    /// What a processor checks before an instruction of the x87 (SDM volume 3, 2.5 for #NM). One that waits raises a pending
    /// exception. Without CR0.NE the machine, as the engine, has no line to report it by.
    pub(super) fn x87_ready(&self, waits: bool) -> Result<(), Fault> {
        if self.env.cr(0) & (CR0_EM | CR0_TS) != 0 {
            return Err(Fault::without_code(Vector::DeviceNotAvailable));
        }
        if waits { self.nothing_pending() } else { Ok(()) }
    }

    fn nothing_pending(&self) -> Result<(), Fault> {
        if self.env.fpus() & ES != 0 && self.env.cr(0) & CR0_NE != 0 {
            return Err(Fault::without_code(Vector::FloatingPoint));
        }
        Ok(())
    }

    /// The same before an instruction of MMX.
    pub(super) fn mmx_ready(&self) -> Result<(), Fault> {
        if self.env.cr(0) & CR0_EM != 0 {
            return Err(Fault::ud());
        }
        self.x87_ready(true)
    }

    /// The same before an instruction of SSE.
    pub(super) fn sse_ready(&self) -> Result<(), Fault> {
        if self.env.cr(0) & CR0_EM != 0 || self.env.cr(4) & CR4_OSFXSR == 0 {
            return Err(Fault::ud());
        }
        if self.env.cr(0) & CR0_TS != 0 {
            return Err(Fault::without_code(Vector::DeviceNotAvailable));
        }
        Ok(())
    }

    /// An instruction that shows or changes exceptions.
    fn float_status(&mut self, i: &Instruction, of: Status, told: &mut dyn Accesses) -> Result<Done, Fault> {
        match of {
            Status::Read => {
                self.x87_ready(false)?;
                let word = self.env.fpus() & !0x3800 | (self.env.fpstt() as u16) << 11;
                self.set_register(i.op0_register(), word.into());
            }
            Status::Clear => {
                self.x87_ready(false)?;
                self.env.set_fpus(self.env.fpus() & !CLEARED);
            }
            Status::Wait if self.env.cr(0) & (CR0_MP | CR0_TS) == CR0_MP | CR0_TS => {
                return Err(Fault::without_code(Vector::DeviceNotAvailable));
            }
            Status::Wait => self.nothing_pending()?,
            Status::Nop => self.x87_ready(true)?,
            Status::LoadMxcsr => {
                self.sse_ready()?;
                let Some(value) = self.load_word(i, told)? else { return Ok(self.moved_by_engine()) };
                if value & !MXCSR_MASK != 0 {
                    return Err(Fault::gp(0));
                }
                self.env.set_mxcsr(value);
            }
            Status::LoadControl => {
                self.x87_ready(false)?;
                let Some(value) = self.load_word(i, told)? else { return Ok(self.moved_by_engine()) };
                self.env.set_fpuc(value as u16);
            }
            Status::StoreMxcsr => {
                self.sse_ready()?;
                if !self.store_word(i, self.env.mxcsr(), told)? {
                    return Ok(self.moved_by_engine());
                }
            }
            Status::Save => return self.save_floats(i, told),
            Status::Restore => return self.restore_floats(i, told),
            Status::Moved => return Ok(self.moved_by_engine()),
        }
        Ok(Done::Next)
    }

    /// Has the engine load, store or clear exceptions.
    pub(super) fn moved_by_engine(&self) -> Done {
        self.env.settle_float();
        Done::ByEngine(Then::Adopt)
    }
}
