//! The output of a D program, and how dtrace(1) shows it.
//!
//! [`Tables`] describe the records, aggregations and variables of a program: the compiler makes them, the interposer
//! fills records and aggregations accordingly, and a [`Consumer`] prints them. This module knows neither the language
//! nor the guest.

mod code;
mod consumer;
mod field;
mod flow;
mod format;
mod histogram;
mod host;
mod limits;
mod print;
mod record;
mod shown;
mod sort;
mod state;
mod tables;
mod values;

pub use code::Code;
pub use consumer::{Consumer, ConsumerOptions};
pub use field::{Field, SymbolForm};
pub(crate) use flow::{Flow, duration};
pub use format::{Conversion, Format, FormatError, Piece, Size};
pub use limits::Limits;
pub use record::{ERROR_PART, Snapshot, SnapshotEntry, Writer};
pub use shown::Shown;
pub use state::{AggregatedValue, AggregationState, Bucket, Datum, EntryState, Printed, written_values};
pub use tables::{
    Action, AggKind, Aggregation, Dynamic, FixedKey, FixedKeys, Home, PrintMember, PrintType, Record, Tables,
    Variable,
};
pub use values::{Firing, ShowSymbols};
