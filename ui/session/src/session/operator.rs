//! An operator at the guest's console while the guest runs. The operator's deeds are carried out by
//! [`Session::apply`](super::Session::apply), with their moments, so a recording repeats them.
//!
//! Time that HLT would skip passes only as far as the operator allows, so an idle guest can wait in real time. Virtual
//! time still depends only on instructions and inputs: an input that arrives while the guest is idle has a moment
//! within HLT. Not here: terminals and clocks.

use super::SavedSession;
use crate::commands::{CommandError, InputLine};

/// What an operator does between two instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// Sends input to a line.
    Type(InputLine, Vec<u8>),
    /// Raises an NMI.
    Nmi,
    /// Saves the state, and passes it to [`Operator::saved`].
    Save,
    /// Ends the run with [`Ending::Left`](crate::Ending::Left).
    Leave,
}

/// An operator at the guest's console.
pub trait Operator {
    /// The deeds at this position, in order. Called after each slice of a run; must not wait.
    fn deeds(&mut self) -> Vec<Deed>;

    /// The guest is idle for `ns` of virtual time, or until an input arrives if `ns` is `None`. Returns how many
    /// nanoseconds pass before the next [`Operator::deeds`]; the call may take real time.
    fn idle(&mut self, ns: Option<u64>) -> u64;

    /// The state that [`Deed::Save`] has requested.
    fn saved(&mut self, saved: &SavedSession) {
        let _ = saved;
    }

    /// A deed could not be carried out.
    fn refused(&mut self, error: &CommandError) {
        let _ = error;
    }
}
