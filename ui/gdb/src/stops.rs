//! What gdb asks for, and why a run stops: breakpoints, ways of going on, stops.

use trapline_emu::{Watch, WatchKind};
use trapline_session::{StopPoint, Timeline};

/// What a breakpoint of gdb is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `Z0`.
    Software,
    /// `Z1`.
    Hardware,
    /// `Z2`.
    Write,
    /// `Z3`.
    Read,
    /// `Z4`.
    Access,
}

/// A breakpoint of gdb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breakpoint {
    /// Its kind.
    pub kind: Kind,
    /// Its address.
    pub address: u64,
    /// The bytes that are watched.
    pub length: u64,
}

impl Breakpoint {
    /// Whether it is on the execution of an instruction.
    pub fn executes(&self) -> bool {
        matches!(self.kind, Kind::Software | Kind::Hardware)
    }

    /// The stop point of the timeline.
    pub fn point(&self) -> StopPoint {
        let high = self.address.saturating_add(self.length.saturating_sub(1));
        let watch = |kind| StopPoint::Watch(Watch { kind, low: self.address, high });
        match self.kind {
            Kind::Software | Kind::Hardware => Timeline::breakpoint(self.address),
            Kind::Write => watch(WatchKind::Write),
            Kind::Read => StopPoint::Read { low: self.address, high },
            Kind::Access => watch(WatchKind::ReadWrite),
        }
    }
}

/// What gdb asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// `c`.
    Continue,
    /// `s`.
    Step,
    /// `r`: steps while the instruction pointer is in this range.
    Range(u64, u64),
    /// `bs`.
    ReverseStep,
    /// `bc`.
    ReverseContinue,
}

impl Resume {
    /// Whether gdb repeats the other one with this one, after news of modules.
    pub fn repeats(self, other: Self) -> bool {
        let kind = |resume| match resume {
            Self::Continue => 0,
            Self::Step | Self::Range(..) => 1,
            Self::ReverseStep => 2,
            Self::ReverseContinue => 3,
        };
        kind(self) == kind(other)
    }
}

/// Why the run has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A step is done, a probe was hit, or the run cannot go on.
    Trap,
    /// The instruction of a breakpoint is about to be executed.
    Breakpoint(Kind),
    /// A watched address was accessed.
    Watchpoint(Breakpoint),
    /// Ctrl-C.
    Interrupted,
    /// The kernel has loaded a module, or removed one.
    Loaded,
    /// A system call is about to be executed, or has been executed.
    Call {
        /// Its number.
        number: u64,
        /// Whether it has been.
        returns: bool,
    },
    /// The beginning of the history.
    Begin,
    /// The end of the run, as far as it is known.
    End,
}
