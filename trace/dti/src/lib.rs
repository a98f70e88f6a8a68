//! The host's side of the Driver Tracing Interface: channels of trace records, found and read in physical memory.
//!
//! [`find`] searches memory for the marker of channels and checks every field behind it, and [`Channel::read`] gives the
//! records, merged over the CPUs. Both only need a [`PhysMem`](trapline_emu::PhysMem): a running machine, a snapshot, a position
//! of a recording and a crash dump are read by the same code, without page tables and without help of the guest. The guest's
//! own reading position is never moved; a [`Cursor`] is the reader's own.
//!
//! Nothing in memory is trusted. A field that is wrong makes a [`Damaged`] channel or a damaged ring, with a sentence; time and
//! memory are bounded by the size of the memory that is searched. The layout is that of
//! `guest-images/include/trapline/dti.h`, where it is described.

#![forbid(unsafe_code)]

mod channel;
mod contents;
mod cursor;
mod damage;
mod find;
mod layout;
mod relay;
mod relay_ring;
mod ring;
mod table;
mod view;
mod write;

pub use channel::{Channel, Origin};
pub use contents::{Contents, CpuState, Record};
pub use cursor::{Cursor, Fresh};
pub use damage::Damage;
pub use find::{Damaged, Found, Handle, channel_at, find};
pub use layout::{DATA_MAX, LEVEL_MAX, LEVEL_OFF, NAME_MAX, level_name};
pub use table::table;
pub use view::{View, is_text, json, lines, show};
pub use write::{Refusal, Stores, Write, room};
