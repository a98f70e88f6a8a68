//! Port instructions: IOPL and the TSS's I/O bitmap, IN, OUT, INS, OUTS, and the console they drive.

use super::Cpu;
use super::fault::Fault;
use super::outcome::{Accesses, Done};
use crate::isa::decode;
use crate::isa::mended::mended;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// A serial port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SerialPort {
    /// The console; what goes to port E9h or to the virtio console counts as sent by it.
    Com1,
    /// The second.
    Com2,
}

/// A byte that the guest has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentByte {
    /// Instructions retired before the one that sent it.
    pub icount: u64,
    /// The port that it left by.
    pub port: SerialPort,
    /// The byte.
    pub byte: u8,
}

/// Bytes of text on the console that are kept.
const MOST_TEXT: usize = 256 << 20;

/// The guest's console output.
pub(crate) struct Console {
    /// All of it.
    pub text: Vec<u8>,
    /// What the guest sent through the serial ports, if it is to be kept.
    pub sent: Option<Vec<SentByte>>,
    /// Texts whose appearance ends the run.
    pub watched: Vec<Vec<u8>>,
    /// The first of them that has appeared.
    seen: Option<usize>,
    /// Bytes of text that are kept. A guest that writes more ends its run: text that is not kept could not be searched, and
    /// would be missing without a word.
    pub most: usize,
}

impl Default for Console {
    fn default() -> Self {
        Self { text: Vec::new(), sent: None, watched: Vec::new(), seen: None, most: MOST_TEXT }
    }
}

impl Console {
    /// Whether the guest has written more than is kept.
    pub fn is_full(&self) -> bool {
        self.text.len() > self.most
    }

    fn push(&mut self, byte: u8) {
        self.text.push(byte);
        let found = self.watched.iter().position(|t| !t.is_empty() && self.text.ends_with(t));
        self.seen = self.seen.or(found);
    }
}

impl Cpu {
    /// Whether port access is allowed (SDM volume 1, 18.5).
    fn check_port(&mut self, port: u16, size: u8) -> Result<(), Fault> {
        let cpl = self.env.cpl();
        let iopl = (self.env.eflags_raw() >> 12 & 3) as u8;
        if cpl <= iopl {
            return Ok(());
        }
        let tr = self.env.tr();
        // A 32-bit or 64-bit TSS (types 9 and 11), long enough to hold the map base.
        if tr.flags >> 8 & 0xd != 9 || tr.limit < 0x67 {
            return Err(Fault::gp(0));
        }
        let base = self.tss_u16(0x66)?;
        let at = u32::from(base) + u32::from(port >> 3);
        if at + 1 > tr.limit {
            return Err(Fault::gp(0));
        }
        let bits = self.tss_u16(at)? >> (port & 7);
        if bits & ((1 << size) - 1) != 0 { Err(Fault::gp(0)) } else { Ok(()) }
    }

    fn tss_u16(&mut self, offset: u32) -> Result<u16, Fault> {
        let mut bytes = [0; 2];
        let at = self.wrap_linear(self.env.tr().base.wrapping_add(offset.into()));
        self.load_bytes(at, &mut bytes, false)?;
        Ok(u16::from_le_bytes(bytes))
    }

    /// A port read by the guest, at the count of its own instruction.
    pub(crate) fn port_in(&mut self, port: u16, size: u8) -> u32 {
        let now = self.hot.clock.now();
        let value = self.platform.port_read(port, size, now);
        self.update_irq();
        value
    }

    pub(crate) fn port_out(&mut self, port: u16, size: u8, value: u32) {
        let now = self.hot.clock.now();
        self.platform.port_write(port, size, value, now);
        self.update_irq();
        self.pass_output_on();
    }

    /// Takes what the devices have put out.
    pub(crate) fn pass_output_on(&mut self) {
        if !self.platform.has_output() {
            return;
        }
        let out = self.platform.take_output();
        if let Some(sent) = &mut self.console.sent {
            let icount = self.hot.clock.icount;
            let byte = |port| move |byte: &u8| SentByte { icount, port, byte: *byte };
            sent.extend(out.com1.iter().chain(&out.e9).chain(&out.virtio).map(byte(SerialPort::Com1)));
            sent.extend(out.com2.iter().map(byte(SerialPort::Com2)));
        }
        for byte in out.com1.into_iter().chain(out.e9).chain(out.virtio) {
            self.console.push(byte);
        }
    }

    /// The number of the watched text that has appeared on the console, once.
    pub(crate) fn take_seen_text(&mut self) -> Option<usize> {
        self.console.seen.take()
    }

    /// The port of IN or OUT, and the size of what it moves.
    fn port_of(&self, i: &Instruction) -> (u16, u8) {
        let (data, port) = if i.mnemonic() == Mnemonic::In { (0, 1) } else { (1, 0) };
        let number = match i.op_kind(port) {
            OpKind::Register => self.env.gpr(2) as u16,
            _ => i.immediate(port) as u16,
        };
        (number, i.op_register(data).size() as u8)
    }

    /// Whether it changes no interrupt line and no time at which a device is due: some IN and OUT, and what the engine computes
    /// wrong with registers. To be asked before it is executed.
    pub(crate) fn is_inert(&self, i: &Instruction) -> bool {
        let out = i.mnemonic() == Mnemonic::Out;
        if !out && i.mnemonic() != Mnemonic::In {
            let memory = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
            return !memory && mended(i).is_some();
        }
        let (port, size) = self.port_of(i);
        self.platform.is_inert(port, size, out)
    }

    /// IN and OUT.
    pub(crate) fn port_instruction(
        &mut self,
        i: &Instruction,
        told: &mut dyn Accesses,
    ) -> Result<Done, Fault> {
        let input = i.mnemonic() == Mnemonic::In;
        let (port, size) = self.port_of(i);
        self.check_port(port, size)?;
        let rax = self.env.gpr(0);
        if input {
            let value = u64::from(self.port_in(port, size));
            told.port(self, port, size, value as u32, false);
            self.env.set_gpr(
                0,
                match size {
                    1 => (rax & !0xff) | value,
                    2 => (rax & !0xffff) | value,
                    _ => value,
                },
            );
        } else {
            let value = rax as u32 & (u32::MAX >> (32 - 8 * u32::from(size)));
            self.port_out(port, size, value);
            told.port(self, port, size, value, true);
        }
        Ok(Done::Next)
    }

    /// One iteration of INS or OUTS. A repeated one stays at its address until the count runs out.
    pub(crate) fn port_string(&mut self, i: &Instruction, told: &mut dyn Accesses) -> Result<Done, Fault> {
        use Mnemonic as M;
        let input = matches!(i.mnemonic(), M::Insb | M::Insw | M::Insd);
        let size: u8 = match i.mnemonic() {
            M::Insb | M::Outsb => 1,
            M::Insw | M::Outsw => 2,
            _ => 4,
        };
        let repeated = i.has_rep_prefix() || i.has_repne_prefix();
        if repeated && decode::rep_count(decode::address_bits(i), self.env.gpr(1)) == 0 {
            return Ok(Done::Next);
        }
        let port = self.env.gpr(2) as u16;
        self.check_port(port, size)?;
        let mask = match decode::address_bits(i) {
            16 => 0xffff,
            32 => 0xffff_ffff,
            _ => u64::MAX,
        };
        let index = if input { 7 } else { 6 };
        let offset = self.env.gpr(index);
        let base = self.string_base(i, input);
        let va = self.wrap_linear(base.wrapping_add(offset & mask));
        if input {
            // The destination is checked before the port is read: a fault must not eat a byte.
            let user = self.env.cpl() == 3;
            self.translate(va, crate::mmu::Access::Write, user)?;
            self.translate(
                self.wrap_linear(va.wrapping_add(u64::from(size) - 1)),
                crate::mmu::Access::Write,
                user,
            )?;
            let value = self.port_in(port, size);
            told.port(self, port, size, value, false);
            self.store(va, value.into(), size.into(), told)?;
        } else {
            let value = self.load(va, size.into(), told)?;
            self.port_out(port, size, value as u32);
            told.port(self, port, size, value as u32, true);
        }
        let delta = if self.env.df() { (size as u64).wrapping_neg() } else { size.into() };
        let moved = offset.wrapping_add(delta) & mask;
        self.env.set_gpr(index, if mask == 0xffff { (offset & !0xffff) | moved } else { moved });
        if repeated && !self.count_down(i) { Ok(Done::Jumped) } else { Ok(Done::Next) }
    }

    fn string_base(&self, i: &Instruction, input: bool) -> u64 {
        self.register(if input { Register::ES } else { i.memory_segment() })
    }
}
