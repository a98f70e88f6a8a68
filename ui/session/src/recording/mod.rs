//! Recordings: a run as a value in a file. docs/recordings.md says what is in one.
//!
//! Here is what a recording holds, how it is written and how it is read. `format` is the frame of the file, `packed` its
//! compression, `config` how the run began, `log` what came in and the checkpoints, `writer` and `reader` the two ends.
//! Not here: running a guest, which is the session's, and finding the files that it is made of, which is the guest's.

mod config;
mod format;
mod hash;
mod log;
mod packed;
mod position;
mod reader;
mod verify;
mod writer;

pub use config::{EmbeddedGuest, RecordedFile, RunConfig};
pub use format::FormatError;
#[doc(hidden)]
pub use format::{Framer, Kind};
pub use hash::Hash;
pub use log::{Checkpoint, Event, Logged, RecordsHasher, RecordsSum};
pub use position::{Position, PositionError};
pub use reader::{Recording, RecordingError};
pub use verify::{Divergence, Verifier};
pub use writer::{Blob, Recorder};

/// Instructions from one checkpoint to the next, when nothing else is said.
pub const CHECKPOINT_INSNS: u64 = 1 << 26;
