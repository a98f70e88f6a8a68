//! PCI configuration space, mechanism 1 (PCI 3.0, 3.2.2.3.2): one bus with a host bridge, an ISA bridge, and the virtio devices
//! that are plugged in.
//!
//! The bridges have the identifiers of the chips that QEMU's `pc` has, a 440FX and a PIIX3, and of their registers only those
//! of the common header. A function's base address is the one that firmware has given it: a guest can ask for its size, but
//! not move it.

use serde::{Deserialize, Serialize};

/// CONFIG_ADDRESS: its reserved bits read 0.
const ADDRESS_BITS: u32 = 0x80ff_fffc;
const ENABLED: u32 = 1 << 31;
/// Bits of the command register that a guest can set: I/O, memory, bus master, no interrupt.
const COMMAND_BITS: u16 = 0x0407;
/// Bits of the status register: there is a list of capabilities.
const HAS_CAPABILITIES: u16 = 0x10;
/// Bytes of configuration space that have a meaning here: the header, and the capabilities after it.
const SPACE: usize = 0xc0;
/// Bytes behind a base address register.
pub const BAR_BYTES: u32 = 0x1000;
/// The kind of a virtio capability through which the driver accesses what is behind a base address register.
pub const WINDOW: u8 = 5;
/// Where its fields lie (virtio 1.2, 4.1.4.9): the number of the base address register, and what is accessed.
const WINDOW_BAR: usize = 4;
const WINDOW_OFFSET: usize = 8;
const WINDOW_LENGTH: usize = 12;
const WINDOW_DATA: usize = 16;

/// An access to the registers of a device, made through its configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The function's device number.
    pub slot: u8,
    /// The first byte behind the base address register.
    pub offset: u16,
    /// Bytes: 1, 2 or 4.
    pub length: u8,
}

/// The configuration space of one function.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PciFunction {
    /// Device number on bus 0.
    slot: u8,
    /// What the guest cannot change, but for the capability of a window.
    #[serde(with = "super::bytes")]
    fixed: [u8; SPACE],
    command: u16,
    /// The interrupt line as the guest has noted it.
    line: u8,
    /// Whether the guest is asking for the size of the first base address register.
    sizing: bool,
}

impl PciFunction {
    /// A function by vendor and device, class, and type of header.
    fn new(slot: u8, (vendor, device): (u16, u16), class: u32, header_type: u8) -> Self {
        let mut function = Self { slot, fixed: [0; SPACE], command: 0, line: 0, sizing: false };
        function.put(0, &vendor.to_le_bytes());
        function.put(2, &device.to_le_bytes());
        function.put(8, &(class << 8).to_le_bytes());
        function.put(14, &[header_type]);
        function
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (to, from) in self.fixed.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    }

    /// The bridge between the CPU and the bus.
    pub fn host_bridge() -> Self {
        Self::new(0, (0x8086, 0x1237), 0x06_0000, 0)
    }

    /// The bridge to the ISA bus.
    pub fn isa_bridge() -> Self {
        Self::new(1, (0x8086, 0x7000), 0x06_0100, 0x80)
    }

    /// A device with registers in memory at `base`, an interrupt, and these capabilities, each without its link.
    pub fn device(
        slot: u8,
        ids: (u16, u16),
        class: u32,
        base: u32,
        irq: u8,
        capabilities: &[Vec<u8>],
    ) -> Self {
        let mut function = Self::new(slot, ids, class, 0);
        function.put(0x08, &[1]);
        function.put(0x10, &base.to_le_bytes());
        function.put(0x2c, &ids.0.to_le_bytes());
        function.put(0x2e, &ids.1.to_le_bytes());
        function.put(0x3d, &[1]);
        function.line = irq;
        // As firmware leaves it: memory accesses are answered.
        function.command = 2;
        let mut at = 0x40;
        if !capabilities.is_empty() {
            function.put(0x06, &HAS_CAPABILITIES.to_le_bytes());
            function.put(0x34, &[at as u8]);
        }
        for (n, capability) in capabilities.iter().enumerate() {
            let next = if n + 1 < capabilities.len() { at + capability.len() + 1 } else { 0 };
            function.put(at, capability.get(..1).unwrap_or_default());
            function.put(at + 1, &[next as u8]);
            function.put(at + 2, capability.get(1..).unwrap_or_default());
            at = next;
        }
        function
    }

    fn word(&self, at: usize) -> u32 {
        self.fixed.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
    }

    fn base(&self) -> u32 {
        self.word(0x10)
    }

    /// Where the capability of the window lies.
    fn window_at(&self) -> Option<usize> {
        let byte = |at: usize| self.fixed.get(at).copied().unwrap_or(0);
        let mut at = usize::from(byte(0x34));
        // Each capability lies after the one before it.
        while at != 0 && byte(at + 3) != WINDOW {
            at = Some(usize::from(byte(at + 1))).filter(|next| *next > at)?;
        }
        (at != 0).then_some(at)
    }

    /// The access that the window makes, if it can be made.
    fn window(&self) -> Option<Window> {
        const MEMORY: u16 = 2;
        let at = self.window_at()?;
        let bar = self.fixed.get(at + WINDOW_BAR)?;
        let (offset, length) = (self.word(at + WINDOW_OFFSET), self.word(at + WINDOW_LENGTH));
        let aligned = matches!(length, 1 | 2 | 4) && offset % length == 0 && offset < BAR_BYTES;
        let can = *bar == 0 && aligned && self.command & MEMORY != 0;
        can.then_some(Window { slot: self.slot, offset: offset as u16, length: length as u8 })
    }

    /// Writes a register of the window's capability.
    fn write_window(&mut self, at: usize, value: u32, mask: u32) {
        let Some(window) = self.window_at().filter(|window| at >= *window) else { return };
        let mask = match at - window {
            WINDOW_BAR => mask & 0xff,
            WINDOW_OFFSET | WINDOW_LENGTH | WINDOW_DATA => mask,
            _ => return,
        };
        let new = self.word(at) & !mask | value & mask;
        self.put(at, &new.to_le_bytes());
    }

    fn read(&self, at: u8) -> u32 {
        let at = usize::from(at & 0xfc);
        let word = self.word(at);
        match at {
            0x04 => word | u32::from(self.command),
            0x10 if self.sizing && self.base() != 0 => BAR_BYTES.wrapping_neg(),
            0x3c => word | u32::from(self.line),
            _ => word,
        }
    }

    /// Writes the bytes of `mask` of a register.
    fn write(&mut self, at: u8, value: u32, mask: u32) {
        match at & 0xfc {
            0x04 => {
                let new = u32::from(self.command) & !mask | value & mask;
                self.command = new as u16 & COMMAND_BITS;
            }
            0x10 => self.sizing = value & mask == mask && mask != 0,
            0x3c if mask & 0xff != 0 => self.line = value as u8,
            at => self.write_window(at.into(), value, mask),
        }
    }
}

/// The bus.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PciBus {
    address: u32,
    functions: Vec<PciFunction>,
}

impl super::Stored for PciBus {
    const NAME: &str = "PCI bus";
    const VERSION: u16 = 1;
}

impl PciBus {
    /// The bridges, and these devices.
    pub fn new(devices: Vec<PciFunction>) -> Self {
        let bridges = [PciFunction::host_bridge(), PciFunction::isa_bridge()];
        Self { address: 0, functions: bridges.into_iter().chain(devices).collect() }
    }

    /// CONFIG_ADDRESS.
    pub fn address(&self) -> u32 {
        self.address
    }

    /// Writes CONFIG_ADDRESS.
    pub fn set_address(&mut self, value: u32) {
        self.address = value & ADDRESS_BITS;
    }

    /// Its functions.
    pub fn functions(&self) -> &[PciFunction] {
        &self.functions
    }

    /// The selected function, by its number in the list.
    fn selected(&self) -> Option<usize> {
        let address = self.address;
        let (bus, slot, function) = (address >> 16 & 0xff, address >> 11 & 0x1f, address >> 8 & 7);
        let here = address & ENABLED != 0 && bus == 0 && function == 0;
        self.functions.iter().position(|f| here && u32::from(f.slot) == slot)
    }

    /// The access that is due when CONFIG_DATA is read or has been written, because it is the data of a window.
    pub fn window(&self) -> Option<Window> {
        let function = self.functions.get(self.selected()?)?;
        let data = function.window_at()? + WINDOW_DATA;
        function.window().filter(|_| usize::from(self.address as u8) == data)
    }

    /// The data of the window that CONFIG_ADDRESS selects.
    pub fn window_data(&self) -> u32 {
        let function = self.selected().and_then(|n| self.functions.get(n));
        function.map_or(0, |f| f.read(self.address as u8))
    }

    /// Sets the first `length` bytes of that data.
    pub fn set_window_data(&mut self, value: u32, length: u8) {
        self.write(0, length, value);
    }

    /// Reads byte `offset` (0 to 3) of CONFIG_DATA.
    pub fn read(&self, offset: u8) -> u8 {
        let function = self.selected().and_then(|n| self.functions.get(n));
        function.map_or(0xff, |f| (f.read(self.address as u8) >> (8 * u32::from(offset & 3))) as u8)
    }

    /// Writes the `size` bytes (1, 2 or 4) of `value` from byte `offset` of CONFIG_DATA on.
    pub fn write(&mut self, offset: u8, size: u8, value: u32) {
        let (at, shift) = (self.address as u8, 8 * u32::from(offset & 3));
        let mask = (u32::MAX >> (32 - 8 * u32::from(size.clamp(1, 4)))) << shift;
        if let Some(function) = self.selected().and_then(|n| self.functions.get_mut(n)) {
            function.write(at, value << shift, mask);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bus: &mut PciBus, slot: u32, at: u32) -> u32 {
        bus.set_address(ENABLED | slot << 11 | at);
        u32::from_le_bytes([0, 1, 2, 3].map(|n| bus.read(n)))
    }

    #[test]
    fn the_bridges_are_found_and_nothing_else() {
        let mut bus = PciBus::new(Vec::new());
        assert_eq!((read(&mut bus, 0, 0), read(&mut bus, 1, 0)), (0x1237_8086, 0x7000_8086));
        assert_eq!((read(&mut bus, 0, 8) >> 16, read(&mut bus, 1, 8) >> 16), (0x0600, 0x0601));
        assert_eq!((read(&mut bus, 2, 0), read(&mut bus, 1 << 5, 0)), (u32::MAX, u32::MAX));
        bus.set_address(0);
        assert_eq!(bus.read(0), 0xff, "not enabled");
    }

    #[test]
    fn a_device_has_a_base_a_size_an_interrupt_and_capabilities() {
        let capabilities = [vec![9, 16, 1], vec![9, 20, 2]];
        let device = PciFunction::device(2, (0x1af4, 0x1042), 0x01_0000, 0xfeb0_0000, 10, &capabilities);
        let mut bus = PciBus::new(vec![device]);
        assert_eq!(read(&mut bus, 2, 0x10), 0xfeb0_0000);
        bus.write(0, 4, u32::MAX);
        assert_eq!(read(&mut bus, 2, 0x10), 0xffff_f000);
        bus.write(0, 4, 0xe000_0000);
        assert_eq!(read(&mut bus, 2, 0x10), 0xfeb0_0000, "it does not move");
        assert_eq!(read(&mut bus, 2, 0x3c), 0x10a);
        assert_eq!((read(&mut bus, 2, 0x34), read(&mut bus, 2, 4) >> 16), (0x40, 0x10));
        assert_eq!((read(&mut bus, 2, 0x40), read(&mut bus, 2, 0x44)), (0x0110_4409, 0x0214_0009));
        read(&mut bus, 2, 4);
        bus.write(0, 2, 0xffff);
        assert_eq!(read(&mut bus, 2, 4) & 0xffff, 0x407);
    }
}
