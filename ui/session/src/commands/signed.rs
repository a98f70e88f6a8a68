//! Programs that may be inserted only if a key has signed them.
//!
//! Every program enters a session by a [`Command`] or in a snapshot, so these are what is checked, and not the ways in which
//! a command is made: options, lines of scripts, what is typed in a user interface or in gdb, and recordings. Only a PPDF file
//! can be signed. A clause and a D program therefore never are, nor is a text of RPN.

use trapline_rpn::Program;
use trapline_rpn::ppdf::VerifyingKey;

use super::{Command, DSource, clause_option};
use crate::signed::NotSigned;

/// What brings a handler into a session.
pub(crate) enum Brought<'a> {
    /// A program of RPN.
    Program(&'a str, &'a Program),
    /// A clause of RPN.
    Clause(&'a str),
    /// A D program.
    D(&'a DSource),
}

impl Brought<'_> {
    /// Checks it against the key that is required, if one is.
    pub(crate) fn check(&self, wanted: Option<VerifyingKey>) -> Result<(), NotSigned> {
        let Some(wanted) = wanted else { return Ok(()) };
        let (name, how) = match self {
            Self::Program(name, program) => match program.signer() {
                Some(signer) if signer == wanted => return Ok(()),
                Some(signer) => ((*name).to_owned(), format!("is signed by {signer}")),
                None => ((*name).to_owned(), "is not signed".to_owned()),
            },
            Self::Clause(text) => (
                format!("{} '{text}'", clause_option(text)),
                "is a clause, which has no signature".to_owned(),
            ),
            Self::D(source) => (source.name(), "is a D program, which has no signature".to_owned()),
        };
        Err(NotSigned { name, how, wanted })
    }
}

impl Command {
    /// Checks the program that it inserts, if it inserts one, against the key that is required, if one is.
    ///
    /// # Errors
    /// The key has not signed it.
    pub fn check_signed(&self, wanted: Option<VerifyingKey>) -> Result<(), NotSigned> {
        match self {
            Self::Insert { name, program, .. } => Brought::Program(name, program).check(wanted),
            Self::Clause { text, .. } => Brought::Clause(text).check(wanted),
            Self::D(source) => Brought::D(source).check(wanted),
            _ => Ok(()),
        }
    }
}
