//! The file of `--save`, which is known to be writable before the run begins.

use std::fs::{self, OpenOptions};
use std::path::Path;

use trapline_session::Session;

use crate::failure::Failure;
use crate::talk::Talk;

/// A file that will hold a snapshot. Until then it holds what it did before.
pub struct SnapshotFile<'a> {
    path: &'a Path,
    /// It did not exist.
    made: bool,
}

impl<'a> SnapshotFile<'a> {
    /// Makes the file where it does not exist.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn reserve(path: &'a Path) -> Result<Self, Failure> {
        let made = !path.exists();
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        opened.map_err(|error| Failure::writing(Some(path), error))?;
        Ok(Self { path, made })
    }

    /// Writes the state of a session.
    ///
    /// # Errors
    /// The state has no file form, or the file cannot be written.
    pub fn save(self, session: &mut Session, talk: &Talk) -> Result<(), Failure> {
        let saved = session.snapshot();
        let bytes = saved.to_bytes().map_err(|error| Failure::Usage(error.to_string()))?;
        fs::write(self.path, bytes).map_err(|error| Failure::writing(Some(self.path), error))?;
        talk.note(&format!("the state after {} instructions is in {}", saved.icount(), self.path.display()));
        Ok(())
    }

    /// There will be no snapshot: removes the file if [`SnapshotFile::reserve`] made it.
    pub fn give_up(self) {
        if self.made {
            let _ = fs::remove_file(self.path);
        }
    }
}
