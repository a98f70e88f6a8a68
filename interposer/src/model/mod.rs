//! The data of a probe: its place, the descriptions by its program and its provider, and its counts. No behaviour.

pub mod difference;
mod error;
mod place;
mod probe;
mod processes;
mod provided;
mod stats;

pub use difference::{AlteredRun, Difference, Word};
pub use error::{InsertError, InsertErrorKind};
pub use place::{Clock, Event, Place, Timer};
pub use probe::{Definition, ProgramId};
pub use processes::{Processes, Who};
pub use provided::{Arguments, Condition, HandlerError, Later, Point, Provided};
pub use stats::Stats;

pub(crate) use place::{Address, INT3};
pub(crate) use probe::{Probe, Program};
