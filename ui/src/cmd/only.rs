//! Filters the records of a run: drops those of the recording's own programs.

use trapline_emu::SentByte;
use trapline_interposer::{CoreFile, HandlerError, ProbeNames};
use trapline_session::{Names, Observer, RecordView, Reply};

use crate::failure::Failure;
use crate::output::Outputs;

/// Passes on the records of all programs except those of the recording, with new sequence numbers.
pub struct Only<'a, 'b> {
    outputs: &'a mut Outputs<'b>,
    /// The programs whose records are dropped.
    own: Option<Vec<String>>,
    seq: u64,
}

impl<'a, 'b> Only<'a, 'b> {
    /// Passes on to `outputs`; without `own` everything.
    /// `seq` is the number of the last record that was passed on.
    pub fn new(outputs: &'a mut Outputs<'b>, own: Option<Vec<String>>, seq: u64) -> Self {
        Self { outputs, own, seq }
    }

    /// The number of the last record that was passed on.
    pub fn seq(&self) -> u64 {
        self.seq
    }
}

impl Observer for Only<'_, '_> {
    type Error = Failure;

    fn record(&mut self, record: &RecordView<'_>, names: &Names<'_>) -> Result<(), Failure> {
        let Some(own) = &self.own else { return self.outputs.record(record, names) };
        let program = names.program(record.header.probe).unwrap_or_default();
        if own.iter().any(|own| own == program) {
            return Ok(());
        }
        self.seq += 1;
        let mut header = record.header;
        header.seq = self.seq;
        self.outputs.record(&RecordView { header, ..*record }, names)
    }

    fn reply(&mut self, reply: &Reply) -> Result<(), Failure> {
        if self.own.is_some() { Ok(()) } else { self.outputs.reply(reply) }
    }

    fn failed(&mut self, error: &HandlerError, names: ProbeNames<'_>) {
        self.outputs.failed(error, names);
    }

    fn wants_sent(&self) -> bool {
        self.outputs.wants_sent()
    }

    fn sent(&mut self, bytes: &[SentByte]) {
        self.outputs.sent(bytes);
    }

    fn console(&mut self, fresh: &[u8]) -> Result<(), Failure> {
        self.outputs.console(fresh)
    }

    fn core_file(&mut self, core: &CoreFile) -> Result<(), Failure> {
        self.outputs.core_file(core)
    }
}
