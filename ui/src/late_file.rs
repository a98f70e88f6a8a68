//! A file that is made when the run begins, though its first bytes are known before: a run that does not come about leaves
//! what was in the file.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::failure::Failure;

enum State {
    /// There is no file yet; this goes into it.
    Waits(Vec<u8>),
    Open(File),
}

/// The file, to be opened.
pub struct LateFile {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

/// What writes it.
pub struct Writer(Arc<Mutex<State>>);

impl LateFile {
    /// A file at this path.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), state: Arc::new(Mutex::new(State::Waits(Vec::new()))) }
    }

    /// What writes it.
    pub fn writer(&self) -> Writer {
        Writer(Arc::clone(&self.state))
    }

    /// Makes the file, with what was written so far. An existing one is replaced.
    ///
    /// # Errors
    /// It cannot be made or written.
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
