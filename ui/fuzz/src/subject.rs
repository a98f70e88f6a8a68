//! What a search is over: handlers on trial ([`crate::trials`]), or a function of the guest that is run ([`crate::calls`]).

use std::path::PathBuf;

use crate::error::FuzzError;
use crate::finding::{FellAt, Finding, Folder};
use crate::hits::Hits;
use crate::objectives::{Fallen, Objectives};
use crate::patience::Ended;
use crate::report::{Knowledge, Report};
use crate::state::State;
use crate::watch::Coverage;

/// See the module.
pub trait Subject {
    /// The real hits at which every state begins.
    fn hits(&self) -> &Hits;

    /// Runs a state, and counts it. Returns which objectives fell.
    ///
    /// # Errors
    /// The machine cannot be brought to a hit.
    fn run(&mut self, state: &State) -> Result<&[Fallen], FuzzError>;

    /// Which objectives fall for a state, without counting it.
    ///
    /// # Errors
    /// As [`Subject::run`].
    fn check(&mut self, state: &State) -> Result<Vec<Fallen>, FuzzError>;

    /// Runs a state to learn what it asks for and compares. It is not counted.
    ///
    /// # Errors
    /// As [`Subject::run`].
    fn learn(&mut self, state: &State) -> Result<Knowledge, FuzzError>;

    /// What was reached.
    fn coverage(&self) -> &Coverage;

    /// How many states were run and counted.
    fn made(&self) -> u64;

    /// Where in the run an objective falls for a state.
    ///
    /// # Errors
    /// As [`Subject::run`].
    fn fell_at(&mut self, state: &State, fallen: &Fallen) -> Result<FellAt, FuzzError>;

    /// The state that begins at the second hit of a state and does the same, where it may be simpler.
    ///
    /// # Errors
    /// As [`Subject::run`].
    fn later(&mut self, state: &State) -> Result<Option<State>, FuzzError> {
        let _ = state;
        Ok(None)
    }

    /// Most runs in which a finding is brought nearer to the real hit.
    fn most_tries(&self) -> usize;

    /// The bytes that the search changes in a state; `None` if it changes what was asked for.
    fn bytes(&self, state: &State) -> Option<Vec<u8>>;

    /// Gives the state other bytes.
    fn set_bytes(&self, state: &mut State, bytes: &[u8]);

    /// What the runs have shown.
    fn report(&self, ended: Ended) -> Report;

    /// Adds what the same search has shown in another process.
    fn add(&mut self, report: &Report);

    /// What the runs have shown, in words: one line each.
    fn shown(&self) -> Vec<String>;

    /// Whether all that is inserted was searched, and all of its operations reached.
    fn is_whole(&self) -> bool;

    /// The objectives that were on.
    fn objectives(&self) -> &Objectives;

    /// Writes a finding as a recording.
    ///
    /// # Errors
    /// The file cannot be written, or the run cannot be repeated.
    fn write(&mut self, finding: &Finding, folder: &Folder<'_>) -> Result<PathBuf, FuzzError>;
}
