//! The machine: IA32 and x86-64 systems on the Unicorn engine, deterministic to the instruction.
//!
//! A [`Machine`] loads an image, runs it under one exact clock, and offers every trap that comes out of a
//! patch to a [`TrapInterposer`] before the guest's IDT sees it. It does not know what a probe is.
//!
//! The rooms: `engine` (Unicorn, and the only file that knows its layout), `mmu` (page walker and architectural
//! TLB), `core` (hooks, counting, patches, delivery, the run loop), `devices` and `platform` (pure cores and their
//! ports), `load` and `symbols`, `snapshot` (the state of a machine as data).

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

#[doc(hidden)]
pub mod bare;
mod clock;
mod core;
pub mod devices;
mod digest;
mod engine;
pub mod firmware;
mod interpose;
pub mod load;
mod machine;
mod mmu;
mod panics;
pub mod platform;
mod ram;
mod snapshot;
pub mod symbols;

pub use crate::core::{
    BootState, Core, CpuMode, CrashReport, Fault, PatchError, SLOT_BYTES, SentByte, SerialPort, Slot, Stop,
    UserContext, Vector, WATCH_VALUE, Watch, WatchAccess, WatchHit, WatchKind, is_sensitive,
};
pub use clock::Clock;
pub use digest::Digest;
pub use engine::{ARITH_FLAGS, EngineError, Env, LayoutMismatch, Seg, Segment, hflags};
pub use interpose::{Trap, TrapInterposer, Verdict};
pub use machine::{BootFiles, BootModule, Counters, CpuModel, Machine, MachineConfig, MachineError};
pub use mmu::{Access, Paging, Translation, UserPages, denied, error_code, look, walk};
pub use ram::{PAGE, Ram, RamError};
pub use snapshot::{CpuState, MachineIdentity, MsrState, SegmentState, Snapshot, SnapshotMismatch, X87State};
