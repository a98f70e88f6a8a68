//! Records, channels, formatter and sinks of Trapline.
//!
//! A probe hit that is kept becomes a [`Record`]. It is committed to the [`Channel`] of its CPU, a
//! bounded ring of sub-buffers that overwrites the oldest and counts what was lost, and from there
//! it goes to a [`Sink`]: text lines as DProbes printed them, or JSON lines. A [`Formatter`] shows data by templates.
//!
//! This crate knows neither the machine nor the language: names of symbols come from the caller.

#![forbid(unsafe_code)]

mod channel;
mod destination;
mod dump;
mod file;
mod guest_stack;
mod prefix;
mod probe_name;
mod record;
mod sink;
mod stack_trace;
mod template;
mod watch;

pub use channel::{Channel, ChannelConfig, Channels, Counts};
pub use destination::{
    Destination, Destinations, Entry, Event, FileDestination, Logged, Page, UnknownDestination,
    WriterDestination,
};
pub use dump::{dump, visible};
pub use file::{FileHead, Piece, RawSink, TraceFileError, TraceReader};
pub use guest_stack::{GuestStack, StackFrame, StackModule};
pub use prefix::{Prefix, Token};
pub use probe_name::{NamedProbe, ProbeName};
pub use record::{DecodeError, Exception, Header, HeaderItems, Kind, ParseItemsError, Record, RecordView};
pub use sink::{DtraceSink, End, HexStyle, JsonSink, Reply, RunInfo, Sink, Symbolize, TextSink, hex};
pub use stack_trace::{StackTrace, TraceFrame, TraceHead, TraceRecord};
pub use template::{Formatted, Formatter, MAX_TEXT, TemplateError, TemplateErrors};
pub use watch::{Accessed, WATCH_VALUE, WatchItem};
