//! Hits as dtrace(1) prints them: CPU, ID and FUNCTION:NAME, then what was logged.
//!
//! A record of a probe point that no provider has put has no ID and no name there: its ID is 0 and its place stands in
//! the column of the name.

use std::io::{self, Write};

use super::{End, Reply, RunInfo, Sink, Symbolize, guest_stack, harmless, stack_trace, words};
use crate::record::RecordView;

/// Writes a heading and one line a hit.
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
            return writeln!(self.out, "{}", trace.to_text(h.width).trim_start_matches('\n'));
        }
        let (id, name) = match symbols.probe(h.probe) {
            Some(probe) => (probe.id, format!("{}:{}", probe.name.function, probe.name.name)),
            None => (0, symbols.symbol(h.ip).unwrap_or_else(|| format!("{:#x}", h.ip))),
        };
        let mut line = format!("{:>3} {id:>6} {:>32}", h.cpu, harmless(&name));
        for word in words(record) {
            line.push_str(&format!(" {word:#x}"));
        }
        writeln!(self.out, "{line}")
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        reply.lines.iter().try_for_each(|line| writeln!(self.out, "{}", harmless(line)))
    }

    fn end(&mut self, _: &End) -> io::Result<()> {
        self.out.flush()
    }
}
