//! Writing a record from outside: what a call of `dti_log` on the current CPU would store, as stores to physical memory.
//!
//! The guest is stopped between two instructions, so all stores happen at once. The guest's own functions then find a ring as
//! after one of their own records, also if they stand in the middle of one.

use trapline_emu::PhysMem;

use crate::channel::Channel;
use crate::layout::{DATA_MAX, EVENT};
use crate::ring::Ring;

/// Stores to physical memory: addresses and bytes.
pub type Stores = Vec<(u64, Vec<u8>)>;

/// What becomes of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// It is in the channel after these stores.
    Record(Stores),
    /// It is refused; these stores count it as the guest does.
    Refused(Refusal, Stores),
}

/// Why a record is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// The memory has no such channel.
    #[error("there is no such channel")]
    Unknown,
    /// The priority is above the level.
    #[error("the level of the channel is lower")]
    Level,
    /// The record is longer than a sub-buffer.
    #[error("the record is longer than a sub-buffer")]
    TooLong,
    /// The guest is entering a sub-buffer or reserving the place of a record.
    #[error("the guest is reserving the place of a record")]
    Reserving,
    /// Times of this channel cannot be known.
    #[error("the channel has a clock other than the time stamp counter")]
    Clock,
    /// The ring is damaged, or its CPU has none.
    #[error("the ring is damaged")]
    Damaged,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Unknown, Self::Level, Self::TooLong, Self::Reserving, Self::Clock, Self::Damaged];
}

/// What a kind of ring is told to store.
pub(crate) struct Tail {
    /// Index of the sub-buffer that gets the record, and the offset of the record there.
    pub place: (u32, u32),
    /// Its number in the sequence.
    pub sequence: u32,
    /// Whether the sub-buffer has to be entered.
    pub enters: bool,
    /// Bytes used after the record.
    pub used: u32,
}

/// Zeros for data of so many bytes; for data that no channel takes, one byte more than the longest, so that they are refused.
#[must_use]
pub fn room(length: u64) -> Vec<u8> {
    vec![0; usize::try_from(length).unwrap_or(usize::MAX).min(DATA_MAX + 1)]
}

impl Channel {
    /// A record of this priority, with `tsc` as its time.
    pub fn write(&self, memory: &dyn PhysMem, cpu: u16, prio: i32, tsc: u64, data: &[u8]) -> Write {
        let refused = |refusal, counted: Option<Stores>| Write::Refused(refusal, counted.unwrap_or_default());
        if prio < 0 || prio > self.level() {
            return refused(Refusal::Level, None);
        }
        if !self.counts_tsc() {
            return refused(Refusal::Clock, None);
        }
        let ring = match self.relay() {
            Some(relay) => relay.ring(self, memory, cpu).ok().flatten(),
            None => {
                Some(cpu).filter(|cpu| *cpu < self.cpus()).and_then(|cpu| Ring::read(self, memory, cpu).ok())
            }
        };
        let Some(ring) = ring else { return refused(Refusal::Damaged, None) };
        let (_, size) = self.subbufs();
        let bytes = EVENT + data.len();
        let Some(bytes) = u32::try_from(bytes).ok().filter(|bytes| *bytes <= size && data.len() <= DATA_MAX)
        else {
            return refused(Refusal::TooLong, self.counted(cpu, Count::TooLong, ring.too_long));
        };
        match self.reserving(memory, cpu) {
            Some(0) => {}
            Some(_) => return refused(Refusal::Reserving, self.counted(cpu, Count::Nested, ring.nested)),
            None => return refused(Refusal::Damaged, None),
        }
        self.stores(memory, &ring, bytes, tsc, data)
            .map_or_else(|| refused(Refusal::Damaged, None), Write::Record)
    }

    fn stores(&self, memory: &dyn PhysMem, ring: &Ring, bytes: u32, tsc: u64, data: &[u8]) -> Option<Stores> {
        let (n, size) = self.subbufs();
        let (sequence, used) = *ring.subbufs.get(ring.current as usize)?;
        let tail = match used.checked_add(bytes)? <= size {
            true => Tail { place: (ring.current, used), sequence, enters: false, used: used + bytes },
            false => Tail {
                place: ((ring.current + 1) % n, 0),
                sequence: sequence.wrapping_add(1),
                enters: true,
                used: bytes,
            },
        };
        let mut stores = Vec::new();
        // A lower half of 0 would mean that the record is not complete.
        let time = if tsc as u32 == 0 { tsc | 1 } else { tsc };
        let mut record = (data.len() as u16).to_le_bytes().to_vec();
        record.extend(time.to_le_bytes());
        record.extend(data);
        let (index, offset) = tail.place;
        let at = self.data_at(ring.cpu) + u64::from(index) * u64::from(size) + u64::from(offset);
        self.store(at, &record, &mut stores)?;
        match self.relay() {
            Some(relay) => relay.append(self, memory, ring, &tail, &mut stores)?,
            None => {
                let at = self.ring_at(ring.cpu);
                self.store(at + 8, &index.to_le_bytes(), &mut stores)?;
                let subbuf = [tail.sequence.to_le_bytes(), tail.used.to_le_bytes()].concat();
                self.store(at + 32 + 8 * u64::from(index), &subbuf, &mut stores)?;
            }
        }
        Some(stores)
    }

    /// Whether the guest is reserving a place; `None` if this cannot be read.
    fn reserving(&self, memory: &dyn PhysMem, cpu: u16) -> Option<u32> {
        let mut word = [0; 4];
        self.bytes(memory, self.count_at(cpu, Count::Reserving), &mut word, "ring").ok()?;
        Some(u32::from_le_bytes(word))
    }

    /// One more of a count of the ring.
    fn counted(&self, cpu: u16, count: Count, was: u32) -> Option<Stores> {
        let mut stores = Vec::new();
        self.store(self.count_at(cpu, count), &was.wrapping_add(1).to_le_bytes(), &mut stores)?;
        Some(stores)
    }

    fn count_at(&self, cpu: u16, count: Count) -> u64 {
        let first = match self.relay() {
            Some(_) => self.rings_at() + 32 + 40 * u64::from(cpu) + 24,
            None => self.ring_at(cpu) + 20,
        };
        first + 4 * count as u64
    }
}

/// Words of a ring that count, in their order in memory.
#[derive(Clone, Copy)]
enum Count {
    TooLong,
    Nested,
    Reserving,
}
