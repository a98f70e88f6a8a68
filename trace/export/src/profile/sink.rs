//! One table at the end of a run, as text or JSON: of samples, or of instructions that were counted elsewhere.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use serde_json::{Map, Value, json};
use trapline_trace::{End, RecordView, Reply, RunInfo, Shown, Sink, Symbolize};

use super::samples::Samples;
use super::table::{By, Table};
use super::{grouped, percent};
use crate::flame::FlameForm;
use crate::notes::Notes;
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
    /// Whether the table is JSON.
    json: bool,
    image: String,
    notes: Notes,
}

impl<W: Write> ProfileSink<W> {
    /// A table of samples by this.
    pub fn new(out: W, by: By, notes: Notes) -> Self {
        let samples = Samples::new(by == By::Line);
        let (table, image) = (Table::new(by), String::new());
        Self { out, samples, table, counted: None, form: None, json: false, image, notes }
    }

    /// Stacks instead of a table: each row is one, its frames separated by semicolons.
    #[must_use]
    pub fn as_stacks(self, form: FlameForm) -> Self {
        Self { form: Some(form), ..self }
    }

    /// The table as JSON: one object a row, between a header line and an end line.
    #[must_use]
    pub fn as_json(self) -> Self {
        Self { json: true, ..self }
    }

    /// A table of these counts instead.
    #[must_use]
    pub fn of(self, counted: Counted) -> Self {
        Self { counted: Some(counted), ..self }
    }

    /// Takes the counts; the sum that the shares are of.
    fn take_counted(&mut self) -> u64 {
        let Some(counted) = &self.counted else { return self.table.sum().all };
        let (rows, insns) = &*counted.borrow();
        rows.iter().for_each(|(row, count)| self.table.count(row, *count));
        *insns
    }

    /// What is counted.
    fn unit(&self) -> &'static str {
        if self.counted.is_some() { "instructions" } else { "samples" }
    }

    /// Whether a row also has the samples with it anywhere on the stack.
    fn has_total(&self) -> bool {
        self.table.by().has_total() && self.counted.is_none()
    }

    fn write_json(&mut self, whole: u64, end: &End) -> io::Result<()> {
        let by = self.table.by().word();
        for (name, count) in self.table.hottest_in_all() {
            let mut row = Map::new();
            row.insert("type".to_owned(), json!("row"));
            row.insert(by.to_owned(), json!(name));
            row.insert("count".to_owned(), json!(count.all));
            if self.has_total() {
                row.insert("total".to_owned(), json!(count.total));
            }
            writeln!(self.out, "{}", Value::Object(row))?;
        }
        let mut object = Map::new();
        object.insert("type".to_owned(), json!("end"));
        object.insert("counted".to_owned(), json!(self.table.sum().all));
        object.insert("of".to_owned(), json!(whole));
        object.insert("insns".to_owned(), json!(end.insns));
        object.insert("exit".to_owned(), json!(end.exit));
        object.extend(end.extra.iter().filter(|(name, _)| name == "reason").cloned());
        writeln!(self.out, "{}", Value::Object(object))
    }

    fn write(&mut self, end: &End) -> io::Result<()> {
        let whole = self.take_counted();
        let sum = self.table.sum();
        if sum.all == 0 {
            let why = match self.counted {
                Some(_) => "the run has executed none of these functions",
                None => "there are no samples: the run is shorter than the time between two of them",
            };
            self.notes.miss(why);
            return if self.json { self.write_json(whole, end) } else { Ok(()) };
        }
        if self.json {
            return self.write_json(whole, end);
        }
        if let Some(form) = self.form {
            return self.write_stacks(form);
        }
        let by = self.table.by();
        let (unit, total) = (self.unit(), self.has_total());
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
        form.write(&mut self.out, &tree, (&self.image, "instructions"), false)
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
        if self.json {
            let (by, unit) = (self.table.by().word(), self.unit());
            let header =
                json!({ "type": "header", "image": run.image, "width": run.width, "by": by, "unit": unit });
            writeln!(self.out, "{header}")?;
        }
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

    fn end(&mut self, end: &End) -> io::Result<()> {
        let sample = self.samples.last();
        self.take(sample);
        self.write(end)?;
        self.out.flush()
    }
}
