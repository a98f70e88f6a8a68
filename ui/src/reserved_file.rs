//! Files that are written when a run has ended, and are known to be writable before it begins.

use std::fs::{self, OpenOptions};
use std::path::Path;

use crate::failure::Failure;

/// A file that will be written. Until then it holds what it did before.
pub struct ReservedFile<'a> {
    path: &'a Path,
    /// It did not exist.
    made: bool,
}

impl<'a> ReservedFile<'a> {
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

    /// Its path.
    pub fn path(&self) -> &'a Path {
        self.path
    }

    /// It will not be written: removes the file if [`ReservedFile::reserve`] made it.
    pub fn give_up(self) {
        if self.made {
            let _ = fs::remove_file(self.path);
        }
    }
}
