//! Records not yet taken: a queue that is cheap to copy, whatever its length.

use std::sync::Arc;

use trapline_trace::Record;

/// Records of a whole piece.
const PIECE: usize = 256;

/// A queue of records.
#[derive(Debug, Clone, Default)]
pub(super) struct Waiting {
    /// Oldest first. After the full pieces, each is at least twice as long as the next.
    pieces: Vec<Arc<Vec<Record>>>,
    /// The records after them, which no copy shares.
    rest: Vec<Record>,
}

impl Waiting {
    /// The records, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.pieces.iter().flat_map(|piece| piece.iter()).chain(&self.rest)
    }

    /// A copy, which shares the records.
    pub fn shared(&mut self) -> Self {
        self.close();
        self.clone()
    }

    /// Makes a piece of the rest. Short pieces are joined, so that a record is copied a few times at most, however often
    /// the queue is, and pieces stay few.
    fn close(&mut self) {
        if self.rest.is_empty() {
            return;
        }
        self.pieces.push(Arc::new(std::mem::take(&mut self.rest)));
        while let [.., before, last] = self.pieces.as_slice()
            && before.len() < PIECE
            && before.len() < 2 * last.len()
        {
            let (Some(last), Some(before)) = (self.pieces.pop(), self.pieces.pop()) else { return };
            let mut joined = Arc::unwrap_or_clone(before);
            joined.extend(Arc::unwrap_or_clone(last));
            self.pieces.push(Arc::new(joined));
        }
    }

    /// Takes all, oldest first.
    pub fn drain(&mut self) -> impl Iterator<Item = Record> + use<> {
        let Self { pieces, rest } = std::mem::take(self);
        pieces.into_iter().flat_map(Arc::unwrap_or_clone).chain(rest)
    }
}

impl Extend<Record> for Waiting {
    fn extend<I: IntoIterator<Item = Record>>(&mut self, records: I) {
        for record in records {
            self.rest.push(record);
            if self.rest.len() == PIECE {
                self.close();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_trace::Header;

    fn record(seq: u64) -> Record {
        Record { header: Header { seq, ..Header::default() }, ..Record::default() }
    }

    fn numbers<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<u64> {
        records.map(|record| record.header.seq).collect()
    }

    #[test]
    fn records_come_out_in_order_and_a_copy_keeps_its_own() {
        let mut queue = Waiting::default();
        queue.extend((0..PIECE as u64 + 3).map(record));
        let copy = queue.shared();
        queue.extend([record(999)]);
        let taken: Vec<Record> = queue.drain().collect();
        assert_eq!(numbers(taken.iter()).last(), Some(&999));
        assert_eq!((queue.iter().count(), taken.len()), (0, PIECE + 4));
        assert_eq!(numbers(copy.iter()), (0..PIECE as u64 + 3).collect::<Vec<_>>());
    }

    #[test]
    fn pieces_stay_few_however_often_a_copy_is_made() {
        let mut queue = Waiting::default();
        let mut copies = Vec::new();
        for n in 0..5000 {
            queue.extend((0..n % 7).map(|k| record(10 * n + k)));
            copies.push(queue.shared());
            let records = queue.iter().count();
            assert!(queue.pieces.len() <= records / PIECE + 10, "{} of {records}", queue.pieces.len());
        }
        let all: Vec<u64> = (0..5000).flat_map(|n| (0..n % 7).map(move |k| 10 * n + k)).collect();
        assert_eq!(numbers(queue.iter()), all);
        let half = numbers(copies[2500].iter());
        assert_eq!(half, all[..half.len()]);
    }
}
