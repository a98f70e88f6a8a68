//! The state of the interposer, as read between runs.

use super::Interposer;
use crate::model::{Place, Program, ProgramId};
use crate::sources::data_watches;

/// A program as it is now.
#[derive(Debug)]
pub struct ProgramView<'a> {
    /// Its identifier.
    pub id: ProgramId,
    /// Its name as given.
    pub name: &'a str,
    /// Handlers run, over all its probe points.
    pub hits: u64,
    /// RPN instructions that they have executed.
    pub ops: u64,
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
    /// Physical addresses that are armed for it; 1 for a watch.
    pub sites: usize,
    /// Handlers run.
    pub hits: u64,
    /// Hits that `ignore` passed over.
    pub ignored: u64,
}

impl Interposer {
    /// The inserted programs, in order of insertion.
    pub fn programs(&self) -> Vec<ProgramView<'_>> {
        let mut sites = vec![0; self.inserted.probes.len()];
        for probe in self.sites.iter().filter(|site| site.armed).flat_map(|site| &site.probes) {
            if let Some(count) = sites.get_mut(*probe as usize) {
                *count += 1;
            }
        }
        // Their stub can be called all the time, but nothing calls it before the guest has loaded the module.
        for probe in self.sources.modules.low_pointers() {
            if let Some(count) = sites.get_mut(probe as usize) {
                *count = 0;
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
        let point = |index: usize| {
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
            name: program.name(),
            hits: self.hits_of(program),
            ops: program.ops,
            locals: &program.lv,
            points: program.probes.clone().filter_map(point).collect(),
        }
    }

    pub(super) fn hits_of(&self, program: &Program) -> u64 {
        program.probes.clone().filter_map(|p| self.inserted.probes.get(p)).map(|p| p.run).sum()
    }
}
