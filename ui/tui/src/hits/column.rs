//! The columns of the list of hits, and what the list can be sorted by.

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// The number of the hit, from 1.
    Hit,
    /// Instructions retired before it.
    Position,
    /// Process id and name.
    Process,
    /// The program of the probe.
    Program,
    /// The probe.
    Probe,
    /// The linear address.
    Address,
    /// The logged data.
    Record,
}

/// All columns.
pub const COLUMNS: [Column; 7] = [
    Column::Hit,
    Column::Position,
    Column::Process,
    Column::Program,
    Column::Probe,
    Column::Address,
    Column::Record,
];

/// The columns that are shown, unless others are chosen.
pub const SHOWN: [Column; 5] =
    [Column::Hit, Column::Position, Column::Process, Column::Probe, Column::Record];

/// A list of columns is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// There is no such column.
    #[error("there is no column `{0}`; the columns are {all}", all = names(&COLUMNS))]
    Unknown(String),
    /// One is there twice.
    #[error("the column `{0}` is there twice; write it once")]
    Twice(String),
    /// There are none.
    #[error("the list needs a column; the columns are {all}", all = names(&COLUMNS))]
    None,
}

impl Column {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Position => "position",
            Self::Process => "process",
            Self::Program => "program",
            Self::Probe => "probe",
            Self::Address => "address",
            Self::Record => "record",
        }
    }

    /// Whether its order is that of the run.
    pub const fn is_run_order(self) -> bool {
        matches!(self, Self::Hit | Self::Position)
    }

    /// The column of a name.
    ///
    /// # Errors
    /// There is no such column.
    pub fn named(name: &str) -> Result<Self, ColumnsError> {
        let found = COLUMNS.into_iter().find(|column| column.name() == name);
        found.ok_or_else(|| ColumnsError::Unknown(name.to_owned()))
    }
}

/// The names of columns.
pub fn names(columns: &[Column]) -> String {
    columns.iter().map(|column| column.name()).collect::<Vec<_>>().join(" ")
}

/// Reads names of columns.
///
/// # Errors
/// One is no column or is there twice, or there are none.
pub fn columns(text: &str) -> Result<Vec<Column>, ColumnsError> {
    let mut columns = Vec::new();
    for name in text.split_whitespace() {
        let column = Column::named(name)?;
        if columns.contains(&column) {
            return Err(ColumnsError::Twice(name.to_owned()));
        }
        columns.push(column);
    }
    if columns.is_empty() { Err(ColumnsError::None) } else { Ok(columns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_as_they_are_written() {
        for shown in [&COLUMNS[..], &SHOWN, &[Column::Record]] {
            assert_eq!(columns(&names(shown)).unwrap(), shown);
        }
        assert_eq!(columns("hit pid"), Err(ColumnsError::Unknown("pid".to_owned())));
        assert_eq!(columns("hit probe hit"), Err(ColumnsError::Twice("hit".to_owned())));
        assert_eq!(columns(" "), Err(ColumnsError::None));
    }
}
