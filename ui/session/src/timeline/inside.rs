//! Positions inside of a hit: the operations of its handlers, one after the other.
//!
//! To enter a hit, the timeline executes the instruction with the handlers traced, and goes back to where it was. So the
//! trace comes from the interpreter that always runs handlers. Moving within the hit only reads the trace.

use trapline_emu::Moment;
use trapline_interposer::{HandlerState, HandlerTrace, Traces};
use trapline_rpn::Change;

use super::drive::{Discard, Goal};
use super::{Arrival, Timeline, TravelError};

/// The position of the timeline within a hit.
pub(super) struct Inside {
    /// The moment of the timeline, outside of the hit.
    base: Moment,
    /// The handlers that run at the instruction count, in order; each has executed at least one operation.
    runs: Vec<HandlerTrace>,
    /// Number of operations of all of them that have been executed.
    executed: u64,
}

/// An operation of a handler, and the state in which it is executed.
#[derive(Debug)]
pub struct Operation<'a> {
    /// Number of operations of all handlers at this instruction count that have been executed.
    pub executed: u64,
    /// Total number of operations that they execute.
    pub all: u64,
    /// The number of the handler's run, from 1, and the number of runs.
    pub handler: (usize, usize),
    /// The handler's run.
    pub run: &'a HandlerTrace,
    /// The run before it, which has just ended, if this one has executed nothing.
    pub ended: Option<&'a HandlerTrace>,
    /// Number of operations of this run that have been executed.
    pub own: usize,
    /// The state of the handler.
    pub state: HandlerState,
}

impl Inside {
    fn all(&self) -> u64 {
        self.runs.iter().map(|run| run.operations() as u64).sum()
    }

    /// The current run, and the number of its operations that have been executed. At the end of all runs, the last one
    /// is current.
    fn current(&self) -> (usize, usize) {
        let mut left = self.executed;
        for (n, run) in self.runs.iter().enumerate() {
            let own = run.operations() as u64;
            if left < own || n + 1 == self.runs.len() {
                return (n, left.min(own) as usize);
            }
            left -= own;
        }
        (0, 0)
    }

    /// Each change to the guest, with whether it has been made at this operation and whether it is visible outside of
    /// the hit.
    fn changes(&self) -> impl DoubleEndedIterator<Item = (&Change, bool, bool)> {
        let (current, own) = self.current();
        let changes = self.runs.iter().enumerate().flat_map(move |(n, run)| {
            let outside = run.after || run.at < self.base;
            let here = move |number: usize| n < current || n == current && number < own;
            run.changes().iter().map(move |(number, change)| (change, here(*number), outside))
        });
        changes.collect::<Vec<_>>().into_iter()
    }

    /// Converts the content of memory outside of the hit to that at this operation.
    pub fn overlay(&self, address: u64, memory: &mut [u8]) {
        for (change, here, outside) in self.changes().rev() {
            if let (Change::Memory { address: at, old, .. }, false, true) = (change, here, outside) {
                put(address, memory, *at, old);
            }
        }
        for (change, here, outside) in self.changes() {
            if let (Change::Memory { address: at, new, .. }, true, false) = (change, here, outside) {
                put(address, memory, *at, new);
            }
        }
    }

    /// The changes that have been made here, in order.
    pub fn made(&self) -> impl Iterator<Item = &Change> {
        self.changes().filter(|(_, here, _)| *here).map(|(change, ..)| change)
    }
}

/// Writes the bytes at an address, as far as they are in this memory.
fn put(low: u64, memory: &mut [u8], at: u64, bytes: &[u8]) {
    for (n, byte) in (0u64..).zip(bytes) {
        let offset = usize::try_from(at.wrapping_add(n).wrapping_sub(low)).unwrap_or(usize::MAX);
        if let Some(place) = memory.get_mut(offset) {
            *place = *byte;
        }
    }
}

impl Timeline {
    /// Enters the hit at this position: goes to the first operation of the first handler that runs at this moment.
    ///
    /// # Errors
    /// No handler runs here, or its operations are too many to be kept.
    pub fn into_hit(&mut self) -> Result<(), TravelError> {
        if self.inside.is_some() {
            return Ok(());
        }
        let base = self.session.moment();
        let runs = self.runs_at(base.icount)?;
        let first = runs.iter().position(|run| run.at >= base).ok_or(TravelError::NoHandler(base.icount))?;
        let executed = runs.iter().take(first).map(|run| run.operations() as u64).sum();
        self.inside = Some(Inside { base, runs, executed });
        Ok(())
    }

    /// Goes this many operations forward within the hit. At the end of the last handler, its last state is shown.
    ///
    /// # Errors
    /// There are fewer operations, or the timeline is not in a hit.
    pub fn step_operation(&mut self, operations: u64) -> Result<(), TravelError> {
        let inside = self.inside.as_mut().ok_or(TravelError::Outside)?;
        let (to, all) = (inside.executed.saturating_add(operations), inside.all());
        if to > all {
            return Err(TravelError::Operations { asked: to, all });
        }
        inside.executed = to;
        Ok(())
    }

    /// Goes this many operations back within the hit.
    ///
    /// # Errors
    /// There are fewer operations before, or the timeline is not in a hit.
    pub fn back_operation(&mut self, operations: u64) -> Result<(), TravelError> {
        let inside = self.inside.as_mut().ok_or(TravelError::Outside)?;
        let before = TravelError::OperationsBefore { asked: operations, executed: inside.executed };
        inside.executed = inside.executed.checked_sub(operations).ok_or(before)?;
        Ok(())
    }

    /// Leaves the hit, and returns to the position from which it was entered.
    ///
    /// # Errors
    /// The timeline is not in a hit.
    pub fn out(&mut self) -> Result<(), TravelError> {
        self.inside.take().map(|_| ()).ok_or(TravelError::Outside)
    }

    /// The handlers of the hit in which the timeline is, in order: those that run at one moment. Before them, others at this
    /// instruction count have executed so many operations.
    pub fn handlers_here(&self) -> (u64, Vec<&HandlerTrace>) {
        let Some(inside) = &self.inside else { return (0, Vec::new()) };
        let before = inside.runs.iter().take_while(|run| run.at < inside.base);
        let before = before.map(|run| run.operations() as u64).sum();
        let first = inside.runs.iter().find(|run| run.at >= inside.base).map(|run| run.at);
        (before, inside.runs.iter().filter(|run| Some(run.at) == first).collect())
    }

    /// The next operation, if the timeline is in a hit.
    pub fn operation(&self) -> Option<Operation<'_>> {
        let inside = self.inside.as_ref()?;
        let (n, own) = inside.current();
        let run = inside.runs.get(n)?;
        Some(Operation {
            executed: inside.executed,
            all: inside.all(),
            handler: (n + 1, inside.runs.len()),
            run,
            ended: n.checked_sub(1).and_then(|before| inside.runs.get(before)).filter(|_| own == 0),
            own,
            state: run.state(own),
        })
    }

    /// The changes to the guest by the handlers up to this operation, if the timeline is in a hit.
    pub fn changes_in_hit(&self) -> Vec<&Change> {
        self.inside.as_ref().map(|inside| inside.made().collect()).unwrap_or_default()
    }

    /// The position of an operation of the hit with this number, as an instruction count and the number of operations
    /// that the handlers there have executed.
    pub(super) fn find_operation(&mut self, hit: u64, operation: u64) -> Result<(u64, u64), TravelError> {
        let (runs, own) = self.runs_of_hit(hit)?;
        let before_all = TravelError::HandlersBefore { hit, icount: self.session.icount() };
        let Some(run) = runs.get(own) else { return Err(before_all) };
        let all = run.operations() as u64;
        if operation > all {
            return Err(TravelError::Operations { asked: operation, all });
        }
        let same = runs.iter().take(own).filter(|other| other.at.icount == run.at.icount);
        let before: u64 = same.map(|other| other.operations() as u64).sum();
        Ok((run.at.icount, before + operation))
    }

    /// The moment of a hit: before the probed instruction, or after the watched access. `next_hit` stops there, too.
    pub(super) fn moment_of_hit(&mut self, hit: u64) -> Result<Moment, TravelError> {
        let (runs, own) = self.runs_of_hit(hit)?;
        let icount = self.session.icount();
        runs.get(own).map(|run| run.at).ok_or(TravelError::HandlersBefore { hit, icount })
    }

    /// The handlers that run around a hit, and the number of its own.
    fn runs_of_hit(&mut self, hit: u64) -> Result<(Vec<HandlerTrace>, usize), TravelError> {
        let (completed, more) = self.find_hit_number(hit)?;
        let icount = completed.icount;
        let mut runs = self.runs_around(icount.saturating_sub(1))?;
        let here = self.runs_around(icount)?.into_iter();
        runs.extend(here.filter(|run| run.after && run.at <= completed));
        let recorded = runs.iter().enumerate().filter(|(_, run)| run.outcome.recorded());
        let own = usize::try_from(more).ok().and_then(|more| recorded.map(|(n, _)| n).rev().nth(more));
        let own = own.ok_or(TravelError::HandlersBefore { hit, icount })?;
        Ok((runs, own))
    }

    /// The handlers that run at an instruction count, which is entered.
    pub(super) fn enter(&mut self, icount: u64, executed: u64) -> Result<Inside, TravelError> {
        let runs = self.runs_at(icount)?;
        let base = Moment { icount, virtual_ns: 0, delivered: 0 };
        let inside = Inside { base, runs, executed };
        let all = inside.all();
        if executed > all {
            return Err(TravelError::Operations { asked: executed, all });
        }
        Ok(inside)
    }

    /// Enters the hit: the timeline has reached its instruction count.
    pub(super) fn entered(&mut self, inside: Inside) {
        self.inside = Some(Inside { base: self.session.moment(), ..inside });
    }

    fn runs_at(&mut self, icount: u64) -> Result<Vec<HandlerTrace>, TravelError> {
        let runs = self.runs_around(icount)?;
        if runs.is_empty() { Err(TravelError::NoHandler(icount)) } else { Ok(runs) }
    }

    /// The handlers that run at an instruction count. The timeline returns to its position.
    fn runs_around(&mut self, icount: u64) -> Result<Vec<HandlerTrace>, TravelError> {
        let first = self.ladder.begins();
        let here = self.leave();
        let from = icount.saturating_sub(1).max(first);
        let traced = self.go(Goal::Count(from)).and_then(|_| self.trace(icount));
        let traces = self.return_from(&here, traced)?;
        if traces.too_many { Err(TravelError::TooManyOperations(icount)) } else { Ok(traces.runs) }
    }

    fn trace(&mut self, icount: u64) -> Result<Traces, TravelError> {
        let goal = Goal::Count(icount.saturating_add(1));
        let mut turned = Ok(None::<Arrival>);
        while matches!(turned, Ok(None)) && self.session.icount() <= icount {
            // The first program may be inserted on the way.
            self.session.trace_handlers(icount);
            let Ok(told) = self.turn(goal, None, None, &mut Discard);
            turned = told;
        }
        let traces = self.session.take_traces();
        turned.map(|_| traces)
    }
}
