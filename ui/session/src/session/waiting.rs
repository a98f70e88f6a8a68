//! Records that nobody has taken yet: a queue that is cheap to copy.

use std::collections::VecDeque;
use std::sync::Arc;

use trapline_trace::Record;

/// Records of a piece.
const PIECE: usize = 256;

/// A queue of records. Copies share all whole pieces.
#[derive(Debug, Clone, Default)]
pub(super) struct Waiting {
    whole: VecDeque<Arc<Vec<Record>>>,
    rest: Vec<Record>,
}

impl Waiting {
    /// They, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.whole.iter().flat_map(|piece| piece.iter()).chain(&self.rest)
    }

    /// Takes all, oldest first.
    pub fn drain(&mut self) -> impl Iterator<Item = Record> + use<> {
        let Self { whole, rest } = std::mem::take(self);
        whole.into_iter().flat_map(Arc::unwrap_or_clone).chain(rest)
    }
}

impl Extend<Record> for Waiting {
    fn extend<I: IntoIterator<Item = Record>>(&mut self, records: I) {
        for record in records {
            self.rest.push(record);
            if self.rest.len() == PIECE {
                self.whole.push_back(Arc::new(std::mem::take(&mut self.rest)));
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
        let copy = queue.clone();
        queue.extend([record(999)]);
        let taken: Vec<Record> = queue.drain().collect();
        assert_eq!(numbers(taken.iter()).last(), Some(&999));
        assert_eq!((queue.iter().count(), taken.len()), (0, PIECE + 4));
        assert_eq!(numbers(copy.iter()), (0..PIECE as u64 + 3).collect::<Vec<_>>());
    }
}
