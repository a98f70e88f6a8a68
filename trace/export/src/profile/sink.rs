//! One table at the end of a run: of samples, or of instructions that were counted elsewhere.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use trapline_trace::{End, RecordView, Reply, RunInfo, Shown, Sink, Symbolize};

use super::samples::Samples;
use super::table::{By, Table};
use super::{grouped, percent};
use crate::flame::FlameForm;
use crate::notes::Notes;
use crate::svg;
use crate::tree::Tree;

/// Instructions by row, which the command counts while the run goes on, and the instructions of the whole run.
pub type Counted = Rc<RefCell<(Vec<(String, u64)>, u64)>>;

/// Writes a table at the end of a run.
#[derive(Debug)]
pub struct ProfileSink<W> {
    out: W,
    samples: Samples,
    table: Table,
    /// Counts in place of samples.
    counted: Option<Counted>,
    /// Stacks in place of a table.
    form: Option<FlameForm>,
    image: String,
    notes: Notes,
}

impl<W: Write> ProfileSink<W> {
    /// A table of samples by this.
    pub fn new(out: W, by: By, notes: Notes) -> Self {
        let samples = Samples::new(by == By::Line);
        let (table, image) = (Table::new(by), String::new());
        Self { out, samples, table, counted: None, form: None, image, notes }
    }

    /// Stacks instead of a table: each row is one, its frames separated by semicolons.
    #[must_use]
    pub fn as_stacks(self, form: FlameForm) -> Self {
        Self { form: Some(form), ..self }
    }

    /// A table of these counts instead.
    #[must_use]
    pub fn of(self, counted: Counted) -> Self {
        Self { counted: Some(counted), ..self }
    }

    fn write(&mut self) -> io::Result<()> {
        let mut whole = None;
        if let Some(counted) = &self.counted {
            let (rows, insns) = &*counted.borrow();
            rows.iter().for_each(|(row, count)| self.table.count(row, *count));
            whole = Some(*insns);
        }
        let sum = self.table.sum();
        if sum.all == 0 {
            let why = match self.counted {
                Some(_) => "the run has executed none of these functions",
                None => "there are no samples: the run is shorter than the time between two of them",
            };
            self.notes.miss(why);
            return Ok(());
        }
        if let Some(form) = self.form {
            return self.write_stacks(form);
        }
        let by = self.table.by();
        let unit = if self.counted.is_some() { "instructions" } else { "samples" };
        let whole = whole.unwrap_or(sum.all);
        let total = by.has_total() && self.counted.is_none();
        let width = grouped(sum.all).len().max(unit.len());
        write!(self.out, "{unit:>width$}   share")?;
        if total {
            write!(self.out, "   total")?;
        }
        writeln!(self.out, "  {}", by.word())?;
        for (name, count) in self.table.hottest_in_all() {
            write!(self.out, "{:>width$} {:6.2}%", grouped(count.all), percent(count.all, whole))?;
            if total {
                write!(self.out, " {:6.2}%", percent(count.total, whole))?;
            }
            writeln!(self.out, "  {}", clean(name))?;
        }
        Ok(())
    }

    fn write_stacks(&mut self, form: FlameForm) -> io::Result<()> {
        let mut tree = Tree::default();
        for (name, count) in self.table.hottest_in_all() {
            tree.add_stack(name.split(';'), count.all);
        }
        match form {
            FlameForm::Folded => tree.folded(false, |line| writeln!(self.out, "{line}")),
            FlameForm::Svg => svg::write(&mut self.out, &tree, &self.image, "instructions", false),
        }
    }

    fn take(&mut self, sample: Option<super::Sample>) {
        if let Some(sample) = sample {
            self.table.add(&sample);
        }
    }
}

/// A name without control characters: guests choose some of them.
pub(super) fn clean(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl<W: Write> Sink for ProfileSink<W> {
    fn begin(&mut self, run: &RunInfo) -> io::Result<()> {
        self.image.clone_from(&run.image);
        Ok(())
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        let sample = self.samples.record(record, symbols);
        self.take(sample);
        Ok(())
    }

    fn d(&mut self, _: &Shown) -> io::Result<()> {
        Ok(())
    }

    fn reply(&mut self, _: &Reply) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, _: &End) -> io::Result<()> {
        let sample = self.samples.last();
        self.take(sample);
        self.write()?;
        self.out.flush()
    }
}
