//! The 16550A UART (National Semiconductor PC16550D data sheet), without its baud-rate timing.
//!
//! Transmission is instant: the byte is the return value of [`Uart::write`] and the transmitter is empty again at
//! once. Reception has two stages: [`Uart::push_input`] puts bytes on the wire, [`Uart::receive`] moves one of them
//! into the receiver; the attachment paces it by [`Uart::char_time_ns`]. Nothing is ever overrun: a byte waits on the
//! wire until the receiver has room. Not modelled: parity, framing errors, breaks and DMA modes.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use bitflags::bitflags;

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
        /// General output 2: on a PC it gates the interrupt line.
        const OUT2 = 0x08;
        /// Loop-back.
        const LOOP = 0x10;
    }
}

const LSR_DATA_READY: u8 = 0x01;
const LSR_IDLE: u8 = 0x60;
const LCR_DLAB: u8 = 0x80;
const FCR_ENABLE: u8 = 0x01;
const FCR_CLEAR_RX: u8 = 0x02;
const MSR_LINES: u8 = 0xf0;
const MSR_RI: u8 = 0x40;
/// Carrier, data set ready and clear to send: a terminal is attached.
const MSR_ATTACHED: u8 = 0xb0;
const FIFO_DEPTH: usize = 16;

/// One 16550A with the host's input waiting on its wire.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
}

impl Default for Uart {
    fn default() -> Self {
        Self::new()
    }
}

impl super::Stored for Uart {
    const NAME: &str = "16550 serial port";
    const VERSION: u16 = 1;
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
        }
    }

    /// Reads register `reg` (0 to 7, address lines A2-A0); other bits of `reg` are ignored.
    pub fn read(&mut self, reg: u8) -> u8 {
        match reg & 7 {
            0 if self.dlab() => self.divisor.to_le_bytes()[0],
            0 => self.rx.pop_front().unwrap_or(0),
            1 if self.dlab() => self.divisor.to_le_bytes()[1],
            1 => self.ier.bits(),
            2 => self.read_iir(),
            3 => self.lcr,
            4 => self.mcr.bits(),
            5 => LSR_IDLE | if self.rx.is_empty() { 0 } else { LSR_DATA_READY },
            6 => {
                let value = self.msr;
                self.msr &= MSR_LINES;
                value
            }
            _ => self.scratch,
        }
    }

    /// Writes register `reg` (0 to 7); the result is the byte that left through the transmitter, if any.
    pub fn write(&mut self, reg: u8, value: u8) -> Option<u8> {
        match reg & 7 {
            0 if self.dlab() => self.divisor = (self.divisor & 0xff00) | u16::from(value),
            0 => return self.transmit(value),
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
        None
    }

    /// Level of the interrupt line as the PC wires it: the chip's INTR, gated by OUT2.
    pub fn irq(&self) -> bool {
        self.mcr.contains(Mcr::OUT2) && self.cause() != 0x01
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
    pub fn receive(&mut self) -> bool {
        if !self.can_receive() {
            return false;
        }
        if let Some(byte) = self.wire.pop_front() {
            self.rx.push_back(byte);
        }
        true
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

    fn transmit(&mut self, value: u8) -> Option<u8> {
        self.thre_pending = true;
        if !self.mcr.contains(Mcr::LOOP) {
            return Some(value);
        }
        if self.rx.len() < self.depth() {
            self.rx.push_back(value);
        }
        None
    }

    /// Enabling the THRE interrupt while the transmitter is empty raises it (data sheet 8.7).
    fn write_ier(&mut self, value: u8) {
        let new = Ier::from_bits_truncate(value);
        if new.contains(Ier::THRE) != self.ier.contains(Ier::THRE) {
            self.thre_pending = new.contains(Ier::THRE);
        }
        self.ier = new;
    }

    /// Turning the FIFOs on or off empties them (data sheet 8.5).
    fn write_fcr(&mut self, value: u8) {
        let toggled = (value ^ self.fcr) & FCR_ENABLE != 0;
        if toggled || value & FCR_CLEAR_RX != 0 {
            self.rx.clear();
        }
        self.fcr = if value & FCR_ENABLE != 0 { value & 0xc9 } else { 0 };
    }

    fn read_iir(&mut self) -> u8 {
        let cause = self.cause();
        if cause == 0x02 {
            self.thre_pending = false;
        }
        cause | if self.fifo_enabled() { 0xc0 } else { 0 }
    }

    /// The pending interrupt of highest priority as IIR bits 3-0; 1 is none (data sheet table IV).
    fn cause(&self) -> u8 {
        if self.ier.contains(Ier::RDA) && !self.rx.is_empty() {
            // Below the trigger level the character time-out is due at once: input is never in mid-flight.
            if self.fifo_enabled() && self.rx.len() < self.trigger() { 0x0c } else { 0x04 }
        } else if self.ier.contains(Ier::THRE) && self.thre_pending {
            0x02
        } else if self.ier.contains(Ier::MODEM) && self.msr & !MSR_LINES != 0 {
            0x00
        } else {
            0x01
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
mod tests {
    use super::*;

    #[test]
    fn divisor_latch_hides_data_and_ier() {
        let mut uart = Uart::new();
        uart.write(3, 0x83);
        assert_eq!(uart.write(0, 0x01), None);
        uart.write(1, 0x00);
        assert_eq!((uart.read(0), uart.read(1)), (1, 0));
        assert_eq!(uart.char_time_ns(), 86_805);
        uart.write(3, 0x03);
        assert_eq!(uart.write(0, b'A'), Some(b'A'));
        assert_eq!(uart.read(1), 0);
    }

    #[test]
    fn thre_interrupt_is_raised_by_enabling_and_cleared_by_reading_iir() {
        let mut uart = Uart::new();
        uart.write(1, 0x02);
        assert!(uart.irq());
        assert_eq!(uart.read(2), 0x02);
        assert!(!uart.irq());
        assert_eq!(uart.read(2), 0x01);
        uart.write(0, b'x');
        assert!(uart.irq());
        uart.write(1, 0);
        assert!(!uart.irq());
    }

    #[test]
    fn out2_gates_the_line() {
        let mut uart = Uart::new();
        uart.write(1, 0x02);
        uart.write(4, 0x03);
        assert!(!uart.irq());
        uart.write(4, 0x0b);
        assert!(uart.irq());
    }

    #[test]
    fn input_waits_on_the_wire_until_there_is_room() {
        let mut uart = Uart::new();
        uart.write(1, 0x01);
        uart.push_input(b"ab");
        assert_eq!(uart.read(5), 0x60);
        assert!(uart.receive());
        assert!(!uart.receive(), "without FIFOs the receiver holds one byte");
        assert_eq!(uart.read(5), 0x61);
        assert_eq!(uart.read(2), 0x04);
        assert_eq!(uart.read(0), b'a');
        assert!(!uart.irq());
        assert!(uart.receive());
        assert_eq!(uart.read(0), b'b');
    }

    #[test]
    fn fifo_trigger_and_time_out() {
        let mut uart = Uart::new();
        uart.write(2, 0x81);
        uart.write(1, 0x01);
        uart.push_input(&[0; 20]);
        assert!(uart.receive());
        assert_eq!(uart.read(2), 0xcc);
        while uart.receive() {}
        assert_eq!(uart.read(2), 0xc4);
        uart.write(2, 0x83);
        assert_eq!(uart.read(2), 0xc1);
        assert!(uart.can_receive(), "the four bytes still on the wire were not lost");
    }

    #[test]
    fn loop_back_as_linux_probes_it() {
        let mut uart = Uart::new();
        uart.write(4, 0x1a);
        assert_eq!(uart.read(6) & 0xf0, 0x90);
        assert_eq!(uart.write(0, 0x5a), None);
        assert_eq!(uart.read(0), 0x5a);
        uart.write(4, 0x0b);
        assert_eq!(uart.read(6) & 0xf0, 0xb0);
    }

    #[test]
    fn scratch_and_read_only_registers() {
        let mut uart = Uart::new();
        uart.write(7, 0xa5);
        uart.write(5, 0);
        assert_eq!((uart.read(7), uart.read(5)), (0xa5, 0x60));
        uart.write(1, 0xff);
        assert_eq!(uart.read(1), 0x0f);
    }
}
