//! Verifies a replay against the checkpoints and the console of its recording.

use std::fmt;
use std::sync::Arc;

use trapline_emu::Moment;

use super::log::Checkpoint;
use super::reader::Recording;
use crate::plural::counted;

/// How a replay differs from the recorded run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Divergence {
    /// A checkpoint has another state.
    Checkpoint {
        /// Its number, from 1.
        number: usize,
        /// Its moment.
        at: Moment,
        /// The first stage that differs: registers, devices, memory, records.
        stage: &'static str,
        /// The moment of the last checkpoint that is the same, if there is one.
        same: Option<Moment>,
    },
    /// There is a checkpoint at a count where the recording has none.
    NoCheckpoint {
        /// Its instruction count.
        icount: u64,
    },
    /// The output of the console differs.
    Console {
        /// Number of bytes that are the same.
        same: usize,
        /// The instruction count at which it was seen.
        icount: u64,
    },
    /// The run did not reach the moment of an event.
    Missed {
        /// The event's moment.
        wanted: Moment,
        /// Where the run stopped.
        found: Moment,
        /// Why it stopped.
        why: String,
    },
    /// A command of the recording cannot be carried out.
    Command {
        /// The instruction count.
        icount: u64,
        /// Why it cannot.
        error: String,
    },
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint { number, at, stage, same } => {
                write!(f, "checkpoint {number}, at {}, differs in the {stage}", insns(at.icount))?;
                match same {
                    Some(same) => write!(f, "; up to {} the run is the same", insns(same.icount)),
                    None => f.write_str("; no checkpoint comes before it"),
                }
            }
            Self::NoCheckpoint { icount } => {
                write!(f, "there is a checkpoint at {}, and the recording has none there", insns(*icount))
            }
            Self::Console { same, icount } => {
                let same = counted(*same as u64, "byte");
                write!(f, "the console differs after {same}, which was seen at {}", insns(*icount))
            }
            Self::Missed { wanted, found, why } => write!(
                f,
                "the recording goes on at {}, and the run stopped at {}: {why}",
                insns(wanted.icount),
                insns(found.icount)
            ),
            Self::Command { icount, error } => {
                write!(f, "what came in at {} cannot be done again: {error}", insns(*icount))
            }
        }
    }
}

fn insns(icount: u64) -> String {
    counted(icount, "instruction")
}

/// Compares a run with a recording while it runs.
#[derive(Debug, Clone)]
pub struct Verifier {
    expected: Arc<[Checkpoint]>,
    console: Arc<[u8]>,
    every: u64,
    /// Whether the recording knows its end.
    whole: bool,
    /// Whether the records must be the same too.
    records: bool,
    at: usize,
    shown: usize,
    found: Option<Divergence>,
}

impl Verifier {
    /// A verifier of a replay from the recording's beginning. Records are compared if `records` is true: a replay with
    /// other probes has other records.
    pub fn new(recording: &Recording, records: bool) -> Self {
        Self {
            expected: recording.checkpoints().into(),
            console: recording.console().into(),
            every: recording.config().checkpoint_insns,
            whole: recording.is_whole(),
            records,
            at: 0,
            shown: 0,
            found: None,
        }
    }

    /// Instructions from one checkpoint to the next.
    pub(crate) fn every(&self) -> u64 {
        self.every
    }

    /// The number of checkpoints that were the same.
    pub fn verified(&self) -> usize {
        self.at
    }

    /// The first difference of the run.
    pub fn divergence(&self) -> Option<&Divergence> {
        self.found.as_ref()
    }

    /// Whether there must be a checkpoint at this moment, at which the recording ends.
    pub(crate) fn expects(&self, at: Moment) -> bool {
        self.whole || self.expected.get(self.at).is_some_and(|expected| expected.at == at)
    }

    pub(crate) fn checkpoint(&mut self, checkpoint: &Checkpoint) {
        if self.found.is_some() {
            return;
        }
        let Some(expected) = self.expected.get(self.at) else {
            // An incomplete recording contains nothing about the rest of the run.
            if self.whole {
                self.found = Some(Divergence::NoCheckpoint { icount: checkpoint.at.icount });
            }
            return;
        };
        match expected.difference(checkpoint, self.records) {
            None => self.at += 1,
            Some(stage) => {
                let before = self.at.checked_sub(1).and_then(|before| self.expected.get(before));
                let (number, at) = (self.at + 1, expected.at);
                let same = before.map(|before| before.at);
                self.found = Some(Divergence::Checkpoint { number, at, stage, same });
            }
        }
    }

    /// The run is at its end: no part of the recording may be left.
    pub(crate) fn end(&mut self, icount: u64) {
        if self.whole && self.shown < self.console.len() && self.found.is_none() {
            self.found = Some(Divergence::Console { same: self.shown, icount });
        }
    }

    pub(crate) fn console(&mut self, fresh: &[u8], icount: u64) {
        let expected = self.console.get(self.shown..).unwrap_or_default();
        let same = fresh.iter().zip(expected).take_while(|(a, b)| a == b).count();
        let beyond = same == expected.len() && !self.whole;
        if same < fresh.len() && !beyond && self.found.is_none() {
            self.found = Some(Divergence::Console { same: self.shown + same, icount });
        }
        self.shown += fresh.len();
    }
}
