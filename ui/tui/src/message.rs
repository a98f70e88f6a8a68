//! What the threads tell each other.

use crossterm::event::Event;
use trapline_session::{Ending, Moment, Position, StopPoint};

use crate::hits::{Batch, Hit};
use crate::scene::Scene;

/// What the travelling thread is asked to do.
#[derive(Debug, Clone)]
pub enum Request {
    /// To go somewhere.
    Move(Move),
    /// To show memory from here on.
    Memory(u64),
    /// To show the code at an address; none for where it is.
    Code(Option<u64>),
    /// The run has ended here.
    Ended(Moment, Ending),
}

/// Where to go.
#[derive(Debug, Clone)]
pub enum Move {
    /// To a position.
    To(Position),
    /// To a hit.
    Hit(Hit),
    /// So many instructions on.
    Step(u64),
    /// So many instructions back.
    Back(u64),
    /// Into the hit that is here.
    IntoHit,
    /// So many operations of the handlers on.
    Operations(u64),
    /// So many operations of the handlers back.
    OperationsBack(u64),
    /// Out of the hit.
    Out,
    /// Into the hit at a spot, to where so many operations have been executed.
    Within {
        /// The hit, if it is listed.
        hit: Option<Hit>,
        /// The instruction count.
        at: u64,
        /// Operations of the handlers there.
        executed: u64,
    },
    /// One instruction on, over a call.
    Over,
    /// One instruction back, over a call.
    BackOver,
    /// To where the function has returned.
    Finish,
    /// To the call of the function.
    Caller,
    /// On to one of these.
    Until(Vec<StopPoint>),
    /// Back to one of these.
    BackTo(Vec<StopPoint>),
}

/// What the thread of the user interface is told.
#[derive(Debug)]
pub enum Input {
    /// Something was done at the terminal.
    Terminal(Event),
    /// The terminal cannot be read any more.
    Gone,
    /// A signal asks the program to end.
    Terminate,
    /// A signal asks the program to stop until it is continued.
    Stop,
    /// It is continued.
    Continued,
    /// Hits of the run, as far as it has come.
    Hits(Batch, u64),
    /// The run has ended here.
    Ended(Moment, Ending),
    /// The run cannot be listed.
    Failed(String),
    /// Where the timeline is now; how the move went, in a sentence, if it did not simply get there.
    Arrived(Box<Scene>, Option<String>),
    /// What was asked for is shown; the timeline is where it was.
    Shown(Box<Scene>),
}
