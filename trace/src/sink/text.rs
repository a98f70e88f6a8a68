//! Text in the header format of the paper, section 5, then the data: as pairs of hex digits, or by templates.

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use super::{End, Reply, RunInfo, Shown, Sink, by_layout, guest_stack, has, stack_trace};
use crate::d::{Firing, Flow, duration};
use crate::hex::{HexStyle, hex, push_hex};
use crate::names::Symbolize;
use crate::paint::{Paint, Role};
use crate::printable::{Printable, harmless};
use crate::record::{HeaderItems, Kind, RecordView};
use crate::template::Formatter;
use crate::watch::WatchItem;

/// Writes one line per record, or its text by templates. It writes nothing else, so that two runs can be compared.
#[derive(Debug)]
pub struct TextSink<W> {
    out: W,
    /// The last record's text; its memory is reused.
    text: String,
    items: HeaderItems,
    templates: Option<Formatter>,
    symbols: Option<usize>,
    flow: Option<Box<Flow>>,
    paint: Paint,
}

impl<W: Write> TextSink<W> {
    /// A sink that shows the chosen items; major and minor are always shown.
    pub const fn new(out: W, items: HeaderItems) -> Self {
        Self {
            out,
            text: String::new(),
            items,
            templates: None,
            symbols: None,
            flow: None,
            paint: Paint::new(false),
        }
    }

    /// Shows data by these templates, if there are any.
    #[must_use]
    pub fn with_templates(self, templates: Option<Formatter>) -> Self {
        Self { templates, ..self }
    }

    /// Puts the instruction count and the symbol, laid out for `width` characters, before each record.
    #[must_use]
    pub fn with_symbols(self, width: usize) -> Self {
        Self { symbols: Some(width), ..self }
    }

    /// Shows the hits of named probes as a tree of calls, each with the time that it took. The records need the process
    /// id to tell threads apart.
    #[must_use]
    pub fn with_flow(self) -> Self {
        Self { flow: Some(Box::default()), ..self }
    }

    /// Colours the numbers of records, and what matters less.
    #[must_use]
    pub fn with_paint(self, paint: Paint) -> Self {
        Self { paint, ..self }
    }

    /// The destination.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// The item of a watch hit, with a space before it.
fn watched(item: &WatchItem, digits: usize) -> String {
    let word = item.access.word();
    let mut text = if item.access.is_port() {
        format!(" watch={word} port={:x} size={}", item.address, item.size)
    } else {
        format!(" watch={word} addr={:0digits$x} size={}", item.address, item.size)
    };
    if let Some((old, new)) = item.values() {
        let values =
            if item.access.is_port() { format!(" value={new}") } else { format!(" old={old} new={new}") };
        text.push_str(&values);
    }
    text
}

impl<W: Write> Sink for TextSink<W> {
    fn begin(&mut self, _: &RunInfo) -> io::Result<()> {
        Ok(())
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        let h = &record.header;
        if let Some(flow) = self.flow.as_mut().filter(|_| h.kind == Kind::Data)
            && let Some(line) = call(flow, self.items, record, symbols)
        {
            return self.out.write_all(line.as_bytes());
        }
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        // Writing to a string cannot fail.
        if let Some(width) = self.symbols {
            let symbol = symbols.symbol(h.ip, h.probe).unwrap_or_else(|| format!("{:#x}", h.ip));
            let place = format!("{:>12} {:width$}", h.icount, harmless(&symbol));
            self.paint.push(Role::Dim, &place, &mut text);
            text.push(' ');
        }
        let at = text.len();
        header(self.items, record, &mut text);
        if self.paint.is_on() {
            let head = text.split_off(at);
            text.push_str(&self.paint.values(&head));
        }
        if let Some(probe) = symbols.probe(h.probe) {
            let name = format!(" probe={}", harmless(&probe.name.in_process(h.process)));
            self.paint.push(Role::Dim, &name, &mut text);
        }
        match h.kind {
            Kind::Data => {}
            Kind::KernelStack => text.push_str(" kernel stack"),
            Kind::UserStack => text.push_str(" user stack"),
            Kind::StackTrace => text.push_str(" stack trace"),
            Kind::Control => text.push_str(" control"),
        }
        let frames = guest_stack(record, symbols);
        match (stack_trace(record), &self.templates) {
            (Some(trace), _) => text.push_str(&trace.to_text(h.width, record.watch)),
            _ if frames.is_some() => {
                for line in frames.iter().flatten() {
                    text.push_str(&format!("\n              {}", harmless(line)));
                }
            }
            (None, templates) => data(record, symbols, templates.as_ref(), self.paint, &mut text),
        }
        text.push('\n');
        let written = self.out.write_all(text.as_bytes());
        self.text = text;
        written
    }

    fn d(&mut self, shown: &Shown) -> io::Result<()> {
        self.out.write_all(&shown.text)
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        reply.lines.iter().try_for_each(|line| writeln!(self.out, "{}", harmless(line)))
    }

    fn end(&mut self, _: &End) -> io::Result<()> {
        self.out.flush()
    }
}

/// A hit of a named probe as a line of the tree of calls.
fn call(
    flow: &mut Flow,
    items: HeaderItems,
    record: &RecordView<'_>,
    symbols: &dyn Symbolize,
) -> Option<String> {
    let h = &record.header;
    let probe = symbols.probe(h.probe)?;
    let (name, thread) = (probe.name, u64::from(h.pid));
    let firing = Firing { name, id: probe.id, clause: h.major, time: h.time_ns, thread, symbols };
    let (arrow, took) = flow.arrow(firing);
    let mut line = String::new();
    header(items, record, &mut line);
    // Without an item it says nothing about a call.
    if !line.contains(' ') {
        line.clear();
    }
    line.push_str(&arrow);
    match by_layout(record, symbols) {
        Some(shown) => line.push_str(&harmless(&shown)),
        None => {
            line.push_str(&harmless(&name.function));
            if arrow.ends_with("| ") {
                line.push(':');
                line.push_str(&harmless(&name.name));
            }
            data(record, symbols, None, Paint::default(), &mut line);
        }
    }
    if let Some(took) = took {
        line.push_str(" in");
        line.push_str(&duration(took));
    }
    line.push('\n');
    Some(line)
}

/// What a text sink shows of a record after its header: the access of a watch, then the data.
#[must_use]
pub fn record_text(
    record: &RecordView<'_>,
    symbols: &dyn Symbolize,
    templates: Option<&Formatter>,
) -> String {
    let digits = usize::from(record.header.width / 4);
    let mut text = record.watch.as_ref().map(|item| watched(item, digits)).unwrap_or_default();
    data(record, symbols, templates, Paint::default(), &mut text);
    text.trim_start().to_owned()
}

/// The data: by templates, if there are any, else by its layout, else as pairs of hex digits.
fn data(
    record: &RecordView<'_>,
    symbols: &dyn Symbolize,
    templates: Option<&Formatter>,
    paint: Paint,
    text: &mut String,
) {
    if let Some(templates) = templates.filter(|_| record.header.kind == Kind::Data) {
        by_template(templates, record, text);
        return;
    }
    match by_layout(record, symbols) {
        Some(shown) => {
            text.push(' ');
            text.push_str(&paint.numbers(&harmless(&shown)));
        }
        None if record.data.is_empty() => {}
        None if paint.is_on() => {
            text.push(' ');
            paint.push(Role::Number, &hex(record.data, HexStyle::Pairs), text);
        }
        None => {
            text.push(' ');
            push_hex(record.data, HexStyle::Pairs, text);
        }
    }
}

/// `DProbes(1,2) ..` with the chosen items; major and minor are printed as %d.
fn header(items: HeaderItems, record: &RecordView<'_>, line: &mut String) {
    let h = &record.header;
    // Writing to a string cannot fail.
    let _ = write!(line, "DProbes({},{})", h.major as i32, h.minor as i32);
    let mut add = |item, text: fmt::Arguments<'_>| {
        if has(items, item) {
            let _ = write!(line, " {text}");
        }
    };
    let digits = usize::from(h.width / 4);
    let (ip, sp) = if h.width == 64 { ("rip", "rsp") } else { ("eip", "esp") };
    add(HeaderItems::CPU, format_args!("cpu={}", h.cpu));
    add(HeaderItems::NAME, format_args!("name={}", Printable(record.name)));
    add(HeaderItems::PID, format_args!("pid={}", h.pid as i32));
    add(HeaderItems::UID, format_args!("uid={}", h.uid as i32));
    add(HeaderItems::CS, format_args!("cs={:x}", h.cs));
    add(HeaderItems::EIP, format_args!("{ip}={:0digits$x}", h.ip));
    add(HeaderItems::SS, format_args!("ss={:x}", h.ss));
    add(HeaderItems::ESP, format_args!("{sp}={:0digits$x}", h.sp));
    add(HeaderItems::TSC, format_args!("tsc={:08x}:{:08x}", h.tsc >> 32, h.tsc & 0xffff_ffff));
    if let Some(watch) = &record.watch {
        line.push_str(&watched(watch, digits));
    }
}

/// The template's `desc` after the header, and the data below it.
fn by_template(templates: &Formatter, record: &RecordView<'_>, text: &mut String) {
    let formatted = templates.format(record);
    if let Some(desc) = formatted.desc {
        text.push(' ');
        text.push_str(desc);
    }
    if !formatted.text.is_empty() {
        text.push('\n');
        text.push_str(&formatted.text);
    }
}
