//! The probe table and the life of a hit.
//!
//! An [`Interposer`] is given linked RPN programs and a [`Place`] for each of their probe points. It patches the fetch
//! view of those places with `int3`, and the machine offers it every trap of a patch: it runs the handlers against a
//! NOFAULT host, has the displaced instruction executed, and commits the records when that has completed. It does not
//! decide where probes go: `trapline-providers` does.
//!
//! Its modules, each of which imports only those before it:
//! - `d`: the state of a running D program.
//! - `model`: what a probe is. No behaviour.
//! - `sites`: the one table of patched addresses, which attaches probes and arms; how instructions are displaced.
//! - `sources`: where sites come from: kernel modules, user programs and their words, watches, timers.
//! - `hit`: the [`Interposer`], which owns all parts; handlers, records, displaced instructions, commands of its user.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod d;
mod hit;
mod model;
mod sites;
mod sources;

pub use d::{DClause, DDrops, DFault, DSetup, DVariable};
pub use hit::{
    CoreFile, DumpTaker, HandlerState, HandlerTrace, Interposer, InterposerConfig, NotedHit, Output,
    PointView, ProbeNames, ProgramView, RefusedRecords, SavedInterposer, Service, ServiceCall, ServiceEffect,
    ServiceError, Services, StoredInterposer, StoredInterposerError, SymbolNames, Thrown, Traces, Trial,
    TrialRun, TrialState, View, Written, all_writable, can_write, is_writable, processor_register,
};
pub use model::difference;
pub use model::{
    AlteredRun, Arguments, Clock, Condition, Definition, Difference, Event, HandlerError, InsertError,
    InsertErrorKind, Later, Place, Point, Processes, ProgramId, Provided, Stats, Timer, Who, Word,
};
pub use sites::{Way, way_of, why};
