//! The life of a hit: trap in, handlers, displaced instruction, commit, resume. The root of the crate.
//!
//! A record is in the channel when its handler has ended. If the displaced instruction completes, the record is thereby
//! committed, since the channel is not read before. If it faults, the record is taken out again, unless its probe has
//! `logonfault`; if it is a repeated instruction and is interrupted, the record waits outside of the channel until the
//! rest has run. That the instruction has completed is known at once when it is emulated or stepped, else at the next
//! trap or stop.

mod arming;
mod asked;
mod control;
mod core_file;
mod d_clause;
mod digest;
mod handler;
mod host;
mod inserted;
mod life;
mod names;
mod process;
mod record;
mod registered;
mod resume;
mod return_probes;
mod saved;
mod service;
mod stacks;
mod stops;
mod stub;
mod tail_calls;
mod to_channel;
mod traced;
mod trial;
mod user_context;
mod view;
mod written;

pub use asked::{DumpTaker, SymbolNames};
pub use control::{PointView, ProgramView};
pub use core_file::CoreFile;
pub use host::processor_register;
pub use names::ProbeNames;
pub use registered::{Service, ServiceCall, ServiceEffect, ServiceError, Services, Thrown};
pub use saved::{Output, SavedInterposer, StoredInterposer, StoredInterposerError};

use crate::model::{HandlerError, Place, ProgramId, Stats};
use crate::sites::{Change, Site, SiteTable, bytes_at, is_repeated};
use crate::sources::{Reach, Sources, data_watches, stays_on};
use handler::Runner;
use inserted::Inserted;
use life::{Hit, Origin, ParkedHits, Stage, Why};
use process::Filters;
use record::{Recorder, accessed};
use stacks::Stacks;
pub use stops::NotedHit;
use stops::Stops;
use tail_calls::TailCalls;
pub use traced::{HandlerState, HandlerTrace, Traces};
use trapline_dump::CrashDump;
use trapline_emu::{Access, Core, Fault, PAGE, Trap, TrapInterposer, Verdict, WatchHit};
use trapline_os::OsProfile;
use trapline_rpn::Vm;
use trapline_trace::{ChannelConfig, Channels, Header, HeaderItems};
pub use trial::{Trial, TrialRun, TrialState};
pub use view::{View, Written, all_writable, can_write, is_writable};
pub use written::RefusedRecords;

/// The configuration of an interposer.
pub struct InterposerConfig {
    /// Optional items of each record's header.
    pub header: HeaderItems,
    /// Shape of the record channel.
    pub channel: ChannelConfig,
    /// The profile of the guest's operating system, for pid, uid, task and name.
    pub profile: Option<Box<dyn OsProfile>>,
    /// Instruction budget of a handler, instead of the language's 65,536.
    pub max_steps: Option<u32>,
}

/// The probe table, and the state of the hit in progress.
///
/// Each part is marked with its role when the interposer is saved ([`Interposer::save`]): *state* is saved and
/// restored, *configuration* must be the same in the interposer to which a saved state is restored, and a *cache* is
/// derived from the rest.
pub struct Interposer {
    /// Configuration. It reads guest memory and has no state.
    profile: Option<Box<dyn OsProfile>>,
    /// State, except the programs' definitions, which never change and are shared.
    inserted: Inserted,
    /// State: the sites, their order, whether they are armed, and their bytes. Cache: how they are displaced. The
    /// machine's own view of them, hits in line included, is a cache too.
    sites: SiteTable,
    /// State: where modules, pages and words were found, and when timers are due. Configuration: which watches are
    /// accepted.
    sources: Sources,
    /// Cache: the answers are valid until ring 3 is left.
    filters: Filters,
    /// State. The hit in progress.
    hit: Hit,
    /// State. Hits whose instruction faulted or was interrupted.
    parked: ParkedHits,
    /// State. Functions that have jumped to others and have not returned.
    tail_calls: TailCalls,
    /// State: a frozen channel, core files and errors not yet fetched. Configuration: the budget of handlers, names of
    /// symbols. The interpreter keeps no state between runs.
    runner: Runner,
    /// State: the channels. Configuration: items of records, depth of stacks. Cache: the unwinder's tables.
    recorder: Recorder,
    /// State.
    stops: Stops,
    /// Hits noted for observers; neither state nor configuration.
    noted: Option<Vec<NotedHit>>,
    /// State.
    stats: Stats,
}

impl TrapInterposer for Interposer {
    fn trap(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        if self.hit.rare && self.is_joined(core, trap) {
            return self.join(core, trap);
        }
        self.finish(core);
        if !self.parked.is_empty()
            && let Some(parked) = self.unpark(core, trap.patch as usize)
        {
            let verdict = self.go_on(core, trap, parked);
            if trap.vector == 1 {
                self.note_watched(core, trap);
            }
            return verdict;
        }
        if trap.vector == 1 {
            self.note_watched(core, trap);
        }
        if self.sites.get(trap.patch as usize).is_some_and(|site| site.awaited)
            && self.returned_to(core, trap)
        {
            self.stats.traps += 1;
            self.hit.site = trap.patch as usize;
            return self.resume(core, trap);
        }
        match self.begin(trap) {
            Ok((first, several)) => {
                self.run_probe(core, first, trap, None);
                if several {
                    self.hits_from(core, 1, trap);
                }
                self.resume(core, trap)
            }
            Err(verdict) => verdict,
        }
    }

    fn exception(&mut self, core: &mut Core, _: u8, _: u64) -> bool {
        self.end_abandoned(core);
        if self.hit.stage == Stage::Displaced {
            // The fault of the displaced instruction can only be reported when the CPU is in the exception handler.
            (self.hit.rare, self.hit.origin) = (true, Some(Origin::now(core, self.profile.as_deref())));
        }
        false
    }

    fn returned(&mut self, core: &mut Core) {
        if !self.parked.is_empty()
            && let Some(parked) = self.parked.returned(core, self.profile.as_deref())
        {
            self.give_up(core, parked);
        }
    }

    fn user_task(&self, core: &Core) -> Option<u64> {
        self.profile.as_deref().and_then(|profile| profile.user_task(core))
    }

    fn interrupting(&mut self, core: &mut Core) {
        self.end_abandoned(core);
    }

    fn stub(&mut self, core: &mut Core, number: u32) -> Verdict {
        self.stub_hit(core, number)
    }

    fn watched(&mut self, core: &mut Core, hit: &WatchHit) {
        if self.hit.stage == Stage::Displaced {
            let linear = core.wrap_linear(core.env().cs_base().wrapping_add(hit.ip));
            let paddr =
                core.peek_translate(linear, Access::Fetch, false).map(|page| page.paddr + linear % PAGE);
            let watched = self.hit.watched_at.is_some_and(|(_, at)| at == linear);
            let patched = |site: &Site| Some(site.paddr) == paddr;
            let own = watched || self.sites.get(self.hit.site).is_some_and(patched);
            if own && paddr.is_some_and(|paddr| is_repeated(&bytes_at(core, paddr))) {
                // It may have iterations left.
                self.hold_records();
            } else {
                self.finish(core);
                self.hit.stage = Stage::Over;
            }
        }
        self.hit_without_site(core, hit.id, Some(hit.ip), Some(&accessed(hit)));
        self.recorder.channels.begin_hit();
    }

    fn faulted(&mut self, core: &mut Core) {
        self.stats.faulted += 1;
        if self.hit.stage != Stage::Displaced {
            return;
        }
        self.hit.awaiting.clear();
        self.hit.due.clear();
        self.stops.panicked = false;
        let counted = std::mem::take(&mut self.hit.counted);
        self.stops.counted = self.stops.counted.saturating_sub(counted);
        let mut records = std::mem::take(&mut self.hit.held);
        records.append(self.recorder.channels.take_out());
        let probes = &self.inserted.probes;
        let logonfault = |h: &Header| probes.get(h.probe as usize).is_some_and(|p| p.logonfault);
        self.stats.dropped += self.recorder.channels.put_back(records, logonfault);
        self.park(core, Why::Faulted);
    }

    fn interrupted(&mut self, core: &mut Core) {
        if self.hit.stage == Stage::Displaced {
            self.hold_records();
            self.park(core, Why::Interrupted);
        }
    }

    fn settled(&mut self, core: &mut Core) {
        self.finish(core);
        let (sources, mut reach) = self.reach();
        sources.modules.look_after(core, &mut reach);
        self.forget_emptied(core);
    }

    fn waits(&self, until: u64) -> bool {
        // The work of `settled` is done at the same counts as before.
        let unsettled = self.hit.rare || self.sites.any_emptied();
        let left = self.recorder.channels.may_hold_records()
            || !self.runner.errors.is_empty()
            || !self.runner.asked.cores.is_empty()
            || self.runner.asked.dump.is_some()
            || self.noted.as_ref().is_some_and(|noted| !noted.is_empty());
        unsettled || left || self.next_tick().is_some_and(|tick| tick < until)
    }

    fn page_rewritten(&mut self, core: &mut Core, page: u64) {
        let mut of_modules = false;
        for index in self.sites.on_page(page) {
            if let Some(change) = self.sites.look_again(core, index) {
                self.leave_parked(core, index);
                self.stats.rewritten += u64::from(change == Change::Instruction);
                of_modules |= self.has_module_probe(index);
                let (probes, profile) = (&self.inserted.probes, self.profile.as_deref());
                let seen: &Core = core;
                let stays: Vec<u32> = (self.sites.probes_at(index).iter().copied())
                    .filter(|&p| {
                        probes.get(p as usize).is_none_or(|p| stays_on(seen, profile, &p.place, page))
                    })
                    .collect();
                self.sites.retain(core, index, |probe| stays.contains(&probe));
            }
        }
        if of_modules {
            self.arm_modules(core);
        }
        self.forget_emptied(core);
    }

    fn code_page(&mut self, core: &mut Core, paddr: u64) {
        let (sources, mut reach) = self.reach();
        sources.user.arm_page(core, paddr, &mut reach);
        // User code does not change the kernel's modules.
        if core.env().cpl() == 0 {
            self.arm_modules(core);
        }
    }

    fn wants_code_pages(&self) -> bool {
        self.sources.user.any() || self.sources.modules.any_enabled()
    }

    fn user_code(&mut self, core: &mut Core, page: u64, paddr: u64) -> Option<Fault> {
        self.sources.words.settle(core, (page, paddr), self.profile.as_deref(), &mut self.stats)
    }

    fn wants_user_code(&self) -> bool {
        self.sources.words.any_wanted()
    }
}

impl Interposer {
    /// An empty table.
    pub fn new(config: InterposerConfig) -> Self {
        let mut vm = Vm::new();
        if let Some(steps) = config.max_steps {
            vm.set_max_steps(steps);
        }
        Interposer {
            profile: config.profile,
            inserted: Inserted::default(),
            sites: SiteTable::default(),
            sources: Sources::default(),
            filters: Filters::default(),
            hit: Hit::default(),
            parked: ParkedHits::default(),
            tail_calls: TailCalls::default(),
            runner: Runner {
                vm,
                asked: asked::Asked::default(),
                errors: Vec::new(),
                traces: None,
                altered: Default::default(),
            },
            recorder: Recorder {
                channels: Channels::new(1, config.channel),
                items: config.header,
                stacks: Stacks::default(),
                name: Vec::new(),
                trace: Vec::new(),
            },
            stops: Stops::default(),
            noted: None,
            stats: Stats::default(),
        }
    }

    /// The records of the hit in progress wait outside of the channel.
    fn hold_records(&mut self) {
        self.hit.rare = true;
        self.hit.held.append(self.recorder.channels.take_out());
    }

    /// The sources of sites, and what they need to arm probes.
    fn reach(&mut self) -> (&mut Sources, Reach<'_>) {
        let reach = Reach {
            probes: &self.inserted.probes,
            sites: &mut self.sites,
            profile: self.profile.as_deref(),
            stats: &mut self.stats,
        };
        (&mut self.sources, reach)
    }

    /// Arms the enabled probes of kernel modules that are loaded now, and only there.
    fn arm_modules(&mut self, core: &mut Core) {
        let (sources, mut reach) = self.reach();
        sources.modules.arm(core, &mut reach);
    }

    /// Whether a kernel module's probe is on a site.
    fn has_module_probe(&self, site: usize) -> bool {
        let probe = |p: &u32| self.inserted.probes.get(*p as usize);
        self.sites.probes_at(site).iter().filter_map(probe).any(|p| p.place.kernel_module().is_some())
    }

    /// Ends the parked hits of sites that the last probe has left.
    fn forget_emptied(&mut self, core: &mut Core) {
        for site in self.sites.take_emptied() {
            self.leave_parked(core, site);
        }
    }

    /// The reader of the guest's tasks and modules, if its system is known.
    pub fn profile(&self) -> Option<&dyn OsProfile> {
        self.profile.as_deref()
    }

    /// The records committed so far.
    pub fn channels(&mut self) -> &mut Channels {
        &mut self.recorder.channels
    }

    /// Lets `exit 3` take this many core files more; none at first.
    pub fn allow_cores(&mut self, count: u64) {
        self.runner.asked.cores_left = count;
    }

    /// The core files taken since the last call.
    pub fn take_cores(&mut self) -> Vec<CoreFile> {
        std::mem::take(&mut self.runner.asked.cores)
    }

    /// Sets what takes the dump of the first `exit 2`. Without it none is taken.
    pub fn dump_with(&mut self, take: DumpTaker) {
        self.runner.asked.dumps_with = Some(take);
    }

    /// The dump of an `exit 2` since the last call.
    pub fn take_dump(&mut self) -> Option<Box<CrashDump>> {
        self.runner.asked.dump.take()
    }

    /// The records to channels of drivers that were not written, by channel and reason.
    pub fn refused_records(&self) -> &[RefusedRecords] {
        self.runner.asked.written.refused()
    }

    /// Sets where the service `symbol` and D find names.
    pub fn name_symbols(&mut self, names: SymbolNames) {
        self.runner.asked.names = Some(names);
    }

    /// Sets the services that handlers can call besides those of [`trapline_rpn::services`].
    pub fn provide(&mut self, services: &Services) {
        self.runner.asked.services = services.clone();
    }

    /// The first failure of each probe's handler since the last call.
    pub fn take_errors(&mut self) -> Vec<HandlerError> {
        std::mem::take(&mut self.runner.errors)
    }

    /// The records, and the names of the probes that they count.
    pub fn channels_and_names(&mut self) -> (&mut Channels, ProbeNames<'_>) {
        let Inserted { probes, programs, .. } = &self.inserted;
        let Recorder { channels, stacks, .. } = &mut self.recorder;
        (channels, ProbeNames { probes, programs, unwinder: &stacks.unwinder })
    }

    /// The names of probes.
    pub fn names(&self) -> ProbeNames<'_> {
        let Inserted { probes, programs, .. } = &self.inserted;
        ProbeNames { probes, programs, unwinder: &self.recorder.stacks.unwinder }
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        let sites = self.sites.iter().filter(|s| s.armed).count() + data_watches(&self.inserted.probes).len();
        Stats { sites: sites as u64, ..self.stats }
    }

    /// Hits so far, as [`Stats::hits`] has them.
    pub const fn hits(&self) -> u64 {
        self.stats.hits
    }

    /// Whether every handler only observes and every place can be hidden, so that the guest cannot notice the probes.
    pub fn observe_only(&self) -> bool {
        self.inserted.probes.iter().all(|p| p.handler.observe_only() && !p.place.is_visible())
    }

    /// Whether any inserted probe point is a watchpoint.
    pub fn watches(&self) -> bool {
        self.inserted.probes.iter().any(|probe| matches!(probe.place, Place::Watch(_)))
    }

    /// Whether the handler of any inserted probe point may ask for a debugger.
    pub fn may_ask_debugger(&self) -> bool {
        self.inserted.probes.iter().any(|probe| probe.handler.may_ask_debugger())
    }

    /// Whether the handler of any inserted probe point may write a core file.
    pub fn may_write_cores(&self) -> bool {
        self.inserted.probes.iter().any(|probe| probe.handler.may_write_core())
    }

    /// Whether the handler of any inserted probe point may write a crash dump.
    pub fn may_write_dumps(&self) -> bool {
        self.inserted.probes.iter().any(|probe| probe.handler.may_write_dump())
            || self.d_programs().any(|(.., setup)| setup.panics)
    }

    /// Name, major, minor and number of runs of a probe, by the identifier that its records carry.
    pub fn probe(&self, id: u32) -> Option<(&str, u32, u32, u64)> {
        let p = self.inserted.probes.get(id as usize)?;
        Some((self.inserted.programs.get(p.program as usize)?.name(), p.major, p.minor, p.run))
    }

    /// Runs of each probe of a program, in the order of its probe points.
    pub fn runs(&self, id: ProgramId) -> Vec<u64> {
        let own = self.inserted.programs.get(id.0).map(|p| p.probes.clone()).unwrap_or_default();
        self.inserted.probes.get(own).unwrap_or_default().iter().map(|p| p.run).collect()
    }

    /// Local variables of a program.
    pub fn locals(&self, id: ProgramId) -> &[u64] {
        self.inserted.programs.get(id.0).map(|p| p.lv.as_slice()).unwrap_or_default()
    }

    /// Global variables of the machine.
    pub fn globals(&self) -> &[u64] {
        &self.inserted.gv
    }

    /// Sites armed now: physical address, the displaced instruction's bytes as last seen, how it is displaced.
    pub fn armed_sites(&self) -> impl Iterator<Item = (u64, &[u8; 15], Option<crate::sites::Way>)> {
        self.sites.armed()
    }
}
