//! Folded stacks, flame graphs and profiles of pprof as sinks.

use std::io::{self, Write};

use trapline_trace::{End, HeaderItems, RecordView, Reply, RunInfo, Shown, Sink, Symbolize};

use crate::notes::Notes;
use crate::pprof;
use crate::stacks::Stacks;
use crate::svg;
use crate::tree::Tree;
use crate::weight::Weight;

/// The form of stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlameForm {
    /// A line per stack.
    Folded,
    /// A flame graph.
    Svg,
    /// A profile of pprof.
    Pprof,
}

impl FlameForm {
    /// Writes stacks of an image whose weights have this unit, with those of the trace before if `both`.
    pub(crate) fn write(
        self,
        out: &mut dyn Write,
        tree: &Tree,
        (image, unit): (&str, &str),
        both: bool,
    ) -> io::Result<()> {
        match self {
            Self::Folded => tree.folded(both, |line| writeln!(out, "{line}")),
            Self::Svg => svg::write(out, tree, image, unit, both),
            Self::Pprof => pprof::write(out, tree, image, unit, both),
        }
    }
}

/// Writes the stacks of a run at its end.
#[derive(Debug)]
pub struct FlameSink<W> {
    out: W,
    form: FlameForm,
    items: HeaderItems,
    weight: Option<Weight>,
    stacks: Stacks,
    before: Option<Tree>,
    notes: Notes,
    image: String,
}

impl<W: Write> FlameSink<W> {
    /// A sink for records with these items. Without a weight it counts hits, or for calls instructions.
    pub fn new(out: W, form: FlameForm, items: HeaderItems, weight: Option<Weight>, notes: Notes) -> Self {
        let stacks = Stacks::new(weight.clone(), items);
        Self { out, form, items, weight, stacks, before: None, notes, image: String::new() }
    }

    /// Compares with the stacks of another run: folded stacks show both weights, a flame graph colours the difference.
    #[must_use]
    pub fn compared_with(self, before: Option<Tree>) -> Self {
        Self { before, ..self }
    }

    fn write(&mut self) -> io::Result<()> {
        let fresh = Stacks::new(self.weight.clone(), self.items);
        let (mut tree, unit) = match std::mem::replace(&mut self.stacks, fresh).finish(&self.notes) {
            Ok(found) => found,
            Err(none) => {
                self.notes.miss(none.to_string());
                return Ok(());
            }
        };
        if let Some(before) = &self.before {
            tree.compare_with(before);
        }
        self.form.write(&mut self.out, &tree, (&self.image, &unit), self.before.is_some())
    }
}

impl<W: Write> Sink for FlameSink<W> {
    fn begin(&mut self, run: &RunInfo) -> io::Result<()> {
        self.image.clone_from(&run.image);
        self.stacks.begin(run)
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        self.stacks.record(record, symbols)
    }

    fn d(&mut self, shown: &Shown) -> io::Result<()> {
        self.stacks.d(shown)
    }

    fn reply(&mut self, _: &Reply) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, end: &End) -> io::Result<()> {
        self.stacks.end(end)?;
        self.write()?;
        self.out.flush()
    }
}
