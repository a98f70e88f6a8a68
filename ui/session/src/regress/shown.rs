//! The text of a run's records, and its console: what a test compares with what is kept beside a recording.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use trapline_interposer::{DSetup, ProgramId};
use trapline_trace::d::{Consumer, Firing};
use trapline_trace::{HeaderItems, RecordView, Sink, Symbolize, TextSink};

use crate::commands::Command;
use crate::replies::Reply;
use crate::session::{Names, Observer, Session};

/// Widest symbol that the columns of records are laid out for.
const SYMBOL_WIDTH: usize = 28;

/// Keeps the text of the records and the console. What a D program prints is as `replay` prints it.
pub(super) struct Shown {
    sink: TextSink<Vec<u8>>,
    pub console: Vec<u8>,
    /// What prints the data of each D program.
    consumers: BTreeMap<ProgramId, Consumer>,
}

impl Default for Shown {
    fn default() -> Self {
        Self::new(HeaderItems::default())
    }
}

impl Shown {
    pub fn new(items: HeaderItems) -> Self {
        let sink = TextSink::new(Vec::new(), items).with_symbols(SYMBOL_WIDTH);
        Self { sink, console: Vec::new(), consumers: BTreeMap::new() }
    }

    /// The text, with what the D programs leave at the end of the run.
    pub fn end(mut self, session: &mut Session) -> String {
        // Where that fails, nothing is left.
        if session.has_d() && session.apply(Command::End).is_ok() {
            let Ok(()) = session.pass_records(&mut self);
            for end in session.d_ends() {
                let consumer = self.consumer(end.id, &end.setup);
                let shown = consumer.show_end(end.aggregations, &session.names(), None);
                // Writing to memory cannot fail.
                let _ = shown.and_then(|shown| self.sink.d(&shown));
            }
        }
        String::from_utf8_lossy(&self.sink.into_inner()).into_owned()
    }

    fn consumer(&mut self, id: ProgramId, setup: &Arc<DSetup>) -> &mut Consumer {
        let new = || Consumer::new(Arc::clone(&setup.tables), setup.output.clone()).without_files();
        self.consumers.entry(id).or_insert_with(new)
    }
}

impl Observer for Shown {
    type Error = Infallible;

    fn record(&mut self, record: &RecordView<'_>, names: &Names<'_>) -> Result<(), Infallible> {
        let header = &record.header;
        let program = names.d_setup(header.probe).zip(names.probe(header.probe));
        let Some(((id, setup), probe)) = program else {
            // Writing to memory cannot fail.
            let _ = self.sink.record(record, names);
            return Ok(());
        };
        let firing = Firing::of(probe, header, names);
        let shown = self.consumer(id, setup).show(firing, record.data, None);
        let _ = shown.and_then(|shown| self.sink.d(&shown));
        Ok(())
    }

    fn reply(&mut self, reply: &Reply) -> Result<(), Infallible> {
        let _ = self.sink.reply(&reply.for_sink());
        Ok(())
    }

    fn console(&mut self, fresh: &[u8]) -> Result<(), Infallible> {
        self.console.extend_from_slice(fresh);
        Ok(())
    }
}
