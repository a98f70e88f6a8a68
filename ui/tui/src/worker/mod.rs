//! The two threads: one executes the run and lists its hits, the other one moves within it and reads scenes.

mod index;
mod look;
mod travel;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use trapline_session::{Condition, Guest, Limits, OwnPrograms, Recording, Session, Timeline};

use crate::message::{Input, Request};

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
        recording: Box<Recording>,
        /// Whether its own programs remain active.
        own: OwnPrograms,
        /// Whether other programs are inserted.
        others: bool,
    },
}

/// The run to show.
pub struct Opening {
    /// Its name.
    pub title: String,
    /// The guest of both.
    pub guest: Guest,
    /// A session at the beginning, with the probes of the command line, which runs to the end. The first inputs of a
    /// recording are applied on the way.
    pub session: Session,
    /// The kind of run.
    pub course: Course,
    /// The timeline of the same run, at its beginning.
    pub timeline: Timeline,
}

/// The threads, as the user interface holds them.
pub struct Workers {
    requests: Sender<Request>,
    cancel: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Workers {
    /// Starts both threads. Their messages go to `inputs`.
    pub fn start(opening: Opening, inputs: &Sender<Input>) -> Self {
        let (requests, asked) = mpsc::channel();
        let (cancel, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let Opening { session, course, timeline, .. } = opening;
        let timeline = timeline.cancelled_by(Arc::clone(&cancel));
        let (told, flag) = (inputs.clone(), Arc::clone(&ends));
        let index = move || index::run(session, course, flag, &told);
        let (told, flag) = (inputs.clone(), Arc::clone(&cancel));
        let travel = move || travel::run(timeline, &asked, &flag, &told);
        let threads = vec![spawn("index", index), spawn("travel", travel)];
        Self { requests, cancel, ends, threads: threads.into_iter().flatten().collect() }
    }

    /// Sends a request. A thread that has ended has reported the reason.
    pub fn ask(&self, request: Request) {
        let _ = self.requests.send(request);
    }

    /// Cancels the current move.
    pub fn cancel(&self) {
        self.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Asks the threads to end.
    pub fn end(self) {
        self.cancel();
        self.ends.store(true, std::sync::atomic::Ordering::Relaxed);
        drop(self.requests);
        for thread in self.threads {
            // The panic hook has reported a panic.
            let _ = thread.join();
        }
    }
}

/// The prefix of the threads' names.
pub const THREADS: &str = "trapline-";

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Option<thread::JoinHandle<()>> {
    thread::Builder::new().name(format!("{THREADS}{name}")).spawn(run).ok()
}

/// The next request; none if the user interface has ended.
fn next(asked: &Receiver<Request>) -> Option<Request> {
    asked.recv().ok()
}
