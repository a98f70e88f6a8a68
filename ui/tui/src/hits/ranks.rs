//! The order of names that become known one after the other. Each name has a label; the labels are in the order of the names,
//! and a new name's label comes between those of its neighbours. So nothing is sorted anew.

use std::collections::BTreeMap;
use std::ops::Bound;

/// The distance from the first or the last label to a new one before or after it.
const STEP: u64 = 1 << 40;

/// The label of a name, and the probes with this name.
type Place = (u64, Vec<u32>);

/// The names of probes, and where each probe is among them.
#[derive(Debug, Default)]
pub struct Ranks {
    names: BTreeMap<String, Place>,
    /// The label of each probe's name, by the number of the probe.
    labels: Vec<u64>,
}

impl Ranks {
    /// Where a probe is. Probes with the same name are at the same place.
    pub fn of(&self, probe: u64) -> Option<u64> {
        usize::try_from(probe).ok().and_then(|probe| self.labels.get(probe)).copied()
    }

    /// Adds a probe.
    pub fn add(&mut self, name: &str, probe: u32) {
        if self.labels.len() <= probe as usize {
            self.labels.resize(probe as usize + 1, 0);
        }
        if let Some((label, probes)) = self.names.get_mut(name) {
            probes.push(probe);
            let label = *label;
            self.set(probe, label);
            return;
        }
        let label = |(_, (label, _)): (&String, &Place)| *label;
        let before =
            self.names.range::<str, _>((Bound::Unbounded, Bound::Excluded(name))).next_back().map(label);
        let after = self.names.range::<str, _>((Bound::Excluded(name), Bound::Unbounded)).next().map(label);
        let free = between(before, after);
        self.names.insert(name.to_owned(), (free.unwrap_or_default(), vec![probe]));
        match free {
            Some(label) => self.set(probe, label),
            None => self.spread(),
        }
    }

    fn set(&mut self, probe: u32, label: u64) {
        if let Some(own) = self.labels.get_mut(probe as usize) {
            *own = label;
        }
    }

    /// Gives all names new labels, at equal distances. The order stays.
    fn spread(&mut self) {
        let Self { names, labels } = self;
        let distance = u64::MAX / (names.len() as u64 + 1);
        for (n, (label, probes)) in (1..).zip(names.values_mut()) {
            *label = n * distance;
            for probe in probes {
                if let Some(own) = labels.get_mut(*probe as usize) {
                    *own = *label;
                }
            }
        }
    }
}

/// A label between two, or before or after all.
const fn between(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    match (before, after) {
        (None, None) => Some(1 << 63),
        (Some(before), None) => before.checked_add(STEP),
        (None, Some(after)) => after.checked_sub(STEP),
        (Some(before), Some(after)) if after - before >= 2 => Some(before + (after - before) / 2),
        (Some(_), Some(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names, as they come.
    fn ranked(names: &[String]) {
        let mut ranks = Ranks::default();
        (0..).zip(names).for_each(|(probe, name)| ranks.add(name, probe));
        let mut sorted: Vec<(u64, &String)> =
            (0..).zip(names).map(|(probe, name)| (ranks.of(probe).unwrap(), name)).collect();
        sorted.sort();
        assert!(sorted.is_sorted_by_key(|(_, name)| *name));
        assert!(sorted.windows(2).all(|two| (two[0].0 == two[1].0) == (two[0].1 == two[1].1)));
    }

    #[test]
    fn names_are_in_order_however_they_come() {
        let name = |n: u64| format!("{n:09}");
        ranked(&(0..3000).map(name).collect::<Vec<_>>());
        ranked(&(0..3000).rev().map(name).collect::<Vec<_>>());
        ranked(&(0..3000u64).map(|n| name(n.wrapping_mul(0x9e37_79b9) >> 8 & 0x3ff)).collect::<Vec<_>>());
        // Each of them comes right before the last one: the labels run out.
        let between = std::iter::once(name(9000)).chain((0..3000).map(name));
        ranked(&between.collect::<Vec<_>>());
    }
}
