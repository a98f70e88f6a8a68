//! Finds entries by their keys: a hash table of the entries' numbers.
//!
//! Only lookups go through it. No order comes from it, so nothing that a run shows depends on hashes. It is not stored:
//! it is built from the entries.

/// The least number of places.
const LEAST: usize = 16;

/// The numbers of entries by the hashes of their keys, with open addressing.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    /// A power of two of places, at most half of them taken.
    places: Vec<Place>,
    count: usize,
}

/// The number of an entry plus 1, or 0 for a free place; and the hash of its key.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    number: u32,
    hash: u32,
}

fn hash(key: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (eights, rest) = key.as_chunks::<8>();
    let tail = rest.iter().fold(key.len() as u64, |value, byte| value << 8 | u64::from(*byte));
    let step = |hash: u64, eight: u64| (hash.rotate_left(23) ^ eight).wrapping_mul(FACTOR);
    let hash = eights.iter().fold(step(0, tail), |hash, eight| step(hash, u64::from_le_bytes(*eight)));
    (hash ^ hash >> 32) as u32
}

/// Whether two keys are equal. Those of aggregations without keys are empty: comparing nothing at the address of an empty
/// vector costs more than all the rest, because the vector instructions that do it fault there silently.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && (one.is_empty() || one == other)
}

impl Index {
    /// The index of these entries; `None` if two have one key, or one has none.
    pub fn of<'k>(
        numbers: impl Iterator<Item = u32>,
        key_of: impl Fn(u32) -> Option<&'k [u8]>,
    ) -> Option<Self> {
        let mut index = Self::default();
        for number in numbers {
            let key = key_of(number)?;
            if index.find(key, &key_of).is_some() {
                return None;
            }
            index.insert(key, number);
        }
        Some(index)
    }

    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.places.len() - 1)
    }

    fn place<'k>(&self, key: &[u8], key_of: impl Fn(u32) -> Option<&'k [u8]>) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        let hash = hash(key);
        let mut at = self.home(hash);
        loop {
            let place = self.places.get(at).copied().unwrap_or_default();
            if place.number == 0 {
                return None;
            }
            if place.hash == hash && key_of(place.number - 1).is_some_and(|there| same(there, key)) {
                return Some(at);
            }
            at = (at + 1) & (self.places.len() - 1);
        }
    }

    /// The entry of a key. `key_of` gives the key of an entry.
    pub fn find<'k>(&self, key: &[u8], key_of: impl Fn(u32) -> Option<&'k [u8]>) -> Option<u32> {
        let at = self.place(key, key_of)?;
        self.places.get(at).map(|place| place.number - 1)
    }

    /// Adds an entry, whose key is not there.
    pub fn insert(&mut self, key: &[u8], number: u32) {
        if (self.count + 1) * 2 > self.places.len() {
            let wider = vec![Place::default(); (self.places.len() * 2).max(LEAST)];
            let before = std::mem::replace(&mut self.places, wider);
            before.into_iter().filter(|place| place.number != 0).for_each(|place| self.put(place));
        }
        self.count += 1;
        self.put(Place { number: number + 1, hash: hash(key) });
    }

    fn put(&mut self, place: Place) {
        let mut at = self.home(place.hash);
        while self.places.get(at).is_some_and(|there| there.number != 0) {
            at = (at + 1) & (self.places.len() - 1);
        }
        if let Some(free) = self.places.get_mut(at) {
            *free = place;
        }
    }

    /// Removes the entry of a key, and gives its number.
    pub fn remove<'k>(&mut self, key: &[u8], key_of: impl Fn(u32) -> Option<&'k [u8]>) -> Option<u32> {
        let mut free = self.place(key, key_of)?;
        let taken = std::mem::take(self.places.get_mut(free)?);
        self.count -= 1;
        // Those that follow move up, unless they would come before their home.
        let mask = self.places.len() - 1;
        let mut at = (free + 1) & mask;
        while let Some(place) = self.places.get(at).copied().filter(|place| place.number != 0) {
            let home = self.home(place.hash);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(free) & mask) {
                self.places.swap(at, free);
                free = at;
            }
            at = (at + 1) & mask;
        }
        Some(taken.number - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_finds_what_a_sorted_map_finds() {
        let (mut index, mut map) = (Index::default(), BTreeMap::new());
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut seed = 1u64;
        for _ in 0..5_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (seed >> 55).to_string().into_bytes();
            if seed >> 40 & 1 == 0 {
                let found = index.remove(&key, |n| keys.get(n as usize).map(Vec::as_slice));
                assert_eq!(found, map.remove(&key));
            } else if !map.contains_key(&key) {
                index.insert(&key, keys.len() as u32);
                map.insert(key.clone(), keys.len() as u32);
                keys.push(key);
            }
            for (key, number) in map.iter().take(5) {
                assert_eq!(index.find(key, |n| keys.get(n as usize).map(Vec::as_slice)), Some(*number));
            }
        }
        for (key, number) in &map {
            assert_eq!(index.find(key, |n| keys.get(n as usize).map(Vec::as_slice)), Some(*number));
        }
    }

    #[test]
    fn two_entries_with_one_key_have_no_index() {
        let keys = [b"a", b"b", b"a"];
        let key_of = |n: u32| keys.get(n as usize).map(|key| key.as_slice());
        assert!(Index::of(0..3, key_of).is_none() && Index::of(0..2, key_of).is_some());
    }
}
