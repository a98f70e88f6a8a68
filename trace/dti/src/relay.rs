//! The description of the rings of a channel of Linux, which are relay's: where the structures are in physical memory, and where
//! their fields are, which depends on the kernel's version and configuration.

use crate::layout::{RELAY, RELAY_CPU, number};

/// Where fields are, in `struct rchan` and then in `struct rchan_buf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fields {
    pub subbuf_size: u64,
    pub subbufs: u64,
    pub start: u64,
    pub data: u64,
    pub offset: u64,
    pub produced: u64,
    pub consumed: u64,
    pub chan: u64,
    pub padding: u64,
    pub bytes_consumed: u64,
}

/// What describes the rings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relay {
    pub fields: Fields,
    /// `None` for a CPU that has not been online.
    pub cpus: Vec<Option<Cpu>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cpu {
    /// Physical address of `struct rchan_buf`.
    pub buf: u64,
    /// Virtual address of the first sub-buffer.
    pub start: u64,
    /// Physical address of the array of unused bytes.
    pub padding: u64,
    pub too_long: u32,
    pub nested: u32,
}

impl Relay {
    /// The description that these bytes are.
    pub fn parse(bytes: &[u8]) -> Self {
        let (head, cpus) = bytes.split_at(bytes.len().min(RELAY as usize));
        let field = |index: usize| number::<2>(head, 8 + 2 * index);
        Self {
            fields: Fields {
                subbuf_size: field(0),
                subbufs: field(1),
                start: field(2),
                data: field(3),
                offset: field(4),
                produced: field(5),
                consumed: field(6),
                chan: field(7),
                padding: field(8),
                bytes_consumed: field(9),
            },
            cpus: cpus.chunks_exact(RELAY_CPU as usize).map(Cpu::parse).collect(),
        }
    }
}

impl Cpu {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let buf = number::<8>(bytes, 0);
        (buf != 0).then(|| Self {
            buf,
            start: number::<8>(bytes, 8),
            padding: number::<8>(bytes, 16),
            too_long: number::<4>(bytes, 24) as u32,
            nested: number::<4>(bytes, 28) as u32,
        })
    }
}
