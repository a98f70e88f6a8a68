//! Follows a run to record it, or to verify a replay. The machine stops for checkpoints at multiples of an instruction
//! count; neither the guest nor the probes' records depend on that.

use std::io;

use trapline_emu::{Machine, Moment, Stop, TrapInterposer};
use trapline_trace::{HeaderItems, RecordView};

use super::Session;
use super::run::ends_slice;
use crate::ending::Ending;
use crate::recording::{Checkpoint, Divergence, Event, Recorder, RecordsHasher, Verifier};

/// The recorder and the verifier of a session, if it has any.
#[derive(Default)]
pub struct Course {
    recorder: Option<Recorder>,
    verifier: Option<Verifier>,
    /// Instructions from one checkpoint to the next; 0 for none.
    every: u64,
    /// The instruction count of the next checkpoint.
    next: u64,
    records: RecordsHasher,
}

impl Course {
    /// Whether it is recorded or verified.
    pub fn is_noted(&self) -> bool {
        self.every > 0
    }

    /// Begins checkpoints.
    fn begin(&mut self, every: u64, icount: u64) {
        self.every = every;
        self.moved(icount);
    }

    /// Continues from this count.
    pub fn moved(&mut self, icount: u64) {
        self.next = icount.checked_div(self.every).map_or(u64::MAX, |n| (n + 1).saturating_mul(self.every));
    }

    /// Whether events are wanted.
    pub fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// Notes an event.
    pub fn event(&mut self, at: Moment, event: impl FnOnce() -> Event) {
        if let Some(recorder) = &mut self.recorder {
            recorder.event(at, event());
        }
    }

    /// Ends the recording because the run has gone to a state that was never in it.
    pub fn spoil(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.fail(io::Error::other("the run has gone to a snapshot of another run"));
        }
    }

    /// A number for a snapshot that is taken as a value, if the run is recorded.
    pub fn number_snapshot(&mut self) -> Option<u64> {
        self.recorder.as_mut().map(Recorder::number_snapshot)
    }

    /// A record was drained; `items` are the requested ones.
    pub fn record(&mut self, record: &RecordView<'_>, items: HeaderItems) {
        if self.is_noted() {
            self.records.add(record, items);
        }
    }

    /// The console has shown more.
    pub fn console(&mut self, fresh: &[u8], icount: u64) {
        if fresh.is_empty() {
            return;
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.console(fresh);
        }
        if let Some(verifier) = &mut self.verifier {
            verifier.console(fresh, icount);
        }
    }

    /// Why the run must end: its recording cannot be written, or it differs from the recorded run.
    pub fn broken(&self) -> Option<Ending> {
        if self.recorder.as_ref().is_some_and(Recorder::has_failed) {
            return Some(Ending::Unrecorded);
        }
        self.divergence().map(|found| Ending::CannotGoOn(found.to_string()))
    }

    /// Where the run differs from the recorded one.
    pub fn divergence(&self) -> Option<&Divergence> {
        self.verifier.as_ref().and_then(Verifier::divergence)
    }

    /// Lets the machine run, with a checkpoint wherever one is due.
    pub fn run(
        &mut self,
        machine: &mut Machine,
        mut interposer: Option<&mut dyn TrapInterposer>,
        limit: u64,
        until: Option<Moment>,
    ) -> Stop {
        loop {
            let to = limit.min(self.next_due());
            // A reborrow of the trait object, shortened to this turn.
            let lent = interposer.as_mut().map(|interposer| &mut **interposer as &mut dyn TrapInterposer);
            let stop = match until {
                Some(until) => machine.run_until(lent, to, until),
                None => machine.run(lent, to),
            };
            let due = machine.icount() == self.next_due();
            if due {
                self.checkpoint(machine);
                self.moved(machine.icount());
            }
            let there = machine.icount() >= limit
                || ends_slice(machine.icount())
                || until.is_some_and(|until| machine.moment() >= until);
            if !due || stop != Stop::Limit || there || self.broken().is_some() {
                return stop;
            }
        }
    }

    fn next_due(&self) -> u64 {
        if self.is_noted() { self.next } else { u64::MAX }
    }

    fn checkpoint(&mut self, machine: &mut Machine) {
        let digest = machine.staged_digest();
        let checkpoint = Checkpoint { at: machine.moment(), digest, records: self.records.sum() };
        if let Some(recorder) = &mut self.recorder {
            recorder.checkpoint(&checkpoint, machine.changed_pages());
        }
        if let Some(verifier) = &mut self.verifier {
            verifier.checkpoint(&checkpoint);
        }
    }
}

/// A recording cannot begin after the run has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a recording begins with the run; this one is at {0} instructions, or has probes already")]
pub struct TooLate(pub u64);

impl Session {
    /// Records the run from its beginning on: all input, and the expected output. The recorder's configuration must be
    /// that of the guest, and of the [`Probing`](crate::Probing) of the session.
    ///
    /// # Errors
    /// The run has begun, or has a recorder.
    pub fn record(&mut self, recorder: Recorder) -> Result<(), TooLate> {
        if self.icount() > 0 || self.interposer.is_some() || self.course.is_recorded() {
            return Err(TooLate(self.icount()));
        }
        self.course.begin(recorder.every(), 0);
        self.course.recorder = Some(recorder);
        Ok(())
    }

    /// Ends the recording, with a checkpoint of the present state.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish_recording(&mut self) -> io::Result<()> {
        if self.course.recorder.is_some() {
            self.course.checkpoint(&mut self.machine);
        }
        self.course.recorder.take().map_or(Ok(()), Recorder::finish)
    }

    /// Compares the run, from its beginning on, with a recording.
    pub(crate) fn verify_with(&mut self, verifier: Verifier) {
        self.course.begin(verifier.every(), self.icount());
        self.course.verifier = Some(verifier);
    }

    /// Compares the end of the run with the last checkpoint.
    pub(crate) fn verify_end(&mut self) {
        let now = self.machine.moment();
        let Some(verifier) = &self.course.verifier else { return };
        if verifier.expects(now) {
            self.course.checkpoint(&mut self.machine);
        }
        if let Some(verifier) = &mut self.course.verifier {
            verifier.end(now.icount);
        }
    }

    /// Records that were drained since the session is recorded or verified.
    pub fn records_noted(&self) -> u64 {
        self.course.records.sum().count
    }

    /// The verifier that compares the run with a recording.
    pub fn verifier(&self) -> Option<&Verifier> {
        self.course.verifier.as_ref()
    }
}
