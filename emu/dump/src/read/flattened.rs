//! makedumpfile's flattened form: a dump as a stream of pieces, each with its place in the dump.

use std::collections::BTreeMap;

use super::{Bytes, Source};
use crate::error::DumpError;

/// The first bytes.
const SIGNATURE: &[u8] = b"makedumpfile\0\0\0\0";
/// Bytes of the header, after which the pieces begin.
const HEADER: u64 = 4096;
/// Bytes before a piece: its place and its size, big-endian.
const PIECE: u64 = 16;

/// The pieces of a dump, by their place; none overlaps another.
pub struct Flattened {
    file: Box<Source>,
    /// The end of each piece, and where it is in the file.
    pieces: BTreeMap<u64, (u64, u64)>,
}

impl Flattened {
    /// Whether these are the first bytes of such a file.
    pub fn is(first: &[u8]) -> bool {
        first == SIGNATURE
    }

    /// The dump in a flattened file.
    pub fn open(file: Source) -> Result<Source, DumpError> {
        let mut flattened = Self { file: Box::new(file), pieces: BTreeMap::new() };
        let (mut at, mut len) = (HEADER, 0);
        loop {
            let head = flattened.file.part("a piece of the flattened dump", at, PIECE)?;
            let word =
                |n: usize| head[8 * n..8 * n + 8].iter().fold(0, |all, byte| all << 8 | i64::from(*byte));
            let (place, size) = (word(0), word(1));
            // The end is marked by -1.
            let (Ok(place), Ok(size)) = (u64::try_from(place), u64::try_from(size)) else { break };
            let (from, end) = (at + PIECE, place.saturating_add(size));
            let file_end = from.saturating_add(size);
            if file_end > flattened.file.len {
                let part = "a piece of the flattened dump";
                return Err(DumpError::Cut { part, end: file_end, len: flattened.file.len });
            }
            flattened.add(place, end, from);
            (at, len) = (file_end, end.max(len));
        }
        Ok(Source { bytes: Bytes::Flattened(flattened), len })
    }

    /// Bytes of the file.
    pub fn stored(&self) -> u64 {
        self.file.len
    }

    /// Adds a piece, which replaces what lies at its place: headers are written again at the end.
    fn add(&mut self, place: u64, end: u64, from: u64) {
        let overlapped: Vec<_> = self
            .pieces
            .range(..end)
            .rev()
            .take_while(|(_, (old_end, _))| *old_end > place)
            .map(|(old, (old_end, old_from))| (*old, *old_end, *old_from))
            .collect();
        for (old, old_end, old_from) in overlapped {
            self.pieces.remove(&old);
            if old < place {
                self.pieces.insert(old, (place, old_from));
            }
            if old_end > end {
                self.pieces.insert(end, (old_end, old_from + (end - old)));
            }
        }
        if place < end {
            self.pieces.insert(place, (end, from));
        }
    }

    /// Fills `to` from an offset in the dump. What no piece has is zero, as in a file with holes.
    pub fn read(&self, at: u64, to: &mut [u8]) -> bool {
        to.fill(0);
        let end = at.saturating_add(to.len() as u64);
        let first = self.pieces.range(..=at).next_back().map_or(at, |(place, _)| *place);
        for (place, (piece_end, from)) in self.pieces.range(first..end) {
            let (begin, stop) = ((*place).max(at), (*piece_end).min(end));
            if begin < stop {
                let part = &mut to[(begin - at) as usize..(stop - at) as usize];
                if !self.file.read(from + (begin - place), part) {
                    return false;
                }
            }
        }
        true
    }
}
