//! What `trapline top` shows: the hottest functions and processes since the last refresh, and in all.

use trapline_trace::{End, RecordView, Symbolize};

use super::samples::{Sample, Samples};
use super::table::{By, Table};

/// A moment of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment {
    /// Instructions since the start of the machine.
    pub icount: u64,
    /// Virtual time in nanoseconds.
    pub time_ns: u64,
}

impl Moment {
    /// The part of the time since `from`, in percent, in which the machine did not wait in HLT: one instruction takes one
    /// nanosecond.
    #[must_use]
    pub fn busy_since(self, from: Self) -> f64 {
        super::percent(self.icount.saturating_sub(from.icount), self.time_ns.saturating_sub(from.time_ns))
    }
}

/// The counts of a run in progress.
#[derive(Debug)]
pub struct Top {
    samples: Samples,
    /// By function.
    pub functions: Table,
    /// By process.
    pub processes: Table,
    /// Where the counts begin.
    base: Moment,
    /// Where the last refresh was.
    refreshed: Moment,
    /// The last sample, or what was reached after it.
    now: Moment,
}

impl Default for Top {
    fn default() -> Self {
        Self {
            samples: Samples::new(false),
            functions: Table::new(By::Function),
            processes: Table::new(By::Process),
            base: Moment::default(),
            refreshed: Moment::default(),
            now: Moment::default(),
        }
    }
}

impl Top {
    /// Takes a record. Returns the sample that it completes, which is not counted yet.
    pub fn take(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> Option<Sample> {
        self.samples.record(record, symbols)
    }

    /// Counts a sample.
    pub fn count(&mut self, sample: &Sample) {
        self.functions.add(sample);
        self.processes.add(sample);
        self.now = Moment { icount: sample.icount, time_ns: sample.time_ns };
    }

    /// The run has come to this moment: no more records of the last sample follow.
    pub fn reach(&mut self, now: Moment) {
        if let Some(sample) = self.samples.last() {
            self.count(&sample);
        }
        self.now = now;
    }

    /// The run has ended.
    pub fn end(&mut self, end: &End) {
        let time_ns = end.virtual_ns().unwrap_or(self.now.time_ns);
        self.reach(Moment { icount: end.insns, time_ns });
    }

    /// The moment of the last sample, or the last one that was reached.
    #[must_use]
    pub const fn now(&self) -> Moment {
        self.now
    }

    /// The moment at which the counts begin: the start of the machine, or the last reset.
    #[must_use]
    pub const fn base(&self) -> Moment {
        self.base
    }

    /// The moment of the last refresh, or of the last reset.
    #[must_use]
    pub const fn refreshed(&self) -> Moment {
        self.refreshed
    }

    /// The table of this kind.
    #[must_use]
    pub const fn table(&self, by: By) -> &Table {
        match by {
            By::Process => &self.processes,
            _ => &self.functions,
        }
    }

    /// From here on it is a new refresh.
    pub fn refresh(&mut self) {
        self.functions.refresh();
        self.processes.refresh();
        self.refreshed = self.now;
    }

    /// Forgets all counts.
    pub fn reset(&mut self) {
        self.functions.reset();
        self.processes.reset();
        (self.base, self.refreshed) = (self.now, self.now);
    }
}
