//! A UART with its interrupt wire and the pace of its receiver.

use super::wires::Wires;
use crate::devices::Uart;
use serde::{Deserialize, Serialize};

/// A UART on its wire.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Serial {
    pub uart: Uart,
    pub irq: u8,
    /// When the receiver can take the next character, in ns.
    ready_ns: u64,
}

impl Serial {
    pub fn new(irq: u8) -> Self {
        Self { uart: Uart::new(), irq, ready_ns: 0 }
    }

    fn next_character(&self) -> Option<u64> {
        self.uart.can_receive().then_some(self.ready_ns)
    }

    /// When the next character comes, or the receiver times out.
    pub fn next_event(&self) -> Option<u64> {
        super::earlier(self.next_character(), self.uart.time_out_ns())
    }

    /// Receives the characters that are due, one character time apart, and lets the receiver time out; returns whether
    /// anything was due.
    pub fn advance(&mut self, now_ns: u64) -> bool {
        let mut any = false;
        while let Some(at) = self.next_event().filter(|at| *at <= now_ns) {
            if self.next_character() == Some(at) {
                self.uart.receive(at);
                self.ready_ns = self.ready_ns.saturating_add(self.uart.char_time_ns());
            } else {
                self.uart.time_out();
            }
            any = true;
        }
        any
    }

    /// Reads a register of the chip.
    pub fn read(&mut self, register: u8, now_ns: u64) -> u8 {
        self.access(now_ns, |uart| uart.read(register, now_ns))
    }

    /// Writes a register of the chip; the byte that is sent, if any.
    pub fn write(&mut self, register: u8, value: u8, now_ns: u64, wires: &mut Wires) -> Option<u8> {
        let written = self.access(now_ns, |uart| uart.write(register, value, now_ns));
        if written.fell {
            wires.set_irq(self.irq, false);
        }
        written.sent
    }

    /// Accesses the chip. When that makes room in a full receiver, the next character arrives one character time from
    /// now.
    fn access<T>(&mut self, now_ns: u64, access: impl FnOnce(&mut Uart) -> T) -> T {
        let could = self.uart.can_receive();
        let result = access(&mut self.uart);
        if !could && self.uart.can_receive() {
            self.ready_ns = self.ready_ns.max(now_ns.saturating_add(self.uart.char_time_ns()));
        }
        result
    }

    /// Puts bytes on the wire at `now_ns`.
    pub fn input(&mut self, bytes: &[u8], now_ns: u64) {
        if !self.uart.can_receive() {
            self.ready_ns = self.ready_ns.max(now_ns);
        }
        self.uart.push_input(bytes);
    }
}
