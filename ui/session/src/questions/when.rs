//! Where a condition on registers and memory becomes true.
//!
//! Each state of the asked span is looked at: after every instruction, after every delivery of an exception or interrupt, and
//! after what came in. Nothing is skipped, so nothing has to be known of what may change the condition.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;
use trapline_providers::Target;

use super::condition::{self, Condition, Names};
use super::{QuestionError, Reader, timeline};
use crate::guest::Guest;
use crate::recording::{Position, Recording};
use crate::session::Session;
use crate::timeline::Between;

/// Where a condition has become true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Turn {
    /// Instructions that had retired before: `--at` goes to where the condition does not hold yet.
    pub position: u64,
    /// Virtual time after it, ns.
    pub virtual_ns: u64,
    /// What has made it true.
    pub by: Between,
    /// The linear address of the instruction: the one that made it true, or the one that was to come.
    pub ip: u64,
    /// Its symbol.
    pub symbol: Option<String>,
    /// It, disassembled.
    pub instruction: Option<String>,
    /// Process id of the task.
    pub pid: Option<u32>,
    /// Name of the task.
    pub task: Option<String>,
}

/// Where a condition becomes true in a span.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Turns {
    /// The condition.
    pub condition: String,
    /// The first instruction count that was looked at.
    pub from: u64,
    /// The last one.
    pub to: u64,
    /// Whether it holds at the first one already: that is no turn.
    pub held: bool,
    /// How often it became true.
    pub count: u64,
    /// The last of them, oldest first.
    pub last: Vec<Turn>,
}

/// The part of a recording that is asked about, and which answers are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Where it begins; none for the beginning.
    pub from: Option<Position>,
    /// Where it ends; none for the end.
    pub to: Option<Position>,
    /// Whether the first answer is enough.
    pub first: bool,
    /// How many of the last answers are kept.
    pub most: usize,
}

/// Where a condition becomes true: it is false before and true after.
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
        span,
        before: None,
        found: Turns { condition: text.to_owned(), from: 0, to: 0, held: false, count: 0, last: Vec::new() },
        last: VecDeque::new(),
    };
    timeline.each_state(span.from, span.to, &mut |session, between| watcher.look(session, between))?;
    let Watcher { mut found, last, .. } = watcher;
    found.last = last.into();
    Ok(found)
}

/// What conditions may name in a guest.
struct Known<'a>(&'a Session);

impl Names for Known<'_> {
    fn symbol(&self, name: &str) -> Option<u64> {
        self.0.symbols().lookup(name).map(|symbol| symbol.addr)
    }

    fn near(&self, name: &str) -> Option<String> {
        self.0.symbols().near_misses(name, 1).first().map(|near| (*near).to_string())
    }

    fn is_64(&self) -> bool {
        self.0.target().width() == trapline_rpn::Width::W64
    }
}

/// The state before.
struct Before {
    held: bool,
    icount: u64,
    ip: u64,
}

/// Looks at each state.
struct Watcher {
    target: Arc<Target>,
    reader: Reader,
    condition: Condition,
    span: Span,
    before: Option<Before>,
    found: Turns,
    last: VecDeque<Turn>,
}

impl Watcher {
    /// Answers whether the next one is wanted.
    fn look(&mut self, session: &Session, between: Between) -> bool {
        let core = session.core();
        let (held, icount) = (self.condition.holds(core), session.icount());
        let before = self.before.replace(Before { held, icount, ip: core.linear_ip() });
        self.found.to = icount;
        match before {
            None => (self.found.from, self.found.held) = (icount, held),
            Some(before) if held && !before.held => {
                self.add(session, &before, between);
                return !self.span.first;
            }
            Some(_) => {}
        }
        true
    }

    fn add(&mut self, session: &Session, before: &Before, by: Between) {
        let core = session.core();
        let (pid, task) = self.reader.task(core).unzip();
        self.found.count += 1;
        self.last.push_back(Turn {
            position: before.icount,
            virtual_ns: core.moment().virtual_ns,
            by,
            ip: before.ip,
            symbol: self.target.symbol(before.ip),
            instruction: core.decode_original(before.ip).map(|instruction| instruction.to_string()),
            pid,
            task,
        });
        if self.last.len() > self.span.most {
            self.last.pop_front();
        }
    }
}

/// The instructions of a span, as far as that is known without running.
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
