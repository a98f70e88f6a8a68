//! The real hits of a recorded run, with their states.

use std::collections::BTreeMap;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use trapline_emu::{Core, PAGE};
use trapline_interposer::{ProgramId, TrialState, Word, is_writable};
use trapline_rpn::Verified;
use trapline_session::{
    Found, Guest, GuestBuilder, HISTORY_MEM, OwnPrograms, Places, Position, Recording, SavedSession, Session,
    Timeline, Way,
};

use crate::error::FuzzError;
use crate::patience::Patience;

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

/// One real hit, before its handler runs.
pub struct Hit {
    /// The state of the session.
    saved: SavedSession,
    /// The probe, as records count them.
    pub probe: u32,
    /// Its program.
    pub program: ProgramId,
    /// Its name.
    pub name: String,
    /// The probe point in the program, from 0.
    pub point: usize,
    /// The number of the handler's run there, from 1.
    pub run: u64,
    /// The number among all hits of the run, from 1.
    pub number: u64,
    /// The instruction count.
    pub icount: u64,
    /// The instruction pointer.
    pub ip: u64,
    /// The handler.
    pub handler: Arc<Verified>,
    /// The line of its first operation; 0 if it is not known.
    pub line: u32,
    /// The variables.
    pub variables: TrialState,
    /// The numbers that handlers have asked for.
    pub words: Words,
    /// The pages that handlers have asked for.
    pub pages: BTreeMap<u64, Page>,
}

impl Hit {
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
        let (mut list, mut passed_over) = (Vec::new(), 0);
        while list.len() < most {
            let Found::Met(_) = timeline.next_hit(program)? else { break };
            match hit_here(&mut timeline) {
                Some(hit) => list.push(hit),
                None => passed_over += 1,
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
        Ok(Self { session: timeline.into_session(), list, at: None, passed_over })
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
            (hit.icount, hit.ip, hit.point, hit.run, hit.name.as_str()).hash(&mut digest);
            hit.handler.code().iter().for_each(|insn| insn.to_text().hash(&mut digest));
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

    /// The hit of the same program after one.
    #[must_use]
    pub fn after(&self, number: usize) -> Option<usize> {
        let program = self.list.get(number)?.program;
        let mut later = self.list.iter().enumerate().skip(number + 1);
        later.find(|(_, hit)| hit.program == program).map(|(next, _)| next)
    }
}

fn at_beginning(guest: &Guest, recording: &Recording) -> Result<Session, FuzzError> {
    let mut session = guest.start(recording.config().probing.clone())?;
    let mut course = recording.course(Way::Same, OwnPrograms::Stay);
    session.begin_as(&mut course).map_err(|diverged| FuzzError::Diverged(diverged.to_string()))?;
    Ok(session)
}

/// The hit before which the timeline is; `None` if its handler does not run before an instruction.
fn hit_here(timeline: &mut Timeline) -> Option<Hit> {
    timeline.into_hit().ok()?;
    let found = timeline.operation().map(|operation| (operation.run.probe, operation.run.after));
    timeline.out().ok()?;
    let (probe, _) = found.filter(|(_, after)| !after)?;
    let session = timeline.session_mut();
    let saved = session.snapshot();
    let (icount, ip) = (session.icount(), session.core().linear_ip());
    let number = session.stats().hits + 1;
    let interposer = session.interposer()?;
    let (program, point, runs) = interposer.point_of(probe)?;
    let name = interposer.programs().iter().find(|one| one.id == program)?.name.to_owned();
    let (handler, lines) = interposer.handler(probe)?;
    let (handler, line) = (Arc::clone(handler), lines.line(0));
    let variables = interposer.trial_state(probe)?;
    Some(Hit {
        saved,
        probe,
        program,
        name,
        point,
        run: runs + 1,
        number,
        icount,
        ip,
        handler,
        line,
        variables,
        words: Words::default(),
        pages: BTreeMap::new(),
    })
}
