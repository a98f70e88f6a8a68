//! Sinks: the forms in which records are written to any [`std::io::Write`].
//!
//! A sink receives the start of a run, each record in order, and the end of the run. It formats and writes; it neither
//! buffers records nor drops any.

mod dtrace;
mod json;
mod text;

use std::io;

use crate::channel::Counts;
pub use crate::d::Shown;
use crate::guest_stack::GuestStack;
use crate::names::Symbolize;
use crate::record::{HeaderItems, Kind, RecordView};
use crate::stack_trace::StackTrace;
pub use dtrace::DtraceSink;
pub use json::{JsonSink, add_header};
pub use text::{TextSink, record_text};

/// Facts about a run at its start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunInfo {
    /// The running image or guest.
    pub image: String,
    /// Width of its word in bits, 32 or 64.
    pub width: u8,
    /// Further fields for the JSON header line, in this order.
    pub extra: Vec<(String, serde_json::Value)>,
}

/// Facts about a run at its end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct End {
    /// Instructions retired.
    pub insns: u64,
    /// Hits whose handler ran.
    pub hits: u64,
    /// Records lost.
    pub lost: u64,
    /// The counts of the channels.
    pub counts: Counts,
    /// Digest of the machine, when it was asked for.
    pub digest: Option<String>,
    /// Exit code of the command.
    pub exit: i32,
    /// Further fields for the JSON end line, in this order.
    pub extra: Vec<(String, serde_json::Value)>,
    /// Counters of the run by name. A trace file always holds them; printed forms show them only as part of `extra`.
    pub counters: Vec<(String, serde_json::Value)>,
}

impl End {
    /// The guest's time at the end, in nanoseconds, where it is among the counters.
    pub fn virtual_ns(&self) -> Option<u64> {
        let (_, value) = self.counters.iter().find(|(name, _)| name == "virtual_ns")?;
        value.as_u64()
    }
}

/// The answer to a command that was given during the run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// For text: lines without their ends; empty if there is nothing to show.
    pub lines: Vec<String>,
    /// For JSON: one object.
    pub object: serde_json::Value,
}

/// A destination of records.
pub trait Sink {
    /// A run starts.
    ///
    /// # Errors
    /// The destination cannot be written.
    fn begin(&mut self, run: &RunInfo) -> io::Result<()>;

    /// One record, in the order of sequence numbers.
    ///
    /// # Errors
    /// The destination cannot be written.
    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()>;

    /// A piece of the output of a D program, in order with the records.
    ///
    /// # Errors
    /// The destination cannot be written.
    fn d(&mut self, shown: &Shown) -> io::Result<()>;

    /// The answer to a command, in order with the records.
    ///
    /// # Errors
    /// The destination cannot be written.
    fn reply(&mut self, reply: &Reply) -> io::Result<()>;

    /// The run has ended.
    ///
    /// # Errors
    /// The destination cannot be written.
    fn end(&mut self, end: &End) -> io::Result<()>;
}

/// The lines of a record that is a stack of the guest, innermost frame first.
fn guest_stack(record: &RecordView<'_>, symbols: &dyn Symbolize) -> Option<Vec<String>> {
    let (kind, width) = (record.header.kind, record.header.width);
    if !kind.is_guest_stack() {
        return None;
    }
    let stack = GuestStack::decode(record.data, width).ok()?;
    Some(stack.lines(kind, width, symbols))
}

/// The data of a stack trace record, decoded; `None` for other records.
fn stack_trace(record: &RecordView<'_>) -> Option<StackTrace> {
    if record.header.kind != Kind::StackTrace {
        return None;
    }
    StackTrace::decode(record.data, record.header.width).ok()
}

/// The data of a record by its layout; `None` if there is none, or the data has another form.
fn by_layout(record: &RecordView<'_>, symbols: &dyn Symbolize) -> Option<String> {
    let layout = symbols.layout(record.header.probe).filter(|_| record.header.kind == Kind::Data)?;
    layout.text(record.data, record.header.width).filter(|text| !text.is_empty())
}

/// Whether an item was chosen.
fn has(items: HeaderItems, item: HeaderItems) -> bool {
    items.contains(item)
}
