//! Programs and their probe points.

use super::difference::AlteredRun;
use super::error::{InsertError, InsertErrorKind};
use super::place::Place;
use super::processes::Processes;
use super::provided::{Arguments, Condition, Point, Provided};
use crate::d::{DSetup, Runtime};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;
use trapline_rpn::{Lines, LinkedProbe, LinkedProgram, Verified};
use trapline_trace::Layout;

/// A program that was inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProgramId(pub(crate) usize);

/// The immutable part of an inserted program, shared by all saved states.
pub struct Definition {
    pub(crate) name: String,
    /// `name =` and `id =`, for stack traces.
    pub(crate) module: String,
    pub(crate) id: u32,
    /// Its local variables, and the global ones that it needs.
    pub(crate) vars: usize,
    pub(crate) gvars: usize,
    /// Its probe points in their initial state. Their program and their filter are not known yet.
    pub(crate) probes: Vec<Probe>,
    /// Those that only tell a guest program that the probe is enabled.
    pub(crate) tellers: Vec<usize>,
    /// What a D program has beside its clauses.
    pub(crate) d: Option<Arc<DSetup>>,
}

impl Definition {
    /// A linked program with a place for each of its probe points, in order.
    ///
    /// # Errors
    /// There are more places than probe points, or fewer.
    pub fn new<P: Into<Point>>(
        name: &str,
        program: &LinkedProgram,
        places: Vec<P>,
    ) -> Result<Self, InsertError> {
        if places.len() != program.probes.len() {
            let kind = InsertErrorKind::Places { probes: program.probes.len(), places: places.len() };
            return Err(InsertError { probe: 0, kind });
        }
        let points = program.probes.iter().zip(places.into_iter().map(P::into));
        let probes: Vec<Probe> = points.map(|(linked, point)| Probe::new(linked, point)).collect();
        let tellers =
            (0..).zip(&probes).filter(|(_, probe)| probe.place.only_tells()).map(|(n, _)| n).collect();
        Ok(Self {
            name: name.to_owned(),
            module: program.header.name.clone(),
            id: program.header.id,
            vars: program.header.vars as usize,
            gvars: program.header.gvars as usize,
            probes,
            tellers,
            d: None,
        })
    }

    /// The same as a D program, whose clauses are the probe points in program order: the major code of each is the
    /// number of its clause.
    #[must_use]
    pub fn with_d(mut self, setup: Arc<DSetup>) -> Self {
        for probe in &mut self.probes {
            probe.is_clause = true;
            probe.set_guards();
        }
        self.d = Some(setup);
        self
    }
}

/// An inserted program.
#[derive(Clone)]
pub(crate) struct Program {
    pub definition: Arc<Definition>,
    pub lv: Vec<u64>,
    /// Its state, if it was compiled from D.
    pub d: Option<Box<Runtime>>,
    /// The numbers of its probe points.
    pub probes: Range<usize>,
    pub removed: bool,
    /// The hit after which the run is to stop, and hits counted towards it.
    pub stop_at: Option<u64>,
    pub counted: u64,
    /// RPN instructions that its handlers have executed.
    pub ops: u64,
    /// Runs of its handlers that see other values than the guest's.
    pub altered: Option<Arc<[AlteredRun]>>,
}

impl Program {
    /// Its name as it was given.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// The numbers of its probe points that only tell a guest program that the probe is enabled.
    pub fn tellers(&self) -> impl Iterator<Item = usize> {
        self.definition.tellers.iter().map(|teller| self.probes.start + teller)
    }
}

/// One probe point. The fields that every hit touches are in its first cache line.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct Probe {
    pub seen: u64,
    pub run: u64,
    /// The number of runs from which on a hit takes the slow path: `maxhits`, or 0 while the program's hits are
    /// awaited.
    pub limit: u64,
    /// The number of the last trap that it took part in.
    pub hit: u64,
    pub handler: Arc<Verified>,
    pub program: u32,
    pub ignore: u32,
    pub major: u32,
    pub minor: u32,
    pub logonfault: bool,
    pub enabled: bool,
    /// Whether the stack pointer is at the return address there.
    pub at_call: bool,
    /// Whether a hit only sets AX to 1.
    pub answers: bool,
    /// Whether a hit needs more than to run a handler of RPN at once: it is checked, altered, or the handler is a clause of
    /// D.
    pub guarded: bool,
    /// Whether a hit is checked before its handler runs ([`Probe::set_guards`]).
    pub checked: bool,
    /// Whether the handler is a clause of a D program.
    pub is_clause: bool,
    /// Whether it has had its last hit, whose instruction has not completed: it takes part in no other.
    pub spent: bool,
    /// Whether the handler sees other values than the guest's at some of its runs.
    pub altered: bool,
    /// Whether it is at a jump to another function, and fires when that has returned.
    pub returns_later: bool,
    /// Whether it only tells a D program that the guest switches threads.
    pub switches: bool,
    /// Its process filter, if not for all processes.
    pub filter: Option<u32>,
    pub place: Place,
    pub arguments: Option<Arc<dyn Arguments>>,
    /// Handlers that an exception ended.
    pub errors: u64,
    pub rest: Arc<Rest>,
}

/// The immutable part of a probe point, which most hits do not touch.
pub(crate) struct Rest {
    pub maxhits: u64,
    /// Its offset from the start of its module, for stack traces.
    pub offset: u64,
    pub group: Option<String>,
    pub kind: Option<String>,
    /// Its provider's description.
    pub provided: Option<Provided>,
    /// The processes that it is for; `None` for all, and for the kernel.
    pub processes: Option<Arc<Processes>>,
    /// Source line of each instruction of the handler.
    pub lines: Lines,
    /// What its records hold, if they can be shown as more than bytes.
    pub layout: Option<Arc<Layout>>,
}

impl Probe {
    /// A probe point that is not enabled yet.
    fn new(linked: &LinkedProbe, point: Point) -> Self {
        let maxhits = u64::from(linked.maxhits);
        let provided = point.provided.as_ref();
        let returns_later = provided.is_some_and(|provided| provided.arguments.later().is_some());
        let switches = provided.is_some_and(|provided| provided.arguments.switches());
        Self {
            program: 0,
            handler: linked.handler.clone(),
            answers: matches!(point.place, Place::IsEnabled { .. }),
            at_call: provided.is_some_and(|provided| provided.at_call),
            arguments: provided.map(|provided| Arc::clone(&provided.arguments)),
            place: point.place,
            major: linked.major,
            minor: linked.minor,
            ignore: linked.ignore,
            limit: maxhits,
            rest: Arc::new(Rest {
                maxhits,
                offset: linked.location.offset,
                group: linked.group.clone(),
                kind: linked.kind.clone(),
                provided: point.provided,
                processes: point.processes,
                lines: linked.lines.clone(),
                layout: linked.layout.clone(),
            }),
            logonfault: linked.logonfault,
            filter: None,
            guarded: false,
            checked: false,
            is_clause: false,
            spent: false,
            altered: false,
            returns_later,
            switches,
            enabled: false,
            seen: 0,
            run: 0,
            hit: 0,
            errors: 0,
        }
    }

    /// Notes what a hit needs before its handler runs.
    pub fn set_guards(&mut self) {
        self.checked = self.filter.is_some()
            || self.condition().is_some()
            || self.runs_after()
            || self.switches
            || self.spent
            || self.answers;
        self.guarded = self.checked || self.is_clause || self.altered;
    }

    /// Whether it waits until the instruction at its place has completed.
    pub fn runs_after(&self) -> bool {
        self.returns_later || self.place.runs_after()
    }

    /// When it fires at its place.
    pub fn condition(&self) -> Option<&Arc<dyn Condition>> {
        self.rest.provided.as_ref()?.when.as_ref()
    }

    /// Notes whether it has had its last hit, whose instruction has not completed.
    pub fn set_spent(&mut self, spent: bool) {
        self.spent = spent;
        self.set_guards();
    }
}
