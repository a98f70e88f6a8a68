//! The oracle's rules for the groups that work on data: arithmetic, variables, registers, memory, ports, the log.

#![allow(dead_code, reason = "each test binary uses its part")]

use trapline_rpn::{
    Argument, ArgumentError, CallkError, Context, Fault, Group, Insn, Op, Reg, Shape, by_index,
};

use super::{Flow, Naive};

impl Naive<'_> {
    /// An instruction other than control flow.
    pub fn rule(&mut self, insn: Insn) -> Flow {
        let n = insn.arg;
        match insn.op {
            Op::Add => self.binary(u64::wrapping_add),
            Op::Sub => self.binary(u64::wrapping_sub),
            Op::Mul => self.binary(u64::wrapping_mul),
            Op::And => self.binary(|a, b| a & b),
            Op::Or => self.binary(|a, b| a | b),
            Op::Xor => self.binary(|a, b| a ^ b),
            Op::Div => self.divide(false),
            Op::Idiv => self.divide(true),
            Op::Neg => self.then(|m| {
                let value = m.pop();
                m.push(!value);
            }),
            Op::RolN | Op::RorN | Op::ShlN | Op::ShrN => self.then(|m| {
                let value = m.moved_bits(insn.op, m.tos(), n);
                m.set_element(m.stack.tsp, 0, value);
            }),
            Op::Rol | Op::Ror | Op::Shl | Op::Shr => self.then(|m| {
                let (value, count) = (m.pop(), m.pop());
                m.push(m.moved_bits(insn.op, value, count));
            }),
            Op::PblN | Op::PbrN => self.propagate(insn.op == Op::PblN, n),
            Op::Pbl | Op::Pbr => {
                let n = self.pop();
                self.propagate(insn.op == Op::Pbl, n)
            }
            Op::Xchg => self.then(|m| {
                let (first, second) = (m.pop(), m.pop());
                m.push(first);
                m.push(second);
            }),
            Op::DupN => self.then(|m| m.push_often(m.tos(), n)),
            Op::Dup => self.then(|m| {
                let (value, count) = (m.pop(), m.pop());
                m.push(value);
                m.push_often(value, count);
            }),
            Op::Ros => self.then(|m| m.stack.discard(n % 1024)),
            _ => self.other(insn),
        }
    }

    fn binary(&mut self, f: fn(u64, u64) -> u64) -> Flow {
        let (val1, val2) = (self.pop(), self.pop());
        self.push(f(val1, val2));
        Flow::Next
    }

    /// Divisor on top; remainder first, quotient next. The least number divided by -1 gives itself, remainder 0.
    fn divide(&mut self, signed: bool) -> Flow {
        let (divisor, dividend) = (self.pop(), self.pop());
        if divisor == 0 {
            return Flow::Throw(0x0020, 0, 0);
        }
        let (a, b) = if signed {
            (i128::from(self.signed(dividend)), i128::from(self.signed(divisor)))
        } else {
            (i128::from(dividend), i128::from(divisor))
        };
        self.push((a % b) as u64);
        self.push((a / b) as u64);
        Flow::Next
    }

    /// One bit at a time: rotates count modulo the width, shifts by the width or more give 0.
    fn moved_bits(&self, op: Op, value: u64, count: u64) -> u64 {
        let bits = self.bits();
        let times = if matches!(op, Op::Shl | Op::ShlN | Op::Shr | Op::ShrN) {
            count.min(bits.into())
        } else {
            count % u64::from(bits)
        };
        (0..times).fold(value, |v, _| match op {
            Op::RolN | Op::Rol => self.word(v << 1) | v >> (bits - 1),
            Op::RorN | Op::Ror => v >> 1 | (v & 1) << (bits - 1),
            Op::ShlN | Op::Shl => self.word(v << 1),
            _ => v >> 1,
        })
    }

    /// All bits to the left or right of bit n-1 become as it is.
    fn propagate(&mut self, left: bool, n: u64) -> Flow {
        let mut value = self.pop();
        if n == 0 || n > self.bits().into() {
            return Flow::Throw(0x0040, 3, n);
        }
        let bit = n - 1;
        let set = value >> bit & 1;
        let others = if left { bit + 1..self.bits().into() } else { 0..bit };
        for other in others {
            value = value & !(1 << other) | set << other;
        }
        self.push(value);
        Flow::Next
    }

    fn other(&mut self, insn: Insn) -> Flow {
        use Op::{
            CopySbp, CopySbpN, CopyTsp, CopyTspN, PopSbp, PopSbpN, PopTsp, PopTspN, PushSbp, PushSbpN,
            PushTsp, PushTspN,
        };
        let n = insn.arg as i64;
        match insn.op {
            // TSP as it was before the instruction.
            PushSbpN | PopSbpN | CopySbpN | PushTspN | PopTspN | CopyTspN => self.then(|m| {
                let on_sbp = matches!(insn.op, PushSbpN | PopSbpN | CopySbpN);
                let base = if on_sbp { m.sbp } else { m.stack.tsp };
                match insn.op {
                    PushSbpN | PushTspN => m.push(m.element(base, n)),
                    CopySbpN | CopyTspN => m.set_element(base, n, m.tos()),
                    _ => {
                        let value = m.pop();
                        m.set_element(base, n, value);
                    }
                }
            }),
            // TSP after the pops.
            PushSbp | PushTsp => self.then(|m| {
                let n = m.signed_pop();
                m.push(m.element(if insn.op == PushSbp { m.sbp } else { m.stack.tsp }, n));
            }),
            PopSbp | PopTsp => self.then(|m| {
                let (value, n) = (m.pop(), m.signed_pop());
                m.set_element(if insn.op == PopSbp { m.sbp } else { m.stack.tsp }, n, value);
            }),
            CopySbp | CopyTsp => self.then(|m| {
                let n = m.signed_pop();
                m.set_element(if insn.op == CopySbp { m.sbp } else { m.stack.tsp }, n, m.tos());
            }),
            _ if insn.op.row().group == Group::Tracing => self.tracing(insn),
            _ if insn.op.row().form.contains("lv") => self.variable(insn, false),
            _ if insn.op.row().form.contains("gv") => self.variable(insn, true),
            _ => self.outside(insn),
        }
    }

    fn signed_pop(&mut self) -> i64 {
        let value = self.pop();
        self.signed(value)
    }

    /// Both variable groups.
    fn variable(&mut self, insn: Insn, global: bool) -> Flow {
        use Op::{
            DecGv, DecGvN, DecLv, DecLvN, IncGv, IncGvN, IncLv, IncLvN, LogGv, LogLv, MoveGv, MoveGvN,
            MoveLv, MoveLvN, PopGv, PopGvN, PopLv, PopLvN, PushGv, PushGvN, PushLv, PushLvN,
        };
        if matches!(insn.op, LogLv | LogGv) {
            return self.log_variables(global);
        }
        // `pop` takes its value first; then all forms but the immediate ones take their index; TOS is the element
        // below.
        let popped = if matches!(insn.op, PopLv | PopLvN | PopGv | PopGvN) { Some(self.pop()) } else { None };
        let immediate = insn.op.row().form.contains('%');
        let index = if immediate { insn.arg } else { self.pop() };
        let tos = self.tos();
        let mask = self.word(u64::MAX);
        let variables = if global { &mut self.gv } else { &mut self.lv };
        let Some(variable) = usize::try_from(index).ok().and_then(|i| variables.get_mut(i)) else {
            return Flow::Throw(0x0040, if global { 2 } else { 1 }, index);
        };
        match insn.op {
            PushLv | PushLvN | PushGv | PushGvN => {
                let value = *variable;
                self.push(value);
            }
            PopLv | PopLvN | PopGv | PopGvN => *variable = popped.unwrap(),
            MoveLv | MoveLvN | MoveGv | MoveGvN => *variable = tos,
            IncLv | IncLvN | IncGv | IncGvN => *variable = variable.wrapping_add(1) & mask,
            DecLv | DecLvN | DecGv | DecGvN => *variable = variable.wrapping_sub(1) & mask,
            op => unreachable!("{op:?}"),
        }
        Flow::Next
    }

    fn push_argument(&mut self, which: Argument) -> Flow {
        match self.host.argument(which) {
            Ok(value) => self.then(|m| m.push(value)),
            Err(ArgumentError::Fault(at)) => Flow::Throw(0x0001, self.word(at), 0),
            Err(ArgumentError::None | ArgumentError::Unknown) => match which {
                Argument::Number(n) => Flow::Throw(0x0040, 8, n.into()),
                Argument::Returned => Flow::Throw(0x0040, 8, self.word(u64::MAX)),
            },
        }
    }

    /// Registers, memory, system variables, arguments, ports, addresses, the log.
    fn outside(&mut self, insn: Insn) -> Flow {
        match insn.op {
            Op::PushR => self.push_register(Context::Current, insn.arg),
            Op::PushU => self.push_register(Context::User, insn.arg),
            Op::PopR => self.pop_register(Context::Current, insn.arg),
            Op::PopU => self.pop_register(Context::User, insn.arg),
            Op::PushMem8 => self.push_memory(1),
            Op::PushMem16 => self.push_memory(2),
            Op::PushMem32 => self.push_memory(4),
            Op::PushMem64 => self.push_memory(8),
            Op::PopMem8 => self.pop_memory(1),
            Op::PopMem16 => self.pop_memory(2),
            Op::PopMem32 => self.pop_memory(4),
            Op::PopMem64 => self.pop_memory(8),
            Op::PushIo8 => self.push_port(1),
            Op::PushIo16 => self.push_port(2),
            Op::PushIo32 => self.push_port(4),
            Op::PopIo8 => self.pop_port(1),
            Op::PopIo16 => self.pop_port(2),
            Op::PopIo32 => self.pop_port(4),
            Op::PushPid => self.then(|m| {
                let value = m.host.pid();
                m.push(value);
            }),
            Op::PushProcid => self.then(|m| {
                let value = m.host.procid();
                m.push(value);
            }),
            Op::PushTask => self.then(|m| {
                let value = m.host.task();
                m.push(value);
            }),
            Op::PushArg => self.push_argument(Argument::Number(insn.arg as u8)),
            Op::PushRet => self.push_argument(Argument::Returned),
            // 0 is valid, 1 is not.
            Op::Vfyr => self.then(|m| {
                let addr = m.pop();
                let valid = m.read_byte(addr).is_ok();
                m.push(u64::from(!valid));
            }),
            Op::Vfyrw => self.then(|m| {
                let addr = m.pop();
                let valid = m.host.can_write(addr);
                m.push(u64::from(!valid));
            }),
            Op::Seg2lin => self.linear(),
            Op::LogStr => self.log_memory(0x01, true),
            Op::LogMrf => self.log_memory(0x00, false),
            Op::LogN => self.log_elements(insn.arg, None),
            Op::Log => {
                let count = self.pop();
                self.log_elements(count, Some(0x07))
            }
            Op::PushLp => self.then(|m| m.push(m.log.len() as u64)),
            Op::PushPlp => self.then(|m| m.push(m.plp as u64)),
            Op::PopLp => self.pop_lp(),
            op => unreachable!("the oracle does not know {op:?}"),
        }
    }

    /// The most significant element first.
    fn push_register(&mut self, context: Context, index: u64) -> Flow {
        let row = by_index(index as u8).unwrap();
        match row.shape {
            Shape::Plain => {
                let value = self.host.read_reg(context, row.reg);
                self.push(value);
            }
            Shape::Low32 => {
                let value = self.host.read_reg(context, row.reg);
                self.push(u64::from(value as u32));
            }
            Shape::Wide80 => self.push_wide(context, row.reg, 80),
            Shape::Wide128 => self.push_wide(context, row.reg, 128),
            Shape::Table => {
                let value = self.host.read_wide(context, row.reg);
                self.push(u64::from((value >> 64) as u16));
                self.push(value as u64);
            }
            Shape::Cpuid => {
                let leaf = self.pop();
                let answer = self.host.cpuid(leaf as u32);
                answer.into_iter().for_each(|n| self.push(n.into()));
            }
            Shape::Msr => {
                let index = self.pop();
                let value = u32::try_from(index).ok().and_then(|i| self.host.rdmsr(i));
                let Some(value) = value else { return Flow::Throw(0x0040, 5, index) };
                self.push_u64(value);
            }
        }
        Flow::Next
    }

    fn push_wide(&mut self, context: Context, reg: Reg, bits: usize) {
        let bytes = self.host.read_wide(context, reg).to_le_bytes();
        let mut elements: Vec<u64> = bytes[..bits / 8].chunks(self.bytes()).map(little_endian).collect();
        elements.reverse();
        elements.into_iter().for_each(|e| self.push(e));
    }

    /// One element on x86-64; on IA32 the high half, then the low one.
    fn push_u64(&mut self, value: u64) {
        if self.bits() == 32 {
            self.push(value >> 32);
        }
        self.push(value);
    }

    fn pop_register(&mut self, context: Context, index: u64) -> Flow {
        let row = by_index(index as u8).unwrap();
        let value = self.pop();
        let value = if row.shape == Shape::Low32 { u64::from(value as u32) } else { value };
        if self.host.write_reg(context, row.reg, value) { Flow::Next } else { Flow::Throw(0x0002, value, 0) }
    }

    /// Addresses are words: after the last comes 0.
    fn read_byte(&mut self, addr: u64) -> Result<u8, Fault> {
        let mut byte = [0];
        self.host.read_mem(self.word(addr), &mut byte)?;
        Ok(byte[0])
    }

    fn read_bytes(&mut self, addr: u64, count: u64) -> Result<Vec<u8>, Fault> {
        (0..count).map(|n| self.read_byte(addr.wrapping_add(n))).collect()
    }

    fn push_memory(&mut self, size: u64) -> Flow {
        let addr = self.pop();
        match self.read_bytes(addr, size) {
            Ok(bytes) if size == 8 => self.push_u64(little_endian(&bytes)),
            Ok(bytes) => self.push(little_endian(&bytes)),
            Err(Fault(at)) => return Flow::Throw(0x0001, self.word(at), 0),
        }
        Flow::Next
    }

    /// All or nothing. A 64-bit value is two elements on IA32, the low half on top.
    fn pop_memory(&mut self, size: usize) -> Flow {
        let low = self.pop();
        let high = if size == 8 && self.bits() == 32 { self.pop() } else { 0 };
        let addr = self.pop();
        let bytes = (low | high << 32).to_le_bytes();
        let places: Vec<u64> = (0..size as u64).map(|n| self.word(addr.wrapping_add(n))).collect();
        if let Some(&bad) = places.iter().find(|&&at| !self.host.can_write(at)) {
            return Flow::Throw(0x0001, bad, 0);
        }
        for (at, byte) in places.into_iter().zip(bytes) {
            self.host.write_mem(at, &[byte]).unwrap();
        }
        Flow::Next
    }

    fn push_port(&mut self, size: u8) -> Flow {
        let port = self.pop();
        if port > 0xffff {
            return Flow::Throw(0x0040, 9, port);
        }
        let value = self.host.io_read(port as u16, size);
        self.push(little_endian(&value.to_le_bytes()[..size.into()]));
        Flow::Next
    }

    fn pop_port(&mut self, size: u8) -> Flow {
        let (value, port) = (self.pop(), self.pop());
        if port > 0xffff {
            return Flow::Throw(0x0040, 9, port);
        }
        let value = little_endian(&value.to_le_bytes()[..size.into()]);
        self.host.io_write(port as u16, size, value as u32);
        Flow::Next
    }

    fn linear(&mut self) -> Flow {
        let (offset, selector) = (self.pop(), self.pop());
        let known = u16::try_from(selector).ok();
        match known.and_then(|known| self.host.seg2lin(known, offset)) {
            Some(linear) => self.then(|m| m.push(linear)),
            None => Flow::Throw(0x0002, selector, 0),
        }
    }

    /// The service sees the stack. Its exception is a user exception: not generated when masked.
    pub fn callk(&mut self) -> Flow {
        let number = self.pop();
        match self.host.callk(number, &mut self.stack) {
            Ok(()) => Flow::Next,
            Err(CallkError::Unknown) => Flow::Throw(0x0040, 6, number),
            Err(CallkError::Throw { user, parm1, parm2 }) => {
                Flow::Maskable(u64::from(user) << 16 | 0x8000, self.word(parm1), self.word(parm2))
            }
        }
    }
    /// Whether `bytes` more bytes fit `logmax`.
    fn fits(&self, bytes: u64) -> bool {
        bytes <= u64::from(self.limits.logmax) - self.log.len() as u64
    }

    /// Token byte, then a 16-bit little-endian count.
    fn log_prefix(&mut self, token: u8, count: u64) {
        self.log.push(token);
        self.log.extend((count as u16).to_le_bytes());
    }

    fn log_word(&mut self, value: u64) {
        let bytes = self.bytes();
        self.log.extend(&value.to_le_bytes()[..bytes]);
    }

    fn overflow(&self) -> Flow {
        Flow::Throw(0x1000, self.limits.logmax.into(), 0)
    }

    /// Logs as many words as fit, after a prefix with their number. If not all fit, the instruction has failed: PLP is
    /// unchanged, and the exception is generated or, when masked, the handler continues.
    fn log_words(&mut self, token: Option<u8>, words: impl Iterator<Item = u64>, count: u64) -> Flow {
        let word = self.bytes() as u64;
        let prefix = if token.is_some() { 3 } else { 0 };
        if !self.fits(prefix) {
            return Flow::Maskable(0x1000, self.limits.logmax.into(), 0);
        }
        let fitting = (0..count).take_while(|n| self.fits(prefix + (n + 1) * word)).count() as u64;
        if let Some(token) = token {
            self.log_prefix(token, fitting);
        }
        words.take(fitting as usize).for_each(|w| self.log_word(w));
        if fitting < count {
            return Flow::Maskable(0x1000, self.limits.logmax.into(), 0);
        }
        self.plp = self.log.len();
        Flow::Next
    }

    /// `log <count>` and `log`: all `count` elements are popped, logged or not.
    fn log_elements(&mut self, count: u64, token: Option<u8>) -> Flow {
        // More than these never fit a log of 65,535 bytes.
        let words = count.min(u64::from(self.limits.logmax) / self.bytes() as u64 + 1) as i64;
        let words: Vec<u64> = (0..words).map(|n| self.element(self.stack.tsp, -n)).collect();
        self.stack.discard(count);
        self.log_words(token, words.into_iter(), count)
    }

    /// `range` variables from `index` on; the first that does not exist is the invalid operand.
    fn log_variables(&mut self, global: bool) -> Flow {
        let (range, index) = (self.pop(), self.pop());
        let all = if global { self.gv.clone() } else { self.lv.clone() };
        let have = all.len() as u64;
        if u128::from(index) + u128::from(range) > u128::from(have) {
            return Flow::Throw(0x0040, if global { 2 } else { 1 }, index.max(have));
        }
        let variables = all.into_iter().skip(index as usize);
        self.log_words(Some(if global { 0x06 } else { 0x05 }), variables, range)
    }

    /// The fault record, where it fits, then INVALID_ADDR.
    fn log_fault(&mut self, at: u64) -> Flow {
        let at = self.word(at);
        if self.fits(3 + self.bytes() as u64) {
            self.log_prefix(0xff, self.bytes() as u64);
            self.log_word(at);
        }
        Flow::Throw(0x0001, at, 0)
    }

    /// The bytes from an address, to the end of a string (a NUL, which is not logged) if `is_string`; whole or not at all. A byte that
    /// cannot be read before the log is full is a fault.
    fn log_memory(&mut self, token: u8, is_string: bool) -> Flow {
        let (addr, most) = (self.pop(), self.pop());
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < most {
            match self.read_byte(addr.wrapping_add(bytes.len() as u64)) {
                Ok(0) if is_string => break,
                Ok(byte) => bytes.push(byte),
                Err(Fault(at)) => return self.log_fault(at),
            }
            if !self.fits(3 + bytes.len() as u64) {
                return self.overflow();
            }
        }
        if !self.fits(3) {
            return self.overflow();
        }
        self.log_bytes(token, &bytes)
    }

    fn log_bytes(&mut self, token: u8, bytes: &[u8]) -> Flow {
        self.log_prefix(token, bytes.len() as u64);
        self.log.extend(bytes);
        self.plp = self.log.len();
        Flow::Next
    }

    /// Only to a value that is at most LP. PLP lags behind LP: it is not ahead of it.
    fn pop_lp(&mut self) -> Flow {
        let value = self.pop();
        if value > self.log.len() as u64 {
            return Flow::Throw(0x0040, 7, value);
        }
        self.log.truncate(value as usize);
        self.plp = self.plp.min(self.log.len());
        Flow::Next
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b))
}
