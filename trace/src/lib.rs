//! Records, channels, the template formatter and the sinks of Trapline.
//!
//! A probe hit that is kept becomes a [`Record`]. It is committed to the [`Channel`] of its CPU, a bounded ring of
//! sub-buffers that overwrites the oldest and counts each lost record. From there it goes to a [`Sink`]: text lines in
//! the format of DProbes, JSON lines, the form of dtrace(1), or a trace file. A [`Formatter`] shows data by templates.
//!
//! This crate knows neither the machine nor the language: callers supply the names of symbols and probes through
//! [`Symbolize`].

#![forbid(unsafe_code)]

mod bytes;
mod channel;
pub mod d;
mod destination;
mod dump;
mod file;
mod float;
mod guest_stack;
mod hex;
mod layout;
mod log_prefix;
mod names;
mod paint;
mod printable;
mod record;
mod sink;
mod stack_trace;
mod template;
mod watch;

pub use bytes::DecodeError;
pub use channel::{Channel, ChannelConfig, Channels, Counts, SavedChannels, TakenOut};
pub use destination::{
    Destination, Destinations, Entry, Event, FileDestination, Logged, Page, UnknownDestination,
    WriterDestination,
};
pub use dump::dump;
pub use file::{FileHead, FileNames, Name, Piece, RawSink, ShowError, TraceFileError, TraceReader};
pub use float::Float;
pub use guest_stack::{GuestStack, StackFrame, StackModule};
pub use hex::{HexStyle, hex};
pub use layout::{Call, CallArgument, CallForm, Field, Layout, LoggedItem, Members, Pointee, Shape};
pub use log_prefix::{Prefix, Token};
pub use names::{NamedProbe, ProbeName, Symbolize};
pub use paint::{Paint, Role};
pub use printable::{shortened, visible};
pub use record::{Exception, Header, HeaderItems, Kind, ParseItemsError, Record, RecordView};
pub use sink::{DtraceSink, End, JsonSink, Reply, RunInfo, Shown, Sink, TextSink, add_header, record_text};
pub use stack_trace::{StackTrace, TraceFrame, TraceHead, TraceRecord};
pub use template::{Formatted, Formatter, MAX_TEXT, TemplateError, TemplateErrors};
pub use watch::{Accessed, WATCH_VALUE, WatchItem};
