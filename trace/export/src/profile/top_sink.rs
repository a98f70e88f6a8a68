//! The tables of `trapline top` as text or JSON, at intervals of virtual time and at the end: the same run gives the same bytes.

use std::io::{self, Write};

use serde_json::{Value, json};
use trapline_trace::{End, Kind, ProbeName, RecordView, Reply, RunInfo, Shown, Sink, Symbolize};

use super::sink::clean;
use super::table::{Count, Table};
use super::top::{Moment, Top};
use super::{grouped, percent};

/// When tables are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Every {
    /// At each tick of this name, such as `tick-1000ns`, and at the end.
    Tick(String),
    /// At the end only.
    End,
}

/// The form of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopForm {
    /// For people.
    Text,
    /// One JSON object a table, with a header line and an end line.
    Json,
}

/// Writes the tables.
#[derive(Debug)]
pub struct TopSink<W> {
    out: W,
    top: Top,
    every: Every,
    form: TopForm,
    /// Rows of a table, at most.
    rows: usize,
}

impl<W: Write> TopSink<W> {
    /// Writes at most `rows` rows a table.
    pub fn new(out: W, every: Every, form: TopForm, rows: usize) -> Self {
        Self { out, top: Top::default(), every, form, rows }
    }

    /// Whether a table is due at this record.
    fn is_due(&self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> bool {
        let Every::Tick(tick) = &self.every else { return false };
        let probe = || symbols.probe(record.header.probe);
        record.header.kind == Kind::Data && probe().is_some_and(|probe| is_tick(probe.name, tick))
    }
}

/// Whether a probe is the provider's tick of this name.
fn is_tick(name: &ProbeName, tick: &str) -> bool {
    *name.provider == *"profile" && *name.name == *tick
}

/// Virtual time in seconds.
fn seconds(ns: u64) -> String {
    format!("{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// Writes the counts since the last refresh, and in all.
fn write_table(out: &mut impl Write, top: &Top, form: TopForm, rows: usize, when: &str) -> io::Result<()> {
    match form {
        TopForm::Json => writeln!(out, "{}", object("top", top, rows)),
        TopForm::Text => {
            let (now, from) = (top.now(), top.refreshed());
            let insns = grouped(now.icount.saturating_sub(from.icount));
            let samples = grouped(top.functions.sum().now);
            let busy = now.busy_since(from);
            writeln!(
                out,
                "{when}: {insns} instructions since the last table, busy {busy:.1}%, {samples} samples"
            )?;
            for table in [&top.functions, &top.processes] {
                writeln!(out, "\n    now  in all  {}", table.by().word())?;
                for (name, count) in table.hottest().into_iter().take(rows) {
                    let [now, all] = shares(table, count);
                    writeln!(out, "{now:6.2}% {all:6.2}%  {}", clean(name))?;
                }
            }
            writeln!(out)
        }
    }
}

/// The shares of a row since the last refresh, and in all.
fn shares(table: &Table, count: Count) -> [f64; 2] {
    let sum = table.sum();
    [percent(count.now, sum.now), percent(count.all, sum.all)]
}

/// Writes the counts of the whole run, or since the last reset, as text.
///
/// # Errors
/// The output cannot be written.
pub fn write_total(out: &mut impl Write, top: &Top, rows: usize) -> io::Result<()> {
    let (now, base) = (top.now(), top.base());
    let (icount, time_ns) =
        (now.icount.saturating_sub(base.icount), now.time_ns.saturating_sub(base.time_ns));
    let busy = now.busy_since(base);
    let samples = grouped(top.functions.sum().all);
    let (insns, time) = (grouped(icount), seconds(time_ns));
    writeln!(out, "In all: {insns} instructions in {time}, busy {busy:.1}%, {samples} samples")?;
    for table in [&top.functions, &top.processes] {
        writeln!(out, "\nsamples    share  {}", table.by().word())?;
        for (name, count) in table.hottest_in_all().into_iter().take(rows) {
            let [_, share] = shares(table, count);
            writeln!(out, "{:>7} {share:7.2}%  {}", grouped(count.all), clean(name))?;
        }
    }
    Ok(())
}

/// The counts as an object.
fn object(kind: &str, top: &Top, rows: usize) -> Value {
    let list = |table: &Table, hottest: Vec<(&str, Count)>| -> Value {
        let row = |(name, count): (&str, Count)| json!({ table.by().word(): name, "now": count.now, "all": count.all });
        hottest.into_iter().take(rows).map(row).collect()
    };
    let sorted = |table: &Table| match kind {
        "top" => list(table, table.hottest()),
        _ => list(table, table.hottest_in_all()),
    };
    json!({
        "type": kind,
        "icount": top.now().icount,
        "time_ns": top.now().time_ns,
        "since_icount": top.refreshed().icount,
        "since_time_ns": top.refreshed().time_ns,
        "samples": top.functions.sum().all,
        "samples_now": top.functions.sum().now,
        "functions": sorted(&top.functions),
        "processes": sorted(&top.processes),
    })
}

impl<W: Write> Sink for TopSink<W> {
    fn begin(&mut self, run: &RunInfo) -> io::Result<()> {
        if self.form == TopForm::Json {
            let header = json!({ "type": "header", "image": run.image, "width": run.width });
            writeln!(self.out, "{header}")?;
        }
        Ok(())
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        if self.is_due(record, symbols) {
            let now = Moment { icount: record.header.icount, time_ns: record.header.time_ns };
            self.top.reach(now);
            let when = format!("At {}", seconds(now.time_ns));
            write_table(&mut self.out, &self.top, self.form, self.rows, &when)?;
            self.top.refresh();
        } else if let Some(sample) = self.top.take(record, symbols) {
            self.top.count(&sample);
        }
        Ok(())
    }

    fn d(&mut self, _: &Shown) -> io::Result<()> {
        Ok(())
    }

    fn reply(&mut self, _: &Reply) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, end: &End) -> io::Result<()> {
        self.top.end(end);
        match self.form {
            TopForm::Text => write_total(&mut self.out, &self.top, self.rows)?,
            TopForm::Json => {
                let mut object = object("end", &self.top, self.rows);
                if let Value::Object(members) = &mut object {
                    members.insert("insns".to_owned(), json!(end.insns));
                    members.insert("exit".to_owned(), json!(end.exit));
                    members.extend(end.extra.iter().filter(|(name, _)| name == "reason").cloned());
                }
                writeln!(self.out, "{object}")?;
            }
        }
        self.out.flush()
    }
}
