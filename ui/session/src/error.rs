//! One error for programs that do not care which step failed.

use crate::commands::CommandError;
use crate::files::FileError;
use crate::guest::GuestError;
use crate::programs::ProgramError;
use crate::script::ScriptError;
use crate::snapshot_error::SnapshotError;

/// Any error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no guest.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// A probe program cannot be used.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A command was not carried out.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A script cannot be used.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A snapshot cannot be restored.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}
