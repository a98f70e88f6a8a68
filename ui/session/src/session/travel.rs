//! The access to a session that a timeline needs: saving and restoring without a recorder's notice, and running stretch
//! by stretch, optionally with a search.

use trapline_emu::{Moment, StagedDigest, Stop};
use trapline_interposer::{Interposer, Output, ProgramId, Traces};
use trapline_os::OsProfile;

use super::run::Keep;
use super::scout::{Errand, Search};
use super::{Observer, SavedSession, Session};
use crate::commands::{CommandError, short_name};
use crate::ending::{Condition, Ending};
use crate::snapshot_error::SnapshotError;

/// The cost of a handler, in plain instructions.
const HIT: u64 = 200;

/// The caller of the current function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The return address.
    pub ip: u64,
    /// The stack pointer after the return.
    pub sp: u64,
    /// The linear address of the return address.
    pub place: u64,
    /// CR3 for a program, which has its own addresses; `None` for the kernel.
    pub space: Option<u64>,
    /// Bytes of a return address.
    pub word: u64,
}

impl Session {
    /// The moment of the run.
    pub fn moment(&self) -> Moment {
        self.machine.moment()
    }

    /// Whether a recorder or a verifier follows the run, which then must not jump.
    pub(crate) fn is_noted(&self) -> bool {
        self.course.is_noted()
    }

    /// The work that the session has done, as [`Core::effort`](trapline_emu::Core::effort) counts it, and that of handlers. The
    /// difference of two values is what running from one to the other has cost, unless a saved state was restored in between.
    pub(crate) fn effort(&self) -> u64 {
        self.machine.core().effort() + HIT * self.hits()
    }

    /// Hits so far.
    pub(crate) fn hits(&self) -> u64 {
        self.interposer.as_ref().map_or(0, Interposer::hits)
    }

    /// Passes the state here to the observer's timeline, if that wants it. The run has come here from this instruction count,
    /// and stops where it would stop in a timeline too.
    pub(super) fn offer_state<O: Observer>(&mut self, from: u64, observer: &mut O) {
        let now = self.machine.moment();
        if now.icount > from
            && now.delivered == 0
            && let Some(states) = observer.states()
            && let effort = self.effort()
            && states.wants(now, effort)
        {
            states.take(now, self.save(), effort);
        }
    }

    /// Saves the session, with no number in a recording.
    pub(crate) fn save_rung(&mut self) -> SavedSession {
        self.save()
    }

    /// Restores a saved state exactly.
    pub(crate) fn go_to_rung(&mut self, saved: &SavedSession) -> Result<(), SnapshotError> {
        self.go_to(saved, Output::Travels)
    }

    /// The digest in stages.
    pub(crate) fn staged_digest(&mut self) -> StagedDigest {
        self.machine.staged_digest()
    }

    /// The pages that changed from the last but one to the last of [`Session::staged_digest`].
    pub(crate) fn changed_pages(&self) -> impl Iterator<Item = &(u32, u128)> {
        self.machine.changed_pages().iter()
    }

    /// Whether a snapshot of the other session's machine fits this one's.
    pub(crate) fn is_of_machine_of(&self, other: &Self) -> bool {
        self.machine.identity() == other.machine.identity()
    }

    /// Lets the run go on to the end of a slice, to `limit`, or to `until`; returns whether it has reached its regular
    /// stop.
    pub(crate) fn stretch_to(
        &mut self,
        limit: u64,
        until: Option<Moment>,
        search: Option<&mut Search>,
    ) -> (Stop, bool) {
        let Some(search) = search else { return self.slice(limit, until) };
        let answer = self.slice_through(limit, until, Some(Errand::Search(&mut *search)));
        if let Some(interposer) = &mut self.interposer {
            search.hits(&interposer.take_noted());
        }
        answer
    }

    /// Begins a search from here; the state is invalid until a saved one is restored.
    pub(crate) fn begin_search(&mut self, search: &Search) {
        search.begin(self.machine.core_mut());
        self.note_hits(search);
    }

    /// Notes hits if the search needs them: the interposer may have been made since.
    pub(crate) fn note_hits(&mut self, search: &Search) {
        if let Some(interposer) = self.interposer.as_mut().filter(|_| search.wants_hits()) {
            interposer.note_hits();
        }
    }

    /// Ends a search; a saved state must be restored afterwards.
    pub(crate) fn end_search(&mut self, search: &Search) {
        search.end(self.machine.core_mut());
        if let Some(interposer) = &mut self.interposer {
            interposer.note_no_hits();
        }
    }

    /// Asks for a stop after `hits` hits that leave a record, if there are probes.
    pub(crate) fn stop_after_hits(&mut self, hits: u64) -> bool {
        self.interposer.as_mut().map(|interposer| interposer.stop_after_hits(hits)).is_some()
    }

    /// Whether that number of hits was reached.
    pub(crate) fn had_enough_hits(&self) -> bool {
        self.interposer.as_ref().and_then(Interposer::enough_hits).is_some()
    }

    /// How many hits have left a record since a number of them was asked for.
    pub fn counted_hits(&self) -> u64 {
        self.interposer.as_ref().map_or(0, Interposer::counted_hits)
    }

    /// Traces the handlers that run at an instruction count, if there are probes.
    pub(crate) fn trace_handlers(&mut self, icount: u64) {
        if let Some(interposer) = &mut self.interposer {
            interposer.trace_handlers(icount);
        }
    }

    /// The handlers that were traced.
    pub(crate) fn take_traces(&mut self) -> Traces {
        self.interposer.as_mut().map(Interposer::take_traces).unwrap_or_default()
    }

    /// Drains the results of the stretches: records and core files stay with the session, and the observer receives
    /// them too.
    pub(crate) fn drain_to<O: Observer>(&mut self, observer: &mut O) -> Result<(), O::Error> {
        let mut tee = Tee { kept: Keep::default(), observer };
        let drained = self.pass_on(&mut tee);
        let kept = tee.kept;
        self.records.extend(kept.records);
        self.cores.extend(kept.cores.into_iter().map(std::sync::Arc::new));
        drained
    }

    /// Shows an observer the records that wait in the channel, and leaves them there.
    ///
    /// # Errors
    /// The observer's.
    pub fn tell_waiting<O: Observer>(&mut self, observer: &mut O) -> Result<(), O::Error> {
        let waiting = self.waiting();
        let names = self.names();
        waiting.iter().try_for_each(|record| observer.record(&record.view(), &names))
    }

    /// What reads the guest's tasks, if its system is known.
    pub fn profile(&self) -> Option<Box<dyn OsProfile>> {
        (self.profile)()
    }

    /// Process id and name of the current task, if the guest's system is known.
    pub fn current_task(&self) -> Option<(u32, String)> {
        let (core, profile) = (self.machine.core(), (self.profile)()?);
        let mut name = Vec::new();
        profile.name_into(core, &mut name);
        Some((profile.pid(core), String::from_utf8_lossy(&name).into_owned()))
    }

    /// The address of the current task, if the guest's system is known.
    pub fn current_task_address(&self) -> Option<u64> {
        Some((self.profile)()?.current_task(self.machine.core())).filter(|task| *task != 0)
    }

    /// Forgets that a handler has asked for the end of the run.
    pub(crate) fn pass_stop(&mut self) {
        if let Some(interposer) = &mut self.interposer {
            let _ = interposer.take_stopped_by();
        }
    }

    /// Why a run has ended by itself.
    pub(crate) fn ending_of(&mut self, stop: Stop) -> Ending {
        self.why_ended(stop, &Condition::end())
    }

    /// The programs that a name means: that of one program, or of all that a clause's descriptions name.
    ///
    /// # Errors
    /// There is none.
    pub fn programs_named(&self, name: &str) -> Result<Vec<ProgramId>, CommandError> {
        let found: Vec<ProgramId> = self
            .programs()
            .iter()
            .filter(|program| program.name == name || short_name(program.name) == name)
            .map(|program| program.id)
            .collect();
        if found.is_empty() { Err(self.unknown_program(name)) } else { Ok(found) }
    }

    /// Whether the next instruction is a call.
    pub(crate) fn is_at_call(&self) -> bool {
        let core = self.machine.core();
        core.decode_original(core.linear_ip()).is_some_and(|next| {
            let near = next.is_call_near() || next.is_call_near_indirect();
            near || next.is_call_far() || next.is_call_far_indirect()
        })
    }

    /// Where the current function returns to, according to the stack; `None` if unknown.
    pub(crate) fn caller(&self) -> Option<Caller> {
        let (core, profile) = (self.machine.core(), (self.profile)());
        let env = core.env();
        let mut unwinder = self.target.unwinder();
        let found = if env.cpl() == 3 {
            unwinder.user_stack(core, profile.as_deref(), false, 2).get(1).map(|f| (f.ip, f.sp))
        } else {
            unwinder.kernel_stack(core, profile.as_deref(), false, 2).get(1).map(|f| (f.ip, f.sp))
        };
        let (ip, sp) = found?;
        let (sp, word) = (sp?, if env.code64() { 8 } else { 4 });
        let place = core.wrap_linear(core.stack().linear(sp.wrapping_sub(word)));
        Some(Caller { ip, sp, place, space: (env.cpl() == 3).then(|| env.cr(3)), word })
    }
}

/// Keeps records and core files, and passes them to an observer too.
struct Tee<'a, O> {
    kept: Keep,
    observer: &'a mut O,
}

impl<O: Observer> Observer for Tee<'_, O> {
    type Error = O::Error;

    fn record(
        &mut self,
        record: &trapline_trace::RecordView<'_>,
        names: &super::Names<'_>,
    ) -> Result<(), O::Error> {
        self.kept.records.push(record.to_owned());
        self.observer.record(record, names)
    }

    fn failed(
        &mut self,
        error: &trapline_interposer::HandlerError,
        names: trapline_interposer::ProbeNames<'_>,
    ) {
        self.observer.failed(error, names);
    }

    fn console(&mut self, fresh: &[u8]) -> Result<(), O::Error> {
        self.observer.console(fresh)
    }

    fn core_file(&mut self, core: &trapline_interposer::CoreFile) -> Result<(), O::Error> {
        self.kept.cores.push(core.clone());
        self.observer.core_file(core)
    }

    fn crash_dump(&mut self, dump: Box<trapline_dump::CrashDump>) -> Result<(), O::Error> {
        self.observer.crash_dump(dump)
    }
}
