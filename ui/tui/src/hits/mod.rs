//! The list of hits: 24 bytes each, in chunks that never move; and the names of their probes and processes. Logged data
//! is kept within a budget.

mod column;
mod filter;
mod sorted;

use std::collections::BTreeMap;

pub use column::{Column, SHOWN, columns, names};
pub use filter::Filter;
pub use sorted::{Sorted, TAKEN};

/// Hits of a chunk.
const PIECE: usize = 1 << 16;
/// Most bytes of logged data that are kept.
const MOST_LOGGED: usize = 64 << 20;

/// A hit that left a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Instructions retired before it.
    pub at: u64,
    /// The instruction pointer.
    pub ip: u64,
    /// Number of its probe.
    pub probe: u32,
    /// Process id.
    pub pid: u32,
}

/// The name of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeLabel {
    /// Its number.
    pub number: u32,
    /// Its program.
    pub program: String,
    /// Its name by its provider, or its codes.
    pub name: String,
    /// Whether the data of its hits are text, which its D program has printed.
    pub prints: bool,
}

/// Hits that are added to the list.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// The hits, in order.
    pub hits: Vec<Hit>,
    /// The logged data of each, in order.
    pub logged: Vec<Vec<u8>>,
    /// Probes that were not known before.
    pub probes: Vec<ProbeLabel>,
    /// Processes that were not known before, or have a new name.
    pub processes: Vec<(u32, String)>,
}

/// Consecutive hits, and the probes that occur among them.
#[derive(Debug, Default)]
struct Piece {
    hits: Vec<Hit>,
    /// A bit for each probe, up to the last that occurs.
    probes: Vec<u64>,
}

impl Piece {
    fn add(&mut self, hit: Hit) {
        let (word, bit) = (hit.probe as usize / 64, hit.probe % 64);
        if self.probes.len() <= word {
            self.probes.resize(word + 1, 0);
        }
        if let Some(word) = self.probes.get_mut(word) {
            *word |= 1 << bit;
        }
        self.hits.push(hit);
    }

    fn has(&self, probe: u32) -> bool {
        self.probes.get(probe as usize / 64).is_some_and(|word| word >> (probe % 64) & 1 != 0)
    }
}

/// The list.
#[derive(Debug, Default)]
pub struct Hits {
    pieces: Vec<Piece>,
    probes: BTreeMap<u32, ProbeLabel>,
    processes: BTreeMap<u32, String>,
    logged: Vec<u8>,
    /// The end of the data of each hit, within the budget.
    ends: Vec<u32>,
}

impl Hits {
    /// Adds hits after the others.
    pub fn add(&mut self, batch: Batch) {
        self.probes.extend(batch.probes.into_iter().map(|label| (label.number, label)));
        self.processes.extend(batch.processes);
        for hit in batch.hits {
            if self.pieces.last().is_none_or(|piece| piece.hits.len() == PIECE) {
                self.pieces.push(Piece { hits: Vec::with_capacity(PIECE), ..Piece::default() });
            }
            if let Some(piece) = self.pieces.last_mut() {
                piece.add(hit);
            }
        }
        for data in batch.logged {
            if self.logged.len() + data.len() <= MOST_LOGGED && self.ends.len() * 4 <= MOST_LOGGED {
                self.logged.extend(data);
                self.ends.push(u32::try_from(self.logged.len()).unwrap_or(u32::MAX));
            }
        }
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * PIECE + last.hits.len())
    }

    /// The hit with this number, from 0.
    pub fn get(&self, number: usize) -> Option<Hit> {
        self.pieces.get(number / PIECE)?.hits.get(number % PIECE).copied()
    }

    /// Its logged data, if it was kept.
    pub fn logged(&self, number: usize) -> Option<&[u8]> {
        let end = *self.ends.get(number)? as usize;
        let start =
            number.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |start| *start as usize);
        self.logged.get(start..end)
    }

    /// The number of the first hit at this count or later.
    pub fn first_from(&self, at: u64) -> usize {
        let before = |piece: &Piece| piece.hits.last().is_some_and(|hit| hit.at < at);
        let piece = self.pieces.partition_point(before);
        let Some(found) = self.pieces.get(piece) else { return self.len() };
        piece * PIECE + found.hits.partition_point(|hit| hit.at < at)
    }

    /// The next hit of a probe, from this number on.
    pub fn next_of(&self, probe: u32, from: usize) -> Option<usize> {
        (from / PIECE..self.pieces.len()).find_map(|n| {
            let piece = self.pieces.get(n).filter(|piece| piece.has(probe))?;
            let skipped = from.saturating_sub(n * PIECE);
            let found = piece.hits.iter().skip(skipped).position(|hit| hit.probe == probe)?;
            Some(n * PIECE + skipped + found)
        })
    }

    /// The last hit of a probe before this number.
    pub fn previous_of(&self, probe: u32, before: usize) -> Option<usize> {
        (0..before.div_ceil(PIECE).min(self.pieces.len())).rev().find_map(|n| {
            let piece = self.pieces.get(n).filter(|piece| piece.has(probe))?;
            let taken = piece.hits.get(..(before - n * PIECE).min(piece.hits.len()))?;
            Some(n * PIECE + taken.iter().rposition(|hit| hit.probe == probe)?)
        })
    }

    /// The name of a probe.
    pub fn probe(&self, number: u32) -> Option<&ProbeLabel> {
        self.probes.get(&number)
    }

    /// The last known name of a process.
    pub fn process(&self, pid: u32) -> Option<&str> {
        self.processes.get(&pid).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(count: u32) -> Hits {
        let mut hits = Hits::default();
        let hit = |n: u32| Hit { at: u64::from(n) * 10, ip: 0, probe: n % 3, pid: n % 7 };
        hits.add(Batch { hits: (0..count).map(hit).collect(), ..Batch::default() });
        hits
    }

    #[test]
    fn a_hit_takes_24_bytes() {
        assert_eq!(size_of::<Hit>(), 24);
    }

    #[test]
    fn hits_are_found_by_position_and_by_probe_across_pieces() {
        let hits = list(200_000);
        assert_eq!(hits.len(), 200_000);
        assert_eq!((hits.first_from(0), hits.first_from(5), hits.first_from(10)), (0, 1, 1));
        assert_eq!(hits.first_from(1_999_990), 199_999);
        assert_eq!(hits.first_from(u64::MAX), 200_000);
        assert_eq!(hits.next_of(2, 65_536), Some(65_537));
        assert_eq!(hits.next_of(1, 199_999), Some(199_999).filter(|n| n % 3 == 1));
        assert_eq!(hits.previous_of(0, 65_536), Some(65_535));
        assert_eq!(hits.previous_of(2, 2), None);
        assert_eq!(hits.next_of(9, 0), None);
    }
}
