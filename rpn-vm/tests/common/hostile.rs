//! A guest that answers oddly: values wider than its word, memory with holes, ports that remember being read.
//!
//! A seed determines everything, and all effects are recorded, so that two interpreters can be compared by their
//! guests.

use trapline_rpn::services::d;
use trapline_rpn::{Argument, ArgumentError, CallkError, CallkStack, Context, Fault, Host, Reg, Width};

use super::generate::{REGIONS, TOP, mix};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Region {
    start: u64,
    length: u64,
    writable: bool,
    /// The offset of its bytes among those of all regions.
    at: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hostile {
    seed: u64,
    regions: [Region; 4],
    bytes: Vec<u8>,
    /// Addresses that fail though those around them do not.
    holes: Vec<u64>,
    /// Registers that were written.
    registers: Vec<(Context, Reg, u64)>,
    /// Variables of services.
    variables: [u64; 4],
    /// Everything with an effect, in order, as one number.
    effects: u64,
}

impl Hostile {
    pub fn new(seed: u64, width: Width) -> Self {
        let [a, b, c] = REGIONS;
        let mut bytes = Vec::with_capacity(2048);
        let mut n = 0;
        let regions = [a, b, c, (width.mask() - (TOP - 1), TOP)].map(|(start, length)| {
            let at = bytes.len();
            for group in 0..length / 8 {
                // Strings: about one byte in sixteen is NUL.
                let eight = mix(seed ^ group ^ start);
                bytes.extend((0..8).map(|i| eight.rotate_left((group as u32 * 8 + i) * 7) as u8 & 15));
            }
            n += 1;
            Region { start, length, writable: n != 2, at }
        });
        let hole = |n: u64| {
            let region = &regions[(mix(seed ^ n) % 4) as usize];
            region.start + mix(seed.wrapping_add(n)) % region.length
        };
        let holes = (0..seed % 4).map(hole).collect();
        Self { seed, regions, bytes, holes, registers: Vec::new(), variables: [seed; 4], effects: seed }
    }

    fn odd(&self, n: u64) -> u64 {
        let value = mix(self.seed ^ mix(n));
        // Small ones are as odd as large ones.
        if value & 3 == 0 { value >> 58 } else { value }
    }

    fn effect(&mut self, n: u64) -> u64 {
        self.effects = mix(self.effects ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.effects
    }

    fn variable(&mut self, number: u64) -> &mut u64 {
        &mut self.variables[(number % 4) as usize]
    }

    fn byte(&mut self, addr: u64, write: bool) -> Option<&mut u8> {
        if self.holes.contains(&addr) {
            return None;
        }
        let region = self.regions.iter().find(|r| addr.wrapping_sub(r.start) < r.length)?;
        let at = region.at + (addr - region.start) as usize;
        if write && !region.writable { None } else { self.bytes.get_mut(at) }
    }
}

impl Host for Hostile {
    fn read_reg(&mut self, context: Context, reg: Reg) -> u64 {
        let written = self.registers.iter().rev().find(|(c, r, _)| (*c, *r) == (context, reg));
        written.map_or_else(|| self.odd(reg as u64 + 100 * context as u64), |w| w.2)
    }
    fn read_wide(&mut self, context: Context, reg: Reg) -> u128 {
        let n = 1000 + reg as u64 + 100 * context as u64;
        u128::from(self.odd(n)) << 64 | u128::from(self.odd(n + 500))
    }
    fn write_reg(&mut self, context: Context, reg: Reg, value: u64) -> bool {
        self.registers.push((context, reg, value));
        !reg.is_segment() || value & 1 == 0
    }
    fn cpuid(&mut self, leaf: u32) -> [u32; 4] {
        [1, 2, 3, 4].map(|n| self.odd(u64::from(leaf) << 8 | n) as u32)
    }
    fn rdmsr(&mut self, index: u32) -> Option<u64> {
        (index & 1 == 0).then(|| self.odd(u64::from(index) + 7))
    }
    fn read_mem(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
        // Bytes before the hole are written too: after a fault the buffer's content is undefined.
        for (n, byte) in buf.iter_mut().enumerate() {
            let at = addr.wrapping_add(n as u64);
            *byte = *self.byte(at, false).ok_or(Fault(at))?;
        }
        Ok(())
    }
    fn write_mem(&mut self, addr: u64, data: &[u8]) -> Result<(), Fault> {
        for n in 0..data.len() as u64 {
            let at = addr.wrapping_add(n);
            self.byte(at, true).ok_or(Fault(at))?;
        }
        for (n, &value) in (0..).zip(data) {
            let at = addr.wrapping_add(n);
            if let Some(byte) = self.byte(at, true) {
                *byte = value;
            }
            self.effect(at << 8 | u64::from(value));
        }
        Ok(())
    }
    fn can_write(&mut self, addr: u64) -> bool {
        self.byte(addr, true).is_some()
    }
    fn pid(&mut self) -> u64 {
        self.odd(1)
    }
    fn procid(&mut self) -> u64 {
        self.odd(2)
    }
    fn task(&mut self) -> u64 {
        self.odd(3)
    }
    fn argument(&mut self, which: Argument) -> Result<u64, ArgumentError> {
        match which {
            Argument::Number(n) if n % 3 == 0 => Ok(0xfedc_ba98_7654_3210 ^ u64::from(n)),
            Argument::Number(n) if n % 3 == 1 => Err(ArgumentError::Fault(u64::MAX - u64::from(n))),
            Argument::Number(_) => Err(ArgumentError::None),
            Argument::Returned => Ok(self.odd(4)),
        }
    }
    fn io_read(&mut self, port: u16, size: u8) -> u32 {
        self.effect(u64::from(port) << 8 | u64::from(size)) as u32
    }
    fn io_write(&mut self, port: u16, size: u8, value: u32) {
        self.effect(u64::from(port) << 40 | u64::from(size) << 32 | u64::from(value));
    }
    fn seg2lin(&mut self, selector: u16, offset: u64) -> Option<u64> {
        (selector & 3 == 0).then(|| self.odd(selector.into()).wrapping_add(offset))
    }
    fn callk(&mut self, number: u64, stack: &mut dyn CallkStack) -> Result<(), CallkError> {
        self.effect(number);
        match number {
            1 => {
                let sum = stack.pop().wrapping_add(stack.pop());
                self.effect(sum);
                stack.push(sum);
            }
            2 => (0..5).for_each(|n| stack.push(self.odd(n + 50))),
            3 => {
                let parm1 = stack.pop();
                let n = self.odd(60);
                return Err(CallkError::Throw { user: n as u16, parm1: parm1 ^ n, parm2: n });
            }
            4 => {
                stack.pop();
                return Err(CallkError::Unknown);
            }
            d::GET | d::BUILTIN => {
                let operand = stack.pop();
                let value = *self.variable(operand);
                stack.push(value);
            }
            d::PUT => {
                let (operand, value) = (stack.pop(), stack.pop());
                *self.variable(operand) = value;
                self.effect(value);
            }
            _ => return Err(CallkError::Unknown),
        }
        Ok(())
    }
    /// What `callk` does, for even operands.
    fn read_operand(&mut self, service: u64, operand: u64) -> Option<u64> {
        if operand % 2 == 1 {
            return None;
        }
        self.effect(service);
        Some(*self.variable(operand))
    }
    /// What `callk` does, for even operands and values.
    fn write_operand(&mut self, service: u64, operand: u64, value: u64) -> bool {
        if (operand | value) % 2 == 1 {
            return false;
        }
        self.effect(service);
        *self.variable(operand) = value;
        self.effect(value);
        true
    }
}
