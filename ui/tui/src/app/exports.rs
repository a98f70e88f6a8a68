//! Exports: which rows of a pane are written, and how far that is.

use std::path::{Path, PathBuf};

use super::{App, Effect, Pane};
use crate::hits::Sorted;

/// An export that takes long enough to show its progress: rows.
const MANY: usize = 20_000;

/// The text of a pane on its way to a file.
#[derive(Debug, Clone)]
pub struct Export {
    /// The pane.
    pub pane: Pane,
    /// The file.
    pub path: PathBuf,
    /// The next row.
    pub next: usize,
    /// How many there are.
    pub all: usize,
    /// The state of what is written: it must stay the same.
    state: ExportState,
}

/// How often the rows were chosen or ordered, how many are sorted, and the position.
type ExportState = (u64, Option<usize>, Option<(u64, u64)>);

impl App {
    /// Begins an export of so many rows.
    pub fn begin_export(&mut self, pane: Pane, path: PathBuf, all: usize) {
        self.export = Some(Export { pane, path, next: 0, all, state: self.export_state(pane) });
    }

    fn export_state(&self, pane: Pane) -> ExportState {
        let at =
            self.scene.as_ref().map(|scene| (scene.at, scene.handler.as_ref().map_or(0, |own| own.executed)));
        match pane {
            Pane::Hits => (self.orders, self.sorted.as_ref().map(Sorted::len), None),
            _ => (0, None, at),
        }
    }

    /// The row of a pane that is to be written next. It is none if there is no export, or the rows are others now.
    pub fn export_next(&mut self) -> Option<(Pane, usize)> {
        let export = self.export.as_ref()?;
        if self.export_state(export.pane) != export.state {
            let (name, rows) = (export.pane.name(), export.next);
            let text = format!("{name} has changed: {} has its first {rows} rows", export.path.display());
            self.export = None;
            self.message = Some(text);
            return None;
        }
        Some((export.pane, export.next))
    }

    /// Whether so many rows more are all that are left.
    pub fn exports_last(&self, rows: usize) -> bool {
        self.export.as_ref().is_some_and(|export| export.next + rows >= export.all)
    }

    /// So many rows more are on their way.
    pub fn exported(&mut self, rows: usize) {
        let Some(export) = &mut self.export else { return };
        export.next += rows;
        if export.all >= MANY {
            let percent = export.next.min(export.all) * 100 / export.all;
            self.message = Some(format!("writing {}: {percent} % (Esc ends it)", export.path.display()));
        }
        if export.next >= export.all {
            self.export = None;
        }
    }

    /// The file is written as a whole, or cannot be.
    pub(super) fn file_written(&mut self, path: &Path, wrote: Result<(), String>) -> Vec<Effect> {
        match wrote {
            Ok(()) => self.say(format!("written to {}", path.display())),
            Err(error) => {
                self.export = None;
                self.say(format!("{} cannot be written: {error}", path.display()))
            }
        }
    }

    /// Ends an export early; whether there was one.
    pub(super) fn stop_export(&mut self) -> bool {
        let Some(export) = self.export.take() else { return false };
        let (name, rows) = (export.path.display(), export.next);
        self.message = Some(format!("stopped: {name} has its first {rows} rows"));
        true
    }
}
