//! The ladder of a timeline, as its owner and other threads have it.
//!
//! Another session of the same run may be ahead of the timeline: the one that lists the hits of a live run. It saves its state
//! now and then, and a [`Layer`] lays that into the ladder. So the timeline goes anywhere where that session has been
//! without running there itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use trapline_emu::Moment;

use super::ladder::{Due, Ladder, Rung, SPACING};
use crate::session::{SavedSession, TakesStates};

/// The ladder. Its rungs are copied out of it, which costs little: they share what they hold.
pub struct Rungs(Arc<Mutex<Ladder>>);

impl Rungs {
    pub fn new(ladder: Ladder) -> Self {
        Self(Arc::new(Mutex::new(ladder)))
    }

    fn ladder(&self) -> MutexGuard<'_, Ladder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What lays the states of another session of this run, until that becomes a different one.
    pub fn layer(&self) -> Layer {
        Layer { ladder: Arc::downgrade(&self.0), laid: 0, reached: Arc::default() }
    }

    /// The first instruction count of the history.
    pub fn begins(&self) -> u64 {
        self.ladder().first().map_or(0, |(at, _)| at.icount)
    }

    /// As [`Ladder::first`].
    pub fn first(&self) -> Option<(Moment, Rung)> {
        self.ladder().first().map(owned)
    }

    /// As [`Ladder::at_or_before`].
    pub fn at_or_before(&self, at: Moment) -> Option<(Moment, Rung)> {
        self.ladder().at_or_before(at).map(owned)
    }

    /// As [`Ladder::before`].
    pub fn before(&self, at: Moment) -> Option<(Moment, Rung)> {
        self.ladder().before(at).map(owned)
    }

    /// As [`Ladder::last_with_hits`].
    pub fn last_with_hits(&self, from: Moment, hits: u64) -> Option<Rung> {
        self.ladder().last_with_hits(from, hits).cloned()
    }

    /// As [`Ladder::next_due`].
    pub fn next_due(&self, now: u64, to: u64) -> Option<Due> {
        self.ladder().next_due(now, to)
    }

    /// As [`Ladder::wants`].
    pub fn wants(&self, due: Due, at: Moment, cost: u64) -> bool {
        self.ladder().wants(due, at, cost)
    }

    /// As [`Ladder::lay`].
    pub fn lay(&self, at: Moment, rung: Rung) {
        self.ladder().lay(at, rung);
    }

    /// Drops all rungs after a moment, from where on the run is a different one. What is laid by others from now on is of the
    /// run before, and is dropped.
    pub fn cut(&mut self, at: Moment) {
        let mut left = self.ladder().clone();
        left.cut(at);
        *self = Self::new(left);
    }

    pub fn len(&self) -> usize {
        self.ladder().len()
    }

    /// As [`Ladder::counts`].
    pub fn counts(&self) -> Vec<u64> {
        self.ladder().counts()
    }

    pub fn measured(&self) -> u64 {
        self.ladder().measured()
    }

    pub fn widest(&self) -> u64 {
        self.ladder().widest()
    }

    pub fn thinned(&self) -> u64 {
        self.ladder().thinned()
    }
}

fn owned((at, rung): (Moment, &Rung)) -> (Moment, Rung) {
    (at, rung.clone())
}

/// Lays saved states of another session of the same run into the ladder of a timeline. An observer lends it to that session:
/// [`Observer::states`](crate::Observer::states).
///
/// Both sessions begin alike, with the same programs and options of probes. What the other one does is the timeline's run
/// until the timeline's run is changed by a command, or the timeline is gone; from then on nothing is laid. When the other session
/// ends, it says so by [`TakesStates::end`].
#[derive(Debug, Clone)]
pub struct Layer {
    ladder: Weak<Mutex<Ladder>>,
    /// The cost of running to where a state was laid last.
    laid: u64,
    /// The instruction count that the session has reached.
    reached: Arc<AtomicU64>,
}

impl Layer {
    /// The instruction count that the session has reached, or more if it goes no further.
    pub fn reached(&self) -> u64 {
        self.reached.load(Ordering::SeqCst)
    }
}

impl TakesStates for Layer {
    fn wants(&mut self, now: Moment, effort: u64) -> bool {
        self.reached.fetch_max(now.icount, Ordering::SeqCst);
        if effort < self.laid + SPACING {
            return false;
        }
        // Whatever the ladder says: it is asked again after the same distance.
        self.laid = effort;
        let Some(ladder) = self.ladder.upgrade() else { return false };
        let ladder = ladder.lock().unwrap_or_else(PoisonError::into_inner);
        ladder.wants(Due::checked(now.icount), now, effort)
    }

    fn take(&mut self, now: Moment, state: SavedSession, effort: u64) {
        if let Some(ladder) = self.ladder.upgrade() {
            let mut ladder = ladder.lock().unwrap_or_else(PoisonError::into_inner);
            ladder.lay(now, Rung { saved: state, next: None, cost: effort });
        }
    }

    fn end(&mut self) {
        self.ladder = Weak::new();
        self.reached.store(u64::MAX, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Position;
    use crate::{Command, Condition, GuestBuilder, InputLine, Limits, Observer, Script, Session, Timeline};

    /// Instructions of the run.
    const LENGTH: u64 = 4_000_000;

    const PROGRAMS: usize = 20;

    struct Ahead(Layer);

    impl Observer for Ahead {
        type Error = std::convert::Infallible;

        fn states(&mut self) -> Option<&mut dyn TakesStates> {
            Some(&mut self.0)
        }
    }

    fn start() -> Session {
        let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).start().unwrap();
        // Handlers cost: a state is laid now and then.
        for _ in 0..PROGRAMS {
            session.apply(Command::clause("fbt:::entry { push pid; log 1 }")).unwrap();
        }
        session
    }

    /// Runs another session to the end, which lays its states.
    fn run_ahead(timeline: &mut Timeline) -> Ahead {
        let mut ahead = Ahead(timeline.layer());
        let Ok(_) =
            start().run(&mut Script::default(), &Condition::end(), &Limits::insns(LENGTH), &mut ahead);
        ahead
    }

    #[test]
    fn a_timeline_goes_to_where_another_session_has_been_without_running_there() {
        let mut timeline = Timeline::new(start(), 256 << 20).unwrap();
        let ahead = run_ahead(&mut timeline);
        assert!(timeline.history().rungs >= 3, "{:?}", timeline.history());
        assert!(ahead.0.reached() > LENGTH / 2);
        let mut plain = start();
        let ended = plain.run_until(&Condition::end(), &Limits::insns(LENGTH - 7));
        let effort = |session: &Session| session.core().effort();
        let before = effort(timeline.session());
        timeline.goto(Position::At { icount: LENGTH - 7, ordinal: 0 }).unwrap();
        let (own, whole) = (effort(timeline.session()) - before, effort(&plain));
        assert!(own < whole / 2, "{own} of {whole}, {ended:?}");
        assert_eq!(timeline.session().digest(), plain.digest());
        assert_eq!(timeline.session().stats(), plain.stats());
        timeline.back(LENGTH / 3).unwrap();
        timeline.step(LENGTH / 3).unwrap();
        assert_eq!(timeline.session().digest(), plain.digest());
    }

    #[test]
    fn nothing_is_laid_into_a_run_that_has_become_a_different_one() {
        let mut timeline = Timeline::new(start(), 256 << 20).unwrap();
        let layer = timeline.layer();
        timeline.step(1000).unwrap();
        timeline.apply(Command::Type { line: InputLine::Com1, bytes: b"ls\n".to_vec() }).unwrap();
        let rungs = timeline.history().rungs;
        let mut late = Ahead(layer);
        let Ok(_) = start().run(&mut Script::default(), &Condition::end(), &Limits::insns(LENGTH), &mut late);
        assert_eq!(timeline.history().rungs, rungs);
        // What follows the change is laid by who knows of it.
        let before = timeline.layer();
        assert!(before.ladder.upgrade().is_some() && late.0.ladder.upgrade().is_none());
    }
}
