//! Hits in the form of dtrace(1): CPU, ID and FUNCTION:NAME, then the logged data.
//!
//! dtrace(1) has no form for a probe point that a probe program gives by offset or address. Such a record shows the ID
//! 0, and the symbol or address in the column of the name.

use std::io::{self, Write};

use super::{End, Reply, RunInfo, Shown, Sink, by_layout, guest_stack, stack_trace};
use crate::names::Symbolize;
use crate::printable::harmless;
use crate::record::RecordView;

/// Writes a heading and one line per hit.
#[derive(Debug)]
pub struct DtraceSink<W> {
    out: W,
}

impl<W: Write> DtraceSink<W> {
    /// A sink.
    pub const fn new(out: W) -> Self {
        Self { out }
    }
}

impl<W: Write> Sink for DtraceSink<W> {
    fn begin(&mut self, _: &RunInfo) -> io::Result<()> {
        writeln!(self.out, "{:>3} {:>6} {:>32}", "CPU", "ID", "FUNCTION:NAME")
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        let h = &record.header;
        if let Some(lines) = guest_stack(record, symbols) {
            for line in lines {
                writeln!(self.out, "              {}", harmless(&line))?;
            }
            return writeln!(self.out);
        }
        if let Some(trace) = stack_trace(record) {
            return writeln!(self.out, "{}", trace.to_text(h.width, record.watch).trim_start_matches('\n'));
        }
        let (id, name) = match symbols.probe(h.probe) {
            Some(probe) => (probe.id, format!("{}:{}", probe.name.function, probe.name.name)),
            None => (0, symbols.symbol(h.ip, h.probe).unwrap_or_else(|| format!("{:#x}", h.ip))),
        };
        let mut line = format!("{:>3} {id:>6} {:>32}", h.cpu, harmless(&name));
        match by_layout(record, symbols) {
            Some(shown) => {
                line.push(' ');
                line.push_str(&harmless(&shown));
            }
            None => push_words(record, &mut line),
        }
        writeln!(self.out, "{line}")
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

/// Appends the data as words of the guest. Bytes after the last whole word follow as one shorter number, padded to its
/// full width so that the number of bytes shows.
fn push_words(record: &RecordView<'_>, line: &mut String) {
    let size = usize::from(record.header.width / 8).max(1);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
    let words = record.data.chunks_exact(size);
    let rest = words.remainder();
    for word in words {
        line.push_str(&format!(" {:#x}", number(word)));
    }
    if !rest.is_empty() {
        line.push_str(&format!(" 0x{:0digits$x}", number(rest), digits = 2 * rest.len()));
    }
}
