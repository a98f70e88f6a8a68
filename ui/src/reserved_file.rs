//! Files that are written when a run has ended, and are known to be writable before it begins; and files that are replaced as
//! a whole.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

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

/// The file to write in place of one, and the file whose name it then takes: that itself, and not a link to it. A pipe or a
/// device is not replaced: both are the same.
pub fn replacement(path: &Path) -> (PathBuf, PathBuf) {
    let old = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if old.metadata().is_ok_and(|old| !old.is_file()) {
        return (old.clone(), old);
    }
    let mut new = old.clone().into_os_string();
    new.push(".new");
    (new.into(), old)
}

/// Writes a file as a whole, or not at all: until all of it is on the disk, it holds what it did before.
///
/// # Errors
/// It cannot be written.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error| Failure::Write { path: path.to_owned(), error };
    let (new, old) = replacement(path);
    if new == old {
        return fs::write(path, bytes).map_err(failed);
    }
    fs::write(&new, bytes).and_then(|()| fs::rename(&new, old)).map_err(|error| {
        let _ = fs::remove_file(&new);
        failed(error)
    })
}
