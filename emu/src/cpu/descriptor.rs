//! Segment descriptors (SDM volume 3, 3.4.5).

use crate::engine::Segment;

/// A descriptor of the GDT or LDT.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptor {
    low: u32,
    high: u32,
    /// Linear address.
    address: u64,
}

impl Descriptor {
    /// The descriptor of these two words, which lie at `address`.
    pub fn new(low: u32, high: u32, address: u64) -> Self {
        Descriptor { low, high, address }
    }

    /// Linear address of its second word.
    pub fn attributes_at(self) -> u64 {
        self.address.wrapping_add(4)
    }

    /// Its second word.
    pub fn attributes(self) -> u32 {
        self.high
    }

    pub fn present(self) -> bool {
        self.high & 0x8000 != 0
    }

    pub fn dpl(self) -> u8 {
        (self.high >> 13 & 3) as u8
    }

    /// Whether it describes a gate, a TSS or an LDT rather than code or data.
    pub fn is_system(self) -> bool {
        self.high & 0x1000 == 0
    }

    /// The type of a gate, a TSS or an LDT.
    pub fn system_type(self) -> Option<u32> {
        self.is_system().then_some(self.high >> 8 & 0xf)
    }

    /// The selector in a gate.
    pub fn gate_selector(self) -> u16 {
        (self.low >> 16) as u16
    }

    /// Whether it is data, or code that can be read.
    pub fn is_readable(self) -> bool {
        !self.is_system() && self.high & 0x0a00 != 0x0800
    }

    pub fn is_code(self) -> bool {
        self.high & 0x1800 == 0x1800
    }

    pub fn conforming(self) -> bool {
        self.high & 0x0400 != 0
    }

    pub fn is_writable_data(self) -> bool {
        self.high & 0x1a00 == 0x1200
    }

    /// Whether it is a 64-bit code segment.
    pub fn long(self) -> bool {
        self.high & 0x0020_0000 != 0
    }

    /// The D/B bit.
    pub fn big(self) -> bool {
        self.high & 0x0040_0000 != 0
    }

    pub fn accessed(self) -> bool {
        self.high & ACCESSED != 0
    }

    /// The segment register's content after loading it.
    pub fn segment(self, selector: u16) -> Segment {
        let base = (self.low >> 16) | (self.high << 16 & 0xff_0000) | (self.high & 0xff00_0000);
        let raw = (self.low & 0xffff) | (self.high & 0xf_0000);
        let limit = if self.high & 0x0080_0000 != 0 { raw << 12 | 0xfff } else { raw };
        Segment::new(selector, base.into(), limit, self.high)
    }
}

/// The accessed bit in a descriptor's second word.
pub(crate) const ACCESSED: u32 = 0x100;
