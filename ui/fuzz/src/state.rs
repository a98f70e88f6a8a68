//! A state on trial: real hits, one after the other, and how what their handlers see differs from the guest. It is what the search
//! changes, and what a finding consists of.

use serde::{Deserialize, Serialize};
use trapline_interposer::Difference;

/// Most hits in a row.
pub const MOST_HITS: usize = 8;
/// Most differences at one hit.
pub const MOST_DIFFERENCES: usize = 64;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct State {
    /// The first real hit, by its number among those that are kept.
    pub first: usize,
    /// The differences at this hit and at those of the same program that follow it.
    pub hits: Vec<Vec<Difference>>,
}

impl State {
    /// A real hit as it is.
    #[must_use]
    pub fn real(first: usize) -> Self {
        Self { first, hits: vec![Vec::new()] }
    }

    /// The number of differences.
    #[must_use]
    pub fn differences(&self) -> usize {
        self.hits.iter().map(Vec::len).sum()
    }

    /// Sets a difference at a hit, in place of one of the same number, variable, bytes or page.
    pub fn set(&mut self, hit: usize, difference: Difference) {
        let Some(list) = self.hits.get_mut(hit) else { return };
        list.retain(|other| !replaces(&difference, other));
        if list.len() < MOST_DIFFERENCES {
            list.push(difference);
        }
    }
}

/// Whether a difference makes another one meaningless.
fn replaces(new: &Difference, old: &Difference) -> bool {
    use Difference::{Absent, Global, Local, Memory, Name, Word};
    let page = |address: u64| address & !(trapline_emu::PAGE - 1);
    match (new, old) {
        (Word { what, .. }, Word { what: other, .. }) => what == other,
        (Memory { address, bytes }, Memory { address: other, bytes: theirs }) => {
            address <= other
                && other.wrapping_add(theirs.len() as u64) <= address.wrapping_add(bytes.len() as u64)
        }
        (Memory { address, bytes }, Absent { page: absent }) => {
            page(*address) <= *absent && *absent < address.wrapping_add(bytes.len() as u64)
        }
        (Absent { page: absent }, Memory { address, .. }) => page(*address) == *absent,
        (Absent { page: absent }, Absent { page: other }) => absent == other,
        (Name(_), Name(_)) => true,
        (Local { number, .. }, Local { number: other, .. })
        | (Global { number, .. }, Global { number: other, .. }) => number == other,
        _ => false,
    }
}
