//! Arithmetic and Logic Group (dprobes.lang(8); docs/probe-language.md, "Arithmetic and logic").

use super::exception;
use super::run::{Run, Step};
use super::stack::SIZE;
use crate::host::Host;
use crate::instructions::Op;
use crate::verify::Fast;

impl<H: Host, const W64: bool> Run<'_, H, W64> {
    pub fn arithmetic(&mut self, insn: Fast) -> Step {
        match insn.op {
            Op::Add => self.binary(u64::wrapping_add),
            Op::Sub => self.binary(u64::wrapping_sub),
            Op::Mul => self.binary(u64::wrapping_mul),
            Op::And => self.binary(|a, b| a & b),
            Op::Or => self.binary(|a, b| a | b),
            Op::Xor => self.binary(|a, b| a ^ b),
            Op::Div => return self.divide(false),
            Op::Idiv => return self.divide(true),
            Op::Neg => {
                let value = self.pop();
                self.push(!value);
            }
            Op::RolN | Op::RorN | Op::ShlN | Op::ShrN => {
                let value = self.vm.stack.peek();
                self.vm.stack.replace(Self::shifted(insn.op, value, insn.arg));
            }
            Op::Rol | Op::Ror | Op::Shl | Op::Shr => {
                let (value, count) = (self.pop(), self.pop());
                self.push(Self::shifted(insn.op, value, count));
            }
            Op::PblN | Op::PbrN => return self.propagate(insn.op == Op::PblN, insn.arg),
            Op::Pbl | Op::Pbr => {
                let n = self.pop();
                return self.propagate(insn.op == Op::Pbl, n);
            }
            Op::Xchg => {
                let (a, b) = (self.pop(), self.pop());
                self.push(a);
                self.push(b);
            }
            Op::DupN => {
                let value = self.vm.stack.peek();
                self.vm.stack.repeat(value, insn.arg);
            }
            Op::Dup => {
                let (value, count) = (self.pop(), self.pop());
                self.push(value);
                self.vm.stack.repeat(value, count);
            }
            Op::Ros => self.vm.stack.drop(insn.arg % SIZE as u64),
            _ => return self.impossible(insn),
        }
        Ok(())
    }

    fn binary(&mut self, f: impl Fn(u64, u64) -> u64) {
        let (a, b) = (self.pop(), self.pop());
        self.push(f(a, b));
    }

    /// Divisor on top; pushes the remainder, then the quotient.
    fn divide(&mut self, signed: bool) -> Step {
        let (divisor, dividend) = (self.pop(), self.pop());
        if divisor == 0 {
            return Err(self.fault(exception::DIVIDE_BY_ZERO, 0, 0));
        }
        let (quotient, remainder) = if signed {
            let (a, b) = (Self::signed(dividend), Self::signed(divisor));
            (a.wrapping_div(b) as u64, a.wrapping_rem(b) as u64)
        } else {
            (dividend / divisor, dividend % divisor)
        };
        self.push(remainder);
        self.push(quotient);
        Ok(())
    }

    /// Rotates count modulo the width; shifts by the width or more give 0.
    fn shifted(op: Op, value: u64, count: u64) -> u64 {
        let bits = u64::from(Self::BITS);
        let turn = (count % bits) as u32;
        match op {
            Op::RolN | Op::Rol if W64 => value.rotate_left(turn),
            Op::RorN | Op::Ror if W64 => value.rotate_right(turn),
            Op::RolN | Op::Rol => u64::from((value as u32).rotate_left(turn)),
            Op::RorN | Op::Ror => u64::from((value as u32).rotate_right(turn)),
            _ if count >= bits => 0,
            Op::ShlN | Op::Shl => Self::cut(value << turn),
            _ => value >> turn,
        }
    }

    /// Sets the bits to the left (or right) of bit n-1 to that bit, n in 1..=width. The operand is popped even if n is
    /// invalid, like a divisor of 0.
    fn propagate(&mut self, left: bool, n: u64) -> Step {
        let value = self.pop();
        if n == 0 || n > u64::from(Self::BITS) {
            return Err(self.fault(exception::INVALID_OPERAND, 3, n));
        }
        let bit = n as u32 - 1;
        let set = value >> bit & 1 != 0;
        let others = if left { (u64::MAX << bit) << 1 } else { (1u64 << bit) - 1 };
        self.push(if set { value | others } else { value & !others });
        Ok(())
    }
}
