//! The small ports: E9h debug console, 80h POST code, 92h fast A20 and reset.
//!
//! Each is a latch of a bit or a byte; what a latch causes (output, a reset) is its method's result.

use serde::{Deserialize, Serialize};

/// The byte that reading port E9h gives, by which software recognises the console (Bochs).
pub const DEBUG_CONSOLE_SIGNATURE: u8 = 0xe9;

/// Port E9h: what is written is output, what is read is [`DEBUG_CONSOLE_SIGNATURE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DebugConsole;

impl DebugConsole {
    /// Reads the port.
    pub fn read(self) -> u8 {
        DEBUG_CONSOLE_SIGNATURE
    }
}

/// Port 80h: the last diagnostic code and how many were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PostCode {
    last: u8,
    count: u64,
}

impl super::Stored for PostCode {
    const NAME: &str = "port 80h";
    const VERSION: u16 = 1;
}

impl super::Stored for FastA20 {
    const NAME: &str = "port 92h";
    const VERSION: u16 = 1;
}

impl PostCode {
    /// Writes a code.
    pub fn write(&mut self, value: u8) {
        self.last = value;
        self.count = self.count.saturating_add(1);
    }

    /// The last code written, 0 before the first.
    pub fn last(&self) -> u8 {
        self.last
    }

    /// Number of codes written.
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// Port 92h (PS/2 system control port A): bit 0 resets on its rising edge, bit 1 is A20.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FastA20 {
    value: u8,
}

impl Default for FastA20 {
    fn default() -> Self {
        Self { value: 0x02 }
    }
}

impl FastA20 {
    /// Reads the port.
    pub fn read(self) -> u8 {
        self.value
    }

    /// Writes the port; true if that asks for a reset.
    pub fn write(&mut self, value: u8) -> bool {
        let reset = value & !self.value & 0x01 != 0;
        self.value = value & 0x03;
        reset
    }

    /// True if address line 20 is enabled here.
    pub fn a20(self) -> bool {
        self.value & 0x02 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latches() {
        let mut post = PostCode::default();
        post.write(0x12);
        post.write(0x34);
        assert_eq!((post.last(), post.count()), (0x34, 2));
        let mut fast = FastA20::default();
        assert!(fast.a20());
        assert!(!fast.write(0x00));
        assert!(!fast.a20());
        assert!(fast.write(0x03));
        assert!(!fast.write(0x03), "only the rising edge resets");
        assert_eq!(DebugConsole.read(), 0xe9);
    }
}
