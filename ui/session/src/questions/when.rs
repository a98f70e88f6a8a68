//! The positions at which a condition on registers and memory becomes true.
//!
//! Each state of the span is checked: after every instruction, after every delivery of an exception or interrupt, and
//! after every input. No state is skipped, so it does not matter what may change the condition. The first
//! position is searched forwards, the last ones backwards from the end, stretch by stretch, until there are enough.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use serde::Serialize;
use trapline_providers::Target;

use super::condition::{self, Condition, Names};
use super::{QuestionError, Reader, timeline};
use crate::guest::Guest;
use crate::recording::{Position, Recording};
use crate::session::{CodeAddress, Session, registers};
use crate::timeline::{Between, Found, Timeline};

/// A position at which a condition becomes true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Turn {
    /// Number of instructions that had retired before; as a position of `--at`, the condition is not true there yet.
    pub position: u64,
    /// Virtual time after it, ns.
    pub virtual_ns: u64,
    /// The event that made it true.
    pub by: Between,
    /// The linear address of the instruction that made it true, or of the next instruction.
    pub ip: u64,
    /// Its symbol.
    pub symbol: Option<String>,
    /// The disassembled instruction.
    pub instruction: Option<String>,
    /// Process id of the task that ran before.
    pub pid: Option<u32>,
    /// Name of that task.
    pub task: Option<String>,
}

/// The positions in a span at which a condition becomes true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Turns {
    /// The condition.
    pub condition: String,
    /// The first instruction count that was checked.
    pub from: u64,
    /// The last one.
    pub to: u64,
    /// Whether it already holds at the first one, which is no turn. None if the search did not go back so far.
    pub held: Option<bool>,
    /// How often it became true. None if the search ended with the requested number: there may be earlier ones.
    pub count: Option<u64>,
    /// The last of them, oldest first.
    pub last: Vec<Turn>,
}

/// The part of a recording to search, and the wanted answers.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Its start; none for the beginning of the recording.
    pub from: Option<Position>,
    /// Its end; none for the end of the recording.
    pub to: Option<Position>,
    /// Whether the first answer is enough.
    pub first: bool,
    /// How many of the last answers are wanted: at least 1.
    pub most: usize,
}

/// Finds the positions at which a condition becomes true: it is false before and true after.
///
/// # Errors
/// The text is not a condition, there is no such position, or the recording cannot be followed.
pub fn when(guest: &Guest, recording: &Recording, text: &str, span: Span) -> Result<Turns, QuestionError> {
    let mut timeline = timeline(guest, recording)?;
    let condition = condition::parse(text, &Known(timeline.session()))?;
    let mut watcher = Watcher {
        target: Arc::clone(guest.target()),
        reader: Reader::of(timeline.session()),
        condition,
        most: if span.first { 1 } else { span.most },
        first: span.first,
        before: None,
        seen: Seen::default(),
    };
    let mut found =
        Turns { condition: text.to_owned(), from: 0, to: 0, held: None, count: None, last: vec![] };
    if span.first {
        timeline.each_state(span.from, span.to, &mut |session, between| watcher.look(session, between))?;
        let Seen { from, to, held, last } = watcher.take();
        (found.from, found.to, found.held, found.last) = (from, to, Some(held), last.into());
        found.count = Some(found.last.len() as u64);
        watcher.name_tasks(&mut timeline, &mut found.last)?;
        return Ok(found);
    }
    let mut all: Option<Seen> = None;
    found.from = timeline.each_stretch_back(span.from, span.to, &mut |timeline, to| {
        timeline.each_state_to(to, &mut |session, between| watcher.look(session, between))?;
        let seen = watcher.take().before(all.take());
        watcher.most = span.most - seen.last.len();
        all = Some(seen);
        Ok(watcher.most > 0)
    })?;
    let Seen { to, held, last, .. } = all.unwrap_or_default();
    (found.to, found.last) = (to, last.into());
    watcher.name_tasks(&mut timeline, &mut found.last)?;
    if found.last.len() < span.most {
        (found.held, found.count) = (Some(held), Some(found.last.len() as u64));
    }
    Ok(found)
}

/// Goes to the next position at which a condition becomes true, or to the last one before this.
///
/// # Errors
/// The text is no condition, or the run cannot be followed.
pub fn go_to_when(timeline: &mut Timeline, text: &str, forwards: bool) -> Result<Found, QuestionError> {
    let condition = condition::parse(text, &Known(timeline.session()))?;
    let holds = |session: &Session| condition.holds(session.core());
    Ok(timeline.go_to_state(forwards, &holds, &|before, now| now && !before)?)
}

/// Goes back to right after the last change of a register.
///
/// # Errors
/// There is no such register, or the run cannot be followed.
pub fn go_to_change(timeline: &mut Timeline, register: &str) -> Result<Found, QuestionError> {
    let wide = Known(timeline.session()).is_64();
    let value = |session: &Session| registers::named(session.core(), register, wide);
    if value(timeline.session()).is_none() {
        let sentence = format!(
            "`{register}` is no register of one word; write one such as {}",
            if wide { "rax" } else { "eax" }
        );
        return Err(QuestionError::Place(sentence));
    }
    Ok(timeline.go_to_state(false, &value, &|before, now| before != now)?)
}

/// The names that conditions may use for a guest.
struct Known<'a>(&'a Session);

impl Names for Known<'_> {
    fn symbols(&self, name: &str) -> Vec<u64> {
        self.0.symbols().named(name).all().into_iter().map(|symbol| symbol.addr).collect()
    }

    fn near(&self, name: &str) -> Option<String> {
        self.0.symbols().near_misses(name, 1).first().map(|near| (*near).to_string())
    }

    fn is_64(&self) -> bool {
        self.0.target().width() == trapline_rpn::Width::W64
    }
}

/// The preceding state.
struct Before {
    held: bool,
    icount: u64,
    at: CodeAddress,
}

/// What was seen in a stretch.
#[derive(Default)]
struct Seen {
    /// Its first instruction count.
    from: u64,
    /// Its last one.
    to: u64,
    /// Whether the condition holds at the first state.
    held: bool,
    /// The last turns, oldest first.
    last: VecDeque<Turn>,
}

impl Seen {
    /// This stretch and what comes after it.
    fn before(mut self, later: Option<Self>) -> Self {
        if let Some(later) = later {
            self.to = later.to;
            self.last.extend(later.last);
        }
        self
    }
}

/// Looks at each state.
struct Watcher {
    target: Arc<Target>,
    reader: Reader,
    condition: Condition,
    /// How many turns are kept.
    most: usize,
    /// Whether the first turn is the last that is looked for.
    first: bool,
    before: Option<Before>,
    seen: Seen,
}

impl Watcher {
    /// Returns whether the next state is wanted.
    fn look(&mut self, session: &Session, between: Between) -> bool {
        let core = session.core();
        let (held, icount) = (self.condition.holds(core), session.icount());
        let before =
            self.before.replace(Before { held, icount, at: CodeAddress::of(core, core.env().eip()) });
        self.seen.to = icount;
        match before {
            None => (self.seen.from, self.seen.held) = (icount, held),
            Some(before) if held && !before.held => {
                self.add(session, &before, between);
                return !self.first;
            }
            Some(_) => {}
        }
        true
    }

    /// What was seen of the stretch that ends here; another one begins.
    fn take(&mut self) -> Seen {
        self.before = None;
        mem::take(&mut self.seen)
    }

    /// Finds the tasks of these turns.
    fn name_tasks(&self, timeline: &mut Timeline, turns: &mut [Turn]) -> Result<(), QuestionError> {
        let tasks = self.reader.tasks_at(timeline, turns.iter().map(|turn| turn.position))?;
        for (turn, task) in turns.iter_mut().zip(tasks) {
            (turn.pid, turn.task) = task.unzip();
        }
        Ok(())
    }

    fn add(&mut self, session: &Session, before: &Before, by: Between) {
        let core = session.core();
        self.seen.last.push_back(Turn {
            position: before.icount,
            virtual_ns: core.moment().virtual_ns,
            by,
            ip: before.at.linear,
            symbol: self.reader.symbol(&self.target, core, before.at),
            instruction: self.reader.instruction(&self.target, core, before.at.linear),
            pid: None,
            task: None,
        });
        if self.seen.last.len() > self.most {
            self.seen.last.pop_front();
        }
    }
}

/// The number of instructions of a span, if it is known without a run.
#[must_use]
pub fn span_of(recording: &Recording, span: &Span) -> u64 {
    let end = recording.end().icount;
    let count = |position: Option<Position>, else_: u64| match position {
        Some(Position::At { icount, .. }) => icount.min(end),
        Some(Position::BeforeEnd(before)) => end.saturating_sub(before),
        _ => else_,
    };
    count(span.to, end).saturating_sub(count(span.from, 0))
}
