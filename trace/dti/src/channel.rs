//! A channel that has been found: what it is, and where its parts are.

use trapline_emu::{PAGE, PhysMem};

use crate::damage::Damage;
use crate::layout::{MARK_AT, Mark, RCHAN, Shape};
use crate::relay::Relay;

/// What a channel is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Memory that the guest allocated for it.
    Channel,
    /// The buffer of a handle, for records before the guest can allocate memory.
    Early,
}

/// Where a channel is in physical memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Its pages, in the order of their virtual addresses.
    Pages(Vec<u64>),
    /// In one piece.
    From(u64),
}

/// A channel whose description has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    paddr: u64,
    mark: Mark,
    origin: Origin,
    place: Place,
    /// Offsets of the description of the rings, and of the first sub-buffer.
    parts: (u64, u64),
    /// In Linux, the description of the rings.
    relay: Option<Relay>,
    /// Whether its times are what `rdtsc` gives.
    tsc: bool,
}

impl Channel {
    pub(crate) fn new(paddr: u64, mark: Mark, origin: Origin, place: Place, parts: (u64, u64)) -> Self {
        Self { paddr, mark, origin, place, parts, relay: None, tsc: false }
    }

    pub(crate) fn with_relay(self, relay: Relay) -> Self {
        Self { relay: Some(relay), ..self }
    }

    pub(crate) fn with_tsc(self, tsc: bool) -> Self {
        Self { tsc, ..self }
    }

    /// Whether its times are what `rdtsc` gives.
    pub fn counts_tsc(&self) -> bool {
        self.tsc
    }

    pub(crate) fn relay(&self) -> Option<&Relay> {
        self.relay.as_ref()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.mark.name
    }

    /// Records up to this priority are written; -1 for none.
    pub fn level(&self) -> i32 {
        self.mark.level
    }

    /// What it is made of.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Physical address of its mark.
    pub fn paddr(&self) -> u64 {
        self.paddr
    }

    /// Virtual address of its `struct dti_info`.
    pub fn vaddr(&self) -> u64 {
        self.address(0)
    }

    /// Physical addresses of the pages in which it lies.
    pub fn pages(&self) -> Vec<u64> {
        match &self.place {
            Place::From(start) => {
                let end = start + self.parts.1 + self.mark.shape.ring_bytes() + 8;
                (start / PAGE..end.div_ceil(PAGE)).map(|page| page * PAGE).collect()
            }
            Place::Pages(pages) => pages.iter().copied().filter(|page| *page != 0).collect(),
        }
    }

    /// Bytes of a pointer of the guest.
    pub fn word(&self) -> u8 {
        self.mark.word
    }

    /// Rings: one for each CPU.
    pub fn cpus(&self) -> u16 {
        self.mark.shape.cpus
    }

    /// Sub-buffers of a ring, and bytes of each.
    pub fn subbufs(&self) -> (u32, u32) {
        (self.mark.shape.subbufs, self.mark.shape.subbuf_size)
    }

    pub(crate) fn handle(&self) -> u64 {
        self.mark.handle
    }

    pub(crate) fn shape(&self) -> Shape {
        self.mark.shape
    }

    /// The virtual address of an offset in it.
    pub(crate) fn address(&self, offset: u64) -> u64 {
        let address = self.mark.own.wrapping_sub(MARK_AT).wrapping_add(offset);
        if self.mark.word == 4 { address & u64::from(u32::MAX) } else { address }
    }

    pub(crate) fn rings_at(&self) -> u64 {
        self.parts.0
    }

    pub(crate) fn ring_at(&self, cpu: u16) -> u64 {
        self.parts.0 + RCHAN + u64::from(cpu) * self.mark.shape.ring_head()
    }

    pub(crate) fn data_at(&self, cpu: u16) -> u64 {
        let shape = self.mark.shape;
        let ring = match self.relay {
            Some(_) => shape.relay_ring_pages() * PAGE,
            None => shape.ring_bytes(),
        };
        self.parts.1 + u64::from(cpu) * ring
    }

    /// In Linux, the first page of a CPU's ring that is not in the list: its number and what is there.
    pub(crate) fn absent_page(&self, cpu: u16) -> Option<(u64, u64)> {
        let Place::Pages(pages) = &self.place else { return None };
        let ring = self.mark.shape.relay_ring_pages();
        let first = self.parts.1 / PAGE + u64::from(cpu) * ring;
        (first..first + ring).find_map(|index| match pages.get(index as usize) {
            None | Some(0) => Some((index, 0)),
            Some(_) => None,
        })
    }

    /// Adds to `writes` what stores bytes at an offset in it.
    pub(crate) fn store(&self, offset: u64, bytes: &[u8], writes: &mut Vec<(u64, Vec<u8>)>) -> Option<()> {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let within = at % PAGE;
            let (piece, after) = rest.split_at(rest.len().min((PAGE - within) as usize));
            let paddr = match &self.place {
                Place::From(start) => start.checked_add(at)?,
                Place::Pages(pages) => pages.get((at / PAGE) as usize)? + within,
            };
            // What lies in one piece is cut at the pages of its offsets, which need not be those of memory.
            writes.push((paddr, piece.to_vec()));
            at += piece.len() as u64;
            rest = after;
        }
        Some(())
    }

    /// Reads bytes of it.
    pub(crate) fn bytes(
        &self,
        memory: &dyn PhysMem,
        offset: u64,
        to: &mut [u8],
        part: &'static str,
    ) -> Result<(), Damage> {
        let read = match &self.place {
            Place::From(start) => start.checked_add(offset).is_some_and(|at| memory.read(at, to)),
            Place::Pages(pages) => {
                let (mut at, mut rest) = (offset, to);
                loop {
                    if rest.is_empty() {
                        break true;
                    }
                    let within = at % PAGE;
                    let (piece, after) = rest.split_at_mut(rest.len().min((PAGE - within) as usize));
                    let page = pages.get((at / PAGE) as usize);
                    if !page.is_some_and(|page| memory.read(page + within, piece)) {
                        break false;
                    }
                    at += piece.len() as u64;
                    rest = after;
                }
            }
        };
        if read { Ok(()) } else { Err(Damage::Missing(part)) }
    }
}
