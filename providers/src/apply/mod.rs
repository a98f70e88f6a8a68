//! Turns programs and clauses into probe points, and lists the probes of the files and those in memory now.

mod disassemble;
mod dprobes;
mod enable;
mod expand;
mod functions;
mod parameters;
mod present;

pub use disassemble::{DisassembleError, Disassembly, Line, OperandNames, disassemble};
pub use dprobes::{insert_error, resolve};
pub use enable::{EnableError, Matched, Typed, TypedLog, Untyped, enable, handler};
pub use expand::{ArgumentRefused, Resolved, find};
pub use functions::{Function, functions, present_functions, user_functions};
pub use parameters::show_parameters;
pub use present::{Present, Process, Spot};
