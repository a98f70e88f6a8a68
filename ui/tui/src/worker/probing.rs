//! Other probes for the whole run: the timeline of the same run with them, at the same position. The guest takes the same course,
//! since they only observe.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use trapline_providers::Clause;
use trapline_session::{
    Command, Ending, How, Layer, Moment, Position, Reply, Row, Timeline, TravelError, Wanted,
};

use super::Again;
use crate::message::{Listing, More, Typed, Wish};

/// How long to sleep between two looks at what another thread has done.
const PAUSE: Duration = Duration::from_millis(5);
/// Fields of a probe's name.
const FIELDS: usize = 4;
/// Names that are found for a text, at most.
const MOST_NAMES: usize = 200;
/// Endings of the files of programs.
const FILES: [&str; 3] = [".rpn", ".ppdf", ".d"];

const RECORDED: &str = "a recording repeats its own input; type at a live run";
const WRITES: &str =
    "this program writes to the guest, which would change the run; add a program that only observes";
const SWITCHES: &str =
    "a program of this run writes to the guest; switching a probe point would change the run";

/// What the run has more than at first, and how it is made again.
pub struct Prober {
    again: Arc<dyn Again>,
    /// Whether it is a live run.
    live: bool,
    cancel: Arc<AtomicBool>,
    /// What the run has more.
    pub more: More,
    /// Where a live run has ended.
    pub end: Option<(Moment, Ending)>,
    /// How many times the run was changed.
    changes: u32,
}

impl Prober {
    /// As the run is at first. The flag cancels what the timelines do.
    pub fn new(again: Arc<dyn Again>, live: bool, cancel: Arc<AtomicBool>) -> Self {
        Self { again, live, cancel, more: More::default(), end: None, changes: 0 }
    }

    /// The run has changed: the order to list it anew.
    pub fn listing(&mut self, timeline: &mut Timeline) -> Listing {
        self.changes += 1;
        let (more, end) = (self.more.clone(), self.end.clone());
        Listing { number: self.changes, more, end, layer: timeline.layer() }
    }

    /// Waits until what lists the hits has come past an instruction count.
    ///
    /// # Errors
    /// It was cancelled.
    pub fn wait_for(&self, layer: &Layer, at: u64) -> Result<(), TravelError> {
        while layer.reached() <= at {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(TravelError::Interrupted);
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Types at the console where the timeline is: from here on the run is another one. What was typed later is gone; what was
    /// typed at this instruction comes before.
    ///
    /// # Errors
    /// A sentence that says why not.
    pub fn type_here(&mut self, timeline: &mut Timeline, bytes: Vec<u8>) -> Result<(), String> {
        if !self.live {
            return Err(RECORDED.to_owned());
        }
        let at = timeline.session().icount();
        // A guest that waits for an interrupt is woken.
        if let Some((end, ending)) = self.end.as_ref().filter(|(_, ending)| *ending != Ending::Halted)
            && at >= end.icount
        {
            return Err(format!(
                "the run ends here, so nothing reads what is typed ({ending}); go back first"
            ));
        }
        let mut typed: Vec<Typed> = self.more.typed.iter().filter(|typed| typed.at < at).cloned().collect();
        let before = self.more.typed.iter().filter(|typed| typed.at == at).flat_map(|typed| &typed.bytes);
        let here = Typed { at, bytes: before.copied().chain(bytes).collect() };
        // To the first moment with this count, before what comes in there.
        timeline.goto(Position::At { icount: at, ordinal: 0 }).map_err(|error| error.to_string())?;
        timeline.apply(here.command()).map_err(|error| error.to_string())?;
        typed.push(here);
        (self.more.typed, self.end) = (typed, None);
        Ok(())
    }

    /// The timeline with other probes, at its beginning, and the commands that it has more.
    ///
    /// # Errors
    /// A sentence that says why the run cannot have them.
    pub fn probe(&self, wish: &Wish, old: &Timeline) -> Result<(Timeline, Vec<Command>), String> {
        let again = self.again.as_ref();
        let commands = self.with(wish, again)?;
        let mut timeline = again.timeline(&commands)?.cancelled_by(Arc::clone(&self.cancel));
        match (wish, commands.last()) {
            (Wish::Add(_), Some(added)) if !again.observes(added) => return Err(WRITES.to_owned()),
            (Wish::Switch(..), _) if !(old.session().observe_only() && timeline.session().observe_only()) => {
                return Err(SWITCHES.to_owned());
            }
            _ => {}
        }
        for typed in &self.more.typed {
            let there = Position::At { icount: typed.at, ordinal: 0 };
            timeline.goto(there).map_err(|error| error.to_string())?;
            timeline.apply(typed.command()).map_err(|error| error.to_string())?;
        }
        if let Some((at, ending)) = &self.end {
            timeline.ends_at(*at, Some(ending.clone()));
        }
        Ok((timeline, commands))
    }

    fn with(&self, wish: &Wish, again: &dyn Again) -> Result<Vec<Command>, String> {
        let mut more = self.more.commands.clone();
        match wish {
            Wish::Add(text) if FILES.iter().any(|ending| text.ends_with(ending)) => {
                more.push(again.program(text)?);
            }
            Wish::Add(text) if Clause::is_bare(text) || (Clause::is_rpn(text) && !calls(text)) => {
                more.push(Command::clause(text));
            }
            Wish::Add(text) => more.push(again.clauses(text)?),
            Wish::Type(_) => {}
            Wish::Switch(selection, on) => {
                let same = |command: &Command| matches!(command, Command::Switch { points, .. } if points == selection);
                more.retain(|command| !same(command));
                more.push(Command::Switch { points: selection.clone(), on: *on });
            }
        }
        Ok(more)
    }
}

/// Whether an action of a clause is a call, as in D: `exit(0);`. RPN has none, but reads this as `exit 0`.
fn calls(text: &str) -> bool {
    let is_call = |action: &str| {
        let action = action.trim_start();
        let end = action.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(action.len());
        let (name, rest) = action.split_at(end);
        // `push (1 + 2)` is RPN.
        let rest = if name == "exit" { rest.trim_start() } else { rest };
        !name.is_empty() && rest.starts_with('(')
    };
    text.split(['{', ';', '}']).skip(1).any(is_call)
}

/// What the beginning of a clause may become: names of probes, one field after the other.
pub fn complete(timeline: &mut Timeline, text: &str) -> Vec<String> {
    let from = text.rfind([',', ' ']).map_or(0, |at| at + 1);
    let (before, spec) = text.split_at(from);
    let fields: Vec<&str> = spec.split(':').collect();
    let Some(empty) = FIELDS.checked_sub(fields.len()).filter(|_| !text.contains(['{', '/'])) else {
        return Vec::new();
    };
    let wanted = Wanted::Named(format!("{spec}*{}", ":".repeat(empty)));
    let list = Command::List { wanted, how: How::default() };
    let Ok(Reply::List { rows, .. }) = timeline.apply(list).map(|applied| applied.reply) else {
        return Vec::new();
    };
    let (done, last) =
        spec.rsplit_once(':').map_or((String::new(), spec), |(done, last)| (format!("{done}:"), last));
    let colon = if empty > 0 { ":" } else { "" };
    let name = |row: &Row| {
        let Row::Probe(probe) = row else { return None };
        let own = [&probe.provider, &probe.module, &probe.function, &probe.name];
        let value = own.get(fields.len() - 1).filter(|value| value.starts_with(last))?;
        Some(format!("{before}{done}{value}{colon}"))
    };
    let names: BTreeSet<String> = rows.items().iter().filter_map(name).collect();
    names.into_iter().take(MOST_NAMES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_d() {
        for d in ["fbt::do_fork:entry { exit(0); }", "BEGIN { exit(3); }", "a:b:c:d { x; exit (1) }"] {
            assert!(calls(d), "{d}");
        }
        for rpn in
            ["fbt::do_fork:entry { push pid; log 1 }", "a:b:c:d { push (1+2); exit 2 }", "fbt::f(x):entry"]
        {
            assert!(!calls(rpn), "{rpn}");
        }
    }
}
