//! Where each column of the list of hits is.

use super::App;
use crate::hits::Column;

/// Characters before the first column: the mark of the hit where one is.
pub const MARK: usize = 2;
/// Characters of the probe's name, at least and at most, where another column follows.
const PROBE: (usize, usize) = (20, 50);

/// A column's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Which.
    pub column: Column,
    /// Characters. Those of the last column are not cut.
    pub width: usize,
    /// Whether it is at the right of its place.
    pub right: bool,
    /// Whether it is the last.
    pub last: bool,
}

/// Characters of a column; none if they depend on the room.
const fn width_of(column: Column) -> Option<usize> {
    match column {
        Column::Hit => Some(8),
        Column::Position => Some(14),
        Column::Process | Column::Address => Some(18),
        Column::Program => Some(16),
        Column::Record => Some(24),
        Column::Probe => None,
    }
}

impl App {
    /// The columns of the list in so much room.
    pub fn cells(&self, room: usize) -> Vec<Cell> {
        let count = self.columns.len();
        let fixed = |(n, column): (usize, &Column)| width_of(*column).filter(|_| n + 1 < count);
        let taken: usize = self.columns.iter().enumerate().filter_map(fixed).sum();
        let probe = (room.saturating_sub(MARK + taken) / 2).clamp(PROBE.0, PROBE.1);
        let cell = |(n, column): (usize, &Column)| Cell {
            column: *column,
            width: width_of(*column).unwrap_or(probe),
            right: matches!(column, Column::Hit | Column::Position),
            last: n + 1 == count,
        };
        self.columns.iter().enumerate().map(cell).collect()
    }

    /// The column at a character of a row, in so much room.
    pub(super) fn column_at(&self, room: usize, character: usize) -> Option<Column> {
        let mut end = MARK;
        let cells = self.cells(room);
        let found = cells.iter().find(|cell| {
            end += cell.width + 1;
            character < end || cell.last
        });
        found.map(|cell| cell.column)
    }
}
