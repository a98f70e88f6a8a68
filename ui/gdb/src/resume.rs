//! How the run goes on: to the next stop, by a step, and back.
//!
//! Of one process, only states in which it runs in user mode are shown: a step over a system call ends behind it, and a run
//! that is interrupted in the kernel goes back to where the process was last.

use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use trapline_emu::Core;
use trapline_session::{Accept, Arrival, Ending, Found, Position, Ran, StopPoint, Timeline, TravelError};

use crate::debuggee::Debuggee;
use crate::stops::{Resume, Stop};
use crate::threads;

impl Debuggee {
    /// Goes on as gdb has asked.
    pub(crate) fn go_on(&mut self) -> Stop {
        let Some((resume, tid)) = self.resume.take() else { return Stop::Trap };
        let pending = self.pending.take();
        if std::mem::take(&mut self.stays) {
            return Stop::Trap;
        }
        // gdb goes on as before after news of modules. What asks for something else does not mean that stop.
        if let Some((_, stop, _)) = pending
            .filter(|(before, _, at)| resume.repeats(*before) && *at == self.timeline.session().moment())
        {
            return stop;
        }
        self.calls.begin(self.timeline.session().moment(), resume == Resume::Continue);
        let gone = match resume {
            Resume::Continue => self.forwards(),
            Resume::ReverseContinue => self.backwards(),
            Resume::ReverseStep => self.step_back(),
            Resume::Step => self.step_of(tid),
            Resume::Range(low, high) => self.step_while(low, high),
        };
        let stop = match gone.and_then(|stop| self.settle().map(|()| stop)) {
            Ok(stop) => stop,
            Err(TravelError::Interrupted) => Stop::Interrupted,
            Err(error) => {
                self.news.push(format!("the run cannot go on: {error}"));
                Stop::Trap
            }
        };
        self.cancel().store(false, Ordering::SeqCst);
        self.calls.end(self.timeline.session().moment());
        stop
    }

    /// The run was interrupted while it stood.
    pub(crate) fn interrupted_here(&mut self) -> Stop {
        self.resume = None;
        Stop::Interrupted
    }

    /// The states of the process.
    fn accept(&self) -> Option<Accept> {
        self.user.as_ref().map(|user| user.accept())
    }

    /// The states in which the stop points stop the run. gdb evaluates conditions itself while addresses are physical.
    fn accept_stops(&self) -> Option<Accept> {
        match self.physical {
            true => self.accept(),
            false => self.breakpoints.accept(self.accept(), &self.registers),
        }
    }

    /// The stop points, and of a process the place where it ends; of the kernel, the places where a module is loaded and removed.
    fn all_points(&self) -> Vec<StopPoint> {
        let mut points = self.points();
        points.extend(self.user.as_ref().and_then(|user| user.exit()));
        points.extend(self.loading());
        points
    }

    fn forwards(&mut self) -> Result<Stop, TravelError> {
        let (mut points, own) = (self.all_points(), self.points().len());
        let calls = self.mark_calls(&mut points, true);
        let (mut passed, mut from) = (None, self.here().0);
        loop {
            let accept = self.accept_calls(self.accept_stops(), &calls);
            let noting = self.user.as_ref().map(|user| user.noting(from));
            let (returning, last) = noting.unzip();
            let last = || last.as_ref().map(|last| last.get());
            match self.timeline.run_on_telling(&points, accept.as_ref(), returning)? {
                Ran::Met(met) if calls.entries.contains(&met.point) => {
                    from = last().unwrap_or(from);
                    if let Some(stop) = self.call_entered(&mut passed)? {
                        return Ok(stop);
                    }
                }
                Ran::Met(met) if calls.returns == Some(met.point) => return Ok(self.call_returned()),
                // Nothing that gdb does not know.
                Ran::Met(met) if met.point >= own && self.user.is_none() && !self.are_modules_new() => {}
                Ran::Met(met) if met.point >= own && self.user.is_none() => return Ok(Stop::Loaded),
                Ran::Met(met) => return self.met(met.point, last()),
                Ran::End(ending) => return self.ended(ending.as_ref(), last()),
                Ran::Interrupted(at) => {
                    self.cancel().store(false, Ordering::SeqCst);
                    self.timeline.goto(at)?;
                    self.go_into_process(last())?;
                    return Ok(Stop::Interrupted);
                }
            }
        }
    }

    /// A stop point was met, in the forward direction. `last` is where the process was last in user mode, if that is known.
    fn met(&mut self, point: usize, last: Option<u64>) -> Result<Stop, TravelError> {
        if self.user.as_ref().is_some_and(|user| user.ends(self.timeline.session())) {
            let number = self.user.as_ref().map_or(0, |user| user.tgid());
            self.news.push(format!("process {number} ends here; reverse-continue goes back"));
            self.go_into_process(last)?;
            return Ok(Stop::End);
        }
        Ok(self.stop_at(point))
    }

    fn stop_at(&mut self, point: usize) -> Stop {
        let lines: Vec<String> = self.probes_met().iter().map(|name| format!("hit of {name}")).collect();
        self.news.extend(lines);
        if self.is_asked() {
            self.news.push("`exit 1` of a handler asks for a debugger".to_owned());
        }
        match self.breakpoints.iter().nth(point).copied() {
            Some(breakpoint) if breakpoint.executes() => Stop::Breakpoint(breakpoint.kind),
            Some(breakpoint) => Stop::Watchpoint(breakpoint),
            None => Stop::Trap,
        }
    }

    fn ended(&mut self, ending: Option<&Ending>, last: Option<u64>) -> Result<Stop, TravelError> {
        let icount = self.timeline.session().icount();
        self.news.push(match ending {
            Some(ending) => format!("the end of the run: {ending}, after {icount} instructions"),
            None => format!("the end of the run, after {icount} instructions"),
        });
        self.go_into_process(last)?;
        Ok(Stop::End)
    }

    /// Of a process: goes back to the last state in which it runs in user mode. `known` is as of [`User::back`].
    ///
    /// [`User::back`]: crate::user::User::back
    fn go_into_process(&mut self, known: Option<u64>) -> Result<(), TravelError> {
        match &self.user {
            Some(user) => user.back(&mut self.timeline, known).map(|_| ()),
            None => Ok(()),
        }
    }

    fn backwards(&mut self) -> Result<Stop, TravelError> {
        let mut points = self.points();
        let calls = self.mark_calls(&mut points, false);
        let accept = self.accept_calls(self.accept_stops(), &calls);
        loop {
            let found = match points.is_empty() {
                true => Found::Nothing,
                false => self.timeline.reverse_on(&points, accept.as_ref())?,
            };
            match found {
                Found::Nothing => return self.go_to_beginning(),
                Found::Met(met) if calls.entries.contains(&met.point) => {
                    self.calls.told = None;
                    if let Some(stop) = self.call_entered(&mut None)? {
                        return Ok(stop);
                    }
                }
                Found::Met(met) => {
                    let stop = self.stop_at(met.point);
                    if matches!(stop, Stop::Watchpoint(_)) {
                        // Backwards, the access is undone.
                        self.timeline.previous_state()?;
                        self.go_into_process(None)?;
                    }
                    return Ok(stop);
                }
            }
        }
    }

    fn go_to_beginning(&mut self) -> Result<Stop, TravelError> {
        let first = match &self.user {
            Some(user) => user.first(),
            None => self.timeline.history().first,
        };
        self.timeline.goto(Position::At { icount: first, ordinal: 0 })?;
        while self.is_elsewhere() && self.timeline.session().icount() == first {
            if let Arrival::End(_) = self.timeline.next_state()? {
                break;
            }
        }
        Ok(Stop::Begin)
    }

    /// Whether this is no state of the process that is debugged.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.user.as_ref().is_some_and(|user| !user.runs(self.timeline.session().core()))
    }

    fn step_back(&mut self) -> Result<Stop, TravelError> {
        let at_first = |user: &crate::user::User| self.timeline.session().icount() <= user.first();
        if self.user.as_ref().is_some_and(at_first) {
            return Ok(Stop::Begin);
        }
        let (_, ip) = self.here();
        if !self.timeline.previous_state()? {
            return Ok(Stop::Begin);
        }
        if self.is_elsewhere() {
            self.go_into_process(None)?;
            // There the instruction was interrupted, or its page was absent: nothing has been undone yet.
            if self.here().1 == ip {
                return self.step_back();
            }
            return Ok(Stop::Trap);
        }
        let watches = self.watchpoints();
        let met = self.timeline.met_next(&Self::points_of(&watches))?;
        Ok(met.and_then(|point| watches.get(point)).map_or(Stop::Trap, |watch| Stop::Watchpoint(*watch)))
    }

    /// A step of the running task, or of another one when it runs again.
    fn step_of(&mut self, tid: Option<NonZeroUsize>) -> Result<Stop, TravelError> {
        let other = tid.filter(|tid| *tid != threads::running(self.session()));
        match other.and_then(|tid| self.where_it_continues(tid)) {
            Some((point, accept)) => match self.timeline.run_on(&[point], Some(&accept))? {
                Ran::Met(_) => Ok(Stop::Trap),
                Ran::End(ending) => self.ended(ending.as_ref(), None),
                Ran::Interrupted(at) => {
                    self.cancel().store(false, Ordering::SeqCst);
                    self.timeline.goto(at)?;
                    Ok(Stop::Interrupted)
                }
            },
            None => self.step(),
        }
    }

    /// The stop point at which a task that does not run continues.
    fn where_it_continues(&self, tid: NonZeroUsize) -> Option<(StopPoint, Accept)> {
        let session = self.session();
        let here = |thread: &threads::Thread| thread.tid == tid && thread.task != 0;
        let task = self.threads().into_iter().find(here)?.task;
        let profile: Rc<dyn trapline_os::OsProfile> = session.profile()?.into();
        let ip = profile.switched(session.core(), task)?.ip;
        let accept = move |core: &Core, _| profile.current_task(core) == task;
        Some((Timeline::breakpoint(ip), Rc::new(accept)))
    }

    fn step(&mut self) -> Result<Stop, TravelError> {
        let watches = self.watchpoints();
        let met = self.timeline.met_next(&Self::points_of(&watches))?;
        let watched = met.and_then(|point| watches.get(point)).copied();
        loop {
            let (icount, ip) = self.here();
            if let Arrival::End(ending) = self.timeline.next_state()? {
                return self.ended(ending.as_ref(), Some(icount));
            }
            if !self.is_elsewhere() {
                return Ok(watched.map_or(Stop::Trap, Stop::Watchpoint));
            }
            let retired = self.here().0 > icount;
            let accept = self.accept();
            let mut points = vec![StopPoint::UserMode];
            points.extend(self.user.as_ref().and_then(|user| user.exit()));
            match self.timeline.run_on(&points, accept.as_ref())? {
                // The instruction was interrupted, or its page was absent: it has not been executed yet.
                Ran::Met(met) if met.point == 0 && !retired && self.here().1 == ip => {}
                Ran::Met(met) if met.point == 0 => return Ok(watched.map_or(Stop::Trap, Stop::Watchpoint)),
                Ran::Met(met) => return self.met(met.point, Some(icount)),
                Ran::End(ending) => return self.ended(ending.as_ref(), Some(icount)),
                Ran::Interrupted(_) => {
                    self.cancel().store(false, Ordering::SeqCst);
                    self.go_into_process(Some(icount))?;
                    return Ok(Stop::Interrupted);
                }
            }
        }
    }

    /// The instruction count, and the instruction pointer.
    fn here(&self) -> (u64, u64) {
        let session = self.session();
        (session.icount(), session.core().env().eip())
    }

    /// Steps while the instruction pointer is in a range, to the next breakpoint.
    fn step_while(&mut self, low: u64, high: u64) -> Result<Stop, TravelError> {
        loop {
            let stop = self.step()?;
            let ip = self.session().core().env().eip();
            let linear = self.session().core().linear_ip();
            let core = self.timeline.session().core();
            if let Some(breakpoint) = self.breakpoints.on(linear, core, &self.registers) {
                return Ok(Stop::Breakpoint(breakpoint.kind));
            }
            if stop != Stop::Trap || !(low..high).contains(&ip) {
                return Ok(stop);
            }
        }
    }
}
