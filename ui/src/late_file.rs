//! A file that is created when the run begins, although its first bytes are known earlier: if the run is refused, an
//! existing file is left unchanged.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::failure::Failure;

enum State {
    /// There is no file yet; these bytes will be written to it.
    Waits(Vec<u8>),
    Open(File),
}

/// The file, to be opened.
pub struct LateFile {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

/// The writer of the file.
pub struct Writer(Arc<Mutex<State>>);

impl LateFile {
    /// A file at this path.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), state: Arc::new(Mutex::new(State::Waits(Vec::new()))) }
    }

    /// The writer of the file.
    pub fn writer(&self) -> Writer {
        Writer(Arc::clone(&self.state))
    }

    /// Creates the file, with the bytes written so far. An existing file is replaced.
    ///
    /// # Errors
    /// It cannot be created or written.
    pub fn open(&self) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Waits(early) = &mut *state {
            let open = || {
                let mut file = File::create(&self.path)?;
                file.write_all(early)?;
                Ok(file)
            };
            let file = open().map_err(|error| Failure::writing(Some(&self.path), error))?;
            *state = State::Open(file);
        }
        Ok(())
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Waits(early) => early.write(bytes),
            State::Open(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Waits(_) => Ok(()),
            State::Open(file) => file.flush(),
        }
    }
}
