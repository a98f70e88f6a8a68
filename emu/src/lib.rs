//! The machine: IA32 and x86-64 systems on the Unicorn engine, deterministic to the instruction.
//!
//! A [`Machine`] loads an image, runs it under one exact clock, and offers every trap that a patch causes to a
//! [`TrapInterposer`] before the guest's IDT sees it. It does not know what a probe is.
//!
//! The modules, each of which uses only those before it: `isa` (decoding, pure); `engine` (Unicorn, the only place that
//! knows its layout); `blocks` (the cells of its blocks); `mmu` (page walker and architectural TLB); `cpu` (registers,
//! memory access, exceptions through the guest's IDT, instructions that the machine executes itself); `views` (patches
//! and slots); `snapshot` (the state of a machine as data); `run` (hooks, counting, the run loop, and the [`Core`] that
//! owns all parts). Beside them `devices` and `platform` (pure cores and their ports), `x87` (its functions, pure), `load`,
//! `symbols`, and `standard` (the process's own streams).

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

#[doc(hidden)]
pub mod bare;
mod blocks;
mod clock;
mod cpu;
pub mod devices;
mod digest;
mod engine;
pub mod firmware;
mod isa;
mod layout;
pub mod load;
mod machine;
mod mmu;
mod panics;
mod phys_mem;
pub mod platform;
mod ram;
mod run;
mod simd;
mod snapshot;
pub mod standard;
pub mod symbols;
mod views;
#[doc(hidden)]
pub mod x87;

pub use crate::cpu::{
    BootState, CpuMode, CrashReport, Fault, SentByte, SerialPort, StackShape, UserContext, Vector, Watch,
    WatchKind,
};
pub use crate::isa::{condition_holds, is_sensitive};
pub use crate::run::{
    Core, Reader, Settable, Stop, Trap, TrapInterposer, Unsettable, Verdict, WATCH_VALUE, WatchAccess,
    WatchHit,
};
pub use crate::views::{PatchError, SLOT_BYTES, Slot};
pub use clock::{Clock, Moment};
pub use digest::{Digest, StagedDigest};
pub use engine::{ARITH_FLAGS, EngineError, Env, LayoutMismatch, Operands, Seg, Segment, hflags};
pub use layout::RamLayout;
pub use machine::{BootFiles, BootModule, Counters, CpuModel, Machine, MachineConfig, MachineError};
pub use mmu::{Access, Paging, Translation, UserPages, denied, error_code, look, walk};
pub use phys_mem::PhysMem;
pub use ram::{PAGE, Ram, RamError};
pub use snapshot::{
    Archive, ArchiveError, CpuState, MachineIdentity, MsrState, SegmentState, Snapshot, SnapshotMismatch,
    StoredError, X87State,
};
