//! The split virtqueue (virtio 1.2, chapter 2.7), with every index and address that the driver gives checked.

use serde::{Deserialize, Serialize};

/// Guest memory as a device sees it.
pub trait Memory {
    /// Reads at a physical address; false, and nothing read, when any byte is not memory.
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool;
    /// Writes at a physical address; false, and nothing written, when any byte is not memory.
    fn write(&mut self, paddr: u64, from: &[u8]) -> bool;
}

/// The driver has broken the rules: the device does nothing until it is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Most descriptors of a queue.
pub(super) const MAX_SIZE: u16 = 128;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// Never negotiated.
const INDIRECT: u16 = 4;
const NO_INTERRUPT: u16 = 1;

/// Guest memory that one descriptor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub paddr: u64,
    pub len: u32,
}

/// The buffers that a driver has made available: readable ones, then writable ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    pub head: u16,
    pub readable: Vec<Span>,
    pub writable: Vec<Span>,
}

impl Chain {
    /// Bytes of a list of spans.
    pub fn bytes(spans: &[Span]) -> u64 {
        spans.iter().map(|s| u64::from(s.len)).sum()
    }
}

/// The part `[skip, skip + length)` of what `spans` name together.
pub(super) fn part(spans: &[Span], skip: u64, length: u64) -> Vec<Span> {
    let (mut skip, mut left) = (skip, length);
    let mut out = Vec::new();
    for span in spans {
        let from = skip.min(span.len.into());
        skip -= from;
        let len = (u64::from(span.len) - from).min(left);
        left -= len;
        if len > 0 {
            out.push(Span { paddr: span.paddr.wrapping_add(from), len: len as u32 });
        }
    }
    out
}

/// One virtqueue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Queue {
    pub size: u16,
    pub ready: bool,
    pub descriptors: u64,
    pub available: u64,
    pub used: u64,
    next_available: u16,
    next_used: u16,
}

fn read_u16(memory: &dyn Memory, at: Option<u64>) -> Result<u16, Broken> {
    let mut bytes = [0; 2];
    let read = at.is_some_and(|at| memory.read(at, &mut bytes));
    if read { Ok(u16::from_le_bytes(bytes)) } else { Err(Broken) }
}

fn write(memory: &mut dyn Memory, at: Option<u64>, bytes: &[u8]) -> Result<(), Broken> {
    if at.is_some_and(|at| memory.write(at, bytes)) { Ok(()) } else { Err(Broken) }
}

impl Queue {
    /// Whether the size is one that a split queue can have here.
    pub fn well_formed(&self) -> bool {
        self.size.is_power_of_two() && self.size <= MAX_SIZE
    }

    /// Address of ring element `n`, taken modulo the size, with elements of `bytes`; each ring begins with two words.
    fn element(&self, ring: u64, n: u16, bytes: u64) -> Option<u64> {
        ring.checked_add(4 + bytes * u64::from(n & (self.size - 1)))
    }

    /// Takes the next available chain.
    pub fn pop(&mut self, memory: &dyn Memory) -> Result<Option<Chain>, Broken> {
        if !self.ready {
            return Ok(None);
        }
        if !self.well_formed() {
            return Err(Broken);
        }
        let index = read_u16(memory, self.available.checked_add(2))?;
        match index.wrapping_sub(self.next_available) {
            0 => return Ok(None),
            waiting if waiting > self.size => return Err(Broken),
            _ => {}
        }
        let head = read_u16(memory, self.element(self.available, self.next_available, 2))?;
        let chain = self.walk(memory, head)?;
        self.next_available = self.next_available.wrapping_add(1);
        Ok(Some(chain))
    }

    fn walk(&self, memory: &dyn Memory, head: u16) -> Result<Chain, Broken> {
        let mut chain = Chain { head, ..Chain::default() };
        let mut index = head;
        for _ in 0..self.size {
            if index >= self.size {
                return Err(Broken);
            }
            let mut raw = [0; 16];
            let at = self.descriptors.checked_add(16 * u64::from(index)).ok_or(Broken)?;
            if !memory.read(at, &mut raw) {
                return Err(Broken);
            }
            let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, f0, f1, n0, n1] = raw;
            let span = Span {
                paddr: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
                len: u32::from_le_bytes([l0, l1, l2, l3]),
            };
            let flags = u16::from_le_bytes([f0, f1]);
            match (flags & INDIRECT != 0, flags & WRITE != 0) {
                (true, _) => return Err(Broken),
                (_, true) => chain.writable.push(span),
                // Readable buffers come first (2.7.4.2).
                (_, false) if chain.writable.is_empty() => chain.readable.push(span),
                _ => return Err(Broken),
            }
            if flags & NEXT == 0 {
                return Ok(chain);
            }
            index = u16::from_le_bytes([n0, n1]);
        }
        Err(Broken)
    }

    /// Gives a chain back with the number of bytes written into it; returns whether the driver wants an interrupt.
    pub fn push(&mut self, memory: &mut dyn Memory, head: u16, written: u32) -> Result<bool, Broken> {
        let mut element = [0; 8];
        let (id, len) = element.split_at_mut(4);
        id.copy_from_slice(&u32::from(head).to_le_bytes());
        len.copy_from_slice(&written.to_le_bytes());
        write(memory, self.element(self.used, self.next_used, 8), &element)?;
        self.next_used = self.next_used.wrapping_add(1);
        write(memory, self.used.checked_add(2), &self.next_used.to_le_bytes())?;
        Ok(read_u16(memory, Some(self.available))? & NO_INTERRUPT == 0)
    }
}

/// Reads all that `spans` name, in pieces.
pub(super) fn read_spans(
    memory: &dyn Memory,
    spans: &[Span],
    mut piece: impl FnMut(&[u8]) -> Result<(), Broken>,
) -> Result<(), Broken> {
    let mut buffer = [0; 4096];
    for (at, len) in pieces(spans) {
        let at = at.ok_or(Broken)?;
        let part = buffer.get_mut(..len).ok_or(Broken)?;
        if !memory.read(at, part) {
            return Err(Broken);
        }
        piece(part)?;
    }
    Ok(())
}

/// Fills all that `spans` name, in pieces.
pub(super) fn fill_spans(
    memory: &mut dyn Memory,
    spans: &[Span],
    mut piece: impl FnMut(&mut [u8]),
) -> Result<(), Broken> {
    let mut buffer = [0; 4096];
    for (at, len) in pieces(spans) {
        let part = buffer.get_mut(..len).ok_or(Broken)?;
        piece(part);
        write(memory, at, part)?;
    }
    Ok(())
}

/// Spans cut into pieces of at most 4096 bytes.
fn pieces(spans: &[Span]) -> impl Iterator<Item = (Option<u64>, usize)> {
    spans.iter().flat_map(|span| {
        (0..span.len).step_by(4096).map(|from| {
            let len = (span.len - from).min(4096) as usize;
            (span.paddr.checked_add(from.into()), len)
        })
    })
}
