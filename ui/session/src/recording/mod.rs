//! Recordings: complete descriptions of runs in files. docs/recordings.md describes their content.
//!
//! This module defines the content of a recording, and writes and reads it. `format` is the frame of the file, `packed`
//! its compression, `config` the start of the run, `log` the inputs and the checkpoints; `writer` and `reader` write
//! and read files. Not here: running a guest (see the session), and finding its files (see the guest).

mod config;
mod format;
mod hash;
mod log;
mod packed;
mod position;
mod reader;
mod verify;
mod writer;

pub use config::{Defaults, EmbeddedGuest, RecordedFile, RunConfig};
pub use format::FormatError;
#[doc(hidden)]
pub use format::{Framer, Kind};
pub use hash::Hash;
pub use log::{Checkpoint, Event, Logged, RecordsHasher, RecordsSum};
pub use position::{Position, PositionError};
pub use reader::{Recording, RecordingError};
pub use verify::{Divergence, Verifier};
pub use writer::{Blob, Recorder};

/// The default number of instructions from one checkpoint to the next.
pub const CHECKPOINT_INSNS: u64 = 1 << 26;
