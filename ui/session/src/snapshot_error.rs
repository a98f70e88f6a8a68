//! Why a saved session cannot be restored.

use trapline_emu::{ArchiveError, SnapshotMismatch, StoredError};
use trapline_interposer::StoredInterposerError;

use crate::signed::NotSigned;

/// Why a saved session cannot be restored. It displays as one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Its file is damaged, newer, or not a snapshot.
    #[error(transparent)]
    File(#[from] ArchiveError),
    /// It belongs to another machine or guest.
    #[error(transparent)]
    Foreign(#[from] SnapshotMismatch),
    /// The probes were set up in another way.
    #[error("the snapshot was taken with other values of these probe options: {}", .0.join(", "))]
    Options(Vec<&'static str>),
    /// A program that was inserted does not fit this guest.
    #[error("the snapshot has the program `{name}`, which cannot be inserted here: {reason}")]
    Program {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// Programs must be signed, and one that was inserted is not.
    #[error(transparent)]
    NotSigned(#[from] NotSigned),
    /// The probes.
    #[error("the probes of the snapshot cannot be restored: {0}")]
    Probes(#[from] StoredInterposerError),
}

impl From<StoredError> for SnapshotError {
    fn from(error: StoredError) -> Self {
        match error {
            StoredError::Archive(error) => Self::File(error),
            StoredError::Foreign(error) => Self::Foreign(error),
        }
    }
}
