//! The two runs, side by side at one instruction count, and whether their states are the same.

use std::collections::{BTreeMap, BTreeSet};

use trapline_emu::{Core, Moment, PAGE, WatchKind};

use super::plan::{Inputs, keeper};
use super::{Both, CompareError, ComparedRun};
use crate::session::Session;
use crate::timeline::{Arrival, Goal, HISTORY_MEM, Rung, StopPoint, Timeline, TravelError};

/// The content of an empty page, and of a page that a machine does not have.
const ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

/// Most bytes between two bytes that are watched as one range.
const CLOSE: u64 = 16;

/// The parts of two states that differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Differing {
    pub registers: bool,
    pub devices: bool,
    pub memory: bool,
}

impl Differing {
    /// Whether registers or memory differ.
    pub fn in_guest(self) -> bool {
        self.registers || self.memory
    }

    pub fn any(self) -> bool {
        self.in_guest() || self.devices
    }
}

/// The kind of difference to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Any difference.
    Any,
    /// A difference in registers or memory.
    InGuest,
}

impl Wanted {
    pub fn is_in(self, found: Differing) -> bool {
        match self {
            Self::Any => found.any(),
            Self::InGuest => found.in_guest(),
        }
    }
}

/// A byte that differs: its offset in its page, and its two values.
pub type Byte = (usize, u8, u8);

/// See the module.
pub struct Pair {
    pub a: Timeline,
    pub b: Timeline,
    /// Pages whose contents differ.
    differing: BTreeSet<u32>,
    /// Bytes that differ from the start.
    known: BTreeMap<u32, Vec<Byte>>,
}

/// Both runs at one instruction count, to be restored.
pub struct Marks {
    pub icount: u64,
    rungs: Both<Rung>,
}

fn timeline(run: &ComparedRun<'_>, inputs: &Inputs<'_>) -> Result<Timeline, CompareError> {
    let mut session = run.guest.start(run.recording.config().probing.clone())?;
    let way = if run.changed { crate::session::Way::Branch } else { crate::session::Way::Same };
    let mut course = run.recording.course(way, inputs.own);
    let begun = session.begin_as(&mut course);
    begun.map_err(|found| TravelError::Diverged { icount: 0, why: found.to_string() })?;
    let timeline = Timeline::of(session, run.recording, keeper(inputs.own), HISTORY_MEM)?;
    Ok(if run.changed { timeline.as_branch() } else { timeline })
}

/// The content of a page.
pub fn page(core: &Core, page: u32) -> &[u8] {
    let at = page as usize * PAGE as usize;
    core.ram().bytes().get(at..at + PAGE as usize).unwrap_or(&ZEROS)
}

impl Pair {
    /// Both runs at their beginning.
    pub fn start(runs: [&ComparedRun<'_>; 2], inputs: [&Inputs<'_>; 2]) -> Result<Self, CompareError> {
        let ([a, b], [of_a, of_b]) = (runs, inputs);
        let (a, b) = (timeline(a, of_a)?, timeline(b, of_b)?);
        Ok(Self { a, b, differing: BTreeSet::new(), known: BTreeMap::new() })
    }

    /// Runs only the first run to an instruction count, and lets the second one continue from there: the inputs of both
    /// are the same until then.
    pub fn begin_alike(&mut self, icount: u64) -> Result<(), TravelError> {
        self.a.run_on_to(Goal::Count(icount))?;
        let rung = self.a.rung();
        self.b.take_over(&rung.saved)
    }

    pub fn cores(&self) -> Both<&Core> {
        Both { a: self.a.session().core(), b: self.b.session().core() }
    }

    /// Runs both to an instruction count, or to the earlier end of one of them.
    pub fn run_to(&mut self, icount: u64, from: &Marks) -> Result<u64, TravelError> {
        let at = Goal::Count(icount);
        let ended = [self.a.run_on_to(at)?, self.b.run_on_to(at)?].iter().any(|a| *a != Arrival::There);
        let reached = self.a.session().icount().min(self.b.session().icount());
        if ended {
            // Go to the first of the moments with this count.
            self.go_back(from)?;
            self.a.run_on_to(Goal::Count(reached))?;
            self.b.run_on_to(Goal::Count(reached))?;
        }
        Ok(reached)
    }

    /// Runs both to an instruction count, or to the first point that may make a difference. Returns the instruction count
    /// after this point; if there is none, both have reached the instruction count.
    pub fn run_to_suspect(
        &mut self,
        icount: u64,
        points: &Both<Vec<StopPoint>>,
    ) -> Result<Option<u64>, TravelError> {
        let mut to = icount;
        for (side, points) in [(&mut self.a, &points.a), (&mut self.b, &points.b)] {
            if let Some(met) = side.search_on_to(Goal::Count(to), points.clone())? {
                let after = matches!(points.get(met.point), Some(StopPoint::Watch(w)) if w.kind != WatchKind::Execute);
                to = to.min(met.at.icount + u64::from(!after));
            }
        }
        Ok(Some(to).filter(|to| *to < icount))
    }

    /// Linear addresses, first and last, of the bytes that differ from the start, by the image of the first run; bytes
    /// that are close together form one range.
    pub fn known_ranges(&self) -> Vec<(u64, u64)> {
        let plan = self.a.session().target().image().plan();
        let places = self
            .known
            .iter()
            .flat_map(|(page, bytes)| bytes.iter().map(|(at, ..)| u64::from(*page) * PAGE + *at as u64));
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for at in places.map(|paddr| plan.paddr_to_vaddr(paddr).unwrap_or(paddr)) {
            match ranges.last_mut() {
                Some((_, last)) if at >= *last && at - *last <= CLOSE => *last = at,
                _ => ranges.push((at, at)),
            }
        }
        ranges
    }

    /// Runs both to their ends.
    pub fn run_to_ends(&mut self) -> Result<(), TravelError> {
        self.a.run_on_to(Goal::Count(u64::MAX))?;
        self.b.run_on_to(Goal::Count(u64::MAX)).map(|_| ())
    }

    /// Runs both to their next moment.
    pub fn next_moment(&mut self) -> Result<(), TravelError> {
        for side in [&mut self.a, &mut self.b] {
            let now = side.session().moment();
            side.run_on_to(Goal::Moment(Moment { delivered: now.delivered + 1, ..now }))?;
        }
        Ok(())
    }

    pub fn marks(&mut self) -> Marks {
        let icount = self.a.session().icount();
        Marks { icount, rungs: Both { a: self.a.rung(), b: self.b.rung() } }
    }

    pub fn go_back(&mut self, to: &Marks) -> Result<(), TravelError> {
        self.a.climb_to(&to.rungs.a)?;
        self.b.climb_to(&to.rungs.b)
    }

    /// Compares the two states, except for the differences at the start.
    pub fn compare(&mut self) -> Differing {
        let digests = [&mut self.a, &mut self.b].map(|side| side.session_mut().staged_digest());
        let changed = |session: &Session| session.changed_pages().map(|(page, _)| *page).collect::<Vec<_>>();
        for number in [&self.a, &self.b].into_iter().flat_map(|side| changed(side.session())) {
            let cores = self.cores();
            if page(cores.a, number) == page(cores.b, number) {
                self.differing.remove(&number);
            } else {
                self.differing.insert(number);
            }
        }
        let [a, b] = digests;
        Differing {
            registers: a.registers != b.registers,
            devices: a.devices != b.devices,
            memory: self.differing.iter().any(|page| !self.new_bytes_of(*page).is_empty()),
        }
    }

    /// From now on, the bytes that differ now are ignored as long as they do not change.
    pub fn begins_with_these(&mut self) {
        self.known = self.differing.iter().map(|page| (*page, self.bytes_of(*page))).collect();
    }

    /// The bytes of a page that differ.
    fn bytes_of(&self, number: u32) -> Vec<Byte> {
        let cores = self.cores();
        let pairs = page(cores.a, number).iter().zip(page(cores.b, number)).enumerate();
        pairs.filter(|(_, (a, b))| a != b).map(|(at, (a, b))| (at, *a, *b)).collect()
    }

    /// Those that did not differ in this way from the start.
    fn new_bytes_of(&self, page: u32) -> Vec<Byte> {
        let known = self.known.get(&page);
        let is_known = |byte: &Byte| known.is_some_and(|known| known.binary_search(byte).is_ok());
        self.bytes_of(page).into_iter().filter(|byte| !is_known(byte)).collect()
    }

    /// All new bytes that differ, by page.
    pub fn new_bytes(&self) -> impl Iterator<Item = (u32, Vec<Byte>)> + '_ {
        self.differing.iter().map(|page| (*page, self.new_bytes_of(*page)))
    }
}
