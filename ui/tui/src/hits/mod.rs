//! The list of hits: 18 to 22 bytes each, in pieces that never move; and the names of their probes and processes. The text of their
//! records is kept within a budget.

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
pub use large::free_later;
pub use numbers::Numbers;
pub use sorted::{Sorted, TAKEN};

use large::{Large, Maker};
#[cfg(test)]
pub use piece::looks;
use piece::{PIECE, Piece};

/// Most bytes of the text of records that are kept.
pub const MOST_LOGGED: usize = 64 << 20;
/// The list gets room for this part of its hits more when it is full.
const PART: usize = 16;

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
}

/// Hits that are added to the list.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// The hits, in order.
    pub hits: Vec<Hit>,
    /// The text of the record of each, in order. After the first that is not here, none is kept.
    pub logged: Vec<Vec<u8>>,
    /// Probes that were not known before.
    pub probes: Vec<ProbeLabel>,
    /// Processes that were not known before, or have a new name: their ids, the instruction counts, and the names from there on.
    pub processes: Vec<(u32, u64, String)>,
}

/// The list.
#[derive(Debug, Default)]
pub struct Hits {
    pieces: Large<Piece>,
    /// What makes room for more of them, once there are many.
    maker: Option<Maker<u32>>,
    probes: BTreeMap<u32, ProbeLabel>,
    /// The numbers of the probes, as they were met.
    met: Vec<u32>,
    /// The names of each process id, each with the instruction count of the first hit with it.
    processes: BTreeMap<u32, Vec<(u64, String)>>,
    /// Bytes of text that are kept.
    kept: usize,
    /// Whether no more is kept.
    full: bool,
}

impl Hits {
    /// Adds hits after the others.
    pub fn add(&mut self, batch: Batch) {
        let Batch { hits, logged, probes, processes } = batch;
        for label in probes {
            self.met.push(label.number);
            self.probes.insert(label.number, label);
        }
        for (pid, from, name) in processes {
            self.processes.entry(pid).or_default().push((from, name));
        }
        let mut texts = logged.iter();
        for (hit, all) in hits.iter().zip(self.len()..) {
            let step = all / PART;
            if self.pieces.last().is_none_or(|piece| piece.len() >= PIECE) {
                let whole = step >= PIECE;
                let maker = whole.then(|| &*self.maker.get_or_insert_with(|| Maker::new(PIECE)));
                self.pieces.push(Piece::new(*hit, maker));
            }
            let text = texts.next().map(Vec::as_slice);
            self.kept += text.map_or(0, <[u8]>::len);
            self.full |= text.is_none() || self.kept > MOST_LOGGED;
            let Some(piece) = self.pieces.last_mut() else { continue };
            piece.add(*hit, step);
            if let (Some(text), false) = (text, self.full) {
                piece.keep(text, step);
            }
        }
        free_later((hits, logged));
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * PIECE + last.len())
    }

    /// The hit with this number, from 0.
    pub fn get(&self, number: usize) -> Option<Hit> {
        self.pieces.get(number / PIECE)?.get(number % PIECE)
    }

    /// The text of its record, if it was kept.
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

    /// The name that a hit's process had then.
    pub fn process(&self, hit: Hit) -> Option<&str> {
        let names = self.processes.get(&hit.pid)?;
        let known = names.partition_point(|(from, _)| *from <= hit.at);
        names.get(known.checked_sub(1)?).map(|(_, name)| name.as_str())
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

    /// Of lists of any length, with hits of the kernel and of programs, billions of instructions apart.
    #[test]
    fn a_hit_takes_at_most_24_bytes() {
        let mut hits = Hits::default();
        let ip = |n: u64| if n.is_multiple_of(3) { 0x7fff_ffff_f000 } else { 0xffff_ffff_8000_0000 };
        for n in 0..300_000_u64 {
            let hit = Hit { at: n << 32, ip: ip(n), probe: n as u32, pid: 1 };
            hits.add(Batch { hits: vec![hit], logged: vec![vec![1, 2]], ..Batch::default() });
            let all = hits.pieces.iter().map(Piece::bytes).map(|(list, _)| list).sum::<usize>();
            assert!(n < 1 || all <= hits.len() * 24, "{all} bytes for {} hits", hits.len());
        }
        assert_eq!((hits.get(99_999).unwrap().at, hits.logged(299_999)), (99_999 << 32, Some(&[1, 2][..])));
    }

    #[test]
    fn a_process_has_the_name_that_it_had_then() {
        let mut hits = Hits::default();
        let processes = vec![(5, 10, "appln".to_owned()), (5, 20, "ping".to_owned()), (6, 30, String::new())];
        hits.add(Batch { processes, ..Batch::default() });
        let name = |at, pid| hits.process(Hit { at, ip: 0, probe: 0, pid });
        assert_eq!(
            [9, 10, 19, 20, 99].map(|at| name(at, 5)),
            [None, Some("appln"), Some("appln"), Some("ping"), Some("ping")]
        );
        assert_eq!((name(40, 6), name(40, 7)), (Some(""), None));
    }

    #[test]
    fn logged_data_are_kept_up_to_the_first_that_does_not_fit() {
        let mut hits = Hits::default();
        let hit = |n: u64| Hit { at: n, ip: 0, probe: 0, pid: 0 };
        const EACH: usize = 1 << 15;
        let fit = MOST_LOGGED / EACH;
        let logged = std::iter::repeat_n(vec![1; EACH], fit).chain([vec![2; 1], vec![]]).collect();
        hits.add(Batch { hits: (0..fit as u64 + 2).map(hit).collect(), logged, ..Batch::default() });
        assert_eq!(hits.logged(fit - 1).map(<[u8]>::len), Some(EACH));
        assert_eq!((hits.logged(fit), hits.logged(fit + 1), hits.len()), (None, None, fit + 2));
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
