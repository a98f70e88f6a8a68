//! The messages between the threads.

use crossterm::event::Event;
use trapline_session::{Command, Ending, Moment, Position, Selection, StopPoint};

use crate::hits::{Batch, Hit};
use crate::scene::Scene;

/// A request to the travelling thread.
#[derive(Debug, Clone)]
pub enum Request {
    /// Make a move.
    Move(Move),
    /// Show memory from this address on.
    Memory(u64),
    /// Show the code at an address; none for the position.
    Code(Option<u64>),
    /// The run has ended here.
    Ended(Moment, Ending),
    /// To change the probes of the whole run.
    Probe(Wish),
    /// To complete the name of a probe.
    Complete(String),
}

/// What the probes of the whole run are to be.
#[derive(Debug, Clone)]
pub enum Wish {
    /// With this clause, or the program of this file.
    Add(String),
    /// With these points enabled or disabled.
    Switch(Selection, bool),
}

/// A listing of the run's hits.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Its number, from 0. News of an earlier one are old.
    pub number: u32,
    /// What is applied at the beginning of the run, after what the command line or the recording has there.
    pub more: Vec<Command>,
    /// Where the run ends, if that is known.
    pub end: Option<(Moment, Ending)>,
}

/// The target of a move.
#[derive(Debug, Clone)]
pub enum Move {
    /// To a position.
    To(Position),
    /// To a hit.
    Hit(Hit),
    /// This many instructions forward.
    Step(u64),
    /// This many instructions back.
    Back(u64),
    /// Into the current hit.
    IntoHit,
    /// This many operations of the handlers forward.
    Operations(u64),
    /// This many operations of the handlers back.
    OperationsBack(u64),
    /// Out of the hit.
    Out,
    /// Into the hit at a position, after this many operations.
    Within {
        /// The hit, if it is listed.
        hit: Option<Hit>,
        /// The instruction count.
        at: u64,
        /// Number of executed operations of the handlers there.
        executed: u64,
    },
    /// One instruction forward, over a call.
    Over,
    /// One instruction back, over a call.
    BackOver,
    /// Forward to the return of the function.
    Finish,
    /// Back to the call of the function.
    Caller,
    /// Forward to one of these stop points.
    Until(Vec<StopPoint>),
    /// Back to one of these stop points.
    BackTo(Vec<StopPoint>),
}

/// A message to the thread of the user interface.
#[derive(Debug)]
pub enum Input {
    /// An event of the terminal.
    Terminal(Event),
    /// The terminal cannot be read any more.
    Gone,
    /// A signal asks the program to end.
    Terminate,
    /// A signal asks the program to stop until it is continued.
    Stop,
    /// The program is continued.
    Continued,
    /// Hits of the run, as far as the listing of this number has come.
    Hits(u32, Batch, u64),
    /// The run has ended here, as the listing of this number has found.
    Ended(u32, Moment, Ending),
    /// The run cannot be listed.
    Failed(String),
    /// The new position of the timeline; a sentence about the move if it did not simply reach its target.
    Arrived(Box<Scene>, Option<String>),
    /// The run has other probes now, with these commands at its beginning; the same position in it.
    Probed(Vec<Command>, Box<Scene>),
    /// Names of probes that this text may become.
    Completed(String, Vec<String>),
    /// The requested view; the timeline has not moved.
    Shown(Box<Scene>),
}
