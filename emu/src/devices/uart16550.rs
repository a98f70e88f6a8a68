//! The 16550A UART (National Semiconductor PC16550D data sheet), without its baud-rate timing.
//!
//! Transmission is instant: the byte is part of the result of [`Uart::write`] and the transmitter is empty again at
//! once. Reception has two stages: [`Uart::push_input`] puts bytes on the wire, [`Uart::receive`] moves one of them
//! into the receiver; the attachment paces it by [`Uart::char_time_ns`]. Input is never overrun: a byte waits on the
//! wire until the receiver has room. A guest that talks to itself in loop-back can overrun its receiver. Not modelled:
//! parity, framing errors, breaks and DMA modes.
//!
//! An interrupt controller that looks for edges sees a cause that ends and comes again only when the line falls in
//! between. The line therefore falls when a byte is written to the transmitter, although that is empty again at once,
//! and the time-out of the receiver takes its four character times again after each read.

use bitflags::bitflags;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

bitflags! {
    /// Interrupt enable register (data sheet 8.7).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub struct Ier: u8 {
        /// Received data available.
        const RDA = 0x01;
        /// Transmitter holding register empty.
        const THRE = 0x02;
        /// Receiver line status.
        const RLS = 0x04;
        /// Modem status.
        const MODEM = 0x08;
    }

    /// Modem control register (data sheet 8.8).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub struct Mcr: u8 {
        /// Data terminal ready.
        const DTR = 0x01;
        /// Request to send.
        const RTS = 0x02;
        /// General output 1.
        const OUT1 = 0x04;
        /// General output 2.
        const OUT2 = 0x08;
        /// Loop-back.
        const LOOP = 0x10;
    }
}

const LSR_DATA_READY: u8 = 0x01;
const LSR_OVERRUN: u8 = 0x02;
const LSR_IDLE: u8 = 0x60;
const LCR_DLAB: u8 = 0x80;
const FCR_ENABLE: u8 = 0x01;
const FCR_CLEAR_RX: u8 = 0x02;
const FCR_CLEAR_TX: u8 = 0x04;
const MSR_LINES: u8 = 0xf0;
const MSR_RI: u8 = 0x40;
/// Carrier, data set ready and clear to send: a terminal is attached.
const MSR_ATTACHED: u8 = 0xb0;
const FIFO_DEPTH: usize = 16;
/// Character times without a byte or a read after which the receiver's FIFO times out (data sheet, "FIFO interrupt mode
/// operation").
const TIME_OUT_CHARACTERS: u64 = 4;

/// IIR bits 3-0: an empty transmitter, and none.
const TRANSMITTER_EMPTY: u8 = 0x02;
const NO_CAUSE: u8 = 0x01;

/// What a write to a register does outside of the chip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The byte that left through the transmitter.
    pub sent: Option<u8>,
    /// The interrupt line was low for a moment, whatever its level is now.
    pub fell: bool,
}

/// One 16550A with the host's input waiting on its wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uart {
    ier: Ier,
    fcr: u8,
    lcr: u8,
    mcr: Mcr,
    msr: u8,
    scratch: u8,
    divisor: u16,
    thre_pending: bool,
    rx: VecDeque<u8>,
    wire: VecDeque<u8>,
    /// A received byte was lost.
    overrun: bool,
    /// The receiver's FIFO has timed out.
    timed_out: bool,
    /// When it does, in ns.
    time_out_ns: Option<u64>,
}

impl Hash for Uart {
    /// The parts that follow the FIFO in time count while they are in use: a port that is silent has the digest that it had
    /// before they were modelled.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.ier, self.fcr, self.lcr, self.mcr, self.msr, self.scratch, self.divisor).hash(state);
        (self.thre_pending, &self.rx, &self.wire).hash(state);
        if self.overrun || self.timed_out || self.time_out_ns.is_some() {
            (self.overrun, self.timed_out, self.time_out_ns).hash(state);
        }
    }
}

impl Default for Uart {
    fn default() -> Self {
        Self::new()
    }
}

impl super::Stored for Uart {
    const NAME: &str = "16550 serial port";
    const VERSION: u16 = 2;
}

impl Uart {
    /// A UART as firmware leaves it: 9600 baud (divisor 12), OUT2 on, nothing enabled, a terminal attached.
    pub fn new() -> Self {
        Self {
            ier: Ier::empty(),
            fcr: 0,
            lcr: 0,
            mcr: Mcr::OUT2,
            msr: MSR_ATTACHED,
            scratch: 0,
            divisor: 12,
            thre_pending: false,
            rx: VecDeque::new(),
            wire: VecDeque::new(),
            overrun: false,
            timed_out: false,
            time_out_ns: None,
        }
    }

    /// Reads register `reg` (0 to 7, address lines A2-A0); other bits of `reg` are ignored.
    pub fn read(&mut self, reg: u8, now_ns: u64) -> u8 {
        match reg & 7 {
            0 if self.dlab() => self.divisor.to_le_bytes()[0],
            0 => self.take_received(now_ns),
            1 if self.dlab() => self.divisor.to_le_bytes()[1],
            1 => self.ier.bits(),
            2 => self.read_iir(),
            3 => self.lcr,
            4 => self.mcr.bits(),
            5 => self.read_lsr(),
            6 => {
                let value = self.msr;
                self.msr &= MSR_LINES;
                value
            }
            _ => self.scratch,
        }
    }

    /// Writes register `reg` (0 to 7).
    pub fn write(&mut self, reg: u8, value: u8, now_ns: u64) -> Written {
        match reg & 7 {
            0 if self.dlab() => self.divisor = (self.divisor & 0xff00) | u16::from(value),
            0 => return self.transmit(value, now_ns),
            1 if self.dlab() => self.divisor = (self.divisor & 0x00ff) | (u16::from(value) << 8),
            1 => self.write_ier(value),
            2 => self.write_fcr(value),
            3 => self.lcr = value,
            4 => {
                self.mcr = Mcr::from_bits_truncate(value);
                self.update_modem_lines();
            }
            5 | 6 => {}
            _ => self.scratch = value,
        }
        Written::default()
    }

    /// Level of the interrupt line: the chip's INTR. A PC/AT's adapter gates it by OUT2; QEMU's does not, and kernels that
    /// were written with QEMU at hand never set OUT2.
    pub fn irq(&self) -> bool {
        self.cause() != NO_CAUSE
    }

    /// Puts bytes from outside on the wire, after those that already wait there.
    pub fn push_input(&mut self, bytes: &[u8]) {
        self.wire.extend(bytes);
    }

    /// True if a byte waits on the wire and the receiver has room for it.
    pub fn can_receive(&self) -> bool {
        !self.wire.is_empty() && !self.mcr.contains(Mcr::LOOP) && self.rx.len() < self.depth()
    }

    /// Moves one byte from the wire into the receiver if [`Uart::can_receive`]; returns whether it did.
    pub fn receive(&mut self, now_ns: u64) -> bool {
        if !self.can_receive() {
            return false;
        }
        if let Some(byte) = self.wire.pop_front() {
            self.take_in(byte, now_ns);
        }
        true
    }

    /// When [`Uart::time_out`] is to be called.
    pub fn time_out_ns(&self) -> Option<u64> {
        self.time_out_ns
    }

    /// Four character times have passed without a byte and without a read.
    pub fn time_out(&mut self) {
        self.time_out_ns = None;
        self.timed_out = true;
    }

    /// Nanoseconds that one character of ten bits takes at the programmed divisor of a 1.8432 MHz clock.
    pub fn char_time_ns(&self) -> u64 {
        u64::from(self.divisor.max(1)) * 16 * 10 * 1_000_000_000 / 1_843_200
    }

    fn dlab(&self) -> bool {
        self.lcr & LCR_DLAB != 0
    }

    fn fifo_enabled(&self) -> bool {
        self.fcr & FCR_ENABLE != 0
    }

    fn depth(&self) -> usize {
        if self.fifo_enabled() { FIFO_DEPTH } else { 1 }
    }

    /// A full receiver loses a byte: the new one if there is a FIFO, the old one if not (data sheet 8.4).
    fn take_in(&mut self, byte: u8, now_ns: u64) {
        if self.rx.len() >= self.depth() {
            self.overrun = true;
            if self.fifo_enabled() {
                return;
            }
            self.rx.clear();
        }
        self.rx.push_back(byte);
        self.await_time_out(now_ns);
    }

    fn take_received(&mut self, now_ns: u64) -> u8 {
        let byte = self.rx.pop_front().unwrap_or(0);
        self.timed_out = false;
        self.await_time_out(now_ns);
        byte
    }

    /// The FIFO's time begins anew, unless it is over.
    fn await_time_out(&mut self, now_ns: u64) {
        let waits = self.fifo_enabled() && !self.rx.is_empty() && !self.timed_out;
        let time = TIME_OUT_CHARACTERS * self.char_time_ns();
        self.time_out_ns = waits.then(|| now_ns.saturating_add(time));
    }

    /// The interrupt of the empty transmitter ends and comes again: the byte leaves at once.
    fn transmit(&mut self, value: u8, now_ns: u64) -> Written {
        self.thre_pending = false;
        let fell = !self.irq();
        self.thre_pending = true;
        if self.mcr.contains(Mcr::LOOP) {
            self.take_in(value, now_ns);
            return Written { sent: None, fell };
        }
        Written { sent: Some(value), fell }
    }

    fn read_lsr(&mut self) -> u8 {
        let ready = if self.rx.is_empty() { 0 } else { LSR_DATA_READY };
        let overrun = if std::mem::take(&mut self.overrun) { LSR_OVERRUN } else { 0 };
        LSR_IDLE | ready | overrun
    }

    /// Enabling the THRE interrupt while the transmitter is empty raises it (data sheet 8.7).
    fn write_ier(&mut self, value: u8) {
        let new = Ier::from_bits_truncate(value);
        if new.contains(Ier::THRE) != self.ier.contains(Ier::THRE) {
            self.thre_pending = new.contains(Ier::THRE);
        }
        self.ier = new;
    }

    /// Turning the FIFOs on or off empties them (data sheet 8.5). An emptied transmitter interrupts, as QEMU's does.
    fn write_fcr(&mut self, value: u8) {
        let toggled = (value ^ self.fcr) & FCR_ENABLE != 0;
        if toggled || value & FCR_CLEAR_RX != 0 {
            self.rx.clear();
            (self.timed_out, self.time_out_ns) = (false, None);
        }
        if toggled || value & FCR_CLEAR_TX != 0 {
            self.thre_pending |= self.ier.contains(Ier::THRE);
        }
        self.fcr = if value & FCR_ENABLE != 0 { value & 0xc9 } else { 0 };
    }

    fn read_iir(&mut self) -> u8 {
        let cause = self.cause();
        if cause == TRANSMITTER_EMPTY {
            self.thre_pending = false;
        }
        cause | if self.fifo_enabled() { 0xc0 } else { 0 }
    }

    /// The pending interrupt of highest priority as IIR bits 3-0; 1 is none (data sheet table IV).
    fn cause(&self) -> u8 {
        let full = !self.rx.is_empty() && (!self.fifo_enabled() || self.rx.len() >= self.trigger());
        if self.ier.contains(Ier::RLS) && self.overrun {
            0x06
        } else if self.ier.contains(Ier::RDA) && self.timed_out {
            0x0c
        } else if self.ier.contains(Ier::RDA) && full {
            0x04
        } else if self.ier.contains(Ier::THRE) && self.thre_pending {
            TRANSMITTER_EMPTY
        } else if self.ier.contains(Ier::MODEM) && self.msr & !MSR_LINES != 0 {
            0x00
        } else {
            NO_CAUSE
        }
    }

    fn trigger(&self) -> usize {
        match self.fcr >> 6 {
            0 => 1,
            1 => 4,
            2 => 8,
            _ => 14,
        }
    }

    /// In loop-back DTR, RTS, OUT1 and OUT2 drive DSR, CTS, RI and DCD (data sheet 8.8).
    fn update_modem_lines(&mut self) {
        let lines = if self.mcr.contains(Mcr::LOOP) {
            let from = |bit: Mcr, line: u8| if self.mcr.contains(bit) { line } else { 0 };
            from(Mcr::RTS, 0x10) | from(Mcr::DTR, 0x20) | from(Mcr::OUT1, MSR_RI) | from(Mcr::OUT2, 0x80)
        } else {
            MSR_ATTACHED
        };
        let old = self.msr & MSR_LINES;
        // Bit 2 (trailing edge of RI) is set only when RI goes inactive; the other deltas on any change.
        let mut deltas = (old ^ lines) >> 4;
        if lines & MSR_RI != 0 {
            deltas &= !0x04;
        }
        self.msr = lines | (self.msr & !MSR_LINES) | deltas;
    }
}

#[cfg(test)]
#[path = "uart16550_tests.rs"]
mod tests;
