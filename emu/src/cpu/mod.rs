//! The CPU: access to memory with the guest's rights, exceptions and interrupts through its IDT, the instructions that the
//! machine executes itself, control and debug registers.

pub(crate) mod access;
pub(crate) mod control;
pub(crate) mod cpuid;
pub(crate) mod debug;
pub(crate) mod deliver;
pub(crate) mod operands;
mod peek;
pub(crate) mod port_io;
pub(crate) mod sensitive;
pub(crate) mod state;
pub(crate) mod strings;
pub(crate) mod user;

pub use deliver::{Fault, Vector};
pub use port_io::{SentByte, SerialPort};
pub use state::{BootState, CpuMode, CrashReport};
pub use user::UserContext;
