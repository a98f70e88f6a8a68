//! The I/O APIC (Intel 82093AA data sheet, order 290566): 24 pins, one redirection entry each.
//!
//! It makes messages and does not know their receiver: the caller hands them on and reports whether they were accepted.
//! Polarity is stored but has no effect: callers pass whether a pin is asserted. An edge that comes while its pin is
//! masked is lost, as on the chip.

use super::lapic::{Delivery, Message};
use serde::{Deserialize, Serialize};

/// Where its registers are, physical.
pub const IOAPIC_BASE: u64 = 0xfec0_0000;
/// Input pins.
pub const PINS: u8 = 24;

/// Version 11h, last entry 23.
const VERSION: u32 = 0x0017_0011;
const MASKED: u64 = 1 << 16;
const LEVEL: u64 = 1 << 15;
const REMOTE_IRR: u64 = 1 << 14;
/// Delivery status is never pending here; it and the remote IRR are read-only.
const WRITABLE: u64 = 0xff00_0000_0001_afff;

/// The I/O APIC.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IoApic {
    id: u32,
    select: u8,
    redirection: [u64; PINS as usize],
    lines: u32,
}

impl Default for IoApic {
    fn default() -> Self {
        Self::new()
    }
}

impl super::Stored for IoApic {
    const NAME: &str = "I/O APIC";
    const VERSION: u16 = 1;
}

impl IoApic {
    /// After reset: all pins masked; firmware has given it the ID that its tables say.
    pub fn new() -> Self {
        Self { id: 1 << 24, select: 0, redirection: [MASKED; PINS as usize], lines: 0 }
    }

    fn entry(&self, pin: u8) -> u64 {
        self.redirection.get(usize::from(pin)).copied().unwrap_or(MASKED)
    }

    /// Whether `pin` is asserted.
    #[inline]
    pub fn line(&self, pin: u8) -> bool {
        self.lines >> (pin & 31) & 1 != 0
    }

    /// Drives `pin`; true when there is now a message for [`IoApic::message`].
    #[must_use]
    pub fn set_line(&mut self, pin: u8, asserted: bool) -> bool {
        if self.line(pin) == asserted {
            return false;
        }
        self.lines ^= 1 << (pin & 31);
        asserted && self.entry(pin) & MASKED == 0 && self.entry(pin) & REMOTE_IRR == 0
    }

    /// Whether a level-triggered pin asks for service that it does not have.
    fn asks(&self, pin: u8) -> bool {
        let waiting = self.entry(pin) & (MASKED | LEVEL | REMOTE_IRR) == LEVEL;
        waiting && self.line(pin)
    }

    /// The message of `pin`.
    pub fn message(&self, pin: u8) -> Message {
        let entry = self.entry(pin);
        Message {
            delivery: Delivery::from_bits((entry >> 8) as u32),
            vector: entry as u8,
            destination: (entry >> 56) as u8,
            logical: entry >> 11 & 1 != 0,
            level: entry & LEVEL != 0,
        }
    }

    /// A local APIC has accepted the message of `pin`: a level-triggered one waits for the end of the interrupt.
    pub fn accepted(&mut self, pin: u8) {
        if let Some(entry) = self.redirection.get_mut(usize::from(pin)).filter(|e| **e & LEVEL != 0) {
            *entry |= REMOTE_IRR;
        }
    }

    /// The interrupt with this vector has ended; gives the pins, one bit each, that ask again.
    pub fn end_of_interrupt(&mut self, vector: u8) -> u32 {
        let mut again = 0;
        for pin in 0..PINS {
            if let Some(entry) = self.redirection.get_mut(usize::from(pin))
                && *entry as u8 == vector
                && *entry & REMOTE_IRR != 0
            {
                *entry &= !REMOTE_IRR;
                again |= u32::from(self.asks(pin)) << pin;
            }
        }
        again
    }

    /// Where the interrupts of an 8259 at pin 0 go, if that pin lets them through: destination, and whether it is logical.
    #[inline]
    pub fn extint(&self) -> Option<(u8, bool)> {
        let message = self.message(0);
        let open = self.entry(0) & MASKED == 0 && message.delivery == Delivery::ExtInt;
        open.then_some((message.destination, message.logical))
    }

    /// Reads at `offset` of its page: the index register, or the window on the register that it selects.
    pub fn read(&self, offset: u16, size: u8) -> u32 {
        let value = match offset & !3 {
            0x00 => self.select.into(),
            0x10 => self.register(),
            _ => 0,
        };
        let mask = u32::MAX >> (32 - 8 * u32::from(size.clamp(1, 4)));
        value >> (8 * (offset & 3)) & mask
    }

    fn register(&self) -> u32 {
        match self.select {
            0 | 2 => self.id,
            1 => VERSION,
            index @ 0x10..=0x3f => {
                let entry = self.entry((index - 0x10) / 2);
                if index & 1 == 0 { entry as u32 } else { (entry >> 32) as u32 }
            }
            _ => 0,
        }
    }

    /// Writes 32 bits at `offset`, or the index register in any size; gives the pin that has a message now.
    #[must_use]
    pub fn write(&mut self, offset: u16, size: u8, value: u32) -> Option<u8> {
        match (offset, size) {
            (0x00, _) => {
                self.select = value as u8;
                None
            }
            (0x10, 4) => self.write_register(value),
            _ => None,
        }
    }

    fn write_register(&mut self, value: u32) -> Option<u8> {
        if self.select == 0 {
            self.id = value & 0x0f00_0000;
        }
        let index = self.select.checked_sub(0x10)?;
        let pin = index / 2;
        let entry = self.redirection.get_mut(usize::from(pin))?;
        let shift = 32 * u32::from(index & 1);
        let mask = WRITABLE & 0xffff_ffff << shift;
        *entry = *entry & !mask | u64::from(value) << shift & mask;
        if *entry & LEVEL == 0 {
            // Software clears the remote IRR of an old chip by this.
            *entry &= !REMOTE_IRR;
        }
        self.asks(pin).then_some(pin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(io: &mut IoApic, pin: u8, entry: u64) -> Option<u8> {
        for (index, half) in [(0x11 + 2 * pin, entry >> 32), (0x10 + 2 * pin, entry)] {
            assert_eq!(io.write(0x00, 4, index.into()), None);
            let asks = io.write(0x10, 4, half as u32);
            if index & 1 == 0 {
                return asks;
            }
        }
        None
    }

    #[test]
    fn an_edge_is_one_message_and_is_lost_while_masked() {
        let mut io = IoApic::new();
        assert!(!io.set_line(4, true));
        assert_eq!(program(&mut io, 4, 0x34), None, "the edge came too early");
        assert!(!io.set_line(4, false));
        assert!(io.set_line(4, true) && !io.set_line(4, true));
        let message = io.message(4);
        assert_eq!((message.vector, message.level, message.destination), (0x34, false, 0));
        io.accepted(4);
        assert!(!io.set_line(4, false) && io.set_line(4, true), "no end of interrupt is needed");
    }

    #[test]
    fn a_level_asks_until_it_is_dropped() {
        let mut io = IoApic::new();
        assert!(!io.set_line(10, true));
        assert_eq!(
            program(&mut io, 10, 0x0100_0000_0000_8000 | 0x880 | 0x15a),
            Some(10),
            "unmasked while asserted"
        );
        let message = io.message(10);
        assert_eq!(
            (message.vector, message.level, message.destination, message.logical),
            (0xda, true, 1, true)
        );
        io.accepted(10);
        assert!(!io.set_line(10, false) && !io.set_line(10, true), "it waits for the end of the interrupt");
        assert_eq!(io.end_of_interrupt(0x11), 0);
        assert_eq!(io.end_of_interrupt(0xda), 1 << 10);
        io.accepted(10);
        assert!(!io.set_line(10, false));
        assert_eq!(io.end_of_interrupt(0xda), 0);
    }

    #[test]
    fn making_it_an_edge_forgets_what_it_waits_for() {
        let mut io = IoApic::new();
        assert!(!io.set_line(9, true));
        assert_eq!(program(&mut io, 9, LEVEL | 0x39), Some(9));
        io.accepted(9);
        assert_eq!(program(&mut io, 9, MASKED | 0x39), None);
        assert_eq!(program(&mut io, 9, LEVEL | 0x39), Some(9));
    }

    #[test]
    fn registers_read_back() {
        let mut io = IoApic::new();
        for (index, value) in [(0, 0x0100_0000), (1, 0x0017_0011), (0x10, 0x1_0000), (0x40, 0), (0x0f, 0)] {
            assert_eq!(io.write(0, 1, index), None);
            assert_eq!(io.read(0x10, 4), value);
        }
        program(&mut io, 23, u64::MAX);
        assert_eq!(io.read(0x10, 4), 0x1_afff);
        assert_eq!((io.read(0x00, 1), io.read(0x20, 4), io.write(0x10, 2, 7)), (0x3e, 0, None));
        assert_eq!(io.extint(), None);
        program(&mut io, 0, 0x700);
        assert_eq!(io.extint(), Some((0, false)));
    }
}
