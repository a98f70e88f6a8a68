//! The two threads: one runs along the run and lists its hits, one travels in it and looks.

mod index;
mod look;
mod travel;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use trapline_session::{Condition, Guest, Limits, OwnPrograms, Recording, Session, Timeline};

use crate::message::{Input, Request};

/// The way along which hits are listed.
pub enum Course {
    /// A live run, to its end.
    Live {
        /// What ends it.
        condition: Condition,
        /// What limits it.
        limits: Limits,
    },
    /// A recording.
    Recorded {
        /// It.
        recording: Box<Recording>,
        /// Whether its own programs stay in.
        own: OwnPrograms,
        /// Whether other programs are in it.
        others: bool,
    },
}

/// What is looked at.
pub struct Opening {
    /// What it is called.
    pub title: String,
    /// The guest of both.
    pub guest: Guest,
    /// A session at the beginning, with the probes of the command line: it runs to the end. What a recording has at its
    /// beginning comes in on the way.
    pub session: Session,
    /// How it runs.
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
    /// Starts both threads. What they have to say goes to `inputs`.
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

    /// Asks for something. A thread that has ended has said why.
    pub fn ask(&self, request: Request) {
        let _ = self.requests.send(request);
    }

    /// Cancels the move that is under way.
    pub fn cancel(&self) {
        self.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Ends the threads, soon.
    pub fn end(self) {
        self.cancel();
        self.ends.store(true, std::sync::atomic::Ordering::Relaxed);
        drop(self.requests);
        for thread in self.threads {
            // A panic was told by its hook.
            let _ = thread.join();
        }
    }
}

/// The names of the threads begin so.
pub const THREADS: &str = "trapline-";

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Option<thread::JoinHandle<()>> {
    thread::Builder::new().name(format!("{THREADS}{name}")).spawn(run).ok()
}

/// The next request; none when the user interface has gone.
fn next(asked: &Receiver<Request>) -> Option<Request> {
    asked.recv().ok()
}
