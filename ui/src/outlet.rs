//! The destination of the output of a serial port of the guest: none, standard error, standard output or a file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::terminal;

/// One destination.
pub enum Outlet<'a> {
    /// Nowhere.
    None,
    /// Standard error.
    Stderr,
    /// Standard output or a file, with its path.
    Writer(Box<dyn Write + 'a>, Option<PathBuf>),
    /// A destination that has failed: nothing more is written to it.
    Failed(Option<PathBuf>),
}

impl Outlet<'_> {
    /// Writes output of the guest.
    ///
    /// # Errors
    /// The destination cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let is_stderr = matches!(self, Self::Stderr);
        self.put(bytes).map_err(|error| match is_stderr {
            true => Failure::Messages(error),
            false => Failure::writing(self.path(), error),
        })
    }

    /// The same with the bare error.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = match self {
            Self::None | Self::Failed(_) => Ok(()),
            Self::Stderr => terminal::message(bytes),
            Self::Writer(writer, _) => writer.write_all(bytes).and_then(|()| writer.flush()),
        };
        if written.is_err() {
            *self = Self::Failed(self.path().map(Path::to_path_buf));
        }
        written
    }

    /// The file, if it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Writer(_, path) | Self::Failed(path) => path.as_deref(),
            _ => None,
        }
    }
}
