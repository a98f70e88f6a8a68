//! The list of hits: about 20 bytes each, in pieces that never move; and the names of their probes and processes. Logged data
//! is kept within a budget.

mod column;
mod filter;
mod large;
mod numbers;
mod piece;
mod ranks;
mod sorted;

use std::collections::BTreeMap;

pub use column::{Column, SHOWN, columns, names};
pub use filter::Filter;
pub use numbers::Numbers;
pub use sorted::{Sorted, TAKEN};

use large::Large;
use piece::{PIECE, Piece};

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

/// The list.
#[derive(Debug, Default)]
pub struct Hits {
    pieces: Large<Piece>,
    probes: BTreeMap<u32, ProbeLabel>,
    /// The numbers of the probes, as they were met.
    met: Vec<u32>,
    processes: BTreeMap<u32, String>,
    /// Bytes of logged data that are kept.
    kept: usize,
    /// Whether no more is kept.
    full: bool,
}

impl Hits {
    /// Adds hits after the others.
    pub fn add(&mut self, batch: Batch) {
        for label in batch.probes {
            self.met.push(label.number);
            self.probes.insert(label.number, label);
        }
        self.processes.extend(batch.processes);
        let mut logged = batch.logged.iter();
        for hit in batch.hits {
            match self.pieces.last_mut().filter(|piece| piece.len() < PIECE) {
                Some(piece) => piece.add(hit),
                None => self.pieces.push(Piece::new(hit)),
            }
            let data = logged.next().map(Vec::as_slice);
            self.kept += data.map_or(0, <[u8]>::len);
            self.full |= data.is_none() || self.kept > MOST_LOGGED;
            if let (Some(data), Some(piece), false) = (data, self.pieces.last_mut(), self.full) {
                piece.keep(data);
            }
        }
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * PIECE + last.len())
    }

    /// The hit with this number, from 0.
    pub fn get(&self, number: usize) -> Option<Hit> {
        self.pieces.get(number / PIECE)?.get(number % PIECE)
    }

    /// Its logged data, if it was kept.
    pub fn logged(&self, number: usize) -> Option<&[u8]> {
        self.pieces.get(number / PIECE)?.logged(number % PIECE)
    }

    /// The number of the first hit at this count or later.
    pub fn first_from(&self, at: u64) -> usize {
        let before = |piece: &Piece| piece.before(at) == piece.len();
        let piece = self.pieces.partition_point(before);
        self.pieces.get(piece).map_or(self.len(), |found| piece * PIECE + found.before(at))
    }

    /// The next hit of a probe, from this number on.
    pub fn next_of(&self, probe: u32, from: usize) -> Option<usize> {
        let pieces = self.pieces.iter().enumerate().skip(from / PIECE);
        let mut found = pieces.map(|(n, piece)| {
            let skipped = from.saturating_sub(n * PIECE);
            piece.next_of(probe, skipped).map(|at| n * PIECE + at)
        });
        found.find_map(|found| found)
    }

    /// The last hit of a probe before this number.
    pub fn previous_of(&self, probe: u32, before: usize) -> Option<usize> {
        let pieces = self.pieces.iter().enumerate().take(before.div_ceil(PIECE)).rev();
        let mut found = pieces.map(|(n, piece)| {
            let at = piece.previous_of(probe, before - n * PIECE);
            at.map(|at| n * PIECE + at)
        });
        found.find_map(|found| found)
    }

    /// The bytes that the list takes, and those of the logged data.
    pub fn bytes(&self) -> (usize, usize) {
        let bytes = self.pieces.iter().map(Piece::bytes);
        bytes.fold((0, 0), |(list, data), (own, own_data)| (list + own, data + own_data))
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
    fn a_hit_takes_at_most_24_bytes() {
        let count = 1_000_000;
        let (list, _) = list(count).bytes();
        assert!(list <= count as usize * 24, "{list} bytes");
    }

    #[test]
    fn logged_data_are_kept_up_to_the_first_that_does_not_fit() {
        let mut hits = Hits::default();
        let hit = |n: u64| Hit { at: n, ip: 0, probe: 0, pid: 0 };
        let logged = [vec![1; MOST_LOGGED - 10], vec![2; 11], vec![3; 1]];
        hits.add(Batch { hits: (0..3).map(hit).collect(), logged: logged.to_vec(), ..Batch::default() });
        assert_eq!(hits.logged(0).map(<[u8]>::len), Some(MOST_LOGGED - 10));
        assert_eq!((hits.logged(1), hits.logged(2), hits.len()), (None, None, 3));
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
