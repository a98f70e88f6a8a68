//! The inserted programs with their probe points and variables, and how they are saved.
//!
//! Saving compares the counters of the probe points, in pieces, with those saved last and shares the unchanged ones. So
//! a saved state takes memory only for what has changed since.

use super::process::Filters;
use crate::d::Runtime;
use crate::model::{AlteredRun, Definition, Probe, Program};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Probe points of a piece.
const PIECE: usize = 64;

/// The inserted programs, their probe points and variables. A removed program keeps its place, because records name
/// probes by number.
#[derive(Default)]
pub(super) struct Inserted {
    pub gv: Vec<u64>,
    pub programs: Vec<Program>,
    pub probes: Vec<Probe>,
    /// The state last saved or restored.
    last: SavedPrograms,
}

/// The mutable state of a probe point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProbeState {
    pub seen: u64,
    pub run: u64,
    pub hit: u64,
    pub errors: u64,
    pub enabled: bool,
    pub spent: bool,
}

impl ProbeState {
    fn of(probe: &Probe) -> Self {
        let &Probe { seen, run, hit, errors, enabled, spent, .. } = probe;
        Self { seen, run, hit, errors, enabled, spent }
    }

    fn copy_to(self, probe: &mut Probe, awaited: bool) {
        (probe.seen, probe.run, probe.hit, probe.errors) = (self.seen, self.run, self.hit, self.errors);
        probe.enabled = self.enabled;
        if probe.spent != self.spent {
            probe.set_spent(self.spent);
        }
        if awaited {
            probe.limit = 0;
        } else if probe.limit == 0 {
            probe.limit = probe.rest.maxhits;
        }
    }
}

/// A program, saved.
#[derive(Clone)]
pub(super) struct SavedProgram {
    pub definition: Arc<Definition>,
    pub lv: Arc<[u64]>,
    /// The state of a D program.
    pub d: Option<Arc<Runtime>>,
    pub removed: bool,
    pub stop_at: Option<u64>,
    pub counted: u64,
    pub ops: u64,
    pub altered: Option<Arc<[AlteredRun]>>,
}

/// All inserted programs, saved.
#[derive(Clone, Default)]
pub(super) struct SavedPrograms {
    pub gv: Arc<[u64]>,
    pub programs: Vec<SavedProgram>,
    /// Pieces of [`PIECE`] probe points each.
    pub probes: Vec<Arc<[ProbeState]>>,
}

impl SavedPrograms {
    /// Makes the saved form from the states of all probe points, in order.
    pub fn new(gv: Arc<[u64]>, programs: Vec<SavedProgram>, probes: &[ProbeState]) -> Self {
        Self { gv, programs, probes: probes.chunks(PIECE).map(Arc::from).collect() }
    }
}

/// The values, shared with those saved before if they are equal.
fn shared(now: &[u64], before: Option<&Arc<[u64]>>) -> Arc<[u64]> {
    before.filter(|before| ***before == *now).cloned().unwrap_or_else(|| now.into())
}

impl Inserted {
    /// Adds a program, whose probe points are not enabled; returns its number. `awaited` says that the run is to stop
    /// at a hit.
    pub fn push(&mut self, definition: Arc<Definition>, filters: &mut Filters, awaited: bool) -> usize {
        let id = self.programs.len();
        let first = self.probes.len();
        self.gv.resize(self.gv.len().max(definition.gvars), 0);
        self.probes.extend(definition.probes.iter().map(|probe| {
            let mut probe = probe.clone();
            probe.filter = probe.rest.processes.as_ref().map(|processes| filters.add(processes));
            probe.program = id as u32;
            probe.set_guards();
            if awaited {
                probe.limit = 0;
            }
            probe
        }));
        self.programs.push(Program {
            lv: vec![0; definition.vars],
            d: definition.d.as_ref().map(|setup| Box::new(Runtime::new(setup))),
            definition,
            probes: first..self.probes.len(),
            removed: false,
            stop_at: None,
            counted: 0,
            ops: 0,
            altered: None,
        });
        id
    }

    /// Notes at the probe points which of them have altered runs.
    pub fn mark_altered(&mut self) {
        for program in &self.programs {
            let points = self.probes.get_mut(program.probes.clone()).unwrap_or_default();
            let runs = program.altered.as_deref().unwrap_or_default();
            for (point, probe) in points.iter_mut().enumerate() {
                let altered = runs.iter().any(|run| run.point == point);
                if probe.altered != altered {
                    probe.altered = altered;
                    probe.set_guards();
                }
            }
        }
    }

    /// Saves it.
    pub fn save(&mut self) -> SavedPrograms {
        let before = &self.last;
        let programs = self.programs.iter().enumerate().map(|(n, program)| SavedProgram {
            definition: Arc::clone(&program.definition),
            lv: shared(&program.lv, before.programs.get(n).map(|program| &program.lv)),
            d: program.d.as_ref().map(|d| Arc::new(Runtime::clone(d))),
            removed: program.removed,
            stop_at: program.stop_at,
            counted: program.counted,
            ops: program.ops,
            altered: program.altered.clone(),
        });
        let pieces = self.probes.chunks(PIECE).enumerate().map(|(n, piece)| {
            let same = |before: &&Arc<[ProbeState]>| {
                before.len() == piece.len()
                    && before.iter().zip(piece).all(|(before, probe)| *before == ProbeState::of(probe))
            };
            let before = before.probes.get(n).filter(same);
            before.cloned().unwrap_or_else(|| piece.iter().map(ProbeState::of).collect())
        });
        let saved = SavedPrograms {
            gv: shared(&self.gv, Some(&before.gv)),
            programs: programs.collect(),
            probes: pieces.collect(),
        };
        self.last = saved.clone();
        saved
    }

    /// Restores a saved state. `awaited` says that the run is to stop at a hit of any program.
    pub fn restore(&mut self, saved: &SavedPrograms, filters: &mut Filters, awaited: bool) {
        let pairs = self.programs.iter().zip(&saved.programs);
        let same = pairs.take_while(|(now, was)| Arc::ptr_eq(&now.definition, &was.definition)).count();
        self.programs.truncate(same);
        self.probes.truncate(self.programs.last().map_or(0, |last| last.probes.end));
        for was in saved.programs.iter().skip(same) {
            self.push(Arc::clone(&was.definition), filters, awaited);
        }
        self.gv.clear();
        self.gv.extend_from_slice(&saved.gv);
        for (program, was) in self.programs.iter_mut().zip(&saved.programs) {
            program.lv.clear();
            program.lv.extend_from_slice(&was.lv);
            (program.removed, program.stop_at) = (was.removed, was.stop_at);
            (program.counted, program.ops) = (was.counted, was.ops);
            program.d = was.d.as_ref().map(|d| Box::new(Runtime::clone(d)));
            program.altered.clone_from(&was.altered);
        }
        self.mark_altered();
        let states = saved.probes.iter().flat_map(|piece| piece.iter());
        for (probe, state) in self.probes.iter_mut().zip(states) {
            let program = self.programs.get(probe.program as usize);
            let awaited = awaited || program.is_some_and(|program| program.stop_at.is_some());
            state.copy_to(probe, awaited);
        }
        self.last = saved.clone();
    }
}
