//! The two threads: one executes the run and lists its hits, the other one moves within it and reads scenes.

mod channels;
mod find;
mod index;
mod look;
mod probing;
mod source;
mod travel;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use trapline_providers::Target;
use trapline_session::{Command, Condition, Limits, OwnPrograms, Recording, Session, Timeline};
use trapline_trace::Formatter;

use crate::message::{Input, Listing, More, Request};
pub use source::Substitutions;

/// The kind of run whose hits are listed.
pub enum Course {
    /// A live run, to its end.
    Live {
        /// The conditions that end it.
        condition: Condition,
        /// Its limits.
        limits: Limits,
    },
    /// A recording.
    Recorded {
        /// The recording.
        recording: Arc<Recording>,
        /// Whether its own programs remain active.
        own: OwnPrograms,
        /// Whether other programs are inserted.
        others: bool,
    },
}

/// Makes the run again.
pub trait Again: Send + Sync {
    /// As [`Opening::session`].
    ///
    /// # Errors
    /// A sentence that says why not.
    fn session(&self) -> Result<Session, String>;

    /// What was listed last is whole. If it was a session of [`Again::session`] that is recorded, its recording takes the
    /// place of the one before.
    ///
    /// # Errors
    /// A sentence that says why not.
    fn listed(&self) -> Result<(), String> {
        Ok(())
    }

    /// As [`Opening::timeline`], with more commands at the beginning.
    ///
    /// # Errors
    /// A sentence that says why not.
    fn timeline(&self, more: &[Command]) -> Result<Timeline, String>;

    /// The command that inserts the program of a file, of RPN or D.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    fn program(&self, path: &str) -> Result<Command, String>;

    /// The command that inserts clauses of D.
    ///
    /// # Errors
    /// A sentence that says what is wrong with them.
    fn clauses(&self, text: &str) -> Result<Command, String>;

    /// Whether a command inserts a program that only observes.
    fn observes(&self, command: &Command) -> bool;
}

/// The run to show.
pub struct Opening {
    /// Its name.
    pub title: String,
    /// The hash of its image, by which a session file knows it.
    pub image: String,
    /// Names of addresses.
    pub target: Arc<Target>,
    /// A session at the beginning, with the probes of the command line, which runs to the end. The first inputs of a
    /// recording are applied on the way.
    pub session: Session,
    /// The kind of run.
    pub course: Course,
    /// The timeline of the same run, at its beginning.
    pub timeline: Timeline,
    /// What shows the data of records, if they have templates.
    pub templates: Option<Formatter>,
    /// Where source files are.
    pub sources: Substitutions,
    /// Makes both again, for other probes and other input.
    pub again: Arc<dyn Again>,
}

/// An order to list the hits.
pub struct Order {
    /// Which.
    listing: Listing,
    /// Cancels it.
    cancel: Arc<AtomicBool>,
}

/// The threads, as the user interface holds them.
pub struct Workers {
    requests: Sender<Request>,
    cancel: Arc<AtomicBool>,
    orders: Sender<Order>,
    /// Cancels the listing that is under way.
    ends: Arc<AtomicBool>,
    index: Option<thread::JoinHandle<()>>,
    travel: Option<thread::JoinHandle<Timeline>>,
}

impl Workers {
    /// Starts both threads. Their messages go to `inputs`.
    pub fn start(opening: Opening, inputs: &Sender<Input>) -> Self {
        let (requests, asked) = mpsc::channel();
        let (cancel, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (orders, ordered) = mpsc::channel();
        let Opening { session, course, timeline, templates, sources, again, .. } = opening;
        let mut timeline = timeline.cancelled_by(Arc::clone(&cancel));
        let listing = Listing { number: 0, more: More::default(), end: None, layer: timeline.layer() };
        let first = (session, Order { listing, cancel: Arc::clone(&ends) });
        let live = matches!(course, Course::Live { .. });
        let (told, repeats) = (inputs.clone(), again.clone());
        let index =
            move || index::run(first, (&course, templates.as_ref()), repeats.as_ref(), &ordered, &told);
        let (told, flag) = (inputs.clone(), Arc::clone(&cancel));
        let prober = probing::Prober::new(again, live, Arc::clone(&cancel));
        let travel = move || travel::run(timeline, (prober, sources), &asked, &flag, &told);
        let (index, travel) = (spawn("index", index), spawn("travel", travel));
        Self { requests, cancel, orders, ends, index, travel }
    }

    /// Sends a request. A thread that has ended has reported the reason.
    pub fn ask(&self, request: Request) {
        if matches!(request, Request::Move(_) | Request::Change(_) | Request::Find(..)) {
            // What was cancelled before is done: it may have been so at the very time.
            self.cancel.store(false, std::sync::atomic::Ordering::Relaxed);
        }
        let _ = self.requests.send(request);
    }

    /// Lists the hits anew.
    pub fn list(&mut self, listing: Listing) {
        self.ends.store(true, std::sync::atomic::Ordering::Relaxed);
        self.ends = Arc::new(AtomicBool::new(false));
        let _ = self.orders.send(Order { listing, cancel: Arc::clone(&self.ends) });
    }

    /// Cancels the current move.
    pub fn cancel(&self) {
        self.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Asks the threads to end, and waits for them; returns the timeline at its position then.
    pub fn end(self) -> Option<Timeline> {
        self.cancel();
        self.ends.store(true, std::sync::atomic::Ordering::Relaxed);
        drop((self.requests, self.orders));
        // The panic hook has reported a panic.
        let _ = self.index.and_then(|thread| thread.join().ok());
        self.travel.and_then(|thread| thread.join().ok())
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Option<thread::JoinHandle<T>> {
    thread::Builder::new().name(format!("trapline-{name}")).spawn(run).ok()
}

/// The next request; none if the user interface has ended.
fn next(asked: &Receiver<Request>) -> Option<Request> {
    asked.recv().ok()
}
