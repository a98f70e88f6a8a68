//! Control from outside, between runs: what there is, a stop at a hit, and the whole table saved and put back.
//!
//! Nothing here runs while the guest does, but for [`Interposer::last_hit`], which the hot path leaves to.

use crate::displace::Displaced;
use crate::insert::bytes_at;
use crate::life::{Due, ParkedHits};
use crate::module::ProbedModule;
use crate::table::{Interposer, Place, Probe, Program, ProgramId, Site, Stub};
use crate::user::UserProbes;
use crate::word::Words;
use std::collections::BTreeMap;
use trapline_emu::{Core, Stop, Watch};
use trapline_rpn::Outcome;

/// A program as it is now.
#[derive(Debug)]
pub struct ProgramView<'a> {
    /// Its identifier.
    pub id: ProgramId,
    /// Its name as given.
    pub name: &'a str,
    /// Handlers run, over all its probe points.
    pub hits: u64,
    /// Its local variables.
    pub locals: &'a [u64],
    /// Its probe points, in order.
    pub points: Vec<PointView<'a>>,
}

/// A probe point as it is now.
#[derive(Debug)]
pub struct PointView<'a> {
    /// Where it is.
    pub place: &'a Place,
    /// Major code.
    pub major: u32,
    /// Minor code.
    pub minor: u32,
    /// `group =`.
    pub group: Option<&'a str>,
    /// `type =`.
    pub kind: Option<&'a str>,
    /// Whether it is enabled.
    pub enabled: bool,
    /// Physical addresses that are armed for it; of a watch 1.
    pub sites: usize,
    /// Handlers run.
    pub hits: u64,
    /// Hits that `ignore` passed over.
    pub ignored: u64,
}

/// The probe table at one moment: programs, what is enabled and armed, variables and counters of each probe point.
/// Not in it: records, their sequence numbers, statistics.
#[derive(Clone)]
pub struct SavedTable {
    gv: Vec<u64>,
    programs: Vec<Program>,
    probes: Vec<Probe>,
    modules: Vec<ProbedModule>,
    sites: Vec<SavedSite>,
    by_paddr: BTreeMap<u64, usize>,
    by_range: BTreeMap<(u64, u64), usize>,
    by_stub: Vec<usize>,
    words: Words,
    user: UserProbes,
    parked: ParkedHits,
    frozen: bool,
}

#[derive(Clone)]
struct SavedSite {
    paddr: u64,
    watch: Option<Watch>,
    stub: Option<Stub>,
    patch: u8,
    probes: Vec<u32>,
    armed: bool,
}

impl Interposer {
    /// The programs that are there, in order of insertion.
    pub fn programs(&self) -> Vec<ProgramView<'_>> {
        let mut sites = vec![0; self.probes.len()];
        for probe in self.sites.iter().filter(|site| site.armed).flat_map(|site| &site.probes) {
            if let Some(count) = sites.get_mut(*probe as usize) {
                *count += 1;
            }
        }
        for (probe, _) in self.data_watches() {
            if let Some(count) = sites.get_mut(probe as usize) {
                *count += 1;
            }
        }
        let there = self.programs.iter().enumerate().filter(|(_, program)| !program.removed);
        there.map(|(id, program)| self.view(ProgramId(id), program, &sites)).collect()
    }

    fn view<'a>(&'a self, id: ProgramId, program: &'a Program, sites: &[usize]) -> ProgramView<'a> {
        let point = |&index: &usize| {
            let probe = self.probes.get(index)?;
            Some(PointView {
                place: &probe.place,
                major: probe.major,
                minor: probe.minor,
                group: probe.rest.group.as_deref(),
                kind: probe.rest.kind.as_deref(),
                enabled: probe.enabled,
                sites: sites.get(index).copied().unwrap_or_default(),
                hits: probe.run,
                ignored: probe.seen.min(probe.ignore.into()),
            })
        };
        ProgramView {
            id,
            name: &program.name,
            hits: self.hits_of(program),
            locals: &program.lv,
            points: program.probes.iter().filter_map(point).collect(),
        }
    }

    fn hits_of(&self, program: &Program) -> u64 {
        program.probes.iter().filter_map(|&p| self.probes.get(p)).map(|p| p.run).sum()
    }

    /// Asks that the run stop with [`Stop::Requested`] when the displaced instruction of the program's hit number
    /// `at` has completed; `None` asks for no stop. Hits are counted over all probe points, from 1. A hit whose
    /// instruction faults completes when it is tried again, or with the program's next hit; a repeated string
    /// instruction after its last iteration.
    pub fn stop_at_hit(&mut self, id: ProgramId, at: Option<u64>) {
        let Some(program) = self.programs.get(id.0) else { return };
        let counted = self.hits_of(program);
        for &index in &program.probes {
            if let Some(probe) = self.probes.get_mut(index) {
                // A limit of 0 sends each hit to `last_hit`.
                let awaited = at.is_some() || self.last_hit.is_some();
                probe.limit = if awaited { 0 } else { probe.rest.maxhits };
            }
        }
        if let Some(program) = self.programs.get_mut(id.0) {
            (program.counted, program.stop_at) = (counted, at);
        }
    }

    /// Ends the run, as the service `stop` does, when so many hits of any probe have left a record and completed. A hit
    /// that ends by `abort`, as one whose predicate does not hold, is not counted. Programs that are inserted later count
    /// too.
    pub fn stop_after_hits(&mut self, hits: u64) {
        (self.last_hit, self.counted_hits) = (Some(hits), 0);
        self.probes.iter_mut().for_each(|probe| probe.limit = 0);
    }

    /// How many hits [`Interposer::stop_after_hits`] asked for, when there have been so many.
    pub fn enough_hits(&self) -> Option<u64> {
        self.last_hit.filter(|last| self.counted_hits >= *last)
    }

    /// The hit number that [`Interposer::stop_at_hit`] last asked for.
    pub fn stops_at_hit(&self, id: ProgramId) -> Option<u64> {
        self.programs.get(id.0)?.stop_at
    }

    /// The programs whose hit has asked for the stop that has just happened.
    pub fn take_due(&mut self) -> Vec<ProgramId> {
        std::mem::take(&mut self.fired)
    }

    /// A hit that reached its probe's limit, or whose handler asked to be removed. `run` says which run of the probe it
    /// is, and `retry` whether it was counted before.
    #[cold]
    pub(crate) fn last_hit(&mut self, index: u32, run: u64, retry: bool, outcome: &Outcome) {
        let Some(probe) = self.probes.get(index as usize) else { return };
        if outcome.remove || run >= probe.rest.maxhits {
            self.hit.expired.push(index);
        }
        let id = ProgramId(probe.program as usize);
        if self.last_hit.is_some() && outcome.recorded() {
            self.counted_hits += 1;
            self.hit.counted += 1;
        }
        if self.enough_hits().is_some() {
            self.stop_after(Due { program: id, asked: true });
        }
        let Some(program) = self.programs.get_mut(id.0) else { return };
        program.counted += u64::from(!retry);
        if program.stop_at.is_none_or(|n| program.counted < n) {
            return;
        }
        self.stop_after(Due { program: id, asked: false });
    }

    /// The handler of this probe has asked for the end of the run: when the displaced instruction at its site has
    /// completed, or at once when there is none.
    pub(crate) fn stop_here(&mut self, core: &mut Core, index: u32, at_site: bool) {
        let Some(probe) = self.probes.get(index as usize) else { return };
        let program = ProgramId(probe.program as usize);
        if at_site {
            self.stop_after(Due { program, asked: true });
        } else {
            self.stopped_by = Some(program);
            core.finish(Stop::Requested);
        }
    }

    fn stop_after(&mut self, due: Due) {
        if !self.hit.due.contains(&due) {
            self.hit.due.push(due);
        }
    }

    /// Whether the stop that has just happened is one that a handler asked for.
    pub fn stopped_by_handler(&self) -> bool {
        self.stopped_by.is_some()
    }

    /// The name of the program whose handler has ended the run, once.
    pub fn take_stopped_by(&mut self) -> Option<&str> {
        let id = self.stopped_by.take()?;
        self.programs.get(id.0).map(|program| program.name.as_str())
    }

    /// The displaced instruction has completed: stops the run if its hit is to.
    pub(crate) fn stop_when_due(&mut self, core: &mut Core) {
        let due = std::mem::take(&mut self.hit.due);
        if !due.is_empty() {
            self.stopped_by = due.iter().find(|due| due.asked).map(|due| due.program);
            self.fired.extend(due.iter().filter(|due| !due.asked).map(|due| due.program));
            core.finish(Stop::Requested);
        }
    }

    /// How a site is displaced is to be found out anew.
    pub(crate) fn forget_way(&mut self, core: &mut Core, site: usize) {
        let Some(site) = self.sites.get_mut(site) else { return };
        if let Some(Displaced::OutOfLine { slot, .. }) = site.displaced.take() {
            core.free_slot(slot);
        }
    }

    /// Saves the table.
    pub fn save(&self) -> SavedTable {
        let site = |s: &Site| SavedSite {
            paddr: s.paddr,
            watch: s.watch,
            stub: s.stub,
            patch: s.patch,
            probes: s.probes.clone(),
            armed: s.armed,
        };
        SavedTable {
            gv: self.gv.clone(),
            programs: self.programs.clone(),
            probes: self.probes.clone(),
            modules: self.modules.clone(),
            sites: self.sites.iter().map(site).collect(),
            by_paddr: self.by_paddr.clone(),
            by_range: self.by_range.clone(),
            by_stub: self.by_stub.clone(),
            words: self.words.clone(),
            user: self.user.clone(),
            parked: self.parked.clone(),
            frozen: self.asked.frozen_after.is_some(),
        }
    }

    /// Puts a saved table back, when guest memory has already been. What is armed is then what was.
    pub fn restore(&mut self, core: &mut Core, saved: &SavedTable) {
        for index in 0..self.sites.len() {
            self.forget_way(core, index);
        }
        for (probe, watch) in self.data_watches() {
            core.unwatch(probe, watch.kind);
        }
        let stays = |index: usize, site: &Site| {
            let same =
                |s: &SavedSite| s.armed && (s.paddr, s.watch, s.stub) == (site.paddr, site.watch, site.stub);
            saved.sites.get(index).is_some_and(same)
        };
        for (index, site) in self.sites.iter_mut().enumerate() {
            if site.armed && !stays(index, site) {
                site.disarm(core, index);
            }
        }
        self.sites.resize_with(saved.sites.len(), || Site::new(0));
        for (index, (site, was)) in self.sites.iter_mut().zip(&saved.sites).enumerate() {
            let armed = site.armed;
            *site = Site { watch: was.watch, stub: was.stub, ..Site::new(was.paddr) };
            site.change(|probes| probes.clone_from(&was.probes));
            site.patch = was.patch;
            site.original = bytes_at(core, was.paddr);
            // It was armed once: nothing else is there.
            site.armed = was.armed && (armed || site.arm(core, index).is_ok());
        }
        self.gv.clone_from(&saved.gv);
        self.programs.clone_from(&saved.programs);
        self.probes.clone_from(&saved.probes);
        self.modules.clone_from(&saved.modules);
        self.by_paddr.clone_from(&saved.by_paddr);
        self.by_range.clone_from(&saved.by_range);
        self.by_stub.clone_from(&saved.by_stub);
        self.words.clone_from(&saved.words);
        self.user.clone_from(&saved.user);
        for (probe, watch) in self.data_watches() {
            core.watch(probe, watch);
        }
        self.parked.clone_from(&saved.parked);
        self.hit.clear();
        self.asked.frozen_after = saved.frozen.then_some(self.stats.hits);
        self.fired.clear();
        self.stopped_by = None;
        self.restart_timers(core);
        // The machine may still know a page as one that code was fetched from, and would not announce it again.
        for page in core.code_pages() {
            self.arm_page(core, page);
        }
        self.forget_modules();
        self.arm_modules(core);
    }
}
