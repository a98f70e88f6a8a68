//! Records that handlers write to channels of drivers (`dti_log` and D's `dti()`). The guest sees them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trapline_dti::Refusal;

/// Channels that are told apart when refused records are counted, and whose places are remembered.
const MOST: usize = 64;

/// State: where channels were found, and the records that were not written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Written {
    places: BTreeMap<String, Known>,
    refused: Vec<RefusedRecords>,
}

/// The place of a channel, or that it was not found. It is state, not a cache: of two channels with one name, the one that was found
/// first is used.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Known {
    /// Physical address of its mark.
    At(u64),
    /// It is not searched again before this instruction.
    NotBefore(u64),
}

/// Records that were not written, of one channel and for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRecords {
    /// The name of the channel; empty for all channels beyond the first 64.
    pub channel: String,
    /// Index of the reason in [`Refusal::ALL`].
    reason: u8,
    /// How many.
    pub count: u64,
}

impl RefusedRecords {
    /// Why they were not written.
    #[must_use]
    pub fn reason(&self) -> Refusal {
        Refusal::ALL.get(usize::from(self.reason)).copied().unwrap_or(Refusal::Unknown)
    }
}

impl Written {
    pub fn refused(&self) -> &[RefusedRecords] {
        &self.refused
    }

    /// Takes the places of another state. The counts, which are output, are kept.
    pub fn go_to(&mut self, other: &Self) {
        self.places.clone_from(&other.places);
    }

    /// Whether such a state can be.
    pub fn is_sound(&self) -> bool {
        let sound = |refused: &RefusedRecords| usize::from(refused.reason) < Refusal::ALL.len();
        self.places.len() <= MOST
            && self.refused.len() <= (MOST + 1) * Refusal::ALL.len()
            && self.refused.iter().all(sound)
    }

    /// Where a channel was found, or that it was not.
    pub fn known(&self, name: &str) -> Option<Known> {
        self.places.get(name).copied()
    }

    /// Notes where a channel was found, or that it was not.
    pub fn note(&mut self, name: &str, place: Known) {
        if self.places.len() < MOST || self.places.contains_key(name) {
            self.places.insert(name.to_owned(), place);
        }
    }

    /// Counts a record that was not written.
    pub fn count(&mut self, name: &str, refusal: Refusal) {
        let reason = Refusal::ALL.iter().position(|one| *one == refusal).unwrap_or(0) as u8;
        let is_known = self.refused.iter().any(|one| one.channel == name);
        let room = is_known || self.refused.len() < MOST;
        let channel = if room { name } else { "" };
        let same = |one: &&mut RefusedRecords| one.channel == channel && one.reason == reason;
        match self.refused.iter_mut().find(same) {
            Some(one) => one.count += 1,
            None => self.refused.push(RefusedRecords { channel: channel.to_owned(), reason, count: 1 }),
        }
    }
}
