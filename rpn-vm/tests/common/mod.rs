//! A host for tests: registers in a map, memory in a map of bytes, all writes recorded.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeMap;

use trapline_rpn::{Argument, ArgumentError, CallkError, CallkStack, Context, Fault, Host, Reg};

#[derive(Debug, Default, Clone)]
pub struct TestHost {
    pub current: BTreeMap<Reg, u64>,
    pub user: BTreeMap<Reg, u64>,
    pub wide: BTreeMap<Reg, u128>,
    pub mem: BTreeMap<u64, u8>,
    pub read_only: BTreeMap<u64, u8>,
    pub msr: BTreeMap<u32, u64>,
    pub io: BTreeMap<u16, u32>,
    pub pid: u64,
    pub procid: u64,
    pub task: u64,
}

impl Host for TestHost {
    fn read_reg(&mut self, context: Context, reg: Reg) -> u64 {
        let regs = if context == Context::User { &self.user } else { &self.current };
        regs.get(&reg).copied().unwrap_or(0)
    }
    fn read_wide(&mut self, _: Context, reg: Reg) -> u128 {
        self.wide.get(&reg).copied().unwrap_or(0)
    }
    /// The guest has no local descriptors.
    fn write_reg(&mut self, context: Context, reg: Reg, value: u64) -> bool {
        if reg.is_segment() && value & 4 != 0 {
            return false;
        }
        let regs = if context == Context::User { &mut self.user } else { &mut self.current };
        regs.insert(reg, value);
        true
    }
    fn cpuid(&mut self, leaf: u32) -> [u32; 4] {
        [1, 2, 3, 4].map(|n| leaf.wrapping_add(n))
    }
    fn rdmsr(&mut self, index: u32) -> Option<u64> {
        self.msr.get(&index).copied()
    }
    fn read_mem(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
        for (n, byte) in buf.iter_mut().enumerate() {
            let at = addr.wrapping_add(n as u64);
            *byte = *self.mem.get(&at).or_else(|| self.read_only.get(&at)).ok_or(Fault(at))?;
        }
        Ok(())
    }
    fn write_mem(&mut self, addr: u64, data: &[u8]) -> Result<(), Fault> {
        for n in 0..data.len() as u64 {
            if !self.mem.contains_key(&addr.wrapping_add(n)) {
                return Err(Fault(addr.wrapping_add(n)));
            }
        }
        for (n, byte) in data.iter().enumerate() {
            self.mem.insert(addr.wrapping_add(n as u64), *byte);
        }
        Ok(())
    }
    fn can_write(&mut self, addr: u64) -> bool {
        self.mem.contains_key(&addr)
    }
    fn pid(&mut self) -> u64 {
        self.pid
    }
    fn procid(&mut self) -> u64 {
        self.procid
    }
    fn task(&mut self) -> u64 {
        self.task
    }
    fn argument(&mut self, which: Argument) -> Result<u64, ArgumentError> {
        match which {
            Argument::Number(n @ 0..=3) => Ok(u64::MAX - u64::from(n)),
            Argument::Number(4) => Err(ArgumentError::Fault(0x1000)),
            Argument::Number(_) => Err(ArgumentError::None),
            Argument::Returned => Ok(7),
        }
    }
    fn io_read(&mut self, port: u16, _: u8) -> u32 {
        self.io.get(&port).copied().unwrap_or(u32::MAX)
    }
    fn io_write(&mut self, port: u16, size: u8, value: u32) {
        self.io.insert(port, value);
        self.io.insert(0xffff, u32::from(size));
    }
    fn seg2lin(&mut self, selector: u16, offset: u64) -> Option<u64> {
        (selector == 0x10).then(|| offset.wrapping_add(0x1000))
    }
    /// Service 1 adds one to the top; service 2 throws; there is no other.
    fn callk(&mut self, number: u64, stack: &mut dyn CallkStack) -> Result<(), CallkError> {
        match number {
            1 => {
                let top = stack.pop();
                stack.push(top.wrapping_add(1));
                Ok(())
            }
            2 => Err(CallkError::Throw { user: 0x12, parm1: 7, parm2: 8 }),
            _ => Err(CallkError::Unknown),
        }
    }
}
