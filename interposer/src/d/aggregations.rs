//! Aggregations during a run.

use super::index::Index;
use serde::{Deserialize, Serialize};
use trapline_trace::d::{Aggregation, Snapshot, SnapshotEntry, Tables};

/// Bytes that an entry counts as beyond its key and value.
const OVERHEAD: usize = 32;

/// One aggregation. Keys and values lie apart: a hit whose key is known touches its value alone.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
struct State {
    normal: u64,
    index: Index,
    keys: Vec<Vec<u8>>,
    /// Numbers of each value.
    width: usize,
    /// The values, one after the other.
    values: Vec<u64>,
}

/// The form in which an aggregation is stored.
#[derive(Serialize, Deserialize)]
struct Stored {
    normal: u64,
    entries: Vec<SnapshotEntry>,
}

impl From<Stored> for State {
    fn from(stored: Stored) -> Self {
        let Stored { normal, entries } = stored;
        let width = entries.first().map_or(0, |entry| entry.value.len());
        let even = entries.iter().all(|entry| entry.value.len() == width);
        let mut state = Self { normal, width, ..Self::default() };
        for entry in entries {
            state.keys.push(entry.key);
            // Values that differ in length are no state, which the missing ones tell.
            state.values.extend(entry.value.into_iter().filter(|_| even));
        }
        state
    }
}

impl From<State> for Stored {
    fn from(state: State) -> Self {
        Self { normal: state.normal, entries: state.entries() }
    }
}

impl State {
    /// Builds the index anew; false if two entries have one key.
    fn reindex(&mut self) -> bool {
        let index = Index::of(0..self.keys.len() as u32, |at| key_of(&self.keys, at));
        let unique = index.is_some();
        self.index = index.unwrap_or_default();
        unique
    }

    fn entries(&self) -> Vec<SnapshotEntry> {
        let values = self.values.chunks(self.width.max(1));
        let entry =
            |(key, value): (&Vec<u8>, &[u64])| SnapshotEntry { key: key.clone(), value: value.to_vec() };
        self.keys.iter().zip(values).map(entry).collect()
    }

    /// The value of an entry.
    #[inline]
    fn value(&mut self, at: u32) -> Option<&mut [u64]> {
        let from = at as usize * self.width;
        self.values.get_mut(from..from + self.width)
    }

    /// Bytes that all entries count as.
    fn size(&self) -> usize {
        self.keys.iter().map(|key| size(key.len(), self.width)).sum()
    }
}

fn key_of(keys: &[Vec<u8>], at: u32) -> Option<&[u8]> {
    keys.get(at as usize).map(Vec::as_slice)
}

/// Bytes that an entry counts as, by the bytes of its key and the numbers of its value.
fn size(key: usize, width: usize) -> usize {
    key + width * 8 + OVERHEAD
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Aggregations {
    states: Vec<State>,
    used: usize,
    most: usize,
}

impl Aggregations {
    pub fn new(tables: &Tables, most: usize) -> Self {
        let state = |table: &Aggregation| State { normal: 1, width: table.kind.width(), ..State::default() };
        Self { states: tables.aggregations.iter().map(state).collect(), used: 0, most }
    }

    /// Builds the indices of a stored state; false if two entries have one key.
    pub fn reindex(&mut self) -> bool {
        self.states.iter_mut().all(State::reindex)
    }

    /// Whether a stored state is one that a program with these tables and this limit can have. An aggregation that was
    /// stored without an entry gets the width of its values.
    pub fn complete(&mut self, tables: &Tables, most: usize) -> bool {
        let state = |(state, table): (&mut State, &Aggregation)| {
            let width = table.kind.width();
            let sound = state.keys.is_empty() || state.width == width;
            state.width = width;
            sound && state.values.len() == state.keys.len() * width
        };
        self.states.len() == tables.aggregations.len()
            && self.states.iter_mut().zip(&tables.aggregations).all(state)
            && (self.most, self.used) == (most, self.states.iter().map(State::size).sum())
            && self.used <= most
    }

    /// The entry of a key, made if there is none; `None` without room for it.
    pub fn entry(&mut self, table: &Aggregation, number: usize, key: &[u8]) -> Option<u32> {
        let state = self.states.get_mut(number)?;
        // An aggregation without keys has one entry.
        if key.is_empty() && !state.keys.is_empty() {
            return Some(0);
        }
        if let Some(at) = state.index.find(key, |at| key_of(&state.keys, at)) {
            return Some(at);
        }
        let need = size(key.len(), state.width);
        if self.used + need > self.most {
            return None;
        }
        self.used += need;
        let at = state.keys.len() as u32;
        state.index.insert(key, at);
        state.keys.push(key.to_vec());
        state.values.extend(table.kind.initial());
        Some(at)
    }

    /// Adds a value to an entry.
    #[inline]
    pub fn add(&mut self, table: &Aggregation, number: usize, entry: u32, (value, weight): (u64, u64)) {
        if let Some(to) = self.states.get_mut(number).and_then(|state| state.value(entry)) {
            table.kind.add(to, value, weight, table.signed);
        }
    }

    pub fn snapshot(&self, number: usize) -> Snapshot {
        let Some(state) = self.states.get(number) else { return Snapshot::default() };
        Snapshot { normal: state.normal, entries: state.entries() }
    }

    /// `normalize()`; 1 undoes it.
    pub fn normalize(&mut self, number: usize, by: u64) {
        if let Some(state) = self.states.get_mut(number) {
            state.normal = by;
        }
    }

    /// `clear()`: the keys stay.
    pub fn clear(&mut self, tables: &Tables, number: usize) {
        let (Some(state), Some(table)) = (self.states.get_mut(number), tables.aggregations.get(number))
        else {
            return;
        };
        let initial = table.kind.initial();
        for value in state.values.chunks_exact_mut(initial.len().max(1)) {
            value.copy_from_slice(&initial);
        }
    }

    /// `trunc()`: keeps the `most` greatest, or the least if `most` is negative. Entries get other numbers.
    pub fn trunc(&mut self, tables: &Tables, number: usize, most: i64) {
        let (Some(state), Some(table)) = (self.states.get_mut(number), tables.aggregations.get(number))
        else {
            return;
        };
        self.used -= state.size();
        let mut entries = state.entries();
        let keep = usize::try_from(most.unsigned_abs()).unwrap_or(usize::MAX);
        if keep == 0 {
            entries.clear();
        } else {
            table.sort_entries(&mut entries);
            let gone = entries.len().saturating_sub(keep);
            if most > 0 {
                entries.drain(..gone);
            } else {
                entries.truncate(keep);
            }
        }
        let kept = State::from(Stored { normal: state.normal, entries });
        *state = State { width: state.width, ..kept };
        self.used += state.size();
        state.reindex();
    }
}
