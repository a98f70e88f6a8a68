//! The packets of a Perfetto trace, by the published field numbers of `perfetto/protos/perfetto_trace.proto`.

use serde_json::{Map, Value};

use super::interned::{Interned, Kind};
use crate::protobuf::Message;

/// `Trace.packet`.
const TRACE_PACKET: u32 = 1;

/// Fields of `TracePacket`.
mod packet {
    pub const TIMESTAMP: u32 = 8;
    pub const TRUSTED_PACKET_SEQUENCE_ID: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED_DATA: u32 = 12;
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
    pub const CATEGORY_IIDS: u32 = 3;
    pub const DEBUG_ANNOTATIONS: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME_IID: u32 = 10;
    pub const TRACK_UUID: u32 = 11;
    pub const CATEGORIES: u32 = 22;
    pub const NAME: u32 = 23;
    pub const COUNTER_VALUE: u32 = 30;
    pub const FLOW_IDS: u32 = 47;
    pub const TERMINATING_FLOW_IDS: u32 = 48;
}

/// Fields of `DebugAnnotation`.
mod annotation {
    pub const NAME_IID: u32 = 1;
    pub const BOOL: u32 = 2;
    pub const UINT: u32 = 3;
    pub const INT: u32 = 4;
    pub const DOUBLE: u32 = 5;
    pub const STRING: u32 = 6;
    pub const NAME: u32 = 10;
    pub const DICT_ENTRIES: u32 = 11;
    pub const ARRAY_VALUES: u32 = 12;
    pub const STRING_VALUE_IID: u32 = 17;
}

/// Values of `TracePacket.sequence_flags`: whether earlier descriptions of texts hold, and whether this packet needs them.
mod flag {
    pub const INCREMENTAL_STATE_CLEARED: u64 = 1;
    pub const NEEDS_INCREMENTAL_STATE: u64 = 2;
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
    /// The flows that pass here for the first time.
    pub begins: Vec<u64>,
    /// The flows that end here.
    pub ends: Vec<u64>,
}

impl Event {
    /// An event without a name and data.
    pub fn new(kind: Type, time: u64, track: u64) -> Self {
        let (name, category) = (String::new(), String::new());
        let (begins, ends) = (Vec::new(), Vec::new());
        Self { kind, time, track, name, category, annotations: Map::new(), value: 0, begins, ends }
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
fn in_sequence(mut body: Message, first: bool, needs_texts: bool) -> Vec<u8> {
    body.number(packet::TRUSTED_PACKET_SEQUENCE_ID, 1);
    let cleared = if first { flag::INCREMENTAL_STATE_CLEARED } else { 0 };
    let needs = if needs_texts { flag::NEEDS_INCREMENTAL_STATE } else { 0 };
    if cleared | needs != 0 {
        body.number(packet::SEQUENCE_FLAGS, cleared | needs);
    }
    if first {
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
    in_sequence(body, first, false)
}

/// A text by its number, or in full.
fn interned(
    out: &mut Message,
    (by_number, in_full): (u32, u32),
    (kind, text): (Kind, &str),
    texts: &mut Interned,
) {
    match texts.number(kind, text) {
        Some(number) => out.number(by_number, number),
        None => out.text(in_full, text),
    }
}

/// The packet of an event.
pub(super) fn event(event: &Event, first: bool, texts: &mut Interned) -> Vec<u8> {
    let mut inner = Message::default();
    inner.number(event::TYPE, event.kind as u64);
    inner.number(event::TRACK_UUID, event.track);
    if !event.category.is_empty() {
        let what = (Kind::Category, event.category.as_str());
        interned(&mut inner, (event::CATEGORY_IIDS, event::CATEGORIES), what, texts);
    }
    if !event.name.is_empty() {
        let what = (Kind::EventName, event.name.as_str());
        interned(&mut inner, (event::NAME_IID, event::NAME), what, texts);
    }
    if event.kind == Type::Counter {
        inner.signed(event::COUNTER_VALUE, event.value);
    }
    event.begins.iter().for_each(|flow| inner.fixed(event::FLOW_IDS, *flow));
    event.ends.iter().for_each(|flow| inner.fixed(event::TERMINATING_FLOW_IDS, *flow));
    for (name, value) in event.annotations.iter().filter(|(_, value)| !value.is_null()) {
        inner.message(event::DEBUG_ANNOTATIONS, &annotation(Some(name), value, texts));
    }
    let mut body = Message::default();
    body.number(packet::TIMESTAMP, event.time);
    body.message(packet::TRACK_EVENT, &inner);
    if let Some(fresh) = texts.take_fresh() {
        body.message(packet::INTERNED_DATA, &fresh);
    }
    in_sequence(body, first, true)
}

/// JSON as an annotation. Its depth is that of a JSON text, which its reader limits.
fn annotation(name: Option<&str>, value: &Value, texts: &mut Interned) -> Message {
    let mut out = Message::default();
    if let Some(name) = name {
        let what = (Kind::AnnotationName, name);
        interned(&mut out, (annotation::NAME_IID, annotation::NAME), what, texts);
    }
    match value {
        Value::Null => out.text(annotation::STRING, "null"),
        Value::Bool(value) => out.number(annotation::BOOL, u64::from(*value)),
        Value::Number(value) => match (value.as_u64(), value.as_i64()) {
            (Some(value), _) => out.number(annotation::UINT, value),
            (_, Some(value)) => out.signed(annotation::INT, value),
            _ => out.double(annotation::DOUBLE, value.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => {
            let what = (Kind::StringValue, text.as_str());
            interned(&mut out, (annotation::STRING_VALUE_IID, annotation::STRING), what, texts);
        }
        Value::Array(values) => {
            for value in values {
                out.message(annotation::ARRAY_VALUES, &annotation(None, value, texts));
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                out.message(annotation::DICT_ENTRIES, &annotation(Some(name), value, texts));
            }
        }
    }
    out
}
