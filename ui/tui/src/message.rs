//! The messages between the threads.

use std::path::PathBuf;
use std::time::Instant;

use crossterm::event::Event;
use trapline_session::trapline_d::Seen;
use trapline_session::{Command, Ending, InputLine, Layer, Moment, Position, Selection, StopPoint};

use crate::hits::{Batch, Hit};
use crate::scene::{Scene, Spot};

/// A request to the travelling thread.
#[derive(Debug, Clone)]
pub enum Request {
    /// Make a move.
    Move(Move),
    /// Show memory from this place on.
    Memory(Spot),
    /// Show memory from this address on, in place of what is shown.
    ScrollMemory(u64),
    /// Show what this expression of D names, wherever the run is.
    Expression(String),
    /// Show the fields of a value.
    Follow(Seen),
    /// Show the fields of the field with this path among the others, or no longer.
    Unfold(String),
    /// Show the memory that was shown before.
    MemoryBack,
    /// Show the first place of these bytes, from this address on.
    Find(Vec<u8>, u64),
    /// Show the code at an address; none for the position.
    Code(Option<u64>),
    /// Scenes are to have the channels of drivers, or no longer.
    Channels(bool),
    /// The run has ended here.
    Ended(Moment, Ending),
    /// To change the run.
    Change(Wish),
    /// To complete the name of a probe.
    Complete(String),
}

/// What the run is to be.
#[derive(Debug, Clone)]
pub enum Wish {
    /// With this clause, or the program of this file, as a whole.
    Add(String),
    /// With these points enabled or disabled, as a whole.
    Switch(Selection, bool),
    /// With this typed at the console here: another run from here on.
    Type(Vec<u8>),
}

/// What the run has more than at first.
#[derive(Debug, Clone, Default)]
pub struct More {
    /// Commands at its beginning, after what the command line or the recording has there.
    pub commands: Vec<Command>,
    /// What is typed at the console, in the order of the run.
    pub typed: Vec<Typed>,
}

/// What is typed at the console, at the first moment with an instruction count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Typed {
    /// The instruction count.
    pub at: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Typed {
    /// As a command.
    pub fn command(&self) -> Command {
        Command::Type { line: InputLine::Com1, bytes: self.bytes.clone() }
    }
}

/// A listing of the run's hits.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Its number, from 0. What an earlier one has found is no longer so.
    pub number: u32,
    /// What the run has more than at first.
    pub more: More,
    /// Where the run ends, if that is known.
    pub end: Option<(Moment, Ending)>,
    /// What lays the states on the way into the ladder of the timeline.
    pub layer: Layer,
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
    /// Forward, or back, to where this condition becomes true.
    When(String, bool),
    /// Back to the last change of this register.
    Change(String),
    /// Back to what wrote to the bytes between these addresses.
    Writer(u64, u64),
}

/// A message to the thread of the user interface.
#[derive(Debug)]
pub enum Input {
    /// An event of the terminal, and when it was read.
    Terminal(Event, Instant),
    /// A file is written as a whole, or why it cannot be written.
    Exported(PathBuf, Result<(), String>),
    /// The terminal cannot be read or written any more.
    Gone,
    /// The terminal has read the last frame.
    Written,
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
    /// The run is another one, and is to be listed anew; the timeline arrives at the same position later.
    Changed(Box<Listing>),
    /// Names of probes that this text may become.
    Completed(String, Vec<String>),
    /// The bytes that were looked for in memory, or why they are not there; the timeline has not moved.
    Found(Box<Scene>, Option<String>),
    /// The requested view, or why it is not shown; the timeline has not moved.
    Shown(Box<Scene>, Option<String>),
}
