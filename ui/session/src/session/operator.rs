//! An operator: who sits at the guest's console while the guest runs. What the operator does enters through
//! [`Session::apply`](super::Session::apply), with its moment, so a recording repeats it.
//!
//! Time that HLT would skip passes only as far as the operator says, so an idle guest can wait in real time. Virtual
//! time is still a function of instructions and of the input: what comes in while the guest is idle has a
//! moment within HLT. Not here: terminals and clocks.

use super::SavedSession;
use crate::commands::{CommandError, InputLine};

/// What an operator does between two instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// Types at a line.
    Type(InputLine, Vec<u8>),
    /// Raises an NMI.
    Nmi,
    /// Saves the state, which [`Operator::saved`] is given.
    Save,
    /// Ends the run with [`Ending::Left`](crate::Ending::Left).
    Leave,
}

/// Who sits at the guest's console.
pub trait Operator {
    /// What is done here, in order. It is asked after each slice of a run and does not wait.
    fn deeds(&mut self) -> Vec<Deed>;

    /// The guest is idle, for `ns` of virtual time unless something comes in, or until something does. Answers how many
    /// of them pass before the next [`Operator::deeds`]; this is where real time may pass.
    fn idle(&mut self, ns: Option<u64>) -> u64;

    /// The state that was asked for.
    fn saved(&mut self, saved: &SavedSession) {
        let _ = saved;
    }

    /// Something could not be done.
    fn refused(&mut self, error: &CommandError) {
        let _ = error;
    }
}
