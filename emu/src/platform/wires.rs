//! The interrupt wires: from the devices to the 8259s and the I/O APIC, from these to the local APIC, and to the CPU.

use super::config::gsi;
use crate::devices::lapic::Message;
use crate::devices::{IoApic, LocalApic, PicPair};
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};

/// The two APICs.
#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub(super) struct Apics {
    pub local: LocalApic,
    pub io: IoApic,
}

/// All interrupt controllers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Wires {
    pub pics: PicPair,
    pub apics: Option<Apics>,
}

impl Hash for Wires {
    /// The APICs are hashed elsewhere: a machine without them has the state that it always had.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.pics.hash(state);
    }
}

impl Apics {
    /// Hands on the message of an I/O APIC's pin.
    fn send(&mut self, pin: u8) {
        let message: Message = self.io.message(pin);
        if self.local.receive(&message) {
            self.io.accepted(pin);
        }
    }

    fn set_pin(&mut self, pin: u8, level: bool) {
        if self.io.set_line(pin, level) {
            self.send(pin);
        }
    }

    /// Whether the pin that `irq` drives already has this level.
    fn keeps(&self, irq: u8, level: bool) -> bool {
        gsi(irq).is_none_or(|pin| self.io.line(pin) == level)
    }

    pub fn write_io(&mut self, offset: u16, size: u8, value: u32) {
        if let Some(pin) = self.io.write(offset, size, value) {
            self.send(pin);
        }
    }

    pub fn write_local(&mut self, offset: u16, size: u8, value: u32, now_ns: u64) {
        if let Some(vector) = self.local.write(offset, size, value, now_ns) {
            let mut again = self.io.end_of_interrupt(vector);
            while again != 0 {
                let pin = again.trailing_zeros() as u8;
                again &= again - 1;
                self.send(pin);
            }
        }
    }

    /// Whether an interrupt of the 8259s gets through to the CPU.
    fn passes_extint(&self) -> bool {
        let through_io = || self.io.extint().is_some_and(|(id, logical)| self.local.addressed(id, logical));
        self.local.passes_extint() || through_io()
    }
}

impl Wires {
    pub fn new(apics: bool) -> Self {
        let apics = apics.then(|| Apics { local: LocalApic::new(), io: IoApic::new() });
        Self { pics: PicPair::new(), apics }
    }

    /// Drives ISA interrupt `irq`. The 8259s' output is up to date: see [`Wires::pics_accessed`].
    pub fn set_irq(&mut self, irq: u8, level: bool) {
        if self.pics.keeps(irq, level) && self.apics.as_ref().is_none_or(|apics| apics.keeps(irq, level)) {
            return;
        }
        self.pics.set_irq(irq, level);
        if let Some(apics) = &mut self.apics {
            if let Some(pin) = gsi(irq) {
                apics.set_pin(pin, level);
            }
            apics.local.set_lint0(self.pics.intr());
        }
    }

    /// Drives a pin of the I/O APIC, which no ISA interrupt drives then.
    pub fn set_pin(&mut self, pin: u8, level: bool) {
        if let Some(apics) = &mut self.apics {
            apics.set_pin(pin, level);
        }
    }

    /// A rising edge on a pin of the I/O APIC.
    pub fn pulse_pin(&mut self, pin: u8) {
        self.set_pin(pin, false);
        self.set_pin(pin, true);
    }

    /// A rising edge on `irq`, whatever its level was; it stays high.
    pub fn pulse_irq(&mut self, irq: u8) {
        self.set_irq(irq, false);
        self.set_irq(irq, true);
    }

    /// The 8259s' registers have been accessed: their output may have changed.
    pub fn pics_accessed(&mut self) {
        if let Some(apics) = &mut self.apics {
            apics.local.set_lint0(self.pics.intr());
        }
    }

    /// Whether the CPU is asked to take an interrupt.
    #[inline]
    pub fn intr(&self) -> bool {
        match &self.apics {
            None => self.pics.intr(),
            Some(apics) => apics.local.pending().is_some() || (self.pics.intr() && apics.passes_extint()),
        }
    }

    /// The CPU takes the interrupt: the local APIC's before the 8259s'.
    pub fn acknowledge(&mut self, now_ns: u64) -> u8 {
        let vector = match &mut self.apics {
            Some(apics) if apics.local.pending().is_some() => apics.local.acknowledge(now_ns),
            _ => self.pics.acknowledge(),
        };
        self.pics_accessed();
        vector
    }
}
