//! JSON lines: a header line, a line per record, an end line.
//!
//! The format is versioned and stable: fields are added, never changed.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::{End, HexStyle, Reply, RunInfo, Sink, guest_stack, has, hex, stack_trace};
use crate::names::Symbolize;
use crate::printable::printable;
use crate::record::{HeaderItems, Kind, RecordView};
use crate::template::Formatter;
use crate::watch::WatchItem;

/// Version of the format.
const VERSION: u32 = 1;

/// Writes one JSON object a line.
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
        let mut line = members(json!({
            "type": kind, "seq": h.seq, "icount": h.icount, "ip": format!("{:#x}", h.ip),
            "symbol": symbols.symbol(h.ip), "major": h.major, "minor": h.minor,
        }));
        if let Some(probe) = symbols.probe(h.probe) {
            line.insert("probe".to_owned(), json!(probe.name.in_process(h.process)));
            line.insert("id".to_owned(), json!(probe.id));
        }
        let mut add = |item, name: &str, value: Value| {
            if has(self.items, item) {
                line.insert(name.to_owned(), value);
            }
        };
        add(HeaderItems::CPU, "cpu", json!(h.cpu));
        add(HeaderItems::NAME, "name", json!(printable(record.name)));
        add(HeaderItems::PID, "pid", json!(h.pid));
        add(HeaderItems::UID, "uid", json!(h.uid));
        add(HeaderItems::CS, "cs", json!(format!("{:#x}", h.cs)));
        add(HeaderItems::SS, "ss", json!(format!("{:#x}", h.ss)));
        add(HeaderItems::ESP, "sp", json!(format!("{:#x}", h.sp)));
        add(HeaderItems::TSC, "tsc", json!(h.tsc));
        if let Some(watch) = &record.watch {
            line.insert("watch".to_owned(), watched(watch));
        }
        if h.termination != 0 {
            line.insert("termination".to_owned(), json!(h.termination));
        }
        if let Some(e) = h.exception {
            let (code, parm1, parm2) =
                (format!("{:#x}", e.code), format!("{:#x}", e.parm1), format!("{:#x}", e.parm2));
            let fields = json!({"code": code, "parm1": parm1, "parm2": parm2, "line": e.line});
            line.insert("exception".to_owned(), fields);
        }
        if let Some(trace) = stack_trace(record) {
            line.insert("trace".to_owned(), trace.to_json(h.width));
        }
        if let Some(frames) = guest_stack(record, symbols) {
            line.insert("frames".to_owned(), json!(frames));
        }
        line.insert("data".to_owned(), json!(hex(record.data, HexStyle::Pairs)));
        if let Some(templates) = self.templates.as_ref().filter(|_| h.kind == Kind::Data) {
            let formatted = templates.format(record);
            line.insert("desc".to_owned(), json!(formatted.desc));
            line.insert("text".to_owned(), json!(formatted.text));
        }
        self.line(line)
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
