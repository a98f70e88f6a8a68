//! The command side of a PS/2 keyboard and mouse.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use super::QUEUE_LIMIT;

const ACK: u8 = 0xfa;
const BAT_OK: u8 = 0xaa;
const RESEND: u8 = 0xfe;

/// Answers on their way to the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Queue {
    bytes: VecDeque<u8>,
    last: u8,
}

impl Queue {
    fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.bytes.len() < QUEUE_LIMIT {
                self.bytes.push_back(*byte);
            }
        }
    }

    fn take(&mut self) -> Option<u8> {
        let byte = self.bytes.pop_front()?;
        self.last = byte;
        Some(byte)
    }
}

/// The keyboard.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Keyboard {
    queue: Queue,
    /// The command whose operand is awaited.
    operand: Option<u8>,
    scanning: bool,
    set: u8,
    leds: u8,
}

impl Default for Keyboard {
    fn default() -> Self {
        Self { queue: Queue::default(), operand: None, scanning: true, set: 2, leds: 0 }
    }
}

impl Keyboard {
    /// True if key presses are reported.
    pub fn scanning(&self) -> bool {
        self.scanning
    }

    /// The next byte for the controller.
    pub fn take(&mut self) -> Option<u8> {
        self.queue.take()
    }

    /// Queues a byte that is not an answer.
    pub fn inject(&mut self, byte: u8) {
        self.queue.push(&[byte]);
    }

    /// A byte from the host; `translated` tells whether the controller translates what the keyboard sends.
    pub fn write(&mut self, value: u8, translated: bool) {
        match self.operand.take() {
            Some(command) => self.operand(command, value, translated),
            None => self.command(value, translated),
        }
    }

    fn operand(&mut self, command: u8, value: u8, translated: bool) {
        match (command, value) {
            (0xed, leds) => {
                self.leds = leds;
                self.queue.push(&[ACK]);
            }
            (0xf0, 0) => {
                let set = match (translated, self.set) {
                    (true, 1) => 0x43,
                    (true, 2) => 0x41,
                    (true, _) => 0x3f,
                    (false, set) => set,
                };
                self.queue.push(&[ACK, set]);
            }
            (0xf0, set @ 1..=3) => {
                self.set = set;
                self.queue.push(&[ACK]);
            }
            (0xf0, _) => self.queue.push(&[RESEND]),
            _ => self.queue.push(&[ACK]),
        }
    }

    fn command(&mut self, value: u8, translated: bool) {
        match value {
            0xed | 0xf0 | 0xf3 => {
                self.operand = Some(value);
                self.queue.push(&[ACK]);
            }
            0xee => self.queue.push(&[0xee]),
            0xf2 => self.queue.push(&[ACK, 0xab, if translated { 0x41 } else { 0x83 }]),
            0xf4 => {
                self.scanning = true;
                self.queue.push(&[ACK]);
            }
            0xf5 | 0xf6 => {
                *self = Self { scanning: value == 0xf6, ..Self::default() };
                self.queue.push(&[ACK]);
            }
            0xf7..=0xfd => self.queue.push(&[ACK]),
            RESEND => {
                let last = self.queue.last;
                self.queue.push(&[last]);
            }
            0xff => {
                *self = Self::default();
                self.queue.push(&[ACK, BAT_OK]);
            }
            // A probe of some drivers, which QEMU's keyboard acknowledges.
            0x00 => self.queue.push(&[ACK]),
            _ => self.queue.push(&[RESEND]),
        }
    }
}

/// The mouse. It never moves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Mouse {
    queue: Queue,
    operand: Option<u8>,
    status: u8,
    resolution: u8,
    rate: u8,
    wrap: bool,
}

impl Default for Mouse {
    fn default() -> Self {
        Self { queue: Queue::default(), operand: None, status: 0, resolution: 2, rate: 100, wrap: false }
    }
}

impl Mouse {
    const REMOTE: u8 = 0x40;
    const ENABLED: u8 = 0x20;
    const SCALE21: u8 = 0x10;

    /// The next byte for the controller.
    pub fn take(&mut self) -> Option<u8> {
        self.queue.take()
    }

    /// A byte from the host.
    pub fn write(&mut self, value: u8) {
        if self.wrap && !matches!(value, 0xec | 0xff) {
            return self.queue.push(&[value]);
        }
        match self.operand.take() {
            Some(0xe8) => self.resolution = value,
            Some(0xf3) => self.rate = value,
            Some(_) => {}
            None => return self.command(value),
        }
        self.queue.push(&[ACK]);
    }

    fn command(&mut self, value: u8) {
        match value {
            0xe6 => self.status &= !Self::SCALE21,
            0xe7 => self.status |= Self::SCALE21,
            0xe8 | 0xf3 => self.operand = Some(value),
            0xe9 => return self.queue.push(&[ACK, self.status, self.resolution, self.rate]),
            0xea => self.status &= !Self::REMOTE,
            0xeb => return self.queue.push(&[ACK, 0x08, 0x00, 0x00]),
            0xec => self.wrap = false,
            0xee => self.wrap = true,
            0xf0 => self.status |= Self::REMOTE,
            0xf2 => return self.queue.push(&[ACK, 0x00]),
            0xf4 => self.status |= Self::ENABLED,
            0xf5 => self.status &= !Self::ENABLED,
            0xf6 => {
                self.status = 0;
                self.resolution = 2;
                self.rate = 100;
            }
            0xff => {
                *self = Self::default();
                return self.queue.push(&[ACK, BAT_OK, 0x00]);
            }
            // QEMU's mouse ignores what it does not know.
            _ => return,
        }
        self.queue.push(&[ACK]);
    }
}
