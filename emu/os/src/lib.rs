//! Operating-system profiles: tasks and modules, read from guest memory.
//!
//! A profile knows where one guest system keeps its current task, and reads it without side effects: through NOFAULT
//! reads of a [`Core`], never by running anything in the guest. The guest's data may be garbage at any time; then a
//! profile returns "unknown" (0, empty, `None`); it never panics and never loops.
//!
//! Here: the trait [`OsProfile`], [`TrapOs`], the profile of the embedded guest, and [`Linux`]; and [`Unwinder`], which
//! finds the stacks of kernels and programs. Not here: probes.
//!
//! [`Core`]: trapline_emu::Core

#![forbid(unsafe_code)]

mod linux;
mod profile;
mod trapos;
mod unwind;

pub use linux::{Linux, LinuxError, ModuleDetails, ModuleSection, kernel_log};
pub use profile::{
    Birth, LoadedModule, LogError, Mapping, Module, ModuleKind, OsProfile, Switched, Task, UserRegisters,
    files_of,
};
pub use trapos::{TrapOs, TrapOsError};
pub use unwind::{
    CodePlace, CodePointer, Edge, FindProgram, KernelFrame, KernelImage, Unwinder, Unwound, UserFrame,
    has_unknown_orc,
};
