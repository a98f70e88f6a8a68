//! The reader's own position in channels, for reading again and again.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::channel::Channel;
use crate::contents::{Contents, Record};
use crate::layout::EVENT;

/// The first line of a cursor as text.
const HEAD: &str = "{\"cursor\":1}\n";

/// What of each channel has been read. The guest's own reading is not affected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    /// For each address of a channel, and each CPU: number in the sequence of a sub-buffer, and the offset there.
    places: BTreeMap<(u64, u16), (u32, u32)>,
}

/// Records that have not been read before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fresh<'c> {
    /// The records, by time, then CPU, then position.
    pub records: Vec<Record<'c>>,
    /// Sub-buffers that were overwritten before they were read.
    pub lost: u64,
}

impl Cursor {
    /// A position before all records.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// It as text, for [`Cursor::from_json`].
    #[must_use]
    pub fn to_json(&self) -> String {
        let places = self.places.iter().map(|((paddr, cpu), (sequence, offset))| {
            json!({"channel": paddr, "cpu": cpu, "subbuf": sequence, "offset": offset})
        });
        let mut text: String = places.map(|place| format!("{place}\n")).collect();
        text.insert_str(0, HEAD);
        text
    }

    /// The cursor that a text describes; `None` if it describes none.
    #[must_use]
    pub fn from_json(text: &[u8]) -> Option<Self> {
        let lines = std::str::from_utf8(text).ok()?.strip_prefix(HEAD)?.lines();
        let place = |line: &str| {
            let place: Value = serde_json::from_str(line).ok()?;
            let field = |name: &str| place.get(name).and_then(Value::as_u64);
            let number = |name: &str| u32::try_from(field(name)?).ok();
            let key = (field("channel")?, u16::try_from(field("cpu")?).ok()?);
            Some((key, (number("subbuf")?, number("offset")?)))
        };
        Some(Self { places: lines.map(place).collect::<Option<_>>()? })
    }

    /// Goes back before all records of all channels.
    pub fn reset(&mut self) {
        self.places.clear();
    }

    /// The records since the last time. A record that is being written, and those of its CPU after it, come the next time.
    pub fn fresh<'c>(&mut self, channel: &Channel, contents: &'c Contents) -> Fresh<'c> {
        let mut fresh = Fresh { records: Vec::new(), lost: 0 };
        let (subbufs, _) = channel.subbufs();
        let mut places = Vec::new();
        for (cpu, state) in (0..).zip(&contents.cpus) {
            // The oldest sub-buffer that the ring can have.
            let oldest = (state.sequence.wrapping_sub(subbufs - 1), 0);
            let (place, lost) = match self.places.get(&(channel.paddr(), cpu)) {
                None => (oldest, state.sequence.saturating_sub(subbufs - 1)),
                Some(place) => match state.sequence.wrapping_sub(place.0).checked_sub(subbufs) {
                    None => (*place, 0),
                    Some(lost) => (oldest, lost + 1),
                },
            };
            fresh.lost += u64::from(lost);
            places.push(place);
        }
        let starts = places.clone();
        for record in contents.records() {
            let cpu = usize::from(record.cpu);
            let (Some(state), Some(start), Some(end)) =
                (contents.cpus.get(cpu), starts.get(cpu), places.get_mut(cpu))
            else {
                continue;
            };
            let (sequence, offset) = record.place;
            let is_before = |(sequence, offset): (u32, u32), other: (u32, u32)| {
                let behind = |sequence| state.sequence.wrapping_sub(sequence);
                behind(sequence) > behind(other.0) || sequence == other.0 && offset < other.1
            };
            let is_behind_a_writer =
                sequence == state.sequence && state.writing_at.is_some_and(|at| offset > at);
            if is_before(record.place, *start) || is_behind_a_writer {
                continue;
            }
            fresh.records.push(record);
            let after = (sequence, offset + (EVENT + record.data.len()) as u32);
            if is_before(*end, after) {
                *end = after;
            }
        }
        let keys = (0..).map(|cpu| (channel.paddr(), cpu));
        self.places.extend(keys.zip(places));
        fresh
    }
}
