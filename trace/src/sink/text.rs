//! Text lines in the header format of the paper, section 5, then the data as pairs of hex digits.

use std::io::{self, Write};

use super::{End, HexStyle, Reply, RunInfo, Sink, Symbolize, has, hex, printable};
use crate::record::{HeaderItems, RecordView};
use crate::watch::WatchItem;

/// Writes one line a record; nothing else, so that two runs can be compared line by line.
#[derive(Debug)]
pub struct TextSink<W> {
    out: W,
    items: HeaderItems,
}

impl<W: Write> TextSink<W> {
    /// A sink that shows the chosen items; major and minor are always shown.
    pub const fn new(out: W, items: HeaderItems) -> Self {
        Self { out, items }
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

    fn record(&mut self, record: &RecordView<'_>, _: &dyn Symbolize) -> io::Result<()> {
        let h = &record.header;
        let items = self.items;
        // Major and minor are printed as %d.
        let mut line = format!("DProbes({},{})", h.major as i32, h.minor as i32);
        let mut add = |item, text: String| {
            if has(items, item) {
                line.push(' ');
                line.push_str(&text);
            }
        };
        let digits = usize::from(h.width / 4);
        let (ip, sp) = if h.width == 64 { ("rip", "rsp") } else { ("eip", "esp") };
        add(HeaderItems::CPU, format!("cpu={}", h.cpu));
        add(HeaderItems::NAME, format!("name={}", printable(record.name)));
        add(HeaderItems::PID, format!("pid={}", h.pid as i32));
        add(HeaderItems::UID, format!("uid={}", h.uid as i32));
        add(HeaderItems::CS, format!("cs={:x}", h.cs));
        add(HeaderItems::EIP, format!("{ip}={:0digits$x}", h.ip));
        add(HeaderItems::SS, format!("ss={:x}", h.ss));
        add(HeaderItems::ESP, format!("{sp}={:0digits$x}", h.sp));
        add(HeaderItems::TSC, format!("tsc={:08x}:{:08x}", h.tsc >> 32, h.tsc & 0xffff_ffff));
        if let Some(watch) = &record.watch {
            line.push_str(&watched(watch, digits));
        }
        if !record.data.is_empty() {
            line.push(' ');
            line.push_str(&hex(record.data, HexStyle::Pairs));
        }
        line.push('\n');
        self.out.write_all(line.as_bytes())
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        reply.lines.iter().try_for_each(|line| writeln!(self.out, "{line}"))
    }

    fn end(&mut self, _: &End) -> io::Result<()> {
        self.out.flush()
    }
}
