//! The packets of a Perfetto trace, by the published field numbers of `perfetto/protos/perfetto_trace.proto`.

use serde_json::{Map, Value};

use super::wire::Message;

/// `Trace.packet`.
const TRACE_PACKET: u32 = 1;

/// Fields of `TracePacket`.
mod packet {
    pub const TIMESTAMP: u32 = 8;
    pub const TRUSTED_PACKET_SEQUENCE_ID: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const PREVIOUS_PACKET_DROPPED: u32 = 42;
    pub const TRACK_DESCRIPTOR: u32 = 60;
}

/// Fields of `TrackDescriptor` and what is in it.
mod track {
    pub const UUID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const PROCESS: u32 = 3;
    pub const THREAD: u32 = 4;
    pub const COUNTER: u32 = 8;
    pub const PROCESS_PID: u32 = 1;
    pub const PROCESS_NAME: u32 = 6;
    pub const THREAD_PID: u32 = 1;
    pub const THREAD_TID: u32 = 2;
    pub const THREAD_NAME: u32 = 5;
}

/// Fields of `TrackEvent`.
mod event {
    pub const DEBUG_ANNOTATIONS: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const TRACK_UUID: u32 = 11;
    pub const CATEGORIES: u32 = 22;
    pub const NAME: u32 = 23;
    pub const COUNTER_VALUE: u32 = 30;
}

/// Fields of `DebugAnnotation`.
mod annotation {
    pub const BOOL: u32 = 2;
    pub const UINT: u32 = 3;
    pub const INT: u32 = 4;
    pub const DOUBLE: u32 = 5;
    pub const STRING: u32 = 6;
    pub const NAME: u32 = 10;
    pub const DICT_ENTRIES: u32 = 11;
    pub const ARRAY_VALUES: u32 = 12;
}

/// `TrackEvent.Type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Type {
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

/// An event on a track.
#[derive(Debug)]
pub(super) struct Event {
    pub kind: Type,
    /// Nanoseconds.
    pub time: u64,
    pub track: u64,
    pub name: String,
    pub category: String,
    pub annotations: Map<String, Value>,
    /// Of a counter.
    pub value: i64,
}

impl Event {
    /// An event without a name and data.
    pub fn new(kind: Type, time: u64, track: u64) -> Self {
        let (name, category) = (String::new(), String::new());
        Self { kind, time, track, name, category, annotations: Map::new(), value: 0 }
    }
}

/// A track.
#[derive(Debug)]
pub(super) enum Track<'a> {
    Process { pid: u32, name: &'a str },
    Thread { pid: u32, tid: u32, name: &'a str },
    Named(&'a str),
    Counter(&'a str),
}

/// A packet in the only sequence, as bytes of the trace. The first one begins the sequence.
fn in_sequence(mut body: Message, first: bool) -> Vec<u8> {
    body.number(packet::TRUSTED_PACKET_SEQUENCE_ID, 1);
    if first {
        // SEQ_INCREMENTAL_STATE_CLEARED
        body.number(packet::SEQUENCE_FLAGS, 1);
        body.number(packet::PREVIOUS_PACKET_DROPPED, 1);
    }
    let mut trace = Message::default();
    trace.message(TRACE_PACKET, &body);
    trace.bytes().to_vec()
}

/// The packet that describes a track.
pub(super) fn describe(uuid: u64, what: &Track<'_>, first: bool) -> Vec<u8> {
    let mut descriptor = Message::default();
    descriptor.number(track::UUID, uuid);
    let mut inner = Message::default();
    match what {
        Track::Process { pid, name } => {
            inner.number(track::PROCESS_PID, (*pid).into());
            if !name.is_empty() {
                inner.text(track::PROCESS_NAME, name);
            }
            descriptor.message(track::PROCESS, &inner);
        }
        Track::Thread { pid, tid, name } => {
            inner.number(track::THREAD_PID, (*pid).into());
            inner.number(track::THREAD_TID, (*tid).into());
            if !name.is_empty() {
                inner.text(track::THREAD_NAME, name);
            }
            descriptor.message(track::THREAD, &inner);
        }
        Track::Named(name) => descriptor.text(track::NAME, name),
        Track::Counter(name) => {
            descriptor.text(track::NAME, name);
            descriptor.message(track::COUNTER, &inner);
        }
    }
    let mut body = Message::default();
    body.message(packet::TRACK_DESCRIPTOR, &descriptor);
    in_sequence(body, first)
}

/// The packet of an event.
pub(super) fn event(event: &Event, first: bool) -> Vec<u8> {
    let mut inner = Message::default();
    inner.number(event::TYPE, event.kind as u64);
    inner.number(event::TRACK_UUID, event.track);
    if !event.category.is_empty() {
        inner.text(event::CATEGORIES, &event.category);
    }
    if !event.name.is_empty() {
        inner.text(event::NAME, &event.name);
    }
    if event.kind == Type::Counter {
        inner.signed(event::COUNTER_VALUE, event.value);
    }
    for (name, value) in event.annotations.iter().filter(|(_, value)| !value.is_null()) {
        inner.message(event::DEBUG_ANNOTATIONS, &annotation(Some(name), value));
    }
    let mut body = Message::default();
    body.number(packet::TIMESTAMP, event.time);
    body.message(packet::TRACK_EVENT, &inner);
    in_sequence(body, first)
}

/// JSON as an annotation. Its depth is that of a JSON text, which its reader limits.
fn annotation(name: Option<&str>, value: &Value) -> Message {
    let mut out = Message::default();
    if let Some(name) = name {
        out.text(annotation::NAME, name);
    }
    match value {
        Value::Null => out.text(annotation::STRING, "null"),
        Value::Bool(value) => out.number(annotation::BOOL, u64::from(*value)),
        Value::Number(value) => match (value.as_u64(), value.as_i64()) {
            (Some(value), _) => out.number(annotation::UINT, value),
            (_, Some(value)) => out.signed(annotation::INT, value),
            _ => out.double(annotation::DOUBLE, value.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => out.text(annotation::STRING, text),
        Value::Array(values) => {
            values.iter().for_each(|value| out.message(annotation::ARRAY_VALUES, &annotation(None, value)));
        }
        Value::Object(members) => {
            for (name, value) in members {
                out.message(annotation::DICT_ENTRIES, &annotation(Some(name), value));
            }
        }
    }
    out
}
