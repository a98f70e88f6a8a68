//! Logging Group: prefixes, fault records, overflow (docs/probe-language.md, "Logging" and "Exceptions").

use super::exception;
use super::run::{Run, Step, Stop};
use crate::host::{Fault, Host};
use crate::instructions::Op;
use crate::verify::Fast;
use trapline_trace::{Prefix, Token};

impl<H: Host, const W64: bool> Run<'_, H, W64> {
    /// Bytes left of `logmax`.
    #[inline(always)]
    fn room(&self) -> usize {
        (self.program.limits().logmax as usize).saturating_sub(self.vm.run.lp)
    }

    fn overflow(&mut self) -> Stop {
        self.fault(exception::LOG_OVERFLOW, u64::from(self.program.limits().logmax), 0)
    }

    /// Called when only part of the data fitted: throws LOG_OVERFLOW unless it is masked, and then the run continues.
    #[cold]
    fn partial(&mut self) -> Step {
        if self.generated(u64::from(exception::LOG_OVERFLOW)) {
            return Err(self.overflow());
        }
        self.host.cut();
        Ok(())
    }

    #[inline(always)]
    fn put_word(&mut self, value: u64) {
        let at = self.vm.run.lp;
        if let Some(to) = self.vm.log.get_mut(at..at + Self::BYTES) {
            to.copy_from_slice(&value.to_le_bytes()[..Self::BYTES]);
            self.vm.run.lp = at + Self::BYTES;
        }
    }

    fn put_prefix(&mut self, token: Token, count: usize) {
        let at = self.vm.run.lp;
        let [low, high] = (count as u16).to_le_bytes();
        if let Some(to) = self.vm.log.get_mut(at..at + Prefix::SIZE) {
            to.copy_from_slice(&[token as u8, low, high]);
            self.vm.run.lp = at + Prefix::SIZE;
        }
    }

    /// Ends a log instruction that has logged all. After one that has failed PLP stays where it is: `push plp; pop lp`
    /// takes back what it has left.
    #[inline(always)]
    fn logged(&mut self) -> Step {
        self.vm.run.plp = self.vm.run.lp;
        Ok(())
    }

    /// `log <count>`: bare elements, the top first.
    fn log_n(&mut self, count: usize) -> Step {
        let fits = count.min(self.room() / Self::BYTES);
        for _ in 0..fits {
            let value = self.pop();
            self.put_word(value);
        }
        if fits < count {
            self.vm.stack.drop((count - fits) as u64);
            return self.partial();
        }
        self.logged()
    }

    pub fn logging(&mut self, insn: Fast) -> Step {
        match insn.op {
            Op::SetMinN => Self::set(&mut self.vm.run.minor, insn.arg),
            Op::SetMin => {
                let value = self.vm.stack.peek();
                Self::set(&mut self.vm.run.minor, value)
            }
            Op::SetMajN => Self::set(&mut self.vm.run.major, insn.arg),
            Op::SetMaj => {
                let value = self.vm.stack.peek();
                Self::set(&mut self.vm.run.major, value)
            }
            Op::LogMrf => self.log_mrf(),
            Op::LogStr => self.log_str(),
            Op::LogN => self.log_n(insn.arg as usize),
            Op::Log => self.log_counted(),
            _ => self.impossible(insn),
        }
    }

    fn set(field: &mut Option<u32>, value: u64) -> Step {
        *field = Some(value as u32);
        Ok(())
    }

    /// `log`: pops the count, then logs that many elements after a prefix.
    fn log_counted(&mut self) -> Step {
        let count = self.pop();
        let room = self.room();
        let fits = (room.saturating_sub(Prefix::SIZE) / Self::BYTES)
            .min(usize::try_from(count).unwrap_or(usize::MAX));
        if room >= Prefix::SIZE {
            self.put_prefix(Token::Elements, fits);
        }
        for _ in 0..fits {
            let value = self.pop();
            self.put_word(value);
        }
        let dropped = count - fits as u64;
        if dropped > 0 || room < Prefix::SIZE {
            self.vm.stack.drop(dropped);
            return self.partial();
        }
        self.logged()
    }

    /// `log lv`, `log gv`: pops range (a count) and starting index.
    pub fn log_vars(&mut self, global: bool) -> Step {
        let (range, index) = (self.pop(), self.pop());
        let have = self.vars(global).len() as u64;
        if index.checked_add(range).is_none_or(|end| end > have) {
            let parm = if global { 2 } else { 1 };
            return Err(self.fault(exception::INVALID_OPERAND, parm, index.max(have)));
        }
        let room = self.room();
        let fits =
            (room.saturating_sub(Prefix::SIZE) / Self::BYTES).min(range as usize).min(usize::from(u16::MAX));
        if room >= Prefix::SIZE {
            self.put_prefix(if global { Token::Globals } else { Token::Locals }, fits);
        }
        for n in 0..fits {
            let value = self.vars(global).get(index as usize + n).copied().unwrap_or_default();
            self.put_word(value);
        }
        if (fits as u64) < range || room < Prefix::SIZE {
            return self.partial();
        }
        self.logged()
    }

    /// Logs the fault, if it fits, and throws INVALID_ADDR.
    #[cold]
    fn memory_fault(&mut self, addr: u64) -> Stop {
        let addr = Self::cut(addr);
        if self.room() >= Prefix::SIZE + Self::BYTES {
            self.put_prefix(Token::FlatFault, Self::BYTES);
            self.put_word(addr);
        }
        self.fault(exception::INVALID_ADDR, addr, 0)
    }

    /// `log mrf`: address on top, length below it; logs all bytes or none. What would fit, and the byte after it, is read before the
    /// length is judged: a bad address is a fault whatever `logmax` is, as with `log str`.
    fn log_mrf(&mut self) -> Step {
        let (addr, length) = (self.pop(), self.pop());
        let from = self.vm.run.lp + Prefix::SIZE;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let room = self.room().saturating_sub(Prefix::SIZE);
        let fits = length.min(room);
        let buf = self.vm.log.get_mut(from..from + fits).unwrap_or_default();
        let mut read = read_wrapping::<H, W64>(self.host, addr, buf);
        if read.is_ok() && length > fits {
            let next = Self::cut(addr.wrapping_add(fits as u64));
            read = self.host.read_mem(next, &mut [0]);
        }
        if let Err(Fault(at)) = read {
            return Err(self.memory_fault(at));
        }
        if length > fits || self.room() < Prefix::SIZE {
            return Err(self.overflow());
        }
        self.put_prefix(Token::Memory, length);
        self.vm.run.lp = from + length;
        self.logged()
    }

    /// `log str`: address on top, greatest length below it; logs all bytes up to a NUL, or none.
    fn log_str(&mut self) -> Step {
        let (addr, most) = (self.pop(), self.pop());
        let room = self.room().saturating_sub(Prefix::SIZE);
        let from = self.vm.run.lp + Prefix::SIZE;
        let mut length = 0usize;
        // Pieces end at multiples of 64, so that no read touches a page that the string does not reach.
        while (length as u64) < most {
            let at = Self::cut(addr.wrapping_add(length as u64));
            let left = usize::try_from(most - length as u64).unwrap_or(usize::MAX);
            let piece = left.min(64 - (at % 64) as usize);
            let mut bytes = [0u8; 64];
            let bytes = &mut bytes[..piece];
            let (got, fault) = read_prefix(self.host, at, bytes);
            let nul = bytes[..got].iter().position(|&b| b == 0);
            let take = nul.unwrap_or(got);
            if length + take > room {
                return Err(self.overflow());
            }
            if let Some(to) = self.vm.log.get_mut(from + length..from + length + take) {
                to.copy_from_slice(&bytes[..take]);
            }
            length += take;
            match (nul, fault) {
                (Some(_), _) => break,
                (None, Some(fault)) => return Err(self.memory_fault(fault)),
                (None, None) => {}
            }
        }
        if self.room() < Prefix::SIZE {
            return Err(self.overflow());
        }
        self.put_prefix(Token::Text, length);
        self.vm.run.lp = from + length;
        self.logged()
    }
}

/// Number of bytes from an address to the end of the address space; `None` if it does not fit a `usize`.
#[inline(always)]
pub(super) fn bytes_to_top<const W64: bool>(addr: u64) -> Option<usize> {
    let to_top = if W64 { u64::MAX - addr } else { 0xffff_ffff - addr };
    usize::try_from(to_top).ok()?.checked_add(1)
}

/// Reads bytes; on IA32 addresses wrap at 4 GiB, as in the CPU.
pub(super) fn read_wrapping<H: Host, const W64: bool>(
    host: &mut H,
    addr: u64,
    buf: &mut [u8],
) -> Result<(), Fault> {
    match bytes_to_top::<W64>(addr) {
        Some(n) if n < buf.len() => {
            let (low, high) = buf.split_at_mut(n);
            host.read_mem(addr, low)?;
            host.read_mem(0, high)
        }
        _ => host.read_mem(addr, buf),
    }
}

/// Reads up to the first unreadable byte; returns the number of bytes, and the address that failed.
fn read_prefix<H: Host>(host: &mut H, addr: u64, buf: &mut [u8]) -> (usize, Option<u64>) {
    if host.read_mem(addr, buf).is_ok() {
        return (buf.len(), None);
    }
    for (n, byte) in buf.iter_mut().enumerate() {
        if let Err(Fault(at)) = host.read_mem(addr + n as u64, std::slice::from_mut(byte)) {
            return (n, Some(at));
        }
    }
    (buf.len(), None)
}
