//! A scout: an interposer in front of the real one, which notes the moments at which stop points are met, or tells a follower
//! what the guest executes.
//!
//! It passes everything else on. A search is only used on a state that is discarded afterwards, so only its watches need to
//! be undone, which [`Session::scouted`](super::Session::scouted) ends.

use trapline_emu::{
    Core, Fault, Moment, Stop, Trap, TrapInterposer, Verdict, Watch, WatchAccess, WatchHit, WatchKind,
};
use trapline_interposer::{Interposer, NotedHit, ProgramId};

/// The first identifier of a stop point's watch; those of the interposer are numbers of sites and probes.
const FIRST_ID: u32 = 0xffff_0000;

/// A point at which a run stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopPoint {
    /// An instruction in this range is about to be executed, or memory or a port in it has been accessed.
    Watch(Watch),
    /// Memory in this range has been read, by an instruction that has not only written it. An instruction with one operand
    /// that reads the range and another one that writes it counts as a write.
    Read {
        /// The first address.
        low: u64,
        /// The last one.
        high: u64,
    },
    /// A handler of any program runs.
    AnyHit,
    /// A handler of these programs runs.
    HitOf(Vec<ProgramId>),
    /// A handler of these programs runs to its end: its predicate holds, and it does not fail.
    FiringOf(Vec<ProgramId>),
    /// A handler asks for a debugger: `exit 1`.
    AsksDebugger,
    /// One of those two while this process runs, in user mode or in the kernel.
    In(u32, Box<StopPoint>),
    /// The processor has returned to user mode.
    UserMode,
}

/// A further condition of a stop point, on the state in which it is met, and its number.
pub type Accepts = Box<dyn Fn(&Core, usize) -> bool>;

/// What is told of each state in which the processor has returned to user mode.
pub type Returning = Box<dyn Fn(&Core)>;

/// A witness, which gets each stop point that is met, by its number, and for an access its details. If it returns an
/// address, executions of that address are reported from then on too, with a number above those of the points.
pub type Witness = Box<dyn FnMut(&Core, usize, Option<&WatchHit>) -> Option<u64>>;

/// Follows a run block by block.
pub trait Follower {
    /// A block of code is about to run from this linear address. `whole` is false where the machine advances by single
    /// instructions. Returns whether the run goes on; otherwise it ends before the block.
    fn block(&mut self, core: &Core, at: u64, whole: bool) -> bool;

    /// An exception of the guest's is about to be delivered; the instruction is at this address.
    fn exception(&mut self, core: &Core, vector: u8, at: u64) {
        let _ = (core, vector, at);
    }
}

/// What a scout does.
pub enum Errand<'a> {
    Search(&'a mut Search),
    Follow(&'a mut dyn Follower),
}

/// A match of a stop point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Met {
    /// Its moment: before the instruction for an execution and a probe's site, after it for an access.
    pub at: Moment,
    /// The number of the stop point.
    pub point: usize,
}

/// The search of a scout, and its result.
pub struct Search {
    points: Vec<StopPoint>,
    accepts: Option<Accepts>,
    returning: Option<Returning>,
    /// Matches at this moment or earlier do not count.
    after: Option<Moment>,
    /// Matches at this moment or later do not count.
    before: Option<Moment>,
    /// Accesses at that moment count: they are those of the instruction before it.
    last_access: bool,
    /// Whether what the delivery of an exception or interrupt stores is an access.
    deliveries: bool,
    /// Whether the first match is sufficient.
    first: bool,
    witness: Option<Witness>,
    /// Addresses that the witness has requested.
    asked: Vec<u64>,
    found: Option<Met>,
    /// All stop points that are met at the moment of `found`.
    together: Vec<usize>,
}

/// Whether it is met where a handler runs.
fn is_hit(point: &StopPoint) -> bool {
    match point {
        StopPoint::AnyHit | StopPoint::HitOf(_) | StopPoint::FiringOf(_) | StopPoint::AsksDebugger => true,
        StopPoint::In(_, point) => is_hit(point),
        StopPoint::Watch(_) | StopPoint::Read { .. } | StopPoint::UserMode => false,
    }
}

/// Whether a hit is met by a stop point.
fn meets(hit: &NotedHit, point: &StopPoint) -> bool {
    match point {
        StopPoint::AnyHit => true,
        StopPoint::HitOf(programs) => programs.contains(&hit.program),
        StopPoint::FiringOf(programs) => hit.whole && programs.contains(&hit.program),
        StopPoint::AsksDebugger => hit.asks_debugger,
        StopPoint::In(process, point) => hit.process == Some(*process) && meets(hit, point),
        StopPoint::Watch(_) | StopPoint::Read { .. } | StopPoint::UserMode => false,
    }
}

/// Whether it is met after an instruction.
fn is_access(point: &StopPoint) -> bool {
    match point {
        StopPoint::Watch(watch) => watch.kind != WatchKind::Execute,
        point => matches!(point, StopPoint::Read { .. }),
    }
}

fn executed(address: u64) -> Watch {
    Watch { kind: WatchKind::Execute, low: address, high: address }
}

impl Search {
    /// Searches for the first match after a moment.
    pub fn first_after(points: Vec<StopPoint>, after: Option<Moment>) -> Self {
        Self {
            points,
            accepts: None,
            returning: None,
            after,
            before: None,
            last_access: false,
            deliveries: true,
            first: true,
            witness: None,
            asked: Vec::new(),
            found: None,
            together: Vec::new(),
        }
    }

    /// Searches for the last match before a moment.
    pub fn last_before(points: Vec<StopPoint>, before: Moment) -> Self {
        Self { before: Some(before), first: false, ..Self::first_after(points, None) }
    }

    /// Counts the accesses of the instruction that ends at the last moment, too.
    #[must_use]
    pub fn with_last_access(self) -> Self {
        Self { last_access: true, ..self }
    }

    /// Counts the accesses of instructions alone.
    #[must_use]
    pub fn of_instructions(self) -> Self {
        Self { deliveries: false, ..self }
    }

    /// Reports all matches to a witness.
    pub fn witnessed(points: Vec<StopPoint>, witness: Witness) -> Self {
        Self { first: false, witness: Some(witness), ..Self::first_after(points, None) }
    }

    /// Accepts only stop points whose state passes this test.
    #[must_use]
    pub fn accepting(mut self, accepts: Accepts) -> Self {
        self.accepts = Some(accepts);
        self
    }

    /// Tells of each return to user mode.
    #[must_use]
    pub fn telling_returns(self, returning: Option<Returning>) -> Self {
        Self { returning, ..self }
    }

    /// The stop point that was found.
    pub fn found(&self) -> Option<Met> {
        self.found
    }

    /// The numbers of all stop points that are met at the moment of the one that was found.
    pub fn together(&self) -> &[usize] {
        &self.together
    }

    /// Whether the search is over.
    pub fn is_over(&self) -> bool {
        self.first && self.found.is_some()
    }

    /// Begins the search in the present state.
    pub fn begin(&self, core: &mut Core) {
        for (id, watch) in self.watches() {
            core.watch(id, watch);
        }
    }

    /// Whether the search is for hits of probes.
    pub fn wants_hits(&self) -> bool {
        self.points.iter().any(is_hit)
    }

    /// Whether the search is for hits of probes alone, so that nothing is met where no handler runs.
    pub fn wants_hits_alone(&self) -> bool {
        self.points.iter().all(is_hit)
    }

    /// Ends the watches.
    pub fn end(&self, core: &mut Core) {
        for (id, watch) in self.watches() {
            core.unwatch(id, watch.kind);
        }
    }

    fn watches(&self) -> Vec<(u32, Watch)> {
        let watch = |(id, point): (u32, &StopPoint)| match point {
            StopPoint::Watch(watch) => Some((id, *watch)),
            StopPoint::Read { low, high } => {
                Some((id, Watch { kind: WatchKind::ReadWrite, low: *low, high: *high }))
            }
            _ => None,
        };
        let own = (FIRST_ID..).zip(&self.points).filter_map(watch);
        let asked = (FIRST_ID + self.points.len() as u32..).zip(self.asked.iter().map(|at| executed(*at)));
        own.chain(asked).collect()
    }

    /// Reports to the witness.
    fn tell(&mut self, core: &mut Core, point: usize, hit: Option<&WatchHit>) {
        let Some(witness) = &mut self.witness else { return };
        if let Some(address) = witness(core, point, hit).filter(|address| !self.asked.contains(address)) {
            core.watch(FIRST_ID + (self.points.len() + self.asked.len()) as u32, executed(address));
            self.asked.push(address);
        }
    }

    /// A return to another privilege level, or within one, has completed.
    fn returned(&mut self, core: &mut Core) {
        if let Some(returning) = self.returning.as_ref().filter(|_| core.env().cpl() == 3) {
            returning(core);
        }
        let point = self.points.iter().position(|point| *point == StopPoint::UserMode);
        if let Some(point) = point.filter(|_| core.env().cpl() == 3) {
            self.met(core, point);
        }
    }

    /// Notes a match of a stop point in this state.
    fn met(&mut self, core: &mut Core, point: usize) {
        if self.accepts.as_ref().is_none_or(|accepts| accepts(core, point))
            && self.note(core.moment(), point)
            && self.first
        {
            core.finish(Stop::Requested);
        }
    }

    /// Notes a match of a stop point; returns whether it counts.
    fn note(&mut self, at: Moment, point: usize) -> bool {
        let later = self.after.is_none_or(|after| at > after);
        let last = self.last_access && self.points.get(point).is_some_and(is_access);
        let earlier = self.before.is_none_or(|before| at < before || last && at == before);
        let wanted = later && earlier;
        let sooner = self.found.is_none_or(|found| if self.first { at < found.at } else { at > found.at });
        if wanted && sooner {
            self.found = Some(Met { at, point });
            self.together.clear();
        }
        if wanted && self.found.is_some_and(|found| at == found.at) && !self.together.contains(&point) {
            self.together.push(point);
        }
        wanted && sooner
    }

    /// Handlers have run.
    pub fn hits(&mut self, noted: &[NotedHit]) {
        for hit in noted {
            let met =
                (0..self.points.len()).filter(|n| self.points.get(*n).is_some_and(|point| meets(hit, point)));
            for point in met.collect::<Vec<_>>() {
                self.note(hit.at, point);
            }
        }
    }
}

/// See the module.
pub struct Scout<'a, 'e> {
    interposer: Option<&'a mut Interposer>,
    errand: Errand<'e>,
}

impl<'a, 'e> Scout<'a, 'e> {
    pub fn new(interposer: Option<&'a mut Interposer>, errand: Errand<'e>) -> Self {
        Self { interposer, errand }
    }

    /// The search, and the number of its stop point that an identifier names.
    fn point_of(&mut self, id: u32) -> Option<(&mut Search, usize)> {
        match (&mut self.errand, id.checked_sub(FIRST_ID)) {
            (Errand::Search(search), Some(point)) => Some((search, point as usize)),
            _ => None,
        }
    }

    fn pass<T>(&mut self, call: impl FnOnce(&mut Interposer) -> T) -> Option<T> {
        self.interposer.as_deref_mut().map(call)
    }
}

impl TrapInterposer for Scout<'_, '_> {
    fn trap(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        match self.point_of(trap.patch).filter(|_| trap.vector == 1) {
            Some((search, point)) => {
                search.tell(core, point, None);
                search.met(core, point);
                Verdict::Declined
            }
            None => self.pass(|i| i.trap(core, trap)).unwrap_or(Verdict::Declined),
        }
    }

    fn wants_blocks(&self) -> bool {
        matches!(self.errand, Errand::Follow(_))
    }

    fn block(&mut self, core: &mut Core, at: u64, whole: bool) {
        if let Errand::Follow(follower) = &mut self.errand
            && !follower.block(core, at, whole)
        {
            core.finish(Stop::Requested);
        }
    }

    fn exception(&mut self, core: &mut Core, vector: u8, at: u64) -> bool {
        if let Errand::Follow(follower) = &mut self.errand {
            follower.exception(core, vector, at);
        }
        self.pass(|i| i.exception(core, vector, at)).unwrap_or(false)
    }

    fn returned(&mut self, core: &mut Core) {
        if let Errand::Search(search) = &mut self.errand {
            search.returned(core);
        }
        self.pass(|i| i.returned(core));
    }

    fn user_task(&self, core: &Core) -> Option<u64> {
        self.interposer.as_deref().and_then(|i| i.user_task(core))
    }

    fn interrupting(&mut self, core: &mut Core) {
        self.pass(|i| i.interrupting(core));
    }

    fn stub(&mut self, core: &mut Core, number: u32) -> Verdict {
        self.pass(|i| i.stub(core, number)).unwrap_or(Verdict::Declined)
    }

    fn watched(&mut self, core: &mut Core, hit: &WatchHit) {
        match self.point_of(hit.id) {
            Some((search, point)) => {
                let reads = matches!(search.points.get(point), Some(StopPoint::Read { .. }));
                if !reads || hit.access != WatchAccess::Write {
                    search.tell(core, point, Some(hit));
                    search.met(core, point);
                }
            }
            None => {
                self.pass(|i| i.watched(core, hit));
            }
        }
    }

    fn delivered(&mut self, core: &mut Core, hit: &WatchHit) {
        let Some((search, point)) = self.point_of(hit.id) else { return };
        if search.deliveries && matches!(search.points.get(point), Some(StopPoint::Watch(_))) {
            search.tell(core, point, Some(hit));
            search.met(core, point);
        }
    }

    fn faulted(&mut self, core: &mut Core) {
        self.pass(|i| i.faulted(core));
    }

    fn interrupted(&mut self, core: &mut Core) {
        self.pass(|i| i.interrupted(core));
    }

    fn settled(&mut self, core: &mut Core) {
        self.pass(|i| i.settled(core));
    }

    fn waits(&self, until: u64) -> bool {
        self.interposer.as_ref().is_some_and(|i| i.waits(until))
    }

    fn page_rewritten(&mut self, core: &mut Core, paddr: u64) {
        self.pass(|i| i.page_rewritten(core, paddr));
    }

    fn code_page(&mut self, core: &mut Core, paddr: u64) {
        self.pass(|i| i.code_page(core, paddr));
    }

    fn wants_code_pages(&self) -> bool {
        self.interposer.as_ref().is_some_and(|i| i.wants_code_pages())
    }

    fn user_code(&mut self, core: &mut Core, page: u64, paddr: u64) -> Option<Fault> {
        self.pass(|i| i.user_code(core, page, paddr)).flatten()
    }

    fn wants_user_code(&self) -> bool {
        self.interposer.as_ref().is_some_and(|i| i.wants_user_code())
    }
}
