//! The PCI transport (virtio 1.2, chapter 4.1) over the registers of the memory-mapped one: a function's capabilities, and its
//! page of registers. Interrupts come by the wire; there is no MSI-X.

use super::mmio::VirtioMmio;
use super::queue::MAX_SIZE;
use crate::devices::pci::{PciFunction, WINDOW};

/// Where the parts lie in the page behind the first base address register.
const COMMON: u16 = 0;
const ISR: u16 = 0x100;
const NOTIFY: u16 = 0x200;
const DEVICE: u16 = 0x300;
const VENDOR: u16 = 0x1af4;
/// The device number of virtio 1 devices is this and the device's identifier.
const FIRST_DEVICE: u16 = 0x1040;
/// No vector.
const NO_VECTOR: u32 = 0xffff;

/// A vendor-specific capability (4.1.4): its type, and where the structure lies.
fn capability(kind: u8, offset: u16, length: u32, more: &[u8]) -> Vec<u8> {
    // Its identifier; here the link is left out. Its length counts both.
    let mut bytes = vec![9, 16 + more.len() as u8, kind, 0, 0, 0, 0];
    bytes.extend(u32::from(offset).to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend(more);
    bytes
}

impl VirtioMmio {
    /// Its function on the PCI bus, with its registers at `base`.
    pub(crate) fn pci_function(&self, slot: u8, base: u32, irq: u8) -> PciFunction {
        let id = self.function().device_id() as u16;
        let class = match id {
            2 => 0x01_0000,
            3 => 0x07_8000,
            _ => 0xff_0000,
        };
        let capabilities = [
            capability(1, COMMON, 0x38, &[]),
            capability(3, ISR, 1, &[]),
            // All queues notify at one place.
            capability(2, NOTIFY, 4, &0u32.to_le_bytes()),
            capability(4, DEVICE, 0x100, &[]),
            // What is accessed, and the data, are the driver's (4.1.4.9).
            capability(WINDOW, 0, 0, &0u32.to_le_bytes()),
        ];
        PciFunction::device(slot, (VENDOR, FIRST_DEVICE + id), class, base, irq, &capabilities)
    }

    /// Reads `size` bytes of the page.
    pub fn pci_read(&mut self, offset: u16, size: u8) -> u32 {
        match offset {
            0..0x38 => self.read_common(offset),
            ISR => {
                // Reading it takes the interrupt back (4.1.4.5).
                let isr = self.read(0x60, 4);
                self.write(0x64, 4, isr, 0);
                isr
            }
            DEVICE.. => self.read(0x100 + (offset - DEVICE), size),
            _ => 0,
        }
    }

    fn read_common(&mut self, offset: u16) -> u32 {
        match offset {
            0x04 => self.read(0x10, 4),
            0x10 | 0x1a => NO_VECTOR,
            0x12 => self.function().queues() as u32,
            0x14 => self.read(0x70, 4),
            0x18 if self.read(0x34, 4) != 0 => MAX_SIZE.into(),
            0x1c => self.read(0x44, 4),
            _ => 0,
        }
    }

    /// Writes `size` bytes of the page.
    pub fn pci_write(&mut self, offset: u16, _size: u8, value: u32, now_ns: u64) {
        let register = match offset {
            0x00 => 0x14,
            0x08 => 0x24,
            0x0c => 0x20,
            0x14 => 0x70,
            0x16 => 0x30,
            0x18 => 0x38,
            0x1c => 0x44,
            0x20 => 0x80,
            0x24 => 0x84,
            0x28 => 0x90,
            0x2c => 0x94,
            0x30 => 0xa0,
            0x34 => 0xa4,
            NOTIFY => 0x50,
            _ => return,
        };
        self.write(register, 4, value, now_ns);
    }
}
