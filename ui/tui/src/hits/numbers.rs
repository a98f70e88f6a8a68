//! Ascending numbers of hits: in parts, so that a list that grows is never moved.

use super::large::Large;

/// Numbers of a part.
const PART: usize = 1 << 16;

/// The numbers.
#[derive(Debug, Default)]
pub struct Numbers(Large<Vec<u32>>);

impl Numbers {
    /// Adds a number, which is larger than the others.
    pub fn push(&mut self, number: u32) {
        match self.0.last_mut().filter(|last| last.len() < PART) {
            Some(last) => last.push(number),
            None => {
                let mut part = Vec::with_capacity(PART);
                part.push(number);
                self.0.push(part);
            }
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * PART + last.len())
    }

    /// One of them.
    pub fn get(&self, nth: usize) -> Option<u32> {
        self.0.get(nth / PART)?.get(nth % PART).copied()
    }

    /// How many of them are smaller than this one.
    pub fn before(&self, number: usize) -> usize {
        let smaller = |own: &u32| (*own as usize) < number;
        let whole = self.0.partition_point(|part| part.last().is_some_and(smaller));
        self.0.get(whole).map_or(self.len(), |part| whole * PART + part.partition_point(smaller))
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
