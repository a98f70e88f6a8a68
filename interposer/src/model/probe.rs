//! Programs and their probe points.

use super::place::Place;
use super::provided::{Arguments, Provided};
use std::sync::Arc;
use trapline_rpn::{Lines, Verified};

/// A program that was inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramId(pub(crate) usize);

/// An inserted program.
#[derive(Clone)]
pub(crate) struct Program {
    pub name: String,
    /// `name =` and `id =`, for stack traces.
    pub module: String,
    pub id: u32,
    pub lv: Vec<u64>,
    pub probes: Vec<usize>,
    /// Those that only tell a program that somebody listens.
    pub tellers: Vec<usize>,
    pub removed: bool,
    /// The hit after which the run is to stop, and hits counted towards it.
    pub stop_at: Option<u64>,
    pub counted: u64,
}

/// One probe point. What every hit touches is in its first cache line.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct Probe {
    pub seen: u64,
    pub run: u64,
    /// Runs from which on a hit is looked at more closely: `maxhits`, or 0 while the program's hits are awaited.
    pub limit: u64,
    /// The last trap that it took part in, by its number.
    pub hit: u64,
    pub handler: Arc<Verified>,
    pub program: u32,
    pub ignore: u32,
    pub major: u32,
    pub minor: u32,
    pub logonfault: bool,
    pub enabled: bool,
    /// Whether the stack pointer is at the return address there.
    pub at_call: bool,
    /// Whether a hit sets AX to 1 and does nothing else.
    pub answers: bool,
    /// Whether a hit is looked at before its handler runs.
    pub guarded: bool,
    /// Whether it has had its last hit, whose instruction has not completed: it takes part in no other.
    pub spent: bool,
    /// The processes that it is of, if not all.
    pub filter: Option<u32>,
    pub place: Place,
    pub arguments: Option<Arc<dyn Arguments>>,
    pub rest: Box<Rest>,
}

/// What of a probe point no hit but the last touches.
#[derive(Clone)]
pub(crate) struct Rest {
    pub maxhits: u64,
    /// How far it is from the start of its module, for stack traces.
    pub offset: u64,
    pub group: Option<String>,
    pub kind: Option<String>,
    /// What its provider says of it.
    pub provided: Option<Provided>,
    /// Handlers that an exception ended.
    pub errors: u64,
    /// Source line of each instruction of the handler.
    pub lines: Lines,
}

impl Probe {
    /// Whether a hit is looked at more closely before its handler runs.
    pub fn is_guarded(&self) -> bool {
        self.filter.is_some() || self.place.is_behind() || self.spent
    }

    /// Notes whether it has had its last hit, whose instruction has not completed.
    pub fn set_spent(&mut self, spent: bool) {
        self.spent = spent;
        self.guarded = self.is_guarded();
    }
}
