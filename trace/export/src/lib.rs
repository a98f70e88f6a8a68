//! The records of a run in the formats of other tools: CTF 1.8, Perfetto, folded stacks, flame graphs,
//! pprof and CSV.
//!
//! Each format is a [`Sink`](trapline_trace::Sink), so a run and a trace file make the same output. The members of a
//! record are those of its JSON line: this crate has no table of its own. What a format leaves out, closes or lacks goes
//! to [`Notes`], for the caller to tell the user.
//!
//! No sink panics or recurses without a bound, whatever a trace file holds.

#![forbid(unsafe_code)]

mod calls;
mod csv;
mod ctf;
mod flame;
mod hit;
mod notes;
mod perfetto;
mod pprof;
pub mod profile;
mod protobuf;
mod stacks;
mod svg;
mod tree;
mod weight;

pub use csv::CsvSink;
pub use ctf::CtfSink;
pub use flame::{FlameForm, FlameSink};
pub use notes::Notes;
pub use perfetto::PerfettoSink;
pub use stacks::{NoStacks, Stacks};
pub use tree::Tree;
pub use weight::{Weight, WeightError};
