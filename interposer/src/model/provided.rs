//! A provider's description of a probe point: its name, how to find its arguments, whether its frame is set up.
//!
//! The interposer arms places and runs handlers. The meaning of `push arg, n` at a place depends on conventions that
//! only the provider knows; it supplies them here through a small trait that reads the guest without changing it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use trapline_emu::Core;
use trapline_rpn::{Argument, ArgumentError};
use trapline_trace::ProbeName;

use super::place::Place;
use super::processes::Processes;

/// The arguments of a probe point.
pub trait Arguments: fmt::Debug + Send + Sync {
    /// Whether there is such an argument.
    fn has(&self, which: Argument) -> bool;

    /// One of them, extended to 64 bits.
    ///
    /// # Errors
    /// There is no such argument, or it is in memory that cannot be read.
    fn argument(&self, core: &Core, which: Argument) -> Result<u64, ArgumentError>;

    /// At a jump to another function, which will return in place of this one: how that return is met. `None` everywhere else,
    /// and where it cannot be met.
    fn later(&self) -> Option<&dyn Later> {
        None
    }

    /// Whether the guest switches threads here, which a D program needs to know and runs no clause for. Argument 0 is the
    /// next thread's descriptor, if it is not the current one already.
    fn switches(&self) -> bool {
        false
    }

    /// The number of the error with which a system call ends here; 0 if there is none, and everywhere else.
    fn errno(&self, core: &Core) -> u64 {
        let _ = core;
        0
    }
}

/// The return of a function that has jumped to another one. The probe fires when its caller has got the control back, and its
/// handler sees the processor as if the function were about to return.
pub trait Later {
    /// One of the arguments then.
    ///
    /// # Errors
    /// There is no such argument.
    fn argument(&self, core: &Core, which: Argument) -> Result<u64, ArgumentError>;

    /// Whether an instruction begins at a linear address, so that it can be the caller's next one.
    fn is_code(&self, core: &Core, address: u64) -> bool;
}

/// Decides at a hit whether a probe fires, for places that serve several probes.
pub trait Condition: fmt::Debug + Send + Sync {
    /// Whether it fires now. Reads the guest without changing it.
    fn holds(&self, core: &Core) -> bool;
}

/// A provider's description of one probe point.
#[derive(Debug, Clone)]
pub struct Provided {
    /// The probe's identifier; all its sites share it.
    pub id: u32,
    /// Its name.
    pub name: Arc<ProbeName>,
    /// Its arguments.
    pub arguments: Arc<dyn Arguments>,
    /// Whether the stack pointer is at the return address there.
    pub at_call: bool,
    /// When it fires at its place; `None` for every time.
    pub when: Option<Arc<dyn Condition>>,
}

/// A place, and the provider's description if a provider has put it there.
#[derive(Debug, Clone)]
pub struct Point {
    /// Where it is.
    pub place: Place,
    /// Its provider's description.
    pub provided: Option<Provided>,
    /// Its process filter; `None` for all processes and the kernel.
    pub processes: Option<Arc<Processes>>,
}

impl From<Place> for Point {
    fn from(place: Place) -> Self {
        Self { place, provided: None, processes: None }
    }
}

impl Point {
    /// A place where a provider has put a probe, for all processes.
    #[must_use]
    pub fn provided(place: Place, provided: Provided) -> Self {
        Self { place, provided: Some(provided), processes: None }
    }
}

/// The first failure of a probe's handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlerError {
    /// Number of the probe, as its records have it.
    pub probe: u32,
    /// Index of the instruction in the handler, from 0.
    pub at: u32,
    /// Where it begins in the handler's code, in bytes.
    pub offset: usize,
    /// Line of the probe program, 0 when not known.
    pub line: u32,
    /// The exception: u-field in bits 31..16, x-field in 15..0. 0 for none: the handler's step budget is used up.
    pub code: u64,
    /// Its first parameter, or the budget in instructions.
    pub parm1: u64,
}
