//! Register, Data, System Variable and IO Groups, address verification, `seg2lin`.

use super::exception;
use super::logging::{bytes_to_top, read_wrapping};
use super::run::{Run, Step, Stop};
use crate::host::{Argument, ArgumentError, Context, Fault, Host};
use crate::instructions::Op;
use crate::regs::Shape;
use crate::verify::Fast;

impl<H: Host, const W64: bool> Run<'_, H, W64> {
    pub fn data(&mut self, insn: Fast) -> Step {
        match insn.op {
            Op::Push => self.push(insn.arg),
            Op::PushR => return self.push_register(Context::Current, insn),
            Op::PushU => return self.push_register(Context::User, insn),
            Op::PushMem8 | Op::PushMem16 | Op::PushMem32 | Op::PushMem64 => return self.push_mem(insn.op),
            Op::PopR => return self.pop_register(Context::Current, insn),
            Op::PopU => return self.pop_register(Context::User, insn),
            Op::PopMem8 | Op::PopMem16 | Op::PopMem32 | Op::PopMem64 => return self.pop_mem(insn.op),
            Op::PushPid => {
                let value = self.host.pid();
                self.push(value);
            }
            Op::PushProcid => {
                let value = self.host.procid();
                self.push(value);
            }
            Op::PushTask => {
                let value = self.host.task();
                self.push(value);
            }
            Op::PushArg => return self.push_argument(Argument::Number(insn.arg as u8)),
            Op::PushRet => return self.push_argument(Argument::Returned),
            Op::PushIo8 | Op::PushIo16 | Op::PushIo32 => {
                let port = self.pop();
                let port = self.port(port)?;
                let (size, mask) = io_size(insn.op);
                let value = self.host.io_read(port, size) & mask;
                self.push(u64::from(value));
            }
            Op::PopIo8 | Op::PopIo16 | Op::PopIo32 => {
                let (value, port) = (self.pop(), self.pop());
                let (port, (size, mask)) = (self.port(port)?, io_size(insn.op));
                self.host.io_write(port, size, value as u32 & mask);
            }
            Op::Vfyr => {
                let addr = self.pop();
                let ok = self.host.read_mem(addr, &mut [0]).is_ok();
                self.push(u64::from(!ok));
            }
            Op::Vfyrw => {
                let addr = self.pop();
                let ok = self.host.can_write(addr);
                self.push(u64::from(!ok));
            }
            Op::Seg2lin => {
                let (offset, selector) = (self.pop(), self.pop());
                let known = u16::try_from(selector).ok();
                let Some(linear) = known.and_then(|known| self.host.seg2lin(known, offset)) else {
                    return Err(self.fault(exception::SEG_FAULT, selector, 0));
                };
                self.push(linear);
            }
            _ => return self.impossible(insn),
        }
        Ok(())
    }

    /// A port, which has 16 bits: a wider number is none.
    fn port(&mut self, popped: u64) -> Result<u16, Stop> {
        u16::try_from(popped).map_err(|_| self.fault(exception::INVALID_OPERAND, 9, popped))
    }

    /// `push arg, n` and `push ret`.
    fn push_argument(&mut self, which: Argument) -> Step {
        match self.host.argument(which) {
            Ok(value) => {
                self.push(value);
                Ok(())
            }
            Err(ArgumentError::Fault(at)) => Err(self.fault(exception::INVALID_ADDR, Self::cut(at), 0)),
            Err(ArgumentError::None | ArgumentError::Unknown) => {
                let which = match which {
                    Argument::Number(n) => n.into(),
                    Argument::Returned => Self::cut(u64::MAX),
                };
                Err(self.fault(exception::INVALID_OPERAND, 8, which))
            }
        }
    }

    fn push_register(&mut self, context: Context, insn: Fast) -> Step {
        match insn.shape {
            Shape::Plain => {
                let value = self.host.read_reg(context, insn.reg);
                self.push(value);
                Ok(())
            }
            Shape::Low32 => {
                let value = self.host.read_reg(context, insn.reg);
                self.push(value & 0xffff_ffff);
                Ok(())
            }
            _ => self.push_wide(context, insn),
        }
    }

    /// Registers of more than one element: the most significant is pushed first.
    fn push_wide(&mut self, context: Context, insn: Fast) -> Step {
        match insn.shape {
            Shape::Wide80 => {
                let value = self.host.read_wide(context, insn.reg) & ((1 << 80) - 1);
                self.push_elements(value, 80);
            }
            Shape::Wide128 => {
                let value = self.host.read_wide(context, insn.reg);
                self.push_elements(value, 128);
            }
            Shape::Table => {
                let value = self.host.read_wide(context, insn.reg);
                self.push((value >> 64) as u64 & 0xffff);
                self.push(value as u64);
            }
            Shape::Cpuid => {
                let leaf = self.pop() as u32;
                for value in self.host.cpuid(leaf) {
                    self.push(u64::from(value));
                }
            }
            Shape::Msr => {
                let index = self.pop();
                let value = u32::try_from(index).ok().and_then(|i| self.host.rdmsr(i));
                let Some(value) = value else {
                    return Err(self.fault(exception::INVALID_OPERAND, 5, index));
                };
                self.push_pair(value);
            }
            Shape::Plain | Shape::Low32 => return self.impossible(insn),
        }
        Ok(())
    }

    fn push_elements(&mut self, value: u128, bits: u32) {
        for n in (0..bits.div_ceil(Self::BITS)).rev() {
            self.push((value >> (n * Self::BITS)) as u64);
        }
    }

    /// A 64-bit value: one element on x86-64; high, then low on IA32.
    fn push_pair(&mut self, value: u64) {
        if !W64 {
            self.push(value >> 32);
        }
        self.push(value);
    }

    fn pop_register(&mut self, context: Context, insn: Fast) -> Step {
        let value = self.pop();
        let value = if insn.shape == Shape::Low32 { value & 0xffff_ffff } else { value };
        if self.host.write_reg(context, insn.reg, value) {
            return Ok(());
        }
        Err(self.fault(exception::SEG_FAULT, value, 0))
    }

    fn push_mem(&mut self, op: Op) -> Step {
        let addr = self.pop();
        let mut raw = [0u8; 8];
        let size = match op {
            Op::PushMem8 => 1,
            Op::PushMem16 => 2,
            Op::PushMem32 => 4,
            _ => 8,
        };
        if let Err(Fault(at)) = read_wrapping::<H, W64>(self.host, addr, &mut raw[..size]) {
            return Err(self.fault(exception::INVALID_ADDR, Self::cut(at), 0));
        }
        let value = u64::from_le_bytes(raw);
        if op == Op::PushMem64 {
            self.push_pair(value);
        } else {
            self.push(value);
        }
        Ok(())
    }

    fn pop_mem(&mut self, op: Op) -> Step {
        let mut value = self.pop();
        if op == Op::PopMem64 && !W64 {
            value |= self.pop() << 32;
        }
        let addr = self.pop();
        let size = match op {
            Op::PopMem8 => 1,
            Op::PopMem16 => 2,
            Op::PopMem32 => 4,
            _ => 8,
        };
        match write_wrapping::<H, W64>(self.host, addr, &value.to_le_bytes()[..size]) {
            Ok(()) => Ok(()),
            Err(Fault(at)) => Err(self.fault(exception::INVALID_ADDR, Self::cut(at), 0)),
        }
    }
}

fn io_size(op: Op) -> (u8, u32) {
    match op {
        Op::PushIo8 | Op::PopIo8 => (1, 0xff),
        Op::PushIo16 | Op::PopIo16 => (2, 0xffff),
        _ => (4, u32::MAX),
    }
}

/// Writes bytes, all or nothing; addresses wrap as when reading.
fn write_wrapping<H: Host, const W64: bool>(host: &mut H, addr: u64, data: &[u8]) -> Result<(), Fault> {
    let Some((low, high)) = bytes_to_top::<W64>(addr).and_then(|n| data.split_at_checked(n)) else {
        return host.write_mem(addr, data);
    };
    // Check the wrapped part first, so that it cannot fail after the first part is written.
    if let Some(bad) = (0..high.len() as u64).find(|&at| !host.can_write(at)) {
        let before = (0..low.len() as u64).map(|n| addr + n).find(|&at| !host.can_write(at));
        return Err(Fault(before.unwrap_or(bad)));
    }
    host.write_mem(addr, low)?;
    host.write_mem(0, high)
}
