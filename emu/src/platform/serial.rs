//! A UART with its interrupt wire and the pace of its receiver.

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

    pub fn next_event(&self) -> Option<u64> {
        self.uart.can_receive().then_some(self.ready_ns)
    }

    /// Receives the characters that are due, one character time apart; returns whether there were any.
    pub fn advance(&mut self, now_ns: u64) -> bool {
        let mut any = false;
        while self.next_event().is_some_and(|at| at <= now_ns) {
            self.uart.receive();
            self.ready_ns = self.ready_ns.saturating_add(self.uart.char_time_ns());
            any = true;
        }
        any
    }

    /// Accesses the chip. When that makes room in a full receiver, the next character arrives one character time from
    /// now.
    pub fn access<T>(&mut self, now_ns: u64, access: impl FnOnce(&mut Uart) -> T) -> T {
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
