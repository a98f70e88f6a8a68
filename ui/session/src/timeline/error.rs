//! Why a timeline cannot go to a position.

use crate::commands::CommandError;
use crate::plural::counted;
use crate::recording::Position;
use crate::snapshot_error::SnapshotError;

/// Why a timeline cannot go to a position. It stays where it is, unless the error says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum TravelError {
    /// The session is recorded or verified.
    #[error("a run that is recorded or verified cannot go back; replay it without recording or verifying it")]
    Noted,
    /// No handler runs there.
    #[error("no handler runs at {0} instructions; `next hit` goes to the next position where one runs")]
    NoHandler(u64),
    /// The timeline is not in a hit.
    #[error("this position is not within a hit; `into hit` enters the hit here")]
    Outside,
    /// There are fewer operations.
    #[error("the handlers here execute {all} operations, and {asked} is past them; `out` leaves the hit")]
    Operations {
        /// The number of the operation.
        asked: u64,
        /// How many there are.
        all: u64,
    },
    /// There are fewer operations before.
    #[error(
        "only {executed} operations of the handlers here come before this one, not {asked}; `out` leaves the hit"
    )]
    OperationsBefore {
        /// How many were asked for.
        asked: u64,
        /// How many there are.
        executed: u64,
    },
    /// They cannot be kept.
    #[error("the handlers at {0} instructions execute more than 1048576 operations, which are not kept")]
    TooManyOperations(u64),
    /// The handlers of a hit ran long before it completed.
    #[error(
        "the instruction of hit:{hit} was interrupted, so its handlers ran before {icount} instructions; `previous hit` finds where"
    )]
    HandlersBefore {
        /// The number of the hit.
        hit: u64,
        /// Where it has completed.
        icount: u64,
    },
    /// After the end.
    #[error("{asked} is past the end of this run, which has {}", counted(*end, "instruction"))]
    PastEnd {
        /// The position.
        asked: Position,
        /// The last instruction count.
        end: u64,
    },
    /// Before the beginning.
    #[error("{asked} is before the beginning of this history, which begins at instruction {first}")]
    Before {
        /// The position.
        asked: Position,
        /// The first instruction count.
        first: u64,
    },
    /// So many instructions back is before the beginning.
    #[error("{} back from {here} is before the beginning of this history, which begins at instruction {first}", counted(*instructions, "instruction"))]
    TooFarBack {
        /// How many.
        instructions: u64,
        /// The instruction count from which to go back.
        here: u64,
        /// The first instruction count.
        first: u64,
    },
    /// A part of a run ends before it begins.
    #[error("the part ends at {ends} instructions, before it begins at {begins}; swap --from and --to")]
    EndsBefore {
        /// The instruction count of its beginning.
        begins: u64,
        /// That of its end.
        ends: u64,
    },
    /// The end of a live run is not known.
    #[error("this run has not ended, so nothing can be counted from its end")]
    NoEnd,
    /// There were fewer hits.
    #[error("{asked} is not in this run: it has {} that leave{} a record", counted(*have, "hit"), if *have == 1 { "s" } else { "" })]
    FewerHits {
        /// What was asked for.
        asked: Position,
        /// How many there are.
        have: u64,
    },
    /// The caller is not known.
    #[error("the caller of the function at {0:#x} is unknown: the stack does not show it")]
    NoCaller(u64),
    /// A snapshot was to be restored by name.
    #[error(
        "in a timeline there is nothing to restore: `goto POSITION` goes back, and keeps what was recorded consistent"
    )]
    Restore,
    /// The run is not the one that was recorded.
    #[error("the run at {} is not the one that was recorded: {why}", counted(*icount, "instruction"))]
    Diverged {
        /// Where it was seen.
        icount: u64,
        /// What is different.
        why: String,
    },
    /// The flag of [`Timeline::cancelled_by`](super::Timeline::cancelled_by) was raised. The timeline is somewhere between
    /// where it was and where it was to go; after a search it is where it was, or at the last saved state before.
    #[error("interrupted")]
    Interrupted,
    /// A command was not carried out.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A rung cannot be gone to.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}
