//! The real hits of a recorded run, with their states.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use trapline_emu::{Core, PAGE};
use trapline_interposer::{
    AlteredRun, Difference, HandlerTrace, Interposer, ProgramId, TrialState, Word, is_writable,
};
use trapline_rpn::Verified;
use trapline_session::{
    Found, Guest, GuestBuilder, HISTORY_MEM, OwnPrograms, Places, Position, Recording, SavedSession, Session,
    StopPoint, Timeline, Way,
};

use crate::error::FuzzError;
use crate::patience::Patience;
use crate::units::{self, Reach, Unit};

/// A page of a real hit, as far as handlers have asked for it.
#[derive(Debug, Clone)]
pub enum Page {
    /// It can be read.
    There {
        /// Its bytes.
        bytes: Arc<[u8]>,
        /// Whether it can be written.
        writable: bool,
    },
    /// It cannot be read.
    Absent,
}

/// Numbers that handlers have asked for. They are few, and every operation that asks looks for one.
#[derive(Debug, Clone, Default)]
pub struct Words(Vec<(Word, u64)>);

impl Words {
    /// The value of a number.
    #[inline]
    #[must_use]
    pub fn get(&self, what: Word) -> Option<u64> {
        self.0.iter().find(|(own, _)| *own == what).map(|(_, value)| *value)
    }

    /// Keeps the value of a number.
    pub fn insert(&mut self, what: Word, value: u64) {
        match self.0.iter_mut().find(|(own, _)| *own == what) {
            Some((_, own)) => *own = value,
            None => self.0.push((what, value)),
        }
    }
}

/// One real hit, before its handlers run.
pub struct Hit {
    /// The state of the session.
    saved: SavedSession,
    /// The handlers, in the order in which they run.
    pub handlers: Vec<Handler>,
    /// The number of the first one's run among all hits of the run, from 1.
    pub number: u64,
    /// The instruction count.
    pub icount: u64,
    /// Operations of handlers that run at this instruction count and before this hit.
    pub operations: u64,
    /// The number of the firing, which all its handlers share.
    pub firing: u64,
    /// The instruction pointer.
    pub ip: u64,
    /// The variables of all programs.
    pub variables: TrialState,
    /// The pages that handlers have asked for.
    pub pages: BTreeMap<u64, Page>,
}

/// A handler at a real hit.
pub struct Handler {
    /// The probe, as records count them.
    pub probe: u32,
    /// Its program.
    pub program: ProgramId,
    /// The program's name.
    pub name: String,
    /// The probe point in the program, from 0.
    pub point: usize,
    /// The number of the handler's run there, from 1.
    pub run: u64,
    /// The handler.
    pub verified: Arc<Verified>,
    /// Whether it is a clause of D.
    pub is_clause: bool,
    /// The numbers that it has asked for.
    pub words: Words,
}

impl Handler {
    /// Of a probe whose next run this is.
    fn of(interposer: &Interposer, probe: u32) -> Option<Self> {
        let (program, point, runs) = interposer.point_of(probe)?;
        let name = interposer.programs().iter().find(|one| one.id == program)?.name.to_owned();
        let verified = Arc::clone(interposer.handler(probe)?.0);
        let is_clause = interposer.is_clause(probe);
        Some(Self {
            probe,
            program,
            name,
            point,
            run: runs + 1,
            verified,
            is_clause,
            words: Words::default(),
        })
    }
}

impl Hit {
    /// The value of a number, if a handler has asked for it.
    #[must_use]
    pub fn word(&self, what: Word) -> Option<u64> {
        self.handlers.iter().find_map(|handler| handler.words.get(what))
    }

    /// The program of a local variable, and its number there. Differences of a hit count those of all programs.
    #[must_use]
    pub fn local(&self, number: u32) -> Option<(&Handler, u32)> {
        self.handlers.iter().find_map(|handler| {
            let locals = self.variables.locals(handler.program);
            let own =
                (number as usize).checked_sub(locals.start).filter(|_| locals.contains(&(number as usize)));
            Some((handler, own? as u32))
        })
    }

    /// The runs of its handlers, altered by these differences, each with the name of its program. The first handler of a program
    /// gets the program's local variables, the first one of all the global ones.
    #[must_use]
    pub fn altered(&self, differences: &[Difference], through: bool) -> Vec<(String, AlteredRun)> {
        let of = |n: usize, handler: &Handler| {
            let is_first = self.handlers.iter().take(n).all(|other| other.program != handler.program);
            let own = differences.iter().filter_map(|difference| match difference {
                Difference::Local { number, value } => {
                    let (owner, number) = self.local(*number)?;
                    let own = is_first && owner.program == handler.program;
                    own.then_some(Difference::Local { number, value: *value })
                }
                Difference::Global { .. } => (n == 0).then(|| difference.clone()),
                other => Some(other.clone()),
            });
            let (point, run, differences) = (handler.point, handler.run, own.collect());
            (handler.name.clone(), AlteredRun { point, run, differences, through })
        };
        self.handlers.iter().enumerate().map(|(n, handler)| of(n, handler)).collect()
    }

    /// The differences by which these runs of its handlers are altered, as [`Hit::altered`] has made them; `None` if none of them
    /// is.
    #[must_use]
    pub fn unaltered(&self, programs: &[(String, Vec<AlteredRun>)]) -> Option<Vec<Difference>> {
        let mut found: Option<Vec<Difference>> = None;
        for handler in &self.handlers {
            let runs = programs.iter().find(|(name, _)| *name == handler.name).map(|(_, runs)| runs);
            let mut runs = runs.into_iter().flatten();
            let run = runs.find(|run| run.point == handler.point && run.run == handler.run);
            let Some(run) = run else { continue };
            let is_first = found.is_none();
            let all = found.get_or_insert_default();
            let first = self.variables.locals(handler.program).start as u32;
            all.extend(run.differences.iter().filter_map(|difference| match difference {
                Difference::Local { number, value } => {
                    Some(Difference::Local { number: number + first, value: *value })
                }
                other => is_first.then(|| other.clone()),
            }));
        }
        found
    }

    /// The guest's page at an address, from the machine, which is at this hit.
    pub fn look(core: &Core, page: u64) -> Page {
        let mut bytes = vec![0; PAGE as usize];
        match core.peek(page, &mut bytes) {
            Ok(()) => Page::There { bytes: bytes.into(), writable: is_writable(core, page) },
            Err(_) => Page::Absent,
        }
    }
}

/// A session, and real hits of it.
pub struct Hits {
    /// The session.
    pub session: Session,
    /// The hits, in order.
    pub list: Vec<Hit>,
    /// The number of the hit at which the machine is.
    at: Option<usize>,
    /// Hits that were passed over, because they have no instruction that waits: timers, returns, watches.
    pub passed_over: u64,
    /// All code of handlers that is inserted where the last hit is.
    pub units: Vec<Unit>,
}

impl Hits {
    /// Runs a recording to its hits from a position on, and keeps this many.
    ///
    /// # Errors
    /// The recording cannot be replayed, or has no hit there.
    pub fn of(
        recording: &Recording,
        places: &Places,
        from: Option<Position>,
        most: usize,
    ) -> Result<Self, FuzzError> {
        Self::of_program(recording, places, from, most, (None, &Patience::default()))
    }

    /// As [`Hits::of`], with those of one program, by its name, as long as the search has not ended.
    ///
    /// # Errors
    /// As [`Hits::of`].
    pub fn of_program(
        recording: &Recording,
        places: &Places,
        from: Option<Position>,
        most: usize,
        (program, patience): (Option<&str>, &Patience),
    ) -> Result<Self, FuzzError> {
        let guest = GuestBuilder::of_recording(recording, places)?.open()?;
        let session = at_beginning(&guest, recording)?;
        let mut timeline =
            Timeline::of(session, recording, |_| true, HISTORY_MEM)?.cancelled_by(patience.flag());
        if let Some(from) = from {
            timeline.goto(from)?;
        }
        let wanted = match program {
            None => StopPoint::AnyHit,
            // Other programs may have the same probe, and others.
            Some(name) => match exactly(timeline.session(), name) {
                Some(own) => StopPoint::HitOf(vec![own]),
                None => timeline.hits_of(program)?,
            },
        };
        let (mut list, mut passed_over, mut elsewhere) = (Vec::new(), 0, BTreeSet::new());
        while list.len() < most {
            let Found::Met(_) = timeline.run_until(std::slice::from_ref(&wanted))? else { break };
            match hit_here(&mut timeline, &wanted) {
                Ok(hit) => list.push(hit),
                Err(probes) => {
                    passed_over += 1;
                    elsewhere.extend(probes);
                }
            }
            if passed_over > 64 + list.len() as u64 {
                break;
            }
        }
        if list.is_empty() {
            return Err(match program {
                Some(function) if passed_over == 0 => {
                    FuzzError::NoCalls { function: function.to_owned(), instructions: recording.end().icount }
                }
                _ => FuzzError::NoHits { passed_over },
            });
        }
        let session = timeline.into_session();
        let handlers = list.iter().flat_map(|hit: &Hit| &hit.handlers);
        let searched = handlers.map(|handler| (handler.program, &*handler.verified));
        let units = session.interposer().map(|all| units::units(all, searched, &elsewhere));
        let units = units.unwrap_or_default();
        Ok(Self { session, list, at: None, passed_over, units })
    }

    /// As [`Hits::of`], with the hit that is at the position.
    ///
    /// # Errors
    /// As [`Hits::of`].
    pub fn before(
        recording: &Recording,
        places: &Places,
        icount: u64,
        most: usize,
    ) -> Result<Self, FuzzError> {
        // A search finds what is after the position.
        let from = icount.checked_sub(1).map(|icount| Position::At { icount, ordinal: 0 });
        Self::of(recording, places, from, most)
    }

    /// A number for what is searched: other hits, or other handlers, have another one.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut digest = xxhash_rust::xxh3::Xxh3::new();
        for hit in &self.list {
            (hit.icount, hit.ip).hash(&mut digest);
            for handler in &hit.handlers {
                (handler.point, handler.run, handler.name.as_str()).hash(&mut digest);
                handler.verified.code().iter().for_each(|insn| insn.to_text().hash(&mut digest));
            }
        }
        digest.finish()
    }

    /// Brings the machine to a hit.
    ///
    /// # Errors
    /// The saved state is not one of this session.
    pub fn go_to(&mut self, number: usize) -> Result<(), FuzzError> {
        if self.at != Some(number)
            && let Some(hit) = self.list.get(number)
        {
            self.session.restore(&hit.saved)?;
            self.at = Some(number);
        }
        Ok(())
    }

    /// Passes over a hit.
    pub fn remove(&mut self, number: usize) {
        if number < self.list.len() {
            self.list.remove(number);
            self.at = None;
            self.passed_over += 1;
        }
    }

    /// Notes that the machine goes elsewhere.
    pub fn leave(&mut self) {
        self.at = None;
    }

    /// Whether the machine is at a hit.
    #[must_use]
    pub fn is_at(&self, number: usize) -> bool {
        self.at == Some(number)
    }

    /// How a handler is called: by the name of its [`Unit`].
    #[must_use]
    pub fn name<'a>(&'a self, handler: &'a Handler) -> &'a str {
        let unit = self.units.iter().find(|unit| unit.holds(handler.program, &handler.verified));
        unit.map_or(handler.name.as_str(), |unit| unit.name.as_str())
    }

    /// The name of the [`Unit`] of a probe's handler, and the program's number for an operation of the handler.
    #[must_use]
    pub fn place_of(&self, probe: u32, at: u32) -> Option<(String, u32)> {
        let interposer = self.session.interposer()?;
        let (program, ..) = interposer.point_of(probe)?;
        let (handler, _) = interposer.handler(probe)?;
        let unit = self.units.iter().find(|unit| unit.holds(program, handler))?;
        Some((unit.name.clone(), handler.own(at)))
    }

    /// The units that no kept hit runs, by name, with the numbers of their probes.
    #[must_use]
    pub fn others(&self) -> Vec<(String, Vec<u32>)> {
        let Some(interposer) = self.session.interposer() else { return Vec::new() };
        let others = self.units.iter().filter(|unit| unit.reach != Reach::Searched);
        others.map(|unit| (unit.name.clone(), unit.probes(interposer))).collect()
    }

    /// The hit after one: what its handlers change, those of the next one see.
    #[must_use]
    pub fn after(&self, number: usize) -> Option<usize> {
        Some(number + 1).filter(|next| *next < self.list.len())
    }
}

fn at_beginning(guest: &Guest, recording: &Recording) -> Result<Session, FuzzError> {
    let mut session = guest.start(recording.config().probing.clone())?;
    let mut course = recording.course(Way::Same, OwnPrograms::Stay);
    session.begin_as(&mut course).map_err(|diverged| FuzzError::Diverged(diverged.to_string()))?;
    Ok(session)
}

/// The program of this name that is a probe alone, not one of D.
fn exactly(session: &Session, name: &str) -> Option<ProgramId> {
    let interposer = session.interposer()?;
    let is_probe = |id| interposer.probes_of(id).all(|probe| !interposer.is_clause(probe));
    let named = session.programs_named(name).ok()?;
    named.into_iter().find(|id| is_probe(*id))
}

/// The hit before which the timeline is, with the handlers of the wanted programs or of all; or the probes of its handlers, if none runs
/// before an instruction.
fn hit_here(timeline: &mut Timeline, wanted: &StopPoint) -> Result<Hit, Vec<u32>> {
    timeline.into_hit().map_err(|_| Vec::new())?;
    let (operations, runs) = timeline.handlers_here();
    let (after, before): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| run.after);
    let probes = |runs: &[&HandlerTrace]| runs.iter().map(|run| run.probe).collect::<Vec<u32>>();
    let (after, before) = (probes(&after), probes(&before));
    timeline.out().map_err(|_| after.clone())?;
    let session = timeline.session_mut();
    let saved = session.snapshot();
    let (icount, ip) = (session.icount(), session.core().linear_ip());
    let number = session.stats().hits + 1;
    let firing = session.stats().traps + 1;
    let Some(interposer) = session.interposer() else { return Err(after) };
    let handlers = before.iter().filter_map(|probe| Handler::of(interposer, *probe));
    let handlers = handlers.filter(|handler| match wanted {
        StopPoint::HitOf(programs) => programs.contains(&handler.program),
        _ => true,
    });
    let handlers: Vec<Handler> = handlers.collect();
    if handlers.is_empty() {
        return Err(after);
    }
    let variables = interposer.trial_state();
    Ok(Hit { saved, handlers, number, icount, operations, firing, ip, variables, pages: BTreeMap::new() })
}
