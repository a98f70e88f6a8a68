//! The hits that are shown, sorted by a column. Rows are in pieces of limited size, so that one can be put in anywhere at the
//! same low cost; so many hits are put in at a time. Hits with the same value are in the order of the run.

use std::cmp::Ordering;

use super::large::{Large, Maker};
use super::ranks::Ranks;
use super::{Column, Hits, Numbers};

/// Hits that are put in between two events.
pub const TAKEN: usize = 4_000;
/// Names of probes that are put in their order between two events.
const NAMES: usize = 1_000;
/// Rows of a piece, at most.
const PIECE: usize = 2048;
/// The first bytes of a record that its key has; its last byte is the number of bytes.
const KEY_BYTES: usize = 7;
/// The key of a record that was not kept: after all others.
const NOT_KEPT: u64 = u64::MAX;

/// A row.
#[derive(Debug, Clone, Copy)]
struct Row {
    /// What it is sorted by, or the beginning of that.
    key: u64,
    /// The number of its hit.
    number: u32,
}

/// The sorted list.
#[derive(Debug)]
pub struct Sorted {
    by: Column,
    descending: bool,
    /// Ascending. None is empty.
    pieces: Large<Vec<Row>>,
    /// What makes more pieces.
    maker: Maker<Row>,
    len: usize,
    /// For columns of names: the order of the names of the probes.
    ranks: Ranks,
    /// How many probes are in that.
    ranked: usize,
}

impl Sorted {
    /// No hit is taken yet.
    pub fn new(by: Column, descending: bool) -> Self {
        // A piece is split when it has one row too many.
        let maker = Maker::new(PIECE + 1);
        Self { by, descending, pieces: Large::default(), maker, len: 0, ranks: Ranks::default(), ranked: 0 }
    }

    /// What it is sorted by.
    pub const fn by(&self) -> Column {
        self.by
    }

    /// Whether the last comes first.
    pub const fn descending(&self) -> bool {
        self.descending
    }

    /// Reverses it.
    pub const fn turn(&mut self) {
        self.descending = !self.descending;
    }

    /// How many hits it has.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Takes so many more of the hits that are shown: of those with these numbers, or of all. Whether there are more.
    pub fn take(&mut self, hits: &Hits, shown: Option<&Numbers>, most: usize) -> bool {
        if !self.rank(hits) {
            return true;
        }
        let all = shown.map_or(hits.len(), Numbers::len);
        let end = all.min(self.len + most);
        let numbers = (self.len..end).filter_map(|n| match shown {
            Some(shown) => shown.get(n),
            None => u32::try_from(n).ok(),
        });
        let mut rows: Vec<Row> = numbers.map(|number| Row { key: self.key(hits, number), number }).collect();
        rows.sort_unstable_by(|a, b| self.compare(hits, a, b));
        rows.into_iter().for_each(|row| self.put_in(hits, row));
        self.len = end;
        end < all
    }

    /// The numbers of the hits of so many rows.
    pub fn rows(&self, first: usize, count: usize) -> Vec<usize> {
        let count = count.min(self.len.saturating_sub(first));
        let mut left = if self.descending { self.len.saturating_sub(first + count) } else { first };
        let from = self.pieces.iter().position(|piece| match left.checked_sub(piece.len()) {
            Some(less) => {
                left = less;
                false
            }
            None => true,
        });
        let pieces = from.and_then(|from| self.pieces.get(from..)).unwrap_or_default();
        let rows = pieces.iter().flatten().skip(left).take(count).map(|row| row.number as usize);
        let mut numbers: Vec<usize> = rows.collect();
        if self.descending {
            numbers.reverse();
        }
        numbers
    }

    /// The row of a hit, or of the next one that is there.
    pub fn row_of(&self, hits: &Hits, number: usize) -> usize {
        let Ok(number) = u32::try_from(number) else { return self.len };
        let row = Row { key: self.key(hits, number), number };
        let (piece, within, there) = self.place(hits, &row);
        let before: usize = self.pieces.iter().take(piece).map(Vec::len).sum();
        let ascending = before + within;
        if self.descending { self.len.saturating_sub(ascending + usize::from(there)) } else { ascending }
    }

    /// Where a row is or belongs: its piece, the place within, and whether it is there.
    fn place(&self, hits: &Hits, row: &Row) -> (usize, usize, bool) {
        let before = |other: &Row| self.compare(hits, other, row) == Ordering::Less;
        let at = self.pieces.partition_point(|piece| piece.last().is_some_and(before));
        let Some(piece) = self.pieces.get(at) else { return (at, 0, false) };
        let within = piece.partition_point(before);
        (at, within, piece.get(within).is_some_and(|found| found.number == row.number))
    }

    fn put_in(&mut self, hits: &Hits, row: Row) {
        let (at, within, _) = self.place(hits, &row);
        if let Some(piece) = self.pieces.get_mut(at) {
            piece.insert(within, row);
            if piece.len() > PIECE {
                let mut second = self.maker.part();
                second.extend(piece.drain(PIECE / 2..));
                self.pieces.insert(at + 1, second);
            }
            return;
        }
        // It comes after all others.
        match self.pieces.last_mut().filter(|last| last.len() < PIECE) {
            Some(last) => last.push(row),
            None => {
                let mut piece = self.maker.part();
                piece.push(row);
                self.pieces.push(piece);
            }
        }
    }

    fn key(&self, hits: &Hits, number: u32) -> u64 {
        let hit = hits.get(number as usize);
        match self.by {
            Column::Hit | Column::Position => 0,
            Column::Process => hit.map_or(0, |hit| hit.pid.into()),
            Column::Program | Column::Probe => hit.map_or(0, |hit| hit.probe.into()),
            Column::Address => hit.map_or(0, |hit| hit.ip),
            Column::Record => hits.logged(number as usize).map_or(NOT_KEPT, beginning),
        }
    }

    fn compare(&self, hits: &Hits, a: &Row, b: &Row) -> Ordering {
        let values = match self.by {
            Column::Program | Column::Probe => self.ranks.of(a.key).cmp(&self.ranks.of(b.key)),
            Column::Record if a.key == b.key && goes_on(a.key) => {
                hits.logged(a.number as usize).cmp(&hits.logged(b.number as usize))
            }
            _ => a.key.cmp(&b.key),
        };
        values.then(a.number.cmp(&b.number))
    }

    /// Puts more of the names of the probes in their order, if that matters; returns whether all are.
    fn rank(&mut self, hits: &Hits) -> bool {
        if !matches!(self.by, Column::Program | Column::Probe) {
            return true;
        }
        let new = hits.met.iter().skip(self.ranked).take(NAMES);
        for label in new.filter_map(|number| hits.probes.get(number)) {
            let name = if self.by == Column::Program { &label.program } else { &label.name };
            self.ranks.add(name, label.number);
        }
        self.ranked = hits.met.len().min(self.ranked + NAMES);
        self.ranked == hits.met.len()
    }
}

/// The beginning of a record, and how many bytes that takes: sorted as the records are, where these differ in it.
fn beginning(data: &[u8]) -> u64 {
    let bytes = data.iter().copied().chain(std::iter::repeat(0)).take(KEY_BYTES);
    bytes.fold(0, |key, byte| key << 8 | u64::from(byte)) << 8 | data.len().min(KEY_BYTES + 1) as u64
}

/// Whether a record with this beginning has more bytes.
const fn goes_on(key: u64) -> bool {
    key as u8 as usize == KEY_BYTES + 1
}

#[cfg(test)]
mod tests {
    use super::super::column::COLUMNS;
    use super::super::{Batch, Hit, ProbeLabel};
    use super::*;

    /// Hits with values that come again and again, and records of all lengths to 11.
    fn list(count: u32) -> Hits {
        let mut hits = Hits::default();
        let mix = |n: u32| n.wrapping_mul(0x9e37_79b1) >> 7;
        let hit = |n: u32| Hit {
            at: u64::from(n) * 3,
            ip: (mix(n) % 50).into(),
            probe: mix(n) % 9,
            pid: mix(n) % 5,
        };
        let label = |n: u32| {
            let name = format!("probe {}", (n * 5) % 7);
            ProbeLabel { number: n, program: format!("{}.rpn", n % 2), name }
        };
        let logged = |n: u32| {
            let byte = |k: u32| (mix(n ^ k) % 3) as u8;
            (0..mix(n) % 12).map(byte).collect()
        };
        for from in (0..count).step_by(1000) {
            let to = count.min(from + 1000);
            let probes = if from == 0 { 0..4 } else { 4..9 };
            hits.add(Batch {
                hits: (from..to).map(hit).collect(),
                logged: (from..to).map(logged).collect(),
                probes: probes.map(label).collect(),
                ..Batch::default()
            });
        }
        hits
    }

    /// What a column shows, as something that can be sorted.
    fn value(hits: &Hits, by: Column, number: usize) -> (u64, String, Vec<u8>) {
        let hit = hits.get(number).unwrap();
        let label = hits.probe(hit.probe);
        match by {
            Column::Hit | Column::Position => (hit.at, String::new(), Vec::new()),
            Column::Process => (hit.pid.into(), String::new(), Vec::new()),
            Column::Program => (0, label.unwrap().program.clone(), Vec::new()),
            Column::Probe => (0, label.unwrap().name.clone(), Vec::new()),
            Column::Address => (hit.ip, String::new(), Vec::new()),
            Column::Record => (0, String::new(), hits.logged(number).unwrap().to_vec()),
        }
    }

    #[test]
    fn every_column_sorts_as_a_whole_sort_does_however_the_hits_come_in() {
        let hits = list(9000);
        let third = || (0..9000).filter(|n| n % 3 != 1);
        let shown: Numbers = third().collect();
        for by in COLUMNS {
            for (shown, most) in [(None, 100), (None, 9000), (Some(&shown), 700)] {
                let mut wanted: Vec<usize> = match shown {
                    Some(_) => third().map(|number| number as usize).collect(),
                    None => (0..9000).collect(),
                };
                wanted.sort_by_key(|number| (value(&hits, by, *number), *number));
                let mut sorted = Sorted::new(by, false);
                while sorted.take(&hits, shown, most) {}
                assert_eq!(sorted.rows(0, 9000), wanted, "{by:?}");
                for (row, number) in wanted.iter().enumerate().step_by(97) {
                    assert_eq!(sorted.rows(row, 1), [*number]);
                    assert_eq!(sorted.row_of(&hits, *number), row, "{by:?}");
                }
                sorted.turn();
                wanted.reverse();
                assert_eq!(sorted.rows(10, 50), wanted[10..60]);
                assert_eq!(sorted.row_of(&hits, wanted[4321]), 4321);
            }
        }
    }

    #[test]
    fn names_that_become_known_later_are_sorted_among_the_others() {
        let mut hits = Hits::default();
        let label = |number, name: &str| ProbeLabel { number, program: String::new(), name: name.to_owned() };
        let add = |hits: &mut Hits, probe, name| {
            let hit = Hit { at: 0, ip: 0, probe, pid: 0 };
            hits.add(Batch { hits: vec![hit; 2], probes: vec![label(probe, name)], ..Batch::default() });
        };
        let mut sorted = Sorted::new(Column::Probe, false);
        add(&mut hits, 0, "m");
        assert!(!sorted.take(&hits, None, 10));
        add(&mut hits, 1, "z");
        add(&mut hits, 2, "a");
        assert!(!sorted.take(&hits, None, 10));
        assert_eq!(sorted.rows(0, 9), [4, 5, 0, 1, 2, 3]);
    }

    #[test]
    fn records_that_were_not_kept_come_last() {
        let mut hits = Hits::default();
        let hit = Hit { at: 0, ip: 0, probe: 0, pid: 0 };
        hits.add(Batch { hits: vec![hit; 3], logged: vec![vec![0xff; 9], vec![]], ..Batch::default() });
        let mut sorted = Sorted::new(Column::Record, false);
        sorted.take(&hits, None, 10);
        assert_eq!(sorted.rows(0, 9), [1, 0, 2]);
    }

    /// `cargo test --profile ci -p trapline-tui -- --ignored --nocapture millions` measures.
    #[test]
    #[ignore = "measures"]
    fn millions_of_hits_are_sorted_bit_by_bit() {
        let hits = list(5_000_000);
        for by in COLUMNS {
            let (from, mut longest) = (std::time::Instant::now(), 0.0_f64);
            let mut sorted = Sorted::new(by, false);
            loop {
                let began = std::time::Instant::now();
                let more = sorted.take(&hits, None, TAKEN);
                longest = longest.max(began.elapsed().as_secs_f64());
                if !more {
                    break;
                }
            }
            let whole = from.elapsed().as_secs_f64();
            let seeks = std::time::Instant::now();
            let mut sum = 0;
            for n in 0..1000 {
                sum += sorted.rows(n * 4999, 60).len();
            }
            let seek = seeks.elapsed().as_secs_f64() * 1e3;
            println!(
                "{by:?}: {whole:.2} s, the longest part {:.2} ms, a screen of {} rows {seek:.1} us",
                longest * 1e3,
                sum / 1000
            );
        }
    }
}
