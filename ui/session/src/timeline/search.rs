//! Searches for the next or the previous occurrence of an event.
//!
//! A forward search returns the first match. A backward search returns the last match between the previous rung and
//! here; if there is none, it tries the rung before that. A search invalidates the state, and a saved one is restored
//! afterwards. What lies between two rungs with the same number of hits is passed over when hits are searched.

use trapline_emu::{Moment, Watch, WatchKind};

use super::drive::{Discard, Goal};
use super::{Found, Met, Rung, StopPoint, Timeline, TravelError};
use crate::recording::Position;
use crate::session::{Caller, CodeAddress, Search};

/// Most bytes of arguments that a return takes from the stack. Another task's stack is farther away.
const MOST_POPPED: u64 = 1024;

impl Timeline {
    /// Goes to the next hit of the programs with this name, or of all programs: to before the probed instruction, or
    /// after the watched access.
    ///
    /// # Errors
    /// No such program is inserted here.
    pub fn next_hit(&mut self, program: Option<&str>) -> Result<Found, TravelError> {
        let point = self.hits_of(program)?;
        self.run_until(&[point])
    }

    /// Goes to the previous hit.
    ///
    /// # Errors
    /// As [`Timeline::next_hit`].
    pub fn previous_hit(&mut self, program: Option<&str>) -> Result<Found, TravelError> {
        let point = self.hits_of(program)?;
        self.reverse_continue(&[point])
    }

    /// Goes forward to the next match of these stop points.
    ///
    /// # Errors
    /// The run is not the one that was recorded.
    pub fn run_until(&mut self, points: &[StopPoint]) -> Result<Found, TravelError> {
        let here = self.session.moment();
        self.forwards(Search::first_after(points.to_vec(), Some(here)))
    }

    /// Goes back to the last match of these stop points.
    ///
    /// # Errors
    /// The run is not the one that was recorded.
    pub fn reverse_continue(&mut self, points: &[StopPoint]) -> Result<Found, TravelError> {
        let here = self.session.moment();
        self.backwards(&|before| Search::last_before(points.to_vec(), before), here)
    }

    /// Goes forward to the return of the current function: to the first moment at which the instruction at its return
    /// address is about to be executed with the stack pointer just above the place of the address, in the same address
    /// space. The current function is the one with the innermost frame on the stack.
    ///
    /// # Errors
    /// The stack does not show the caller.
    pub fn finish(&mut self) -> Result<Found, TravelError> {
        let caller = self.known_caller()?;
        let back = CodeAddress::of(self.session.core(), caller.ip).linear;
        let search = Search::first_after(vec![Self::breakpoint(back)], Some(self.session.moment()));
        self.forwards(search.accepting(Box::new(move |core, _| {
            let env = core.env();
            (caller.sp..caller.sp.saturating_add(MOST_POPPED)).contains(&env.gpr(4))
                && caller.space.is_none_or(|space| env.cr(3) == space)
        })))
    }

    /// Goes back to the call of the current function: to before the instruction that last wrote the return address to
    /// its place on the stack.
    ///
    /// # Errors
    /// The stack does not show the caller.
    pub fn back_to_caller(&mut self) -> Result<Found, TravelError> {
        let mut caller = self.known_caller()?;
        loop {
            let found = self.back_to_write(caller)?;
            // A function that aligns its stack copies the return address into its frame.
            let original =
                self.session.caller().filter(|from| from.ip == caller.ip && from.place > caller.place);
            match original {
                Some(original) if matches!(found, Found::Met(_)) && !self.session.is_at_call() => {
                    caller = original
                }
                _ => return Ok(found),
            }
        }
    }

    /// Goes back to before the instruction that last wrote a return address.
    fn back_to_write(&mut self, caller: Caller) -> Result<Found, TravelError> {
        let here = self.session.moment();
        // The write of a call that ends exactly here has the moment of this position.
        let past = Moment { delivered: here.delivered.saturating_add(1), ..here };
        let found = self.backwards_from(&|before| wrote_return(caller, before), past, here)?;
        if let Found::Met(met) = found {
            // The write is reported after its instruction.
            self.go(Goal::Count(met.at.icount.saturating_sub(1)))?;
        }
        Ok(found)
    }

    fn known_caller(&self) -> Result<Caller, TravelError> {
        let unknown = || TravelError::NoCaller(self.session.core().linear_ip());
        self.session.caller().ok_or_else(unknown)
    }

    fn forwards(&mut self, mut search: Search) -> Result<Found, TravelError> {
        let here = self.leave();
        let without_hits = || self.ladder.last_with_hits(here.at, self.session.hits());
        let ahead = search.wants_hits_alone().then(without_hits).flatten();
        let before = || self.ladder.at_or_before(here.at).map(|(_, rung)| rung);
        let from = ahead.or_else(|| here.saved.clone()).or_else(before);
        let scanned = from.map_or(Ok(()), |from| self.scan(&from, None, &mut search));
        self.return_from(&here, scanned)?;
        match search.found() {
            Some(met) => self.arrive(met),
            None => Ok(Found::Nothing),
        }
    }

    pub(super) fn backwards(
        &mut self,
        make: &dyn Fn(Moment) -> Search,
        from: Moment,
    ) -> Result<Found, TravelError> {
        self.backwards_from(make, from, from)
    }

    /// Searches back from the moment `before`, beginning with the last rung before the moment `end`.
    fn backwards_from(
        &mut self,
        make: &dyn Fn(Moment) -> Search,
        mut before: Moment,
        mut end: Moment,
    ) -> Result<Found, TravelError> {
        let here = self.leave();
        // The number of hits by the end of the search.
        let mut hits = self.session.hits();
        while let Some((at, rung)) = self.ladder.before(end) {
            let mut search = make(before);
            let hits_before = std::mem::replace(&mut hits, rung.saved.hits());
            if hits_before != hits || !search.wants_hits_alone() {
                let scanned = self.scan(&rung, Some(before), &mut search);
                if scanned.is_err() {
                    self.return_from(&here, scanned)?;
                }
                if let Some(met) = search.found() {
                    self.together = search.together().to_vec();
                    return self.arrive(met);
                }
            }
            // A hit reported after the instruction before the rung has the rung's own moment.
            (before, end) = (Moment { delivered: 1, ..at }, at);
        }
        self.return_to(&here)?;
        Ok(Found::Nothing)
    }

    pub(super) fn arrive(&mut self, met: Met) -> Result<Found, TravelError> {
        self.go(Goal::Moment(met.at))?;
        Ok(Found::Met(met))
    }

    /// The moment at which the hit with this number, of those that leave a record, has completed, and the number of
    /// later hits that have completed with it.
    pub(super) fn find_hit_number(&mut self, hits: u64) -> Result<(Moment, u64), TravelError> {
        let here = self.leave();
        let first = self.ladder.first().map(|(_, rung)| rung);
        if let Some(first) = &first {
            self.climb_to(first)?;
        }
        let mut counting = false;
        let found = loop {
            counting = counting || self.session.stop_after_hits(hits);
            if self.session.had_enough_hits() {
                break Ok(Some((self.session.moment(), self.session.counted_hits().saturating_sub(hits))));
            }
            let Ok(turned) = self.turn(Goal::Count(u64::MAX), None, None, &mut Discard);
            match turned {
                Ok(None) => {}
                Ok(Some(_)) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        let have = self.session.counted_hits();
        self.return_from(&here, found)?.ok_or(TravelError::FewerHits { asked: Position::Hit(hits), have })
    }

    /// Saves the position, to return to it after a search.
    pub(super) fn leave(&mut self) -> Here {
        let at = self.session.moment();
        // A saved session does not contain the number of exceptions that were delivered since its last instruction.
        let saved = (at.delivered == 0).then(|| self.rung());
        Here { at, saved }
    }

    /// Returns from a search. After an interrupted search, nothing is run.
    pub(super) fn return_from<T>(
        &mut self,
        here: &Here,
        found: Result<T, TravelError>,
    ) -> Result<T, TravelError> {
        if let Err(TravelError::Interrupted) = &found {
            let before = || self.ladder.at_or_before(here.at).map(|(_, rung)| rung);
            if let Some(rung) = here.saved.clone().or_else(before) {
                self.climb_to(&rung)?;
            }
            return found;
        }
        self.return_to(here)?;
        found
    }

    pub(super) fn return_to(&mut self, here: &Here) -> Result<(), TravelError> {
        match &here.saved {
            Some(rung) => self.climb_to(rung),
            None => self.go(Goal::Moment(here.at)).map(|_| ()),
        }
    }
}

/// The position from which a search started.
pub(super) struct Here {
    pub(super) at: Moment,
    /// None in the middle of a delivery.
    saved: Option<Rung>,
}

/// Searches for the write of a return address to its place.
fn wrote_return(caller: Caller, before: Moment) -> Search {
    let low = caller.place;
    let watch = Watch { kind: WatchKind::Write, low, high: low.saturating_add(caller.word - 1) };
    let search = Search::last_before(vec![StopPoint::Watch(watch)], before).of_instructions();
    search.accepting(Box::new(move |core, _| {
        let mut bytes = [0; 8];
        let read = bytes.get_mut(..caller.word as usize).map(|bytes| core.peek(low, bytes));
        let same = matches!(read, Some(Ok(()))) && u64::from_le_bytes(bytes) == caller.ip;
        same && caller.space.is_none_or(|space| core.env().cr(3) == space)
    }))
}
