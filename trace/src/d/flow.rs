//! `-F`: entries and returns of functions, indented, with how long each call took.
//!
//! As in dtrace(1), the indentation follows the order of the records, not the threads. Durations do follow the threads,
//! as far as the records know them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::values::Firing;

/// Columns of a function with its indentation.
const COLUMNS: usize = 41;
/// Columns of each level.
const STEP: usize = 2;
/// Most columns of indentation: what is called deeper stands below it.
const MOST_INDENT: usize = STEP * MOST_CALLS;
/// Most calls of a thread that are waited for: a function that never returns must not fill the memory.
const MOST_CALLS: usize = 1024;

/// Most threads whose calls are waited for. The calls of further ones have no duration.
const MOST_THREADS: usize = 1 << 16;

/// What a record says about the flow of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Entry,
    Return,
    Neither,
}

/// The calls that have been entered.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    indent: usize,
    /// The firing of the last record: a further clause of the same one neither enters nor returns.
    last: Option<(u32, u64)>,
    /// By thread: the functions that have been entered, and when.
    calls: BTreeMap<u64, Vec<(String, u64)>>,
}

impl Flow {
    /// The function column of a record, and how long the call took that it ends, in nanoseconds.
    pub fn column(&mut self, firing: Firing<'_>) -> (String, Option<u64>) {
        let (arrow, duration) = self.arrow(firing);
        let name = if arrow.ends_with("| ") { format!(":{}", firing.name.name) } else { String::new() };
        let shown = format!("{arrow}{}{name}", firing.name.function);
        (format!("{shown:<COLUMNS$} "), duration)
    }

    /// The indentation and the arrow before the function of a record, `-> `, `<- ` or `| `, and how long the call took that
    /// it ends.
    pub fn arrow(&mut self, firing: Firing<'_>) -> (String, Option<u64>) {
        let provider = firing.name.provider.as_ref();
        let again = self.last.replace((firing.id, firing.time)) == Some((firing.id, firing.time));
        let step = match firing.name.name.as_ref() {
            _ if again => Step::Neither,
            "entry" => Step::Entry,
            "return" => Step::Return,
            // As in dtrace(1); but the end of a process is the return of no function.
            "exit" if provider != "proc" => Step::Return,
            _ => Step::Neither,
        };
        let call = provider == "syscall";
        let mut duration = None;
        let shown = match step {
            Step::Entry => {
                let shown = format!("{} {}> ", self.blanks(), dash(call));
                self.indent += STEP;
                self.enter(firing);
                shown
            }
            Step::Return => {
                self.indent = self.indent.saturating_sub(STEP);
                duration = self.leave(firing);
                format!("{} <{} ", self.blanks(), dash(call))
            }
            Step::Neither => format!("{}| ", self.blanks()),
        };
        (shown, duration)
    }

    fn blanks(&self) -> String {
        " ".repeat(self.indent.min(MOST_INDENT))
    }

    fn enter(&mut self, firing: Firing<'_>) {
        if self.calls.len() >= MOST_THREADS && !self.calls.contains_key(&firing.thread) {
            return;
        }
        let calls = self.calls.entry(firing.thread).or_default();
        if calls.len() < MOST_CALLS {
            calls.push((firing.name.function.to_string(), firing.time));
        }
    }

    fn leave(&mut self, firing: Firing<'_>) -> Option<u64> {
        let calls = self.calls.get_mut(&firing.thread)?;
        // Calls above it have ended without a return that is probed.
        let at = calls.iter().rposition(|(function, _)| **function == *firing.name.function)?;
        let (_, entered) = calls.drain(at..).next()?;
        if calls.is_empty() {
            self.calls.remove(&firing.thread);
        }
        firing.time.checked_sub(entered)
    }
}

fn dash(call: bool) -> char {
    if call { '=' } else { '-' }
}

/// The heading above the records.
pub(super) fn heading() -> String {
    format!("{:<COLUMNS$}\n", "FUNCTION")
}

/// A duration with the unit that suits it.
pub(crate) fn duration(nanoseconds: u64) -> String {
    let mut text = String::new();
    let (unit, name) = match nanoseconds {
        0..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let _ = match unit {
        1 => write!(text, " {nanoseconds} ns"),
        _ => write!(text, " {}.{:03} {name}", nanoseconds / unit, nanoseconds % unit / (unit / 1_000)),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::ProbeName;
    use std::sync::Arc;

    fn firing(name: &ProbeName, id: u32, time: u64) -> Firing<'_> {
        Firing { name, id, clause: 0, time, thread: 1, symbols: &|_: u64| -> Option<String> { None } }
    }

    fn probe(function: &str, name: &str) -> ProbeName {
        let part = |text: &str| -> Arc<str> { Arc::from(text) };
        ProbeName { provider: part("fbt"), module: part("m"), function: part(function), name: part(name) }
    }

    #[test]
    fn what_is_waited_for_is_bounded() {
        let (entry, back) = (probe("f", "entry"), probe("f", "return"));
        let mut flow = Flow::default();
        for thread in 0..2 * MOST_THREADS as u64 {
            flow.arrow(Firing { thread, ..firing(&entry, 1, thread) });
        }
        assert_eq!(flow.calls.len(), MOST_THREADS);
        let last = 2 * MOST_THREADS as u64 - 1;
        assert_eq!(flow.arrow(Firing { thread: last, ..firing(&back, 2, 1 << 20) }).1, None);
        assert_eq!(flow.arrow(Firing { thread: 7, ..firing(&back, 3, 1 << 20) }).1, Some((1 << 20) - 7));
    }

    #[test]
    fn calls_are_indented_and_timed() {
        let mut flow = Flow::default();
        let (outer, inner) = (probe("outer", "entry"), probe("inner", "entry"));
        let (left, back) = (probe("inner", "return"), probe("outer", "return"));
        let mut shown = Vec::new();
        for (n, name) in [&outer, &inner, &left, &back].into_iter().enumerate() {
            let (column, took) = flow.column(firing(name, n as u32, n as u64 * 1500));
            shown.push((column.trim_end().to_owned(), took.map(duration)));
        }
        let took = |text: &str| Some(text.to_owned());
        assert_eq!(
            shown,
            [
                (" -> outer".to_owned(), None),
                ("   -> inner".to_owned(), None),
                ("   <- inner".to_owned(), took(" 1.500 us")),
                (" <- outer".to_owned(), took(" 4.500 us")),
            ]
        );
    }

    #[test]
    fn a_second_clause_of_a_firing_is_not_a_second_call() {
        let mut flow = Flow::default();
        let name = probe("f", "entry");
        assert_eq!(flow.column(firing(&name, 4, 9)).0.trim_end(), " -> f");
        assert_eq!(flow.column(firing(&name, 4, 9)).0.trim_end(), "  | f:entry");
    }
}
