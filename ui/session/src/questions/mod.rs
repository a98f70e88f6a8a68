//! Queries about a whole recording: the writers of an address, the calls of a function, and the positions at which a
//! condition becomes true.
//!
//! The recording is run once with watches, which do not affect the run, and a witness to which each match is reported.
//! So the answers are those of a watchpoint that existed from the start. For a condition, the recording is run state by
//! state. Not here: text for people.

mod calls;
mod condition;
mod when;
mod writers;

use trapline_emu::Core;
use trapline_emu::symbols::{Ambiguous, Symbol};
use trapline_os::{OsProfile, Unwinder};
use trapline_providers::Target;

use crate::commands::Command;
use crate::guest::{Guest, GuestError};
use crate::numbers::count;
use crate::recording::{Position, Recording};
use crate::replay::OwnPrograms;
use crate::session::{CodeAddress, Naming, Session, StackFrame, Way};
use crate::timeline::{HISTORY_MEM, Timeline, TravelError};

pub use calls::{Call, CalledFunction, Calls, Left, calls};
pub use condition::ConditionError;
pub use when::{Span, Turn, Turns, go_to_change, go_to_when, span_of, when};
pub use writers::{Writer, Writers, who_wrote};

/// Why a query cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// The guest cannot be loaded.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The recording cannot be followed.
    #[error(transparent)]
    Travel(#[from] TravelError),
    /// There is no such place.
    #[error("{0}")]
    Place(String),
    /// The text is not a condition.
    #[error(transparent)]
    Condition(#[from] ConditionError),
}

/// A place of the kernel: a number, a symbol, or a symbol and an offset; and the bytes of the symbol.
pub(crate) fn place(session: &Session, text: &str) -> Result<(u64, Option<u64>), QuestionError> {
    let places = places(session, text)?;
    if let [place] = places.as_slice() {
        return Ok(*place);
    }
    let addresses = places.iter().map(|(address, _)| *address).collect();
    let ambiguous = Ambiguous { name: text.to_owned(), addresses };
    Err(QuestionError::Place(format!("{ambiguous}; write one of these addresses")))
}

/// The places of the kernel that a text may mean: a name may belong to several symbols.
fn places(session: &Session, text: &str) -> Result<Vec<(u64, Option<u64>)>, QuestionError> {
    let number = |text: &str| count(text).map_err(|error| QuestionError::Place(error.to_string()));
    if text.starts_with("phys:") {
        return Err(QuestionError::Place(format!(
            "{text} is a physical address, and accesses are watched by linear address; write the linear address that it is mapped at"
        )));
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let address = number(text)?;
        last_address(session, address, 1)?;
        return Ok(vec![(address, None)]);
    }
    let (name, offset) = match text.split_once('+') {
        Some((name, offset)) => (name, Some(number(offset)?)),
        None => (text, None),
    };
    let symbols = session.symbols();
    let found = symbols.named(name).all();
    if found.is_empty() {
        let near = symbols.near_misses(name, 1).first().map(|near| format!("; there is `{near}`"));
        let near = near.unwrap_or_default();
        return Err(QuestionError::Place(format!(
            "the kernel has no symbol `{name}`{near}; write a number, a symbol of the kernel or SYMBOL+OFFSET"
        )));
    }
    let place = |symbol: &Symbol| {
        let size = symbol.end().saturating_sub(symbol.addr);
        (symbol.addr.wrapping_add(offset.unwrap_or_default()), offset.is_none().then_some(size))
    };
    let places: Vec<(u64, Option<u64>)> = found.into_iter().map(place).collect();
    places.iter().try_for_each(|(address, _)| last_address(session, *address, 1).map(drop))?;
    Ok(places)
}

/// The last of `length` bytes from an address on.
pub(crate) fn last_address(session: &Session, low: u64, length: u64) -> Result<u64, QuestionError> {
    crate::numbers::last_address(session.target().width(), low, length).map_err(QuestionError::Place)
}

impl Session {
    /// The address of a place of the kernel: a number, a symbol, or SYMBOL+OFFSET.
    ///
    /// # Errors
    /// The text is none of these, there is no such symbol, or there are several.
    pub fn place(&self, text: &str) -> Result<u64, QuestionError> {
        place(self, text).map(|(address, _)| address)
    }

    /// The last of so many bytes at an address.
    ///
    /// # Errors
    /// The guest can have no such addresses.
    pub fn last_address(&self, low: u64, length: u64) -> Result<u64, QuestionError> {
        last_address(self, low, length)
    }

    /// The same where several places can be meant: the addresses of all symbols that have the name.
    ///
    /// # Errors
    /// As [`Session::place`], but several symbols are no error.
    pub fn places(&self, text: &str) -> Result<Vec<u64>, QuestionError> {
        Ok(places(self, text)?.into_iter().map(|(address, _)| address).collect())
    }
}

/// The recording as a timeline, without those of its programs that only observe.
fn timeline(guest: &Guest, recording: &Recording) -> Result<Timeline, QuestionError> {
    let own = recording.own_programs(guest);
    let mut session = guest.start(recording.config().probing.clone())?;
    let mut course = recording.course(Way::Same, own);
    let begun = session.begin_as(&mut course);
    begun.map_err(|found| TravelError::Diverged { icount: 0, why: found.to_string() })?;
    let keep = |command: &Command| own == OwnPrograms::Stay || !command.is_about_programs();
    Ok(Timeline::of(session, recording, keep, HISTORY_MEM)?)
}

/// The position at which the query ends.
type Before = Option<Position>;

/// The reader of tasks and stacks for a witness.
struct Reader {
    profile: Option<Box<dyn OsProfile>>,
    unwinder: Unwinder,
}

impl Reader {
    fn of(session: &Session) -> Self {
        Self { profile: session.profile(), unwinder: session.target().unwinder() }
    }

    /// Process ID and name of the current task.
    fn task(&self, core: &Core) -> Option<(u32, String)> {
        let profile = self.profile.as_deref()?;
        let mut name = Vec::new();
        profile.name_into(core, &mut name);
        Some((profile.pid(core), String::from_utf8_lossy(&name).into_owned()))
    }

    /// The tasks that run at these instruction counts, in ascending order: what an instruction changes may be which task
    /// is the current one.
    fn tasks_at(
        &self,
        timeline: &mut Timeline,
        positions: impl IntoIterator<Item = u64>,
    ) -> Result<Vec<Option<(u32, String)>>, TravelError> {
        let task = |icount| {
            timeline.goto(Position::At { icount, ordinal: 0 })?;
            Ok(self.task(timeline.session().core()))
        };
        positions.into_iter().map(task).collect()
    }

    /// The stack of the current task.
    fn stack(&mut self, target: &Target, core: &Core, most: usize) -> Vec<StackFrame> {
        self.naming(target, core).stack(most)
    }

    /// The symbol of an instruction.
    fn symbol(&mut self, target: &Target, core: &Core, at: CodeAddress) -> Option<String> {
        at.symbol(&mut self.naming(target, core))
    }

    /// The instruction at an address, disassembled.
    fn instruction(&mut self, target: &Target, core: &Core, linear: u64) -> Option<String> {
        let found = core.decode_original(linear)?;
        Some(self.naming(target, core).instruction(&found))
    }

    fn naming<'a>(&'a mut self, target: &'a Target, core: &'a Core) -> Naming<'a> {
        Naming { target, core, profile: self.profile.as_deref(), unwinder: &mut self.unwinder }
    }

    /// The current task; zeros if the guest's system is unknown.
    fn task_id(&self, core: &Core) -> TaskId {
        let of = |profile: &dyn OsProfile| TaskId {
            descriptor: profile.current_task(core),
            pid: profile.pid(core),
        };
        self.profile.as_deref().map(of).unwrap_or_default()
    }
}

/// A task: a system uses the descriptor of a dead task for a later one, which has another process ID.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct TaskId {
    descriptor: u64,
    pid: u32,
}
