//! Control from outside, between runs: what there is, and the whole table saved and put back.
//!
//! Nothing here runs while the guest does.

use super::Interposer;
use super::life::ParkedHits;
use crate::model::{Place, Probe, Program, ProgramId};
use crate::sites::SavedSites;
use crate::sources::{SavedModules, UserProbes, Words, data_watches};
use trapline_emu::Core;

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
    modules: SavedModules,
    sites: SavedSites,
    words: Words,
    user: UserProbes,
    parked: ParkedHits,
    frozen: bool,
}

impl Interposer {
    /// The programs that are there, in order of insertion.
    pub fn programs(&self) -> Vec<ProgramView<'_>> {
        let mut sites = vec![0; self.inserted.probes.len()];
        for probe in self.sites.iter().filter(|site| site.armed).flat_map(|site| &site.probes) {
            if let Some(count) = sites.get_mut(*probe as usize) {
                *count += 1;
            }
        }
        for (probe, _) in data_watches(&self.inserted.probes) {
            if let Some(count) = sites.get_mut(probe as usize) {
                *count += 1;
            }
        }
        let there = self.inserted.programs.iter().enumerate().filter(|(_, program)| !program.removed);
        there.map(|(id, program)| self.view(ProgramId(id), program, &sites)).collect()
    }

    fn view<'a>(&'a self, id: ProgramId, program: &'a Program, sites: &[usize]) -> ProgramView<'a> {
        let point = |&index: &usize| {
            let probe = self.inserted.probes.get(index)?;
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

    pub(super) fn hits_of(&self, program: &Program) -> u64 {
        program.probes.iter().filter_map(|&p| self.inserted.probes.get(p)).map(|p| p.run).sum()
    }

    /// Saves the table.
    pub fn save(&self) -> SavedTable {
        SavedTable {
            gv: self.inserted.gv.clone(),
            programs: self.inserted.programs.clone(),
            probes: self.inserted.probes.clone(),
            modules: self.sources.modules.save(),
            sites: self.sites.save(),
            words: self.sources.words.clone(),
            user: self.sources.user.clone(),
            parked: self.parked.clone(),
            frozen: self.runner.asked.frozen_after.is_some(),
        }
    }

    /// Puts a saved table back, when guest memory has already been. What is armed is then what was.
    pub fn restore(&mut self, core: &mut Core, saved: &SavedTable) {
        for (probe, watch) in data_watches(&self.inserted.probes) {
            core.unwatch(probe, watch.kind);
        }
        self.sites.restore(core, &saved.sites);
        self.inserted.gv.clone_from(&saved.gv);
        self.inserted.programs.clone_from(&saved.programs);
        self.inserted.probes.clone_from(&saved.probes);
        self.sources.modules.restore(&saved.modules);
        self.sources.words.clone_from(&saved.words);
        self.sources.user.clone_from(&saved.user);
        for (probe, watch) in data_watches(&self.inserted.probes) {
            core.watch(probe, watch);
        }
        self.parked.clone_from(&saved.parked);
        self.hit.clear();
        self.runner.asked.frozen_after = saved.frozen.then_some(self.stats.hits);
        self.stops.fired.clear();
        self.stops.by = None;
        let (sources, mut reach) = self.reach();
        sources.timers.restart(core, reach.probes);
        // The machine may still know a page as one that code was fetched from, and would not announce it again.
        for page in core.code_pages() {
            sources.user.arm_page(core, page, &mut reach);
        }
        sources.modules.arm(core, &mut reach);
    }
}
