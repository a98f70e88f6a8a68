//! The registers of a PC/AT's two 8237A DMA controllers (Intel 8237A data sheet, order 231466) with their page
//! registers (74LS612). No device of this machine asks for a transfer, so there is none: what software programs reads
//! back, and nothing else happens.

use serde::{Deserialize, Serialize};

/// A channel's registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Channel {
    /// Base address and base count.
    base: [[u8; 2]; 2],
    /// Current address and current count, which are what reads give.
    current: [[u8; 2]; 2],
    mode: u8,
}

/// One 8237A.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dma8237 {
    channels: [Channel; 4],
    command: u8,
    /// Bits 3-0: software requests, which status shows in bits 7-4.
    request: u8,
    /// Bits 3-0: channels switched off.
    mask: u8,
    /// True if the next access to an address or count is to its high byte.
    high: bool,
}

impl Default for Dma8237 {
    fn default() -> Self {
        Self { channels: [Channel::default(); 4], command: 0, request: 0, mask: 0x0f, high: false }
    }
}

impl Dma8237 {
    /// Reads register `index` (0-15). Status is 8, temporary 13; the mask register reads back as on chip sets.
    pub fn read(&mut self, index: u8) -> u8 {
        match index & 15 {
            index @ 0..=7 => {
                let byte = self.flip();
                let channel = &self.channels[usize::from(index >> 1)];
                channel.current[usize::from(index & 1)][byte]
            }
            8 => self.request << 4,
            15 => 0xf0 | self.mask,
            _ => 0,
        }
    }

    /// Writes register `index` (0-15).
    pub fn write(&mut self, index: u8, value: u8) {
        let bit = 1u8 << (value & 3);
        match index & 15 {
            index @ 0..=7 => {
                let byte = self.flip();
                let channel = &mut self.channels[usize::from(index >> 1)];
                channel.base[usize::from(index & 1)][byte] = value;
                channel.current[usize::from(index & 1)][byte] = value;
            }
            8 => self.command = value,
            9 => self.request = if value & 4 != 0 { self.request | bit } else { self.request & !bit },
            10 => self.mask = if value & 4 != 0 { self.mask | bit } else { self.mask & !bit },
            11 => self.channels[usize::from(value & 3)].mode = value & 0xfc,
            12 => self.high = false,
            13 => {
                (self.command, self.request, self.mask, self.high) = (0, 0, 0x0f, false);
            }
            14 => self.mask = 0,
            _ => self.mask = value & 0x0f,
        }
    }

    /// The byte that this access is to; the next is to the other.
    fn flip(&mut self) -> usize {
        let byte = usize::from(self.high);
        self.high = !self.high;
        byte
    }
}

/// Both controllers (channels 0-3 and 4-7) and the page registers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DmaPair {
    /// Channels 0 to 3, at ports 00h-0Fh.
    pub low: Dma8237,
    /// Channels 4 to 7, at every second port from C0h.
    pub high: Dma8237,
    pages: [u8; 16],
}

impl super::Stored for DmaPair {
    const NAME: &str = "8237 DMA controllers";
    const VERSION: u16 = 1;
}

impl DmaPair {
    /// Reads the page register at `index` (port 80h + index; of 80h itself there is none).
    pub fn read_page(&self, index: u8) -> u8 {
        self.pages[usize::from(index & 15)]
    }

    /// Writes the page register at `index`.
    pub fn write_page(&mut self, index: u8, value: u8) {
        self.pages[usize::from(index & 15)] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_counts_read_back_byte_by_byte() {
        let mut dma = Dma8237::default();
        dma.write(12, 0);
        for (index, value) in [(4, 0x34), (4, 0x12), (5, 0xff), (5, 0x01)] {
            dma.write(index, value);
        }
        assert_eq!([4, 4, 5, 5].map(|index| dma.read(index)), [0x34, 0x12, 0xff, 0x01]);
        dma.read(4);
        dma.write(12, 0);
        assert_eq!(dma.read(4), 0x34);
    }

    #[test]
    fn masks_and_requests() {
        let mut dma = Dma8237::default();
        assert_eq!(dma.read(15), 0xff);
        dma.write(10, 2);
        assert_eq!(dma.read(15), 0xfb);
        dma.write(14, 0);
        assert_eq!(dma.read(15), 0xf0);
        dma.write(15, 0x05);
        assert_eq!(dma.read(15), 0xf5);
        dma.write(9, 4 | 1);
        assert_eq!(dma.read(8), 0x20);
        dma.write(13, 0);
        assert_eq!((dma.read(8), dma.read(15)), (0, 0xff));
    }

    #[test]
    fn pages_hold_what_is_written() {
        let mut dma = DmaPair::default();
        dma.write_page(1, 0xab);
        assert_eq!((dma.read_page(1), dma.read_page(2)), (0xab, 0));
    }
}
