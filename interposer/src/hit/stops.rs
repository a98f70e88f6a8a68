//! Stops at hits: after the N-th of a program, after N of all, and where a handler asks for the end of the run.

use super::Interposer;
use super::life::Due;
use crate::model::{Program, ProgramId};
use serde::{Deserialize, Serialize};
use trapline_emu::{Core, Moment, Stop};
use trapline_rpn::{Outcome, Termination};

/// Stops that were requested, and that have happened.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Stops {
    /// Programs whose awaited hit has completed.
    pub fired: Vec<ProgramId>,
    /// The program of the handler that has ended the run.
    pub by: Option<ProgramId>,
    /// Whether that handler wants the guest to have crashed. It is taken where the run ends.
    #[serde(skip)]
    pub panicked: bool,
    /// The number of hits with a record after which the run stops.
    pub after: Option<u64>,
    /// The number of such hits so far.
    pub counted: u64,
}

/// A hit whose handler has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotedHit {
    /// The program.
    pub program: ProgramId,
    /// The number of the probe, as in its records.
    pub probe: u32,
    /// The moment in its record.
    pub at: Moment,
    /// Whether the handler has come to its end: it has not if its predicate does not hold, or if it has failed.
    pub whole: bool,
    /// Whether it has asked for a debugger, by `exit 1`.
    pub asks_debugger: bool,
    /// The process that runs, in the kernel too, if that is known.
    pub process: Option<u32>,
}

impl Stops {
    /// Counts a hit, if hits are counted and it leaves a record. Returns the increase of the count.
    pub fn count(&mut self, outcome: &Outcome) -> u64 {
        let counts = u64::from(self.after.is_some() && outcome.recorded());
        self.counted += counts;
        counts
    }
}

impl Interposer {
    /// Asks that the run stop with [`Stop::Requested`] when the displaced instruction of the program's hit number
    /// `at` has completed; `None` asks for no stop. Hits are counted over all probe points, from 1. A hit whose
    /// instruction faults completes when it is tried again, or with the program's next hit; a repeated string
    /// instruction after its last iteration.
    pub fn stop_at_hit(&mut self, id: ProgramId, at: Option<u64>) {
        let Some(program) = self.inserted.programs.get(id.0) else { return };
        let counted = self.hits_of(program);
        for index in program.probes.clone() {
            if let Some(probe) = self.inserted.probes.get_mut(index) {
                // A limit of 0 sends each hit to `last_hit`.
                let awaited = at.is_some() || self.stops.after.is_some();
                probe.limit = if awaited { 0 } else { probe.rest.maxhits };
            }
        }
        if let Some(program) = self.inserted.programs.get_mut(id.0) {
            (program.counted, program.stop_at) = (counted, at);
        }
    }

    /// Ends the run, as the service `stop` does, when `hits` hits of any probe have left a record and completed. A hit
    /// that ends by `abort`, as one whose predicate does not hold, is not counted. Programs that are inserted later
    /// count too.
    pub fn stop_after_hits(&mut self, hits: u64) {
        (self.stops.after, self.stops.counted) = (Some(hits), 0);
        self.inserted.probes.iter_mut().for_each(|probe| probe.limit = 0);
    }

    /// From now on notes each hit for [`Interposer::take_noted`]. Noted hits are not part of a saved state.
    pub fn note_hits(&mut self) {
        self.noted = Some(Vec::new());
        self.inserted.probes.iter_mut().for_each(|probe| probe.limit = 0);
    }

    /// The hits that were noted since the last call. A hit whose instruction has faulted is noted again when it is tried
    /// again.
    pub fn take_noted(&mut self) -> Vec<NotedHit> {
        self.noted.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Stops noting hits. Call it before a state is restored.
    pub fn note_no_hits(&mut self) {
        self.noted = None;
    }

    /// Whether each hit takes the path through `last_hit`.
    pub(super) fn awaits_hits(&self) -> bool {
        self.stops.after.is_some() || self.noted.is_some()
    }

    /// Whether hits are noted.
    pub(super) fn notes_hits(&self) -> bool {
        self.noted.is_some()
    }

    /// Notes a hit, if hits are noted.
    pub(super) fn note_hit(&mut self, core: &Core, probe: u32, program: ProgramId, outcome: &Outcome) {
        if let Some(noted) = &mut self.noted {
            let whole = !matches!(outcome.termination, Termination::Abort | Termination::Exception);
            let asks_debugger = outcome.termination == Termination::ExitTo(1);
            let process = self.profile.as_deref().map(|profile| profile.tgid(core));
            noted.push(NotedHit { program, probe, at: core.moment(), whole, asks_debugger, process });
        }
    }

    /// The number of hits that [`Interposer::stop_after_hits`] asked for, once it is reached.
    pub fn enough_hits(&self) -> Option<u64> {
        self.stops.after.filter(|after| self.stops.counted >= *after)
    }

    /// How many hits have left a record since [`Interposer::stop_after_hits`].
    pub fn counted_hits(&self) -> u64 {
        self.stops.counted
    }

    /// The hit number that [`Interposer::stop_at_hit`] last asked for.
    pub fn stops_at_hit(&self, id: ProgramId) -> Option<u64> {
        self.inserted.programs.get(id.0)?.stop_at
    }

    /// The programs whose hit has asked for the stop that has just happened.
    pub fn take_due(&mut self) -> Vec<ProgramId> {
        std::mem::take(&mut self.stops.fired)
    }

    /// A hit that reached its probe's limit, or whose handler asked to be removed. `run` says which run of the probe it
    /// is, and `retry` whether it was counted before.
    #[cold]
    pub(super) fn last_hit(&mut self, core: &Core, index: u32, run: u64, retry: bool, outcome: &Outcome) {
        let Some(probe) = self.inserted.probes.get(index as usize) else { return };
        self.note_hit(core, index, ProgramId(probe.program as usize), outcome);
        let Some(probe) = self.inserted.probes.get(index as usize) else { return };
        if outcome.remove || run >= probe.rest.maxhits {
            self.hit.rare = true;
            self.hit.expired.push(index);
        }
        let id = ProgramId(probe.program as usize);
        let counts = self.stops.count(outcome);
        self.hit.counted += counts;
        self.hit.rare |= counts > 0;
        if self.enough_hits().is_some() {
            self.stop_after(Due { program: id, asked: true });
        }
        let Some(program) = self.inserted.programs.get_mut(id.0) else { return };
        program.counted += u64::from(!retry);
        if program.stop_at.is_none_or(|n| program.counted < n) {
            return;
        }
        self.stop_after(Due { program: id, asked: false });
    }

    /// The handler of this probe has asked for the end of the run: the run stops when the displaced instruction has
    /// completed, or at once if there is none.
    pub(super) fn stop_here(&mut self, core: &mut Core, index: u32, at_site: bool) {
        let Some(probe) = self.inserted.probes.get(index as usize) else { return };
        let program = ProgramId(probe.program as usize);
        if at_site {
            self.stop_after(Due { program, asked: true });
        } else {
            self.stops.by = Some(program);
            core.finish(Stop::Requested);
        }
    }

    fn stop_after(&mut self, due: Due) {
        if !self.hit.due.contains(&due) {
            self.hit.rare = true;
            self.hit.due.push(due);
        }
    }

    /// The displaced instruction has completed: stops the run if its hit requires it.
    pub(super) fn stop_when_due(&mut self, core: &mut Core) {
        let due = std::mem::take(&mut self.hit.due);
        if !due.is_empty() {
            self.stops.by = due.iter().find(|due| due.asked).map(|due| due.program);
            self.stops.fired.extend(due.iter().filter(|due| !due.asked).map(|due| due.program));
            core.finish(Stop::Requested);
        }
    }

    /// Whether the stop that has just happened is one that a handler asked for.
    pub fn stopped_by_handler(&self) -> bool {
        self.stops.by.is_some()
    }

    /// Whether the handler that has ended the run wants the guest to have crashed (`panic()` of D), once.
    pub fn take_panicked(&mut self) -> bool {
        std::mem::take(&mut self.stops.panicked)
    }

    /// The name of the program whose handler has ended the run, once.
    pub fn take_stopped_by(&mut self) -> Option<&str> {
        let id = self.stops.by.take()?;
        self.inserted.programs.get(id.0).map(Program::name)
    }
}
