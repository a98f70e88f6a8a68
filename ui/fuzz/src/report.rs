//! What runs have shown: what a search learns from one, and what the processes of a search tell each other at the end.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use trapline_emu::Operands;

use crate::patience::Ended;
use crate::seen::{Answered, Texts};
use crate::watch::Compared;

/// What a handler asked for and compared, at each hit of a state.
#[derive(Debug, Default, Clone)]
pub struct Knowledge {
    /// What it asked for: the hit, and the answer.
    pub asked: Vec<(usize, Answered)>,
    /// The texts that it compared.
    pub texts: Vec<Texts>,
    /// The local and global variables before the first handler.
    pub variables: (Vec<u64>, Vec<u64>),
    /// The operands of comparisons.
    pub compared: Vec<Compared>,
    /// Those of a guest's function.
    pub operands: Vec<Operands>,
}

/// What the trials have shown so far.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Summary {
    /// Trials.
    pub trials: u64,
    /// Handlers that ran.
    pub handlers: u64,
    /// The most operations of one.
    pub longest: u32,
    /// The longest log in bytes.
    pub longest_log: usize,
    /// The exceptions that ended a handler: name, program, operation; and how often.
    #[serde(with = "pairs")]
    pub exceptions: BTreeMap<Thrown, u64>,
}

/// An exception that ended a handler: its name, the program, the operation.
pub type Thrown = (Cow<'static, str>, String, u32);

/// A map as a list of pairs.
mod pairs {
    use super::{BTreeMap, Thrown};
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(map: &BTreeMap<Thrown, u64>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<Thrown, u64>, D::Error> {
        Ok(Vec::<(Thrown, u64)>::deserialize(from)?.into_iter().collect())
    }
}

/// What one process of a search has shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// What its trials have shown.
    pub summary: Summary,
    /// Which operations of each program were reached.
    pub reached: Vec<Vec<bool>>,
    /// How the calls of a guest's function ended.
    pub endings: Option<Endings>,
    /// Why it ended.
    pub ended: Ended,
}

/// How calls ended.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Endings {
    /// Calls.
    pub calls: u64,
    /// Those that returned.
    pub returned: u64,
    /// Those that were ended because they took too long.
    pub too_long: u64,
    /// Those whose inputs could not be put.
    pub refused: u64,
    /// The most instructions of one that returned.
    pub longest: u64,
    /// Handlers that watch and have run, by name.
    pub ran: BTreeSet<String>,
    /// Handlers that an exception has ended.
    pub exceptions: u64,
    /// Places of the map of coverage that were reached in one process.
    pub places: usize,
    /// The ways in which the guest ended them otherwise, and how often.
    pub otherwise: BTreeMap<String, u64>,
}

impl Endings {
    /// Adds those of another process.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.returned += other.returned;
        self.too_long += other.too_long;
        self.refused += other.refused;
        self.longest = self.longest.max(other.longest);
        self.ran.extend(other.ran.iter().cloned());
        self.exceptions += other.exceptions;
        self.places = self.places.max(other.places);
        for (how, count) in &other.otherwise {
            *self.otherwise.entry(how.clone()).or_default() += count;
        }
    }
}
