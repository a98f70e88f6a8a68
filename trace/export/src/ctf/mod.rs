//! A CTF 1.8 trace: a folder with the metadata in TSDL and a stream of events for each CPU.
//!
//! An event class is a name with the types of its fields, so a probe has one class as long as its records have one form.
//! Lost records are discarded events of the packet in whose time the gap in the sequence numbers lies. The UUID is a
//! hash of the content: the same trace gives the same bytes.

mod fields;
mod stream;
mod types;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};
use trapline_trace::{End, HeaderItems, Kind, RecordView, Reply, RunInfo, Shown, Sink, Symbolize};
use xxhash_rust::xxh3::Xxh3;

use crate::hit::{Hit, members, plain};
use crate::notes::Notes;
use stream::{CONTEXT, HEADER, Stream};
use types::{Field, Names, Type, Value, literal};

/// A name, and the fields with their types.
type Class = (String, Vec<(String, Type)>);

/// Writes a CTF trace.
pub struct CtfSink {
    folder: PathBuf,
    items: HeaderItems,
    notes: Notes,
    image: String,
    context: Vec<(&'static str, Type)>,
    classes: BTreeMap<Class, u32>,
    streams: BTreeMap<u32, Stream>,
    /// Of all classes and events in their order.
    hash: Xxh3,
    last_seq: u64,
    now: u64,
    last_cpu: u32,
    early: u64,
    timeless: u64,
}

impl CtfSink {
    /// A sink for records with these items. The folder is made when the run begins; it must be empty if it is there.
    #[must_use]
    pub fn new(folder: &Path, items: HeaderItems, notes: Notes) -> Self {
        Self {
            folder: folder.to_owned(),
            items,
            notes,
            image: String::new(),
            context: Vec::new(),
            classes: BTreeMap::new(),
            streams: BTreeMap::new(),
            hash: Xxh3::new(),
            last_seq: 0,
            now: 0,
            last_cpu: 0,
            early: 0,
            timeless: 0,
        }
    }

    fn stream(&mut self, cpu: u32) -> io::Result<&mut Stream> {
        if !self.streams.contains_key(&cpu) {
            let stream = Stream::create(&self.folder, cpu)?;
            self.streams.insert(cpu, stream);
        }
        self.streams.get_mut(&cpu).ok_or_else(|| io::Error::other("a stream is missing"))
    }

    /// The number of a class.
    fn class(&mut self, name: &str, fields: &[Field]) -> u32 {
        let fields = fields.iter().map(|(name, kind, _)| (name.clone(), kind.clone())).collect();
        let fresh = self.classes.len() as u32;
        *self.classes.entry((name.to_owned(), fields)).or_insert(fresh)
    }

    /// Writes an event. `common` has the values of the fields that all events have.
    fn event(
        &mut self,
        name: &str,
        (time, cpu): (u64, u32),
        common: &Map<String, Json>,
        fields: &[Field],
    ) -> io::Result<()> {
        let id = self.class(name, fields);
        let mut body = Vec::new();
        for (name, kind) in &self.context {
            kind.encode(&fields::value(kind, common.get(*name)), &mut body);
        }
        for (_, kind, value) in fields {
            kind.encode(value, &mut body);
        }
        self.hash.update(&cpu.to_le_bytes());
        self.hash.update(&id.to_le_bytes());
        self.hash.update(&time.to_le_bytes());
        self.hash.update(&body);
        (self.now, self.last_cpu) = (time, cpu);
        let gap = common.get("seq").and_then(Json::as_u64).map_or(0, |seq| {
            let gap = seq.saturating_sub(self.last_seq.saturating_add(1));
            self.last_seq = self.last_seq.max(seq);
            gap
        });
        let stream = self.stream(cpu)?;
        stream.lost = stream.lost.saturating_add(gap);
        let early = stream.event(id, time, &body)?;
        self.early += u64::from(early);
        Ok(())
    }

    /// An event about something else than a record, with the members of an object as JSON.
    fn object(&mut self, object: &Map<String, Json>, at: (u64, u32), text: Option<&str>) -> io::Result<()> {
        let kind = object.get("type").map(plain).unwrap_or_default();
        let name = object.get("probe").map_or_else(|| kind.clone(), plain);
        let text_of = |value: String| (Type::Text, Value::Text(value));
        let mut fields = Vec::new();
        if let Some(text) = text {
            let (kind, value) = text_of(text.trim().to_owned());
            fields.push(("text".to_owned(), kind, value));
        }
        for (name, value) in object {
            let is_common = matches!(name.as_str(), "type" | "probe" | "seq" | "icount" | "time_ns" | "cpu");
            if is_common || self.context.iter().any(|(common, _)| common == name) {
                continue;
            }
            let (kind, value) = match value.as_u64().filter(|_| matches!(name.as_str(), "pid" | "process")) {
                Some(number) => (Type::Unsigned { bits: 32, hex: false }, Value::Number(number)),
                None => text_of(plain(value)),
            };
            fields.push((name.clone(), kind, value));
        }
        self.event(&name, at, object, &fields)
    }

    fn metadata(&self, uuid: [u8; 16]) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let parts = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex);
        let (uuid, image) = (parts.join("-"), literal(&self.image));
        let mut text = String::from("/* CTF 1.8 */\n\n");
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "trace {{\n    major = 1;\n    minor = 8;\n    uuid = \"{uuid}\";\n    byte_order = le;\n{HEADER}}};\n\n\
             env {{\n    tracer_name = \"trapline\";\n    image = {image};\n}};\n\n\
             clock {{\n    name = \"guest\";\n    description = \"virtual time\";\n    freq = 1000000000;\n    offset = 0;\n}};\n\n\
             typealias integer {{ size = 64; align = 8; signed = false; map = clock.guest.value; }} := clock_t;\n\n\
             stream {{\n    id = 0;\n{CONTEXT}    event.context := struct {{\n"
        );
        let mut names = Names::default();
        for (name, kind) in &self.context {
            let _ = writeln!(text, "        {}", kind.declare(name, &mut names));
        }
        text.push_str("    };\n};\n");
        let mut classes: Vec<(&Class, &u32)> = self.classes.iter().collect();
        classes.sort_unstable_by_key(|(_, id)| **id);
        for ((name, fields), id) in classes {
            let name = literal(name);
            let _ = write!(text, "\nevent {{\n    name = {name};\n    id = {id};\n    stream_id = 0;\n");
            text.push_str("    fields := struct {\n");
            let mut names = Names::default();
            for (name, kind) in fields {
                let _ = writeln!(text, "        {}", kind.declare(name, &mut names));
            }
            text.push_str("    };\n};\n");
        }
        text
    }

    /// Spreads the lost records over the streams: `lost` of the whole run, if that is known.
    fn finish_streams(&mut self, uuid: [u8; 16], lost: Option<u64>) -> io::Result<()> {
        if self.streams.is_empty() {
            self.stream(0)?;
        }
        let mut left = lost.unwrap_or(u64::MAX);
        let (last_cpu, count) = (self.last_cpu, self.streams.len());
        let mut all: Vec<(u32, &mut Stream)> =
            self.streams.iter_mut().map(|(cpu, stream)| (*cpu, stream)).collect();
        // The stream of the last event has what was lost after it.
        all.sort_unstable_by_key(|(cpu, _)| *cpu == last_cpu);
        for (n, (_, stream)) in all.into_iter().enumerate() {
            let own = stream.lost.min(left);
            left -= own;
            let further = if n + 1 == count && lost.is_some() { left } else { 0 };
            stream.finish(uuid, own, further)?;
        }
        Ok(())
    }
}

/// The name of a record's event.
fn name(record: &RecordView<'_>, object: &Map<String, Json>) -> String {
    let h = &record.header;
    if h.kind != Kind::Data {
        return object.get("type").map(plain).unwrap_or_default();
    }
    match object.get("probe") {
        Some(probe) => plain(probe),
        None => format!("hit({},{})", h.major, h.minor),
    }
}

impl Sink for CtfSink {
    fn begin(&mut self, run: &RunInfo) -> io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        if std::fs::read_dir(&self.folder)?.next().is_some() {
            return Err(io::Error::other("a CTF trace is a folder of its own, and this one is not empty"));
        }
        self.image.clone_from(&run.image);
        self.context = fields::context(self.items, run.width);
        self.hash.update(run.image.as_bytes());
        Ok(())
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        let object = members(record, symbols, self.items)?;
        let fields = fields::of_record(record, symbols, &object);
        let at = (record.header.time_ns, record.header.cpu);
        self.event(&name(record, &object), at, &object, &fields)
    }

    fn d(&mut self, shown: &Shown) -> io::Result<()> {
        let text = String::from_utf8_lossy(&shown.text).into_owned();
        for object in shown.objects.iter().filter_map(Json::as_object) {
            let is_firing = object.get("type").is_some_and(|kind| kind == "d");
            let at = match Hit::of_d(object) {
                Some(hit) => (hit.time, hit.cpu),
                None => (self.now, self.last_cpu),
            };
            self.timeless += u64::from(is_firing && !object.contains_key("time_ns"));
            self.object(object, at, is_firing.then_some(&*text))?;
        }
        Ok(())
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        match reply.object.as_object() {
            Some(object) => self.object(object, (self.now, self.last_cpu), None),
            None => Ok(()),
        }
    }

    fn end(&mut self, end: &End) -> io::Result<()> {
        // A file that ends early does not say how many records were lost: the gaps do.
        let lost = (end != &End::default()).then_some(end.lost);
        let without = self.metadata([0; 16]);
        self.hash.update(without.as_bytes());
        let mut uuid = self.hash.digest128().to_be_bytes();
        // Version 8, variant 1: a UUID of its own making.
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        self.finish_streams(uuid, lost)?;
        std::fs::write(self.folder.join("metadata"), self.metadata(uuid))?;
        self.notes.count(
            self.early,
            "record was moved behind the one before",
            "records were moved behind the ones before",
        );
        self.notes.count(
            self.timeless,
            "firing of a D program says no time and has that of the one before",
            "firings of D programs say no time and have that of the ones before",
        );
        Ok(())
    }
}
