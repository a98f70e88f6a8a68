//! The content of a recording besides its configuration: inputs and checkpoints, each with its moment.

use serde::{Deserialize, Serialize};
use trapline_emu::{Moment, StagedDigest};
use trapline_trace::{Header, HeaderItems, RecordView};
use xxhash_rust::xxh3::Xxh3;

use super::hash::Hash;
use crate::commands::Command;
use crate::ending::Ending;

/// An input, or another event that divides a run into stretches.
#[derive(Debug, Clone)]
pub enum Event {
    /// A command was carried out.
    Command(Command),
    /// A run began: from here on, there was an observer.
    Begin,
    /// The channels were drained at a count that is not the end of a slice.
    Drain,
    /// A run ended.
    End(Ending),
    /// A snapshot was taken as a value; its number.
    Saved(u64),
    /// The snapshot of this number was restored.
    Restored(u64),
}

/// An event and its moment.
#[derive(Debug, Clone)]
pub struct Logged {
    /// Its moment.
    pub at: Moment,
    /// The event.
    pub event: Event,
}

/// The format of an event in a file. Commands and endings are in JSON, in which variants and fields may be added.
#[derive(Debug, Serialize, Deserialize)]
enum Stored {
    Command(String),
    Begin,
    Drain,
    End(String),
    Saved(u64),
    Restored(u64),
}

impl Logged {
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let json = |text: Result<String, serde_json::Error>| text.map_err(|error| error.to_string());
        let event = match &self.event {
            Event::Command(command) => Stored::Command(json(serde_json::to_string(command))?),
            Event::Begin => Stored::Begin,
            Event::Drain => Stored::Drain,
            Event::End(ending) => Stored::End(json(serde_json::to_string(ending))?),
            Event::Saved(number) => Stored::Saved(*number),
            Event::Restored(number) => Stored::Restored(*number),
        };
        postcard::to_stdvec(&(self.at, event)).map_err(|error| error.to_string())
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let (at, stored): (Moment, Stored) = from_postcard(bytes)?;
        let json = |error: serde_json::Error| format!("holds no event that this build knows: {error}");
        let event = match stored {
            Stored::Command(text) => Event::Command(serde_json::from_str(&text).map_err(json)?),
            Stored::Begin => Event::Begin,
            Stored::Drain => Event::Drain,
            Stored::End(text) => Event::End(serde_json::from_str(&text).map_err(json)?),
            Stored::Saved(number) => Event::Saved(number),
            Stored::Restored(number) => Event::Restored(number),
        };
        Ok(Self { at, event })
    }
}

/// A complete value, with no bytes after it.
pub fn from_postcard<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(format!("has {} bytes too many", rest.len())),
        Err(error) => Err(format!("is not what was written: {error}")),
    }
}

/// The number of records so far, and the XXH3-128 of all their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecordsSum {
    /// Their number.
    pub count: u64,
    /// Their hash.
    pub hash: u128,
}

/// The state of a run at a moment, as hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The moment.
    pub at: Moment,
    /// The machine's digest in stages.
    pub digest: StagedDigest,
    /// The records that were drained so far.
    pub records: RecordsSum,
}

impl Checkpoint {
    /// The first stage that differs from `other`.
    pub fn difference(&self, other: &Self, with_records: bool) -> Option<&'static str> {
        if self.at != other.at {
            return Some("moment");
        }
        let records = with_records && self.records != other.records;
        self.digest.difference(&other.digest).or(records.then_some("records"))
    }
}

/// Hashes records as they arrive.
#[derive(Clone, Default)]
pub struct RecordsHasher {
    count: u64,
    hash: Xxh3,
    bytes: Vec<u8>,
}

impl RecordsHasher {
    /// Adds a record, with everything that any output format may show of the requested items: those of a D program have
    /// their task in any case, which older builds did not record.
    pub fn add(&mut self, record: &RecordView<'_>, items: HeaderItems) {
        self.bytes.clear();
        let pid = if items.contains(HeaderItems::PID) { record.header.pid } else { 0 };
        let header = Header { pid, tgid: None, ..record.header };
        RecordView { header, ..*record }.encode_whole(HeaderItems::all(), &mut self.bytes);
        self.hash.update(&self.bytes);
        self.count += 1;
    }

    /// The sum so far.
    pub fn sum(&self) -> RecordsSum {
        let hash = if self.count == 0 { Hash::default().0 } else { self.hash.digest128() };
        RecordsSum { count: self.count, hash }
    }
}
