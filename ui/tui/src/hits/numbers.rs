//! Ascending numbers of hits: in parts, so that a list that grows is never moved.

use super::large::{Large, Maker};

/// Numbers of a part.
const PART: usize = 1 << 16;

/// The numbers.
#[derive(Debug, Default)]
pub struct Numbers {
    parts: Large<Vec<u32>>,
    /// What makes more parts, once there is one.
    maker: Option<Maker<u32>>,
}

impl Numbers {
    /// Adds a number, which is larger than the others.
    pub fn push(&mut self, number: u32) {
        if self.parts.last().is_none_or(|last| last.len() >= PART) {
            let part = self.maker.get_or_insert_with(|| Maker::new(PART)).part();
            self.parts.push(part);
        }
        if let Some(last) = self.parts.last_mut() {
            last.push(number);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.parts.last().map_or(0, |last| (self.parts.len() - 1) * PART + last.len())
    }

    /// One of them.
    pub fn get(&self, nth: usize) -> Option<u32> {
        self.parts.get(nth / PART)?.get(nth % PART).copied()
    }

    /// How many of them are smaller than this one.
    pub fn before(&self, number: usize) -> usize {
        let smaller = |own: &u32| (*own as usize) < number;
        let whole = self.parts.partition_point(|part| part.last().is_some_and(smaller));
        self.parts.get(whole).map_or(self.len(), |part| whole * PART + part.partition_point(smaller))
    }
}

impl FromIterator<u32> for Numbers {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut all = Self::default();
        numbers.into_iter().for_each(|number| all.push(number));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_across_parts() {
        let numbers: Numbers = (0..200_000).map(|n| n * 2).collect();
        assert_eq!(numbers.len(), 200_000);
        for nth in [0, 1, PART - 1, PART, PART + 1, 199_999] {
            assert_eq!(numbers.get(nth), Some(nth as u32 * 2));
            assert_eq!((numbers.before(nth * 2), numbers.before(nth * 2 + 1)), (nth, nth + 1));
        }
        assert_eq!((numbers.get(200_000), numbers.before(usize::MAX)), (None, 200_000));
    }
}
