//! Associative arrays and thread-local variables: elements that come and go. Their keys and values count towards
//! `dynvarsize`, as in DTrace, so the number of keys is bounded too.

use super::index::Index;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use trapline_rpn::services::d;

/// Bits of an element's offset in its address.
const OFFSET: u32 = 16;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Element {
    key: Vec<u8>,
    value: Vec<u8>,
    counted: usize,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Dynamics {
    #[serde(skip)]
    index: Index,
    elements: Vec<Option<Element>>,
    free: Vec<u32>,
    used: usize,
    most: usize,
    /// By the number of a variable.
    #[serde(skip)]
    recent: Vec<Option<Recent>>,
}

/// The last use of a scalar without keys.
#[derive(Debug, Clone, Copy)]
struct Recent {
    /// The thread, if each has its own.
    thread: Option<u64>,
    /// The element.
    slot: u32,
}

/// The element and the offset in it of an address.
pub(super) fn element(address: u64) -> Option<(u32, usize)> {
    let within = address.checked_sub(d::DYNAMIC).filter(|within| *within < 1 << 40)?;
    Some(((within >> OFFSET) as u32, (within & ((1 << OFFSET) - 1)) as usize))
}

/// The address of an element.
pub(super) fn address(slot: u32) -> u64 {
    d::DYNAMIC + (u64::from(slot) << OFFSET)
}

/// The value of a scalar element.
pub(super) fn element_value(value: &[u8]) -> u64 {
    value.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The number of the variable that an element's key begins with.
pub(super) fn variable_of(key: &[u8]) -> u32 {
    key.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The thread that follows it, 0 if threads share the variable.
pub(super) fn thread_of(key: &[u8]) -> u64 {
    key.get(4..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn key_of(elements: &[Option<Element>], slot: u32) -> Option<&[u8]> {
    elements.get(slot as usize)?.as_ref().map(|element| element.key.as_slice())
}

impl Dynamics {
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Whether a stored state is one that a program with this limit can have.
    pub fn is_sound(&self, most: usize) -> bool {
        let there = || self.elements.iter().flatten();
        let small = |element: &Element| element.value.len() >> OFFSET == 0;
        let free: BTreeSet<u32> = self.free.iter().copied().collect();
        let is_free = |slot: &u32| self.elements.get(*slot as usize).is_some_and(Option::is_none);
        let counted = there().try_fold(0usize, |sum, element| sum.checked_add(element.counted));
        there().all(small)
            && free.len() == self.free.len()
            && free.iter().all(is_free)
            && free.len() + there().count() == self.elements.len()
            && (self.most, counted) == (most, Some(self.used))
            && self.used <= most
    }

    /// Builds the index of a stored state; false if two elements have one key.
    pub fn reindex(&mut self) -> bool {
        let there = (0..self.elements.len() as u32).filter(|slot| key_of(&self.elements, *slot).is_some());
        let index = Index::of(there, |slot| key_of(&self.elements, slot));
        let unique = index.is_some();
        self.index = index.unwrap_or_default();
        unique
    }

    pub fn find(&self, key: &[u8]) -> Option<u32> {
        self.index.find(key, |slot| key_of(&self.elements, slot))
    }

    /// The thread that has used a scalar without keys last, if its element is known; the inner one is `None` if threads
    /// share it.
    #[inline]
    pub fn recent_thread(&self, variable: u64) -> Option<Option<u64>> {
        Some((*self.recent.get(variable as usize)?)?.thread)
    }

    /// The value of a scalar without keys as it was used last.
    #[inline]
    pub fn recent(&mut self, variable: u64) -> Option<&mut [u8; 8]> {
        let recent = (*self.recent.get(variable as usize)?)?;
        self.elements.get_mut(recent.slot as usize)?.as_mut()?.value.first_chunk_mut()
    }

    /// How many elements there are.
    pub const fn count(&self) -> usize {
        self.elements.len() - self.free.len()
    }

    /// The threads that elements belong to. Others have 0 there.
    pub fn threads(&self) -> BTreeSet<u64> {
        self.elements.iter().flatten().map(|element| thread_of(&element.key)).collect()
    }

    /// Removes the elements of a thread.
    #[cold]
    pub fn remove_thread(&mut self, thread: u64) {
        let own = self.elements.iter().flatten().filter(|element| thread_of(&element.key) == thread);
        let keys: Vec<Vec<u8>> = own.map(|element| element.key.clone()).collect();
        keys.iter().for_each(|key| self.remove(key));
    }

    /// Notes which thread has used a scalar without keys last, by its key.
    pub fn note_recent(&mut self, variable: u64, thread: Option<u64>, key: &[u8]) {
        let found = self.find(key);
        let at = variable as usize;
        if self.recent.len() <= at {
            self.recent.resize(at + 1, None);
        }
        if let Some(recent) = self.recent.get_mut(at) {
            *recent = found.map(|slot| Recent { thread, slot });
        }
    }

    pub fn value(&self, slot: u32) -> Option<&[u8]> {
        self.elements.get(slot as usize)?.as_ref().map(|element| element.value.as_slice())
    }

    /// All elements by key: keys and values.
    pub fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let there = self.elements.iter().flatten();
        let mut there: Vec<_> = there.map(|it| (it.key.as_slice(), it.value.as_slice())).collect();
        there.sort_unstable();
        there.into_iter()
    }

    /// The element of a key, made of zeros if it does not exist; `None` if there is no room for it.
    pub fn make(&mut self, key: &[u8], size: usize, counted: usize) -> Option<u32> {
        if let Some(there) = self.find(key) {
            return Some(there);
        }
        let need = counted.max(1);
        if self.used + need > self.most || size >> OFFSET != 0 {
            return None;
        }
        self.used += need;
        let element = Some(Element { key: key.to_vec(), value: vec![0; size], counted: need });
        let slot = match self.free.pop() {
            Some(slot) => {
                if let Some(free) = self.elements.get_mut(slot as usize) {
                    *free = element;
                }
                slot
            }
            None => {
                self.elements.push(element);
                self.elements.len() as u32 - 1
            }
        };
        self.index.insert(key, slot);
        Some(slot)
    }

    pub fn remove(&mut self, key: &[u8]) {
        let found = self.index.remove(key, |slot| key_of(&self.elements, slot));
        let Some(slot) = found else { return };
        if let Some(element) = self.elements.get_mut(slot as usize).and_then(Option::take) {
            self.used -= element.counted;
            self.free.push(slot);
            self.recent
                .iter_mut()
                .filter(|recent| recent.is_some_and(|recent| recent.slot == slot))
                .for_each(|recent| *recent = None);
        }
    }

    /// Writes a part of an element; returns whether there is such a part.
    pub fn write(&mut self, slot: u32, offset: usize, from: &[u8]) -> bool {
        let Some(Some(element)) = self.elements.get_mut(slot as usize) else { return false };
        let Some(to) = element.value.get_mut(offset..).and_then(|rest| rest.get_mut(..from.len())) else {
            return false;
        };
        to.copy_from_slice(from);
        // A scalar of 0 is the same as no element.
        if element.value.len() == 8 && from.iter().all(|byte| *byte == 0) && from.len() == 8 {
            let key = element.key.clone();
            self.remove(&key);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_stay_within_the_limit_and_give_their_room_back() {
        let mut dynamics = Dynamics::new(40);
        let first = dynamics.make(b"one", 8, 8).unwrap();
        assert!(dynamics.write(first, 0, &7u64.to_le_bytes()));
        assert_eq!(dynamics.value(first), Some(7u64.to_le_bytes().as_slice()));
        assert_eq!(element(address(first) + 3), Some((first, 3)));
        while dynamics.make(format!("key{}", dynamics.elements.len()).as_bytes(), 8, 8).is_some() {}
        assert!(dynamics.used <= 40);
        dynamics.remove(b"one");
        assert!(dynamics.make(b"two", 8, 8).is_some());
        assert_eq!(dynamics.find(b"one"), None);
    }
}
