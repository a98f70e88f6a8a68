//! `catch syscall`: how the run goes to the calls of the process, and gdbstub's view of it.

use std::ops::Range;
use std::rc::Rc;

use gdbstub::target::TargetResult;
use gdbstub::target::ext::catch_syscalls::{CatchSyscalls, SyscallNumbers};
use trapline_emu::{Core, Moment};
use trapline_session::{Accept, StopPoint, Timeline, TravelError};

use crate::calls::{self, Told, Wanted};
use crate::debuggee::Debuggee;
use crate::stops::Stop;

/// The numbers of the stop points of system calls.
#[derive(Debug, Clone, Default)]
pub struct Marks {
    /// Those at which the kernel begins.
    pub entries: Range<usize>,
    /// That of returns to user mode.
    pub returns: Option<usize>,
}

impl Debuggee {
    /// Whether system calls of the process can be told.
    pub(crate) fn knows_calls(&self) -> bool {
        self.user.is_some() && self.session().target().image().plan().linux.is_some()
    }

    /// Adds the stop points of the calls that gdb wants, and with `both` of their returns.
    pub(crate) fn mark_calls(&self, points: &mut Vec<StopPoint>, both: bool) -> Marks {
        let first = points.len();
        if self.calls.wanted.is_none() {
            return Marks { entries: first..first, returns: None };
        }
        points.extend(calls::entries(self.session().core()).into_iter().map(Timeline::breakpoint));
        let entries = first..points.len();
        let returns = both.then_some(points.len());
        points.extend(both.then_some(StopPoint::UserMode));
        Marks { entries, returns }
    }

    /// What the stop points accept: `others` is for those of no calls.
    pub(crate) fn accept_calls(&self, others: Option<Accept>, marks: &Marks) -> Option<Accept> {
        let (Some(others), Some(user), Some(wanted)) = (&others, &self.user, self.calls.wanted.clone())
        else {
            return others;
        };
        let (others, marks, thread) = (Rc::clone(others), marks.clone(), user.thread());
        let under_way = self.calls.under_way.clone();
        Some(Rc::new(move |core: &Core, point| {
            if marks.entries.contains(&point) {
                core.env().cpl() != 3 && thread(core).is_some() && wanted.has(calls::number(core))
            } else if marks.returns == Some(point) {
                thread(core).is_some_and(|thread| under_way.contains_key(&thread))
            } else {
                others(core, point)
            }
        }))
    }

    /// A call has entered the kernel. It is shown in the state before; gdb was told of it already if nothing is returned, or
    /// it is none, and then its moment is put into `passed`.
    pub(crate) fn call_entered(&mut self, passed: &mut Option<Moment>) -> Result<Option<Stop>, TravelError> {
        let (enters, number) = (self.session().moment(), calls::number(self.session().core()));
        if *passed == Some(enters) {
            return Ok(None);
        }
        if self.calls.told == Some(Told { enters }) {
            let thread = self.user.as_ref().and_then(|user| user.thread()(self.session().core()));
            self.calls.under_way.extend(thread.map(|thread| (thread, number)));
            return Ok(None);
        }
        self.timeline.previous_state()?;
        if self.is_elsewhere() || !calls::is_call(self.session().core()) {
            // An interrupt with the same vector.
            *passed = Some(enters);
            return Ok(None);
        }
        self.calls.told = Some(Told { enters });
        Ok(Some(Stop::Call { number, returns: false }))
    }

    /// A thread with a call under way runs in user mode again.
    pub(crate) fn call_returned(&mut self) -> Stop {
        let thread = self.user.as_ref().and_then(|user| user.thread()(self.session().core()));
        let number = thread.and_then(|thread| self.calls.under_way.remove(&thread));
        number.map_or(Stop::Trap, |number| Stop::Call { number, returns: true })
    }
}

impl CatchSyscalls for Debuggee {
    fn enable_catch_syscalls(&mut self, filter: Option<SyscallNumbers<'_, u64>>) -> TargetResult<(), Self> {
        self.calls.wanted = Some(filter.map_or(Wanted::All, |numbers| Wanted::These(numbers.collect())));
        Ok(())
    }

    fn disable_catch_syscalls(&mut self) -> TargetResult<(), Self> {
        self.calls.wanted = None;
        Ok(())
    }
}
