//! Operating-system profiles: tasks and modules read out of guest memory.
//!
//! A profile knows where one guest system keeps its current task, and reads it without a trace: through NOFAULT
//! reads of a [`Core`], never by running anything in the guest. What it reads is the guest's and may be garbage at
//! any time; then a profile answers "unknown" (0, empty, `None`), never panics and never loops.
//!
//! Here: the trait [`OsProfile`] and [`TrapOs`], the profile of the embedded guest. Not here: probes, symbols of
//! modules.
//!
//! [`Core`]: trapline_emu::Core

#![forbid(unsafe_code)]

mod profile;
mod trapos;

pub use profile::{Module, ModuleKind, OsProfile, Task};
pub use trapos::{TrapOs, TrapOsError};
