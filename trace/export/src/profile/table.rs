//! A table of what was counted, by function, line, process or module.

use std::collections::{BTreeMap, BTreeSet};

use super::UNKNOWN;
use super::samples::Sample;

/// What a table counts by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// The function of the instruction.
    Function,
    /// Its source line.
    Line,
    /// The process that ran it.
    Process,
    /// The kernel, the kernel module or the file that it is in.
    Module,
}

impl By {
    /// The heading of its column.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Line => "line",
            Self::Process => "process",
            Self::Module => "module",
        }
    }

    /// Whether a table by it tells with which share a row was on the stack.
    #[must_use]
    pub const fn has_total(self) -> bool {
        matches!(self, Self::Function)
    }

    /// The row of a sample.
    fn row(self, sample: &Sample) -> String {
        match self {
            Self::Function => sample.function.clone(),
            Self::Line => match &sample.line {
                Some(line) => line.clone(),
                None => format!("{} (no line known)", sample.function),
            },
            Self::Process => process(sample.pid, &sample.task),
            Self::Module => sample.module.clone(),
        }
    }
}

/// A process, for a person.
pub(crate) fn process(pid: u32, name: &str) -> String {
    match (pid, name) {
        (0, "") => UNKNOWN.to_owned(),
        (pid, "") => format!("{UNKNOWN} ({pid})"),
        (pid, name) => format!("{name} ({pid})"),
    }
}

/// What was counted in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Since the last refresh.
    pub now: u64,
    /// In all.
    pub all: u64,
    /// In all, with what the row has called.
    pub total: u64,
}

/// Counts by row.
#[derive(Debug, Clone)]
pub struct Table {
    by: By,
    rows: BTreeMap<String, Count>,
    sum: Count,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub const fn new(by: By) -> Self {
        Self { by, rows: BTreeMap::new(), sum: Count { now: 0, all: 0, total: 0 } }
    }

    /// What it counts by.
    #[must_use]
    pub const fn by(&self) -> By {
        self.by
    }

    /// Counts a sample.
    pub fn add(&mut self, sample: &Sample) {
        let row = self.by.row(sample);
        if self.by.has_total() {
            let others: BTreeSet<&str> =
                sample.callers.iter().map(String::as_str).filter(|caller| *caller != row).collect();
            for caller in others {
                self.row(caller).total += 1;
            }
        }
        self.count(&row, 1);
    }

    /// Adds to a row.
    pub fn count(&mut self, row: &str, weight: u64) {
        for count in [&mut self.sum, self.rows.entry(row.to_owned()).or_default()] {
            count.now = count.now.saturating_add(weight);
            count.all = count.all.saturating_add(weight);
            count.total = count.total.saturating_add(weight);
        }
    }

    fn row(&mut self, name: &str) -> &mut Count {
        self.rows.entry(name.to_owned()).or_default()
    }

    /// The sum of all rows. Each sample is in one row, so `total` is `all`.
    #[must_use]
    pub const fn sum(&self) -> Count {
        self.sum
    }

    /// The rows: the hottest since the last refresh first, then the hottest in all, then by name.
    #[must_use]
    pub fn hottest(&self) -> Vec<(&str, Count)> {
        self.sorted(|count| (count.now, count.all))
    }

    /// The rows: the hottest in all first, then by name.
    #[must_use]
    pub fn hottest_in_all(&self) -> Vec<(&str, Count)> {
        self.sorted(|count| (count.all, count.total))
    }

    fn sorted(&self, key: impl Fn(&Count) -> (u64, u64)) -> Vec<(&str, Count)> {
        let mut rows: Vec<(&str, Count)> =
            self.rows.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        // Rows are by name before, and the sort is stable.
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(key(count)));
        rows
    }

    /// From here on it is a new refresh.
    pub fn refresh(&mut self) {
        self.sum.now = 0;
        self.rows.values_mut().for_each(|count| count.now = 0);
    }

    /// Forgets all counts.
    pub fn reset(&mut self) {
        *self = Self::new(self.by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(function: &str, callers: &[&str]) -> Sample {
        let callers = callers.iter().map(|caller| (*caller).to_owned()).collect();
        Sample { function: function.to_owned(), callers, ..Sample::default() }
    }

    #[test]
    fn a_function_that_calls_itself_is_counted_once_a_sample() {
        let mut table = Table::new(By::Function);
        table.add(&sample("f", &["f", "g", "f", "g"]));
        table.add(&sample("g", &[]));
        let rows: Vec<(&str, u64, u64)> =
            table.hottest_in_all().into_iter().map(|(name, count)| (name, count.all, count.total)).collect();
        assert_eq!(rows, [("g", 1, 2), ("f", 1, 1)]);
        assert_eq!(table.sum(), Count { now: 2, all: 2, total: 2 });
    }

    #[test]
    fn a_refresh_and_a_reset_forget_what_they_say() {
        let mut table = Table::new(By::Process);
        table.count("a", 5);
        table.refresh();
        table.count("b", 2);
        assert_eq!(table.hottest().iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(table.hottest_in_all().iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((table.sum().now, table.sum().all), (2, 7));
        table.reset();
        assert!(table.hottest().is_empty() && table.sum() == Count::default());
    }
}
