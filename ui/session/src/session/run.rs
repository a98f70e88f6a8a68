//! The run loop: slices of the run, the records and console output of each, and a script that acts between them.
//!
//! Slices end at multiples of a fixed instruction count, so the output of a run does not depend on the host. A record
//! is lost only if a channel overflows within one slice. The machine does not stop at the end of a slice without
//! output.

use std::convert::Infallible;
use std::num::NonZeroU64;

use trapline_dump::CrashDump;
use trapline_emu::{Moment, Reader, SentByte, Stop, TrapInterposer};
use trapline_interposer::{CoreFile, HandlerError, Interposer, ProbeNames};
use trapline_trace::{Record, RecordView};

use super::scout::{Errand, Scout};
use super::{Names, Operator, SavedSession, Session};
use crate::ending::{Condition, Ending, Limits};
use crate::recording::Event;
use crate::replies::Reply;
use crate::script::{DueHit, Script};

/// Instructions from one drain of the channels to the next: few enough that the default channel holds a record of
/// every third one; where there are more it grows.
const SLICE: NonZeroU64 = NonZeroU64::new(20_000).unwrap();
/// Instructions between two checks of the console and the limits, if there are no records. A multiple of [`SLICE`].
const EMPTY_SLICES: u64 = 5_000_000;

/// Whether the machine may have stopped at this count because a slice ends here.
pub(super) fn ends_slice(icount: u64) -> bool {
    icount.is_multiple_of(SLICE.get())
}

/// An observer of a running session. Every method does nothing by default.
pub trait Observer {
    /// An error of the observer; it ends the run.
    type Error;

    /// A record. Records arrive in the order of their sequence numbers.
    ///
    /// # Errors
    /// The observer's own.
    fn record(&mut self, record: &RecordView<'_>, names: &Names<'_>) -> Result<(), Self::Error> {
        let _ = (record, names);
        Ok(())
    }

    /// The answer to a line of the script.
    ///
    /// # Errors
    /// The observer's own.
    fn reply(&mut self, reply: &Reply) -> Result<(), Self::Error> {
        let _ = reply;
        Ok(())
    }

    /// The first failures of handlers since the last slice.
    fn failed(&mut self, error: &HandlerError, names: ProbeNames<'_>) {
        let _ = (error, names);
    }

    /// Whether [`Observer::sent`] is wanted.
    fn wants_sent(&self) -> bool {
        false
    }

    /// The output of the guest's serial ports in this slice. It is passed before the slice's records.
    fn sent(&mut self, bytes: &[SentByte]) {
        let _ = bytes;
    }

    /// The output of the guest's console in this slice, which may be empty. It is passed after the slice's records.
    ///
    /// # Errors
    /// The observer's own.
    fn console(&mut self, fresh: &[u8]) -> Result<(), Self::Error> {
        let _ = fresh;
        Ok(())
    }

    /// The crash dump that the first `exit 2` in a handler has taken.
    ///
    /// # Errors
    /// The observer's own.
    fn crash_dump(&mut self, dump: Box<CrashDump>) -> Result<(), Self::Error> {
        drop(dump);
        Ok(())
    }

    /// What takes states of the run on its way, if there is something: a [`Layer`](crate::Layer).
    fn states(&mut self) -> Option<&mut dyn TakesStates> {
        None
    }

    /// A core file that `exit 3` in a handler has taken.
    ///
    /// # Errors
    /// The observer's own.
    fn core_file(&mut self, core: &CoreFile) -> Result<(), Self::Error> {
        let _ = core;
        Ok(())
    }
}

/// Takes saved states of a run on its way.
pub trait TakesStates {
    /// Whether the state is wanted at this moment, the first one with its instruction count; `effort` is what running here
    /// has cost.
    fn wants(&mut self, now: Moment, effort: u64) -> bool;

    /// The state at this moment. All inputs before its instruction count have arrived, and none of that count.
    fn take(&mut self, now: Moment, state: SavedSession, effort: u64);

    /// The run goes no further, or goes back: from here on it is a different one.
    fn end(&mut self);
}

/// Drops everything.
impl Observer for () {
    type Error = Infallible;
}

/// Keeps records and core files, and drops everything else.
#[derive(Default)]
pub struct Keep {
    pub records: Vec<Record>,
    pub cores: Vec<CoreFile>,
    pub dump: Option<Box<CrashDump>>,
}

impl Observer for Keep {
    type Error = Infallible;

    fn record(&mut self, record: &RecordView<'_>, _: &Names<'_>) -> Result<(), Infallible> {
        self.records.push(record.to_owned());
        Ok(())
    }

    fn core_file(&mut self, core: &CoreFile) -> Result<(), Infallible> {
        self.cores.push(core.clone());
        Ok(())
    }

    fn crash_dump(&mut self, dump: Box<CrashDump>) -> Result<(), Infallible> {
        self.dump = Some(dump);
        Ok(())
    }
}

/// The effect of the script lines that were due.
enum Acted {
    /// The run continues here.
    GoesOn,
    /// The run continues from a snapshot.
    Moved,
    /// The run ends.
    Ends(Ending),
}

impl Session {
    /// Runs to the end. After each slice, the observer is called, and the script acts if a line is due.
    ///
    /// # Errors
    /// The observer's.
    pub fn run<O: Observer>(
        &mut self,
        script: &mut Script,
        condition: &Condition,
        limits: &Limits,
        observer: &mut O,
    ) -> Result<Ending, O::Error> {
        self.run_whole(script, condition, limits, observer, None)
    }

    /// A run with a recorded beginning and end.
    pub(super) fn run_whole<O: Observer>(
        &mut self,
        script: &mut Script,
        condition: &Condition,
        limits: &Limits,
        observer: &mut O,
        operator: Option<&mut dyn Operator>,
    ) -> Result<Ending, O::Error> {
        self.course.event(self.machine.moment(), || Event::Begin);
        let ran = self.run_on(script, condition, limits, observer, operator);
        // Without its observer the run ends here, and a recording of it ends properly.
        let ending = ran.as_ref().map_or(Ending::Interrupted, Clone::clone);
        self.ends(ending);
        ran
    }

    /// Notes that the run ends here.
    pub(super) fn ends(&mut self, ending: Ending) {
        self.course.event(self.machine.moment(), || Event::End(ending));
    }

    pub(super) fn run_on<O: Observer>(
        &mut self,
        script: &mut Script,
        condition: &Condition,
        limits: &Limits,
        observer: &mut O,
        mut operator: Option<&mut dyn Operator>,
    ) -> Result<Ending, O::Error> {
        self.prepare(script, condition, observer);
        if self.interposer.as_ref().is_some_and(Interposer::stopped_by_handler) {
            // `exit()` in BEGIN.
            self.pass_on(observer)?;
            return Ok(self.why_ended(Stop::Requested, condition));
        }
        let mut due = Vec::new();
        let mut stopped = None;
        loop {
            match (self.act(condition, script, due, observer)?, stopped.take()) {
                (Acted::Ends(ending), _) => return Ok(ending),
                (Acted::GoesOn, Some(stop)) => return Ok(self.why_ended(stop, condition)),
                _ => {}
            }
            let from = self.icount();
            let limit = limits.icount.min(script.next_stop(from));
            let (stop, whole) = match &mut operator {
                None => self.slice(limit, None),
                Some(operator) => self.attended_slice(limit, observer, *operator)?,
            };
            // A stop in HLT for the operator does not drain the channels, because a replay does not stop there.
            let waits = operator.is_some() && !whole && stop == Stop::Limit && self.icount() < limit;
            let passes = limits.passes && !self.course.is_noted();
            if !waits && (whole || !passes || stop != Stop::Limit || self.icount() != limits.icount) {
                self.pass_on(observer)?;
            }
            if matches!(stop, Stop::Text(_) | Stop::Requested) {
                self.course.event(self.machine.moment(), || Event::Drain);
            }
            if let Some(ending) = self.course.broken() {
                return Ok(ending);
            }
            if let Some(operator) = &mut operator
                && let Some(ending) = self.attend(observer, *operator)?
            {
                return Ok(ending);
            }
            if limits.cancelled() {
                return Ok(Ending::Interrupted);
            }
            if whole && stop == Stop::Limit && operator.is_none() {
                self.offer_state(from, observer);
            }
            due = self.due_hits();
            script.look(self.machine.console());
            stopped = (!self.goes_on(&stop, condition, limits)).then_some(stop);
        }
    }

    fn prepare<O: Observer>(&mut self, script: &Script, condition: &Condition, observer: &O) {
        self.watch_console(condition, script);
        if observer.wants_sent() {
            self.machine.keep_sent();
        }
        self.count_hits(condition);
        self.watch_hits(script);
    }

    /// Requests a stop at the last of the awaited hits, which are counted from here.
    fn count_hits(&mut self, condition: &Condition) {
        let Some(interposer) = &mut self.interposer else { return };
        match condition.hits {
            Some(hits) => interposer.stop_after_hits(hits),
            None if self.counts_hits => interposer.stop_after_hits(u64::MAX),
            None => {}
        }
        self.counts_hits = condition.hits.is_some();
    }

    /// Stops the machine at all texts that matter: those of the condition, the kernel's, and the script's.
    pub(super) fn watch_console(&mut self, condition: &Condition, script: &Script) {
        let given = condition.until.iter().chain(&condition.crash_on).map(String::as_bytes);
        let texts = given.chain(self.crash.text()).chain(script.texts()).map(<[u8]>::to_vec).collect();
        self.machine.watch_console(texts);
    }

    pub(super) fn goes_on(&self, stop: &Stop, condition: &Condition, limits: &Limits) -> bool {
        match stop {
            Stop::Limit => self.icount() < limits.icount,
            Stop::Requested => !self.interposer.as_ref().is_some_and(Interposer::stopped_by_handler),
            Stop::Text(n) => {
                let asked = *n < condition.until.len() + condition.crash_on.len();
                !asked && !self.crash.ended(&self.machine)
            }
            _ => false,
        }
    }

    /// Carries out the lines of the script that are due here.
    fn act<O: Observer>(
        &mut self,
        condition: &Condition,
        script: &mut Script,
        mut due: Vec<DueHit>,
        observer: &mut O,
    ) -> Result<Acted, O::Error> {
        let (mut acted, mut moved) = (false, false);
        let was_probed = self.interposer.is_some();
        while let Some((line, command)) = script.take_due(self.icount(), &due) {
            acted = true;
            let (stops, goes_back) = (command.stops(), command.goes_back());
            let reply = match self.apply(command) {
                Ok(reply) => reply,
                Err(error) => {
                    let sentence = format!("{}: {error}", script.place(line));
                    return Ok(Acted::Ends(Ending::ScriptFailed(sentence)));
                }
            };
            observer.reply(&reply)?;
            if stops {
                return Ok(Acted::Ends(Ending::Stopped));
            }
            if goes_back {
                observer.states().into_iter().for_each(TakesStates::end);
                moved = true;
                due.clear();
                script.moved(self.icount());
                script.look(self.machine.console());
            }
        }
        if acted {
            self.watch_console(condition, script);
            if !was_probed {
                self.count_hits(condition);
            }
            self.watch_hits(script);
        }
        Ok(if moved { Acted::Moved } else { Acted::GoesOn })
    }

    fn watch_hits(&mut self, script: &Script) {
        if let Some(interposer) = &mut self.interposer {
            script.watch(interposer);
        }
    }

    /// The hits for which the run has stopped.
    fn due_hits(&mut self) -> Vec<DueHit> {
        let Some(interposer) = &mut self.interposer else { return Vec::new() };
        let due = interposer.take_due();
        // Called after each slice: the views of many thousands of probe points would cost more than the slice.
        if due.is_empty() {
            return Vec::new();
        }
        let programs = interposer.programs();
        let hit = |id| {
            let name = programs.iter().find(|program| program.id == id)?.name.to_owned();
            Some(DueHit { name, n: interposer.stops_at_hit(id)? })
        };
        due.into_iter().filter_map(hit).collect()
    }

    /// Runs to the end of the slice, to `limit`, or to the moment `until`; returns whether it has reached the point at
    /// which it would have stopped without `limit` and `until`.
    pub(super) fn slice(&mut self, limit: u64, until: Option<Moment>) -> (Stop, bool) {
        self.slice_through(limit, until, None)
    }

    /// As [`Session::slice`], with an errand on the way.
    pub(super) fn slice_through(
        &mut self,
        limit: u64,
        until: Option<Moment>,
        errand: Option<Errand<'_>>,
    ) -> (Stop, bool) {
        let reader = Reader { every: SLICE, shown: self.shown };
        self.machine.core_mut().pause_for(self.interposer.is_some().then_some(reader));
        let began = self.icount();
        let next = (began / EMPTY_SLICES + 1).saturating_mul(EMPTY_SLICES);
        let tick = self.interposer.as_ref().and_then(Interposer::next_tick);
        let next = tick.map_or(next, |tick| next.min(tick));
        let stop = match (errand, &mut self.counting) {
            (None, None) => {
                let lent = self.interposer.as_mut().map(|interposer| interposer as &mut dyn TrapInterposer);
                self.course.run(&mut self.machine, lent, next.min(limit), until)
            }
            (Some(errand), _) => {
                let mut scout = Scout::new(self.interposer.as_mut(), errand);
                self.course.run(&mut self.machine, Some(&mut scout), next.min(limit), until)
            }
            (None, Some(counting)) => {
                let mut scout = Scout::new(self.interposer.as_mut(), Errand::Follow(counting.as_mut()));
                self.course.run(&mut self.machine, Some(&mut scout), next.min(limit), until)
            }
        };
        let now = self.machine.icount();
        self.meter.note(now, self.machine.core().virtual_ns(), now.saturating_sub(began));
        let whole = now >= next || self.interposer.is_some() && now > began && ends_slice(now);
        let Some(interposer) = &mut self.interposer else { return (stop, whole) };
        let ticked = interposer.tick(self.machine.core_mut());
        let ends = stop == Stop::Limit && interposer.stopped_by_handler();
        (if ends { Stop::Requested } else { stop }, whole || ticked)
    }

    /// Passes the output of the slice to the observer. Even if the observer fails, the notes about the run are
    /// complete.
    pub(crate) fn pass_on<O: Observer>(&mut self, observer: &mut O) -> Result<(), O::Error> {
        if observer.wants_sent() {
            observer.sent(&self.machine.take_sent());
        }
        let (mut result, items) = (Ok(()), self.probing.header);
        if let Some(interposer) = &mut self.interposer {
            let (channels, probes) = interposer.channels_and_names();
            let names = Names::new(&self.target, Some(probes));
            let course = &mut self.course;
            channels.drain(|record| {
                course.record(&record, items);
                if result.is_ok() {
                    result = observer.record(&record, &names);
                }
            });
            for error in interposer.take_errors() {
                observer.failed(&error, interposer.names());
            }
        }
        let shown = self.note_console();
        result?;
        observer.console(self.machine.console().get(shown..).unwrap_or_default())?;
        let cores = self.interposer.as_mut().map(Interposer::take_cores).unwrap_or_default();
        cores.iter().try_for_each(|core| observer.core_file(core))?;
        let dump = self.interposer.as_mut().and_then(Interposer::take_dump);
        dump.map_or(Ok(()), |dump| observer.crash_dump(dump))
    }

    /// Passes new console output to the observer, and leaves the records in the channels.
    pub(super) fn show_console<O: Observer>(&mut self, observer: &mut O) -> Result<(), O::Error> {
        let shown = self.note_console();
        match self.machine.console().get(shown..) {
            None | Some([]) => Ok(()),
            Some(fresh) => observer.console(fresh),
        }
    }

    /// Notes new console output; returns the amount that was known before.
    fn note_console(&mut self) -> usize {
        let console = self.machine.console();
        let fresh = console.get(self.shown..).unwrap_or_default();
        self.course.console(fresh, self.machine.icount());
        std::mem::replace(&mut self.shown, console.len())
    }

    pub(super) fn why_ended(&mut self, stop: Stop, condition: &Condition) -> Ending {
        let stopped_by = self.interposer.as_mut().and_then(|i| i.take_stopped_by().map(str::to_owned));
        let enough = self.interposer.as_ref().and_then(Interposer::enough_hits);
        let by_itself = matches!(
            stop,
            Stop::Text(_) | Stop::Halted | Stop::PoweredOff | Stop::Reset(_) | Stop::DebugExit(_)
        );
        if let Some(how) = by_itself.then(|| self.crash.found(&self.machine)).flatten() {
            return Ending::KernelCrashed(how);
        }
        let panicked = self.interposer.as_mut().is_some_and(Interposer::take_panicked);
        match (stop, stopped_by, enough) {
            (Stop::Requested, Some(name), _) if panicked => {
                Ending::KernelCrashed(format!("panic( ) in {name}"))
            }
            (Stop::Requested, Some(_), Some(hits)) => Ending::EnoughHits(hits),
            (Stop::Requested, Some(name), None) => Ending::HandlerStopped(name),
            (stop, ..) => ending_of(stop, condition),
        }
    }
}

fn ending_of(stop: Stop, condition: &Condition) -> Ending {
    match stop {
        Stop::Limit => Ending::Limit,
        Stop::Halted | Stop::Idle(_) => Ending::Halted,
        Stop::PoweredOff => Ending::PoweredOff,
        Stop::Reset(how) => Ending::Reset(how),
        Stop::DebugExit(value) => Ending::DebugExit(value),
        Stop::Text(n) => match (condition.until.get(n), n.checked_sub(condition.until.len())) {
            (Some(text), _) => Ending::Until(text.clone()),
            (None, n) => {
                Ending::CrashText(n.and_then(|n| condition.crash_on.get(n)).cloned().unwrap_or_default())
            }
        },
        Stop::TripleFault(report) => Ending::TripleFault(report),
        Stop::Unsupported(what) => Ending::CannotGoOn(format!("it does not support {what}")),
        Stop::Engine(what) => Ending::CannotGoOn(what),
        Stop::Panicked(what) => Ending::CannotGoOn(format!("an error inside Trapline: {what}")),
        Stop::Requested => Ending::CannotGoOn("a probe asked for a stop".to_owned()),
    }
}
