//! Speculations: records that wait until they are committed or discarded.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Speculation {
    active: bool,
    used: usize,
    records: Vec<(u32, Vec<u8>)>,
}

/// All speculations, numbered from 1.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Speculations {
    list: Vec<Speculation>,
    size: usize,
}

/// Most speculations, whatever `nspec` says.
const MOST: usize = 4096;

impl Speculations {
    pub fn new(count: usize, size: usize) -> Self {
        Self { list: vec![Speculation::default(); count.min(MOST)], size }
    }

    /// Whether a stored state is one that a program with these limits and this many probe points can have.
    pub fn is_sound(&self, count: usize, size: usize, probes: usize) -> bool {
        let sound = |speculation: &Speculation| {
            let Speculation { active, used, records } = speculation;
            let held: usize = records.iter().map(|(_, data)| data.len()).sum();
            held == *used
                && *used <= size
                && (*active || records.is_empty())
                && records.iter().all(|(probe, _)| (*probe as usize) < probes)
        };
        (self.list.len(), self.size) == (count.min(MOST), size) && self.list.iter().all(sound)
    }

    /// Takes a free speculation; 0 if there is none.
    pub fn take(&mut self) -> u64 {
        let Some(free) = self.list.iter().position(|speculation| !speculation.active) else { return 0 };
        if let Some(speculation) = self.list.get_mut(free) {
            speculation.active = true;
        }
        free as u64 + 1
    }

    fn get(&mut self, id: u64) -> Option<&mut Speculation> {
        self.list.get_mut(usize::try_from(id.checked_sub(1)?).ok()?)
    }

    /// Whether a speculation with this number exists, free or not; 0 means none and is not an error.
    pub fn exists(&self, id: u64) -> bool {
        id <= self.list.len() as u64
    }

    pub fn is_active(&mut self, id: u64) -> bool {
        self.get(id).is_some_and(|speculation| speculation.active)
    }

    /// Adds a record; returns whether there was room for it.
    pub fn add(&mut self, id: u64, probe: u32, data: &[u8]) -> bool {
        let size = self.size;
        let Some(speculation) = self.get(id).filter(|speculation| speculation.active) else { return true };
        if speculation.used + data.len() > size {
            return false;
        }
        speculation.used += data.len();
        speculation.records.push((probe, data.to_vec()));
        true
    }

    /// Takes the records of a speculation, which is then free again.
    pub fn end(&mut self, id: u64) -> Vec<(u32, Vec<u8>)> {
        self.get(id).map(std::mem::take).unwrap_or_default().records
    }
}
