//! The rows of the list of hits: which hits are shown, in the order of the run, and how they are sorted.

use super::{App, Effect};
use crate::hits::{Column, SHOWN, Sorted, TAKEN, columns, free_later};

/// Hits that a filter checks in a step, at most.
const LOOKED: usize = 5_000;

impl App {
    /// The number of hits that are shown.
    pub fn shown(&self) -> usize {
        self.filter.as_ref().map_or_else(|| self.run.hits.len(), |filter| filter.rows().len())
    }

    /// The number of one of the hits that are shown, in the order of the run.
    pub(super) fn shown_hit(&self, nth: usize) -> Option<usize> {
        match &self.filter {
            Some(filter) => filter.rows().get(nth).map(|number| number as usize),
            None => Some(nth).filter(|nth| *nth < self.run.hits.len()),
        }
    }

    /// How many of the hits that are shown come before this one.
    pub(super) fn shown_before(&self, hit: usize) -> usize {
        match &self.filter {
            Some(filter) => filter.rows().before(hit),
            None => hit,
        }
    }

    /// The number of rows of the list.
    pub fn rows(&self) -> usize {
        self.sorted.as_ref().map_or_else(|| self.shown(), Sorted::len)
    }

    /// The numbers of the hits of so many rows.
    pub fn hits_of(&self, first: usize, count: usize) -> Vec<usize> {
        match &self.sorted {
            Some(sorted) => sorted.rows(first, count),
            None => (first..first.saturating_add(count)).map_while(|nth| self.shown_hit(nth)).collect(),
        }
    }

    /// The number of the hit of a row.
    pub fn hit_of(&self, row: usize) -> Option<usize> {
        self.hits_of(row, 1).first().copied()
    }

    /// The row of a hit, or of the next one that is shown.
    pub fn row_of(&self, hit: usize) -> usize {
        match &self.sorted {
            Some(sorted) => sorted.row_of(&self.run.hits, hit),
            None => self.shown_before(hit),
        }
    }

    /// Continues work that is done in small steps; returns whether there is more to do. The selected hit stays selected.
    pub fn tick(&mut self) -> bool {
        let Self { filter, sorted, run, .. } = self;
        let more = filter.as_mut().is_some_and(|filter| filter.look(&run.hits, LOOKED));
        let Some(taken) = sorted.as_ref().map(Sorted::len) else { return more };
        let selected = self.hit_of(self.selected.row).filter(|_| self.selected.row > 0);
        let Self { filter, sorted, run, .. } = self;
        let shown = filter.as_ref().map(|filter| filter.rows());
        let unsorted = sorted.as_mut().is_some_and(|sorted| sorted.take(&run.hits, shown, TAKEN));
        if let Some(hit) = selected.filter(|_| self.rows() > taken) {
            self.selected.row = self.row_of(hit);
        }
        more || unsorted
    }

    /// Other hits are shown: sorts anew by the same column.
    pub(super) fn sort_again(&mut self) {
        self.orders += 1;
        if let Some(old) = self.sorted.take() {
            self.sorted = Some(Sorted::new(old.by(), old.descending()));
            free_later(old);
        }
    }

    /// Sorts by a column.
    pub(super) fn sort_by(&mut self, by: Column, descending: bool) -> Vec<Effect> {
        let in_order = by.is_run_order() && !descending;
        self.orders += 1;
        let new = (!in_order).then(|| Sorted::new(by, descending));
        free_later(std::mem::replace(&mut self.sorted, new));
        self.selected.row = 0;
        let direction = if descending { ", the last first" } else { "" };
        self.say(format!("sorted by {}{direction}", by.name()))
    }

    /// Whether it is sorted by a column. Hit and position are the order of the run.
    pub(super) fn is_sorted_by(&self, column: Column) -> bool {
        let by = self.sorted.as_ref().map_or(Column::Position, Sorted::by);
        by == column || (by.is_run_order() && column.is_run_order())
    }

    /// Sorts by the next column. Hit and position are the same order.
    pub(super) fn sort_by_next(&mut self) -> Vec<Effect> {
        let mut orders = vec![Column::Position];
        let others = self.columns.iter().filter(|column| !column.is_run_order());
        orders.extend(others);
        let by = self.sorted.as_ref().map_or(Column::Position, Sorted::by);
        let here = orders.iter().position(|column| *column == by).unwrap_or(0);
        let next = orders.get((here + 1) % orders.len()).copied().unwrap_or(Column::Position);
        self.sort_by(next, false)
    }

    /// Reverses the list.
    pub(super) fn turn(&mut self) -> Vec<Effect> {
        self.selected.row = 0;
        self.orders += 1;
        match &mut self.sorted {
            // In the order of the run, nothing is sorted.
            Some(sorted) if !sorted.by().is_run_order() => {
                sorted.turn();
                Vec::new()
            }
            sorted => {
                let descending = sorted.is_none();
                self.sort_by(Column::Position, descending)
            }
        }
    }

    /// Shows the columns that were typed; those of the beginning for an empty line.
    ///
    /// # Errors
    /// A sentence that says what is no column.
    pub(super) fn choose_columns(&mut self, text: &str) -> Result<Vec<Effect>, String> {
        self.orders += 1;
        self.columns = match text.is_empty() {
            true => SHOWN.to_vec(),
            false => columns(text).map_err(|error| error.to_string())?,
        };
        Ok(Vec::new())
    }
}
