//! Which entry of an aggregation a probe adds to, at places where its keys are always the same.
//!
//! It is not stored: a place that is not known is looked up by its key, with the same result.

/// The entries by place and probe point.
#[derive(Debug, Clone, Default)]
pub(super) struct Fixed {
    places: Vec<Entries>,
}

/// The entries of one place. The probe points of its clause have numbers close to each other.
#[derive(Debug, Clone, Default)]
struct Entries {
    /// The number of the first probe point.
    first: u32,
    /// The numbers of entries plus 1, or 0.
    of: Vec<u32>,
}

impl Fixed {
    #[inline]
    pub fn get(&self, place: usize, probe: u32) -> Option<u32> {
        let entries = self.places.get(place)?;
        entries.of.get(probe.wrapping_sub(entries.first) as usize)?.checked_sub(1)
    }

    #[cold]
    pub fn set(&mut self, place: usize, probe: u32, entry: Option<u32>) {
        let Some(number) = entry.and_then(|entry| entry.checked_add(1)) else { return };
        if self.places.len() <= place {
            self.places.resize_with(place + 1, Entries::default);
        }
        let Some(entries) = self.places.get_mut(place) else { return };
        if entries.of.is_empty() {
            entries.first = probe;
        }
        if probe < entries.first {
            // Room for as many again, so that descending numbers do not move all of them each time.
            let first = probe.min(entries.first.saturating_sub(entries.of.len() as u32));
            let room = vec![0; (entries.first - first) as usize];
            entries.of.splice(..0, room);
            entries.first = first;
        }
        let at = (probe - entries.first) as usize;
        if entries.of.len() <= at {
            entries.of.resize(at + 1, 0);
        }
        if let Some(there) = entries.of.get_mut(at) {
            *there = number;
        }
    }

    /// Forgets all entries, after their numbers have changed.
    pub fn forget(&mut self) {
        self.places.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_place_and_probe_in_any_order() {
        let mut fixed = Fixed::default();
        for (n, probe) in [(0, 500), (1, 7), (2, 501), (3, 6), (4, 0), (5, 9_000)] {
            assert_eq!(fixed.get(1, probe), None);
            fixed.set(1, probe, Some(n));
        }
        fixed.set(0, 3, None);
        let found = [500, 7, 501, 6, 0, 9_000].map(|probe| fixed.get(1, probe));
        assert_eq!(found, [0, 1, 2, 3, 4, 5].map(Some));
        assert_eq!((fixed.get(1, 8), fixed.get(0, 3), fixed.get(2, 7)), (None, None, None));
        fixed.forget();
        assert_eq!(fixed.get(1, 7), None);
    }
}
