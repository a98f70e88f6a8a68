//! The life of one hit, as data: what is in progress, and which hits wait for their instruction to be resumed.
//!
//! A hit begins with a trap, runs its handlers, and is over when its displaced instruction has completed. An
//! instruction that faults, or a repeated one that is interrupted, has not completed: its hit is *parked* until the
//! task resumes that instruction. The task has resumed it if it has run nothing else meanwhile. The instruction count
//! shows this: the count at the trap is the one at which the hit was parked, or at which a return from an exception led
//! back to the instruction.
//!
//! Invariant: no two parked hits have the same task and stack pointer.

use crate::model::ProgramId;
use serde::{Deserialize, Serialize};
use trapline_emu::{Access, Core, Seg};
use trapline_os::{Birth, OsProfile};
use trapline_trace::TakenOut;

/// The most parked hits. Past this the oldest is dropped: its task has usually died.
const MOST_PARKED: usize = 1024;

/// No count comes so far.
pub(crate) const MOST_COUNTED: u64 = 1 << 62;

/// A program whose hit in progress is to stop the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Due {
    pub program: ProgramId,
    /// A handler asked for it, and the run ends.
    pub asked: bool,
}

/// A probe that waits for the completion of the instruction before it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Awaiting {
    pub probe: u32,
    /// Offset in CS of the site.
    pub ip: u64,
}

/// A probe's part in a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub probe: u32,
    /// The number of the probe's run, from 1; `None` if `ignore` passed over the hit.
    pub run: Option<u64>,
}

/// The stage of the hit in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// It is over, or its handlers run.
    #[default]
    Over,
    /// Its displaced instruction runs, or has completed without notice so far.
    Displaced,
}

/// The hit in progress. Most hits touch the first three fields only.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Hit {
    pub site: usize,
    pub stage: Stage,
    /// Whether any of the other fields is set.
    pub rare: bool,
    /// Where its instruction is, if a watch of execution has reported it: the instruction count and the linear address.
    /// Further traps there, of other watches or of a patch, belong to the same hit.
    pub watched_at: Option<(u64, u64)>,
    /// The sites of its traps before the last one.
    pub joined: Vec<usize>,
    /// Why it was parked, if it is one that goes on.
    pub resumed: Option<Why>,
    /// Where an exception found the CPU while the displaced instruction ran.
    pub origin: Option<Origin>,
    /// How much [`crate::Interposer::stop_after_hits`] has counted for it.
    pub counted: u64,
    /// The probes' parts in it before its instruction faulted.
    pub before: Vec<Part>,
    /// Probes for which it is the last hit: they are disabled when it is over.
    pub expired: Vec<u32>,
    /// Programs whose hit is to stop the run when it is over.
    pub due: Vec<Due>,
    /// A handler let time pass. No state is saved while a hit has this.
    #[serde(skip)]
    pub passed: bool,
    /// Probes that run when the displaced instruction has completed.
    pub awaiting: Vec<Awaiting>,
    /// Records of handlers that ran before the instruction was interrupted.
    pub held: TakenOut,
}

impl Hit {
    /// Whether something is to be done as soon as the displaced instruction has completed. Such a hit never runs in line or
    /// from a slot: a run must not end in a slot.
    pub fn has_sequel(&self) -> bool {
        self.passed || !(self.expired.is_empty() && self.due.is_empty() && self.awaiting.is_empty())
    }

    /// Ends the hit: resets all its state.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// A task's position, by which a parked hit is recognised.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// EIP.
    ip: u64,
    /// Stack pointer.
    sp: u64,
    task: Task,
}

impl Origin {
    pub fn now(core: &Core, profile: Option<&dyn OsProfile>) -> Self {
        let sp = core.env().gpr(4);
        Self { ip: core.env().eip(), sp, task: Task::now(core, profile, sp) }
    }
}

/// The current task, as far as the CPU and the profile show it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Task {
    user: bool,
    cr3: u64,
    /// In the kernel the physical address of the top of its stack, where it has one: the kernel may borrow any task's
    /// address space.
    stack: Option<u64>,
    /// Its descriptor and its birth: a task that has ended leaves its stack and its tables to others.
    thread: Option<(u64, Birth)>,
}

impl Task {
    fn now(core: &Core, profile: Option<&dyn OsProfile>, sp: u64) -> Self {
        let env = core.env();
        let (user, cr3) = (env.cpl() == 3, env.cr(3));
        let base = if env.code64() { 0 } else { env.seg(Seg::Ss).base };
        let top = core.wrap_linear(base.wrapping_add(sp));
        let found = if user { None } else { core.peek_translate(top, Access::Read, false) };
        let thread = profile.map(|profile| {
            let task = profile.current_task(core);
            (task, profile.birth(core, task))
        });
        Self { user, cr3, stack: found.map(|found| found.paddr + top % trapline_emu::PAGE), thread }
    }
}

impl Task {
    /// Whether it is where a task was.
    fn is_where(&self, before: &Self) -> bool {
        let stacks = self.stack.zip(before.stack);
        self.user == before.user && stacks.map_or(self.cr3 == before.cr3, |(one, two)| one == two)
    }

    /// Whether it may be the task that was there.
    fn continues(&self, before: &Self) -> bool {
        let threads = self.thread.zip(before.thread);
        threads.is_none_or(|((task, birth), (old, then))| task == old && birth.continues(then))
    }
}

/// Why a hit is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Why {
    /// Its instruction faulted: it is retried with its handlers.
    Faulted,
    /// Its repeated instruction was interrupted: the rest of it runs without handlers.
    Interrupted,
}

/// A hit whose instruction has not completed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Parked {
    pub why: Why,
    pub sites: Vec<usize>,
    origin: Origin,
    /// The instruction count at which its task resumes the instruction, if it does.
    since: u64,
    pub parts: Vec<Part>,
    /// Probes for which it is the last hit. They are still enabled, but take part in no other hit.
    pub expired: Vec<u32>,
    pub due: Vec<Due>,
    pub held: TakenOut,
    pub counted: u64,
}

/// All parked hits, the oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ParkedHits {
    list: Vec<Parked>,
}

impl ParkedHits {
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Parks the hit in progress, in which probes had these parts. Returns the hit that it replaces, which is over.
    pub fn park(
        &mut self,
        core: &Core,
        profile: Option<&dyn OsProfile>,
        hit: &mut Hit,
        (why, parts): (Why, Vec<Part>),
    ) -> Option<Parked> {
        let origin = hit.origin.take().unwrap_or_else(|| Origin::now(core, profile));
        let same =
            |parked: &Parked| parked.origin.sp == origin.sp && origin.task.is_where(&parked.origin.task);
        let full = (self.list.len() >= MOST_PARKED).then_some(0);
        let replaced = self.list.iter().position(same).or(full).map(|at| self.list.remove(at));
        let mut sites = std::mem::take(&mut hit.joined);
        sites.push(hit.site);
        self.list.push(Parked {
            why,
            sites,
            origin,
            since: core.icount(),
            parts,
            expired: std::mem::take(&mut hit.expired),
            due: std::mem::take(&mut hit.due),
            held: std::mem::take(&mut hit.held),
            counted: std::mem::take(&mut hit.counted),
        });
        replaced
    }

    /// The index of the parked hit at the current task's place and stack pointer, and whether it is this task's: another one
    /// that was there has ended.
    fn current(&self, core: &Core, profile: Option<&dyn OsProfile>) -> Option<(usize, bool)> {
        let sp = core.env().gpr(4);
        let mut list = self.list.iter().enumerate().filter(|(_, parked)| parked.origin.sp == sp).peekable();
        list.peek()?;
        let task = Task::now(core, profile, sp);
        let (at, parked) = list.find(|(_, parked)| task.is_where(&parked.origin.task))?;
        Some((at, task.continues(&parked.origin.task)))
    }

    /// Takes out the current task's parked hit at a trap of a site; the flag says whether this trap resumes it.
    pub fn take(
        &mut self,
        core: &Core,
        profile: Option<&dyn OsProfile>,
        site: usize,
    ) -> Option<(Parked, bool)> {
        let (at, own) = self.current(core, profile)?;
        let parked = self.list.remove(at);
        let goes_on = own && parked.sites.contains(&site) && parked.since == core.icount();
        Some((parked, goes_on))
    }

    /// Handles a completed exception return. Returns the parked hit to whose instruction it did not lead back, which is
    /// over.
    pub fn returned(&mut self, core: &Core, profile: Option<&dyn OsProfile>) -> Option<Parked> {
        let (at, own) = self.current(core, profile)?;
        let parked = self.list.get_mut(at)?;
        if own && parked.origin.ip == core.env().eip() {
            parked.since = core.icount();
            return None;
        }
        Some(self.list.remove(at))
    }

    /// Handles an event delivered at this boundary. Returns the parked hit whose task has run something else before it,
    /// which is over.
    pub fn take_abandoned(&mut self, core: &Core, profile: Option<&dyn OsProfile>) -> Option<Parked> {
        let (at, own) = self.current(core, profile)?;
        let parked = self.list.get(at)?;
        let waits = own && parked.origin.ip == core.env().eip() && parked.since == core.icount();
        (!waits).then(|| self.list.remove(at))
    }

    /// Takes out the hits of a site whose instruction has changed.
    pub fn take_site(&mut self, site: usize) -> Vec<Parked> {
        self.list.extract_if(.., |parked| parked.sites.contains(&site)).collect()
    }

    /// Whether their number is possible.
    pub fn is_sound(&self) -> bool {
        self.list.len() <= MOST_PARKED && self.list.iter().all(|parked| parked.counted < MOST_COUNTED)
    }

    /// Removes a disabled probe from all parked hits.
    pub fn forget_probe(&mut self, probe: u32) {
        for parked in &mut self.list {
            parked.parts.retain(|part| part.probe != probe);
            parked.expired.retain(|&expired| expired != probe);
        }
    }
}
