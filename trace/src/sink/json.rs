//! JSON lines: a header line, a line per record, an end line.
//!
//! The format is versioned and stable: fields are added, never changed.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{End, Reply, RunInfo, Shown, Sink, guest_stack, has, stack_trace};
use crate::hex::{HexStyle, hex};
use crate::names::Symbolize;
use crate::printable::Printable;
use crate::record::{HeaderItems, Kind, RecordView};
use crate::template::Formatter;
use crate::watch::WatchItem;

/// Version of the format.
const VERSION: u32 = 1;

/// Writes one JSON object per line.
#[derive(Debug)]
pub struct JsonSink<W> {
    out: W,
    items: HeaderItems,
    templates: Option<Formatter>,
}

impl<W: Write> JsonSink<W> {
    /// A sink that shows the chosen items.
    pub const fn new(out: W, items: HeaderItems) -> Self {
        Self { out, items, templates: None }
    }

    /// Adds to each record its text by these templates, if any.
    #[must_use]
    pub fn with_templates(self, templates: Option<Formatter>) -> Self {
        Self { templates, ..self }
    }

    /// The destination.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn line(&mut self, object: Map<String, Value>) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, &Value::Object(object))?;
        self.out.write_all(b"\n")
    }
}

/// Adds the chosen items of a record.
fn add_items(items: HeaderItems, record: &RecordView<'_>, line: &mut Line) {
    let (h, chosen) = (&record.header, |item| has(items, item));
    if chosen(HeaderItems::CPU) {
        line.add("cpu", h.cpu);
    }
    if chosen(HeaderItems::NAME) {
        line.add("name", format_args!("{}", Printable(record.name)));
    }
    if chosen(HeaderItems::PID) {
        line.add("pid", h.pid);
    }
    if chosen(HeaderItems::UID) {
        line.add("uid", h.uid);
    }
    for (item, name, value) in [
        (HeaderItems::CS, "cs", h.cs.into()),
        (HeaderItems::SS, "ss", h.ss.into()),
        (HeaderItems::ESP, "sp", h.sp),
    ] {
        if chosen(item) {
            line.add(name, format_args!("{value:#x}"));
        }
    }
    if chosen(HeaderItems::TSC) {
        line.add("tsc", h.tsc);
    }
}

/// Adds the chosen items of a record of a D program to the members of its object, and the task and its process wherever they
/// are known.
///
/// # Errors
/// A value has no form in JSON.
pub fn add_header(
    items: HeaderItems,
    record: &RecordView<'_>,
    object: &mut Map<String, Value>,
) -> io::Result<()> {
    let mut line = Line::default();
    let task = if record.header.tgid.is_some() { HeaderItems::PID } else { HeaderItems::empty() };
    add_items(items | task | HeaderItems::CPU, record, &mut line);
    object.extend(serde_json::from_slice::<Map<String, Value>>(&line.finish()?)?);
    if let Some(process) = record.header.tgid {
        object.insert("process".to_owned(), process.into());
    }
    Ok(())
}

/// A JSON object that is written member by member: a map of millions of records would cost more than all the rest.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    failed: Option<serde_json::Error>,
}

impl Line {
    /// Adds a member, of a name that needs no escapes.
    fn add(&mut self, name: &str, value: impl Serialize) {
        self.bytes.extend_from_slice(if self.bytes.is_empty() { b"{\"" } else { b",\"" });
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(b"\":");
        if let Err(error) = serde_json::to_writer(&mut self.bytes, &value) {
            self.failed = Some(error);
        }
    }

    /// The whole line.
    fn finish(mut self) -> io::Result<Vec<u8>> {
        self.bytes.extend_from_slice(b"}\n");
        self.failed.map_or(Ok(self.bytes), |error| Err(error.into()))
    }
}

/// The item of a watch hit.
fn watched(item: &WatchItem) -> Value {
    let mut object = members(json!({"access": item.access.word(), "size": item.size}));
    let at = if item.access.is_port() { "port" } else { "address" };
    object.insert(at.to_owned(), json!(format!("{:#x}", item.address)));
    if let Some((old, new)) = item.values() {
        if item.access.is_port() {
            object.insert("value".to_owned(), json!(format!("0x{new}")));
        } else {
            object.insert("old".to_owned(), json!(format!("0x{old}")));
            object.insert("new".to_owned(), json!(format!("0x{new}")));
        }
    }
    Value::Object(object)
}

/// The members of an object literal.
fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

impl<W: Write> Sink for JsonSink<W> {
    fn begin(&mut self, run: &RunInfo) -> io::Result<()> {
        let mut line = members(json!({
            "type": "header", "version": VERSION, "image": run.image, "width": run.width,
            "items": self.items.to_string(),
        }));
        line.extend(run.extra.iter().cloned());
        self.line(line)
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        let h = &record.header;
        let kind = match h.kind {
            Kind::Data => "hit",
            Kind::StackTrace => "stack-trace",
            Kind::Control => "control",
            Kind::KernelStack => "kernel-stack",
            Kind::UserStack => "user-stack",
        };
        let mut line = Line::default();
        line.add("type", kind);
        line.add("seq", h.seq);
        line.add("icount", h.icount);
        line.add("time_ns", h.time_ns);
        line.add("ip", format_args!("{:#x}", h.ip));
        line.add("symbol", symbols.symbol(h.ip, h.probe));
        line.add("major", h.major);
        line.add("minor", h.minor);
        if let Some(probe) = symbols.probe(h.probe) {
            line.add("probe", probe.name.in_process(h.process));
            line.add("id", probe.id);
        }
        add_items(self.items, record, &mut line);
        if let Some(watch) = &record.watch {
            line.add("watch", watched(watch));
        }
        if h.termination != 0 {
            line.add("termination", h.termination);
        }
        if let Some(e) = h.exception {
            let (code, parm1, parm2) =
                (format!("{:#x}", e.code), format!("{:#x}", e.parm1), format!("{:#x}", e.parm2));
            line.add("exception", json!({"code": code, "parm1": parm1, "parm2": parm2, "line": e.line}));
        }
        if let Some(trace) = stack_trace(record) {
            line.add("trace", trace.to_json(h.width, record.watch));
        }
        if let Some(frames) = guest_stack(record, symbols) {
            line.add("frames", frames);
        }
        if let Some(layout) = symbols.layout(h.probe).filter(|_| h.kind == Kind::Data)
            && let Some((name, value)) = layout.json(record.data, h.width)
        {
            line.add(name, value);
        }
        line.add("data", hex(record.data, HexStyle::Pairs));
        if let Some(templates) = self.templates.as_ref().filter(|_| h.kind == Kind::Data) {
            let formatted = templates.format(record);
            line.add("desc", formatted.desc);
            line.add("text", formatted.text);
        }
        self.out.write_all(&line.finish()?)
    }

    fn d(&mut self, shown: &Shown) -> io::Result<()> {
        shown.objects.iter().try_for_each(|object| self.line(members(object.clone())))
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        self.line(members(reply.object.clone()))
    }

    fn end(&mut self, end: &End) -> io::Result<()> {
        let mut line = members(json!({
            "type": "end", "insns": end.insns, "hits": end.hits, "lost": end.lost,
            "digest": end.digest, "exit": end.exit,
        }));
        line.extend(end.extra.iter().cloned());
        self.line(line)?;
        self.out.flush()
    }
}
