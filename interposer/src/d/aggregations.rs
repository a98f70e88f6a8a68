//! Aggregations during a run.

use super::index::Index;
use serde::{Deserialize, Serialize};
use trapline_trace::d::{Aggregation, Snapshot, SnapshotEntry, Tables};

/// Bytes that an entry counts as beyond its key and value.
const OVERHEAD: usize = 32;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct State {
    normal: u64,
    #[serde(skip)]
    index: Index,
    entries: Vec<SnapshotEntry>,
}

impl State {
    /// Builds the index anew; false if two entries have one key.
    fn reindex(&mut self) -> bool {
        let index = Index::of(0..self.entries.len() as u32, |at| key_of(&self.entries, at));
        let unique = index.is_some();
        self.index = index.unwrap_or_default();
        unique
    }
}

fn key_of(entries: &[SnapshotEntry], at: u32) -> Option<&[u8]> {
    entries.get(at as usize).map(|entry| entry.key.as_slice())
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Aggregations {
    states: Vec<State>,
    used: usize,
    most: usize,
}

fn size(entry: &SnapshotEntry) -> usize {
    entry.key.len() + entry.value.len() * 8 + OVERHEAD
}

impl Aggregations {
    pub fn new(tables: &Tables, most: usize) -> Self {
        let states = vec![State { normal: 1, ..State::default() }; tables.aggregations.len()];
        Self { states, used: 0, most }
    }

    /// Builds the indices of a stored state; false if two entries have one key.
    pub fn reindex(&mut self) -> bool {
        self.states.iter_mut().all(State::reindex)
    }

    /// Whether a stored state is one that a program with these tables and this limit can have.
    pub fn is_sound(&self, tables: &Tables, most: usize) -> bool {
        let state = |(state, table): (&State, &Aggregation)| {
            let width = table.kind.width();
            state.entries.iter().all(|entry| entry.value.len() == width)
        };
        let used: usize = self.states.iter().flat_map(|state| &state.entries).map(size).sum();
        self.states.len() == tables.aggregations.len()
            && self.states.iter().zip(&tables.aggregations).all(state)
            && (self.most, self.used) == (most, used)
            && used <= most
    }

    /// Adds a value; returns whether there was room for it.
    pub fn add(&mut self, table: &Aggregation, number: usize, key: &[u8], value: u64, weight: u64) -> bool {
        let Some(state) = self.states.get_mut(number) else { return true };
        let Aggregation { kind, signed, .. } = *table;
        let at = match state.index.find(key, |at| key_of(&state.entries, at)) {
            Some(at) => at as usize,
            None => {
                let entry = SnapshotEntry { key: key.to_vec(), value: kind.initial(signed) };
                let need = size(&entry);
                if self.used + need > self.most {
                    return false;
                }
                self.used += need;
                state.index.insert(key, state.entries.len() as u32);
                state.entries.push(entry);
                state.entries.len() - 1
            }
        };
        if let Some(entry) = state.entries.get_mut(at) {
            kind.add(&mut entry.value, value, weight, signed);
        }
        true
    }

    pub fn snapshot(&self, number: usize) -> Snapshot {
        let Some(state) = self.states.get(number) else { return Snapshot::default() };
        Snapshot { normal: state.normal, entries: state.entries.clone() }
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
        for entry in &mut state.entries {
            // An empty `min` or `max` is shown as 0 too, and is replaced by the next value.
            entry.value = table.kind.initial(table.signed);
        }
    }

    /// `trunc()`: keeps the `most` greatest, or the least if `most` is negative.
    pub fn trunc(&mut self, tables: &Tables, number: usize, most: i64) {
        let (Some(state), Some(table)) = (self.states.get_mut(number), tables.aggregations.get(number))
        else {
            return;
        };
        let mut entries = std::mem::take(&mut state.entries);
        self.used -= entries.iter().map(size).sum::<usize>();
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
        self.used += entries.iter().map(size).sum::<usize>();
        state.entries = entries;
        state.reindex();
    }
}
