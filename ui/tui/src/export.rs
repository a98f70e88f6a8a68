//! Writes what is exported to its file, in a thread. The text comes in parts.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};
use std::thread;

use crate::message::Input;

/// Parts that wait to be written, at most.
const WAITING: usize = 8;

/// A part of the text, and whether it is the last one.
type Part = (String, bool);

/// The writer of a file, as the user interface has it.
pub struct Writer {
    parts: SyncSender<Part>,
    thread: thread::JoinHandle<()>,
}

impl Writer {
    /// Begins a file. `told` gets [`Input::Exported`] after the last part, or an error.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn begin(path: PathBuf, told: &Sender<Input>) -> io::Result<Self> {
        let (parts, written) = mpsc::sync_channel(WAITING);
        let told = told.clone();
        let write = move || {
            let wrote = match write_all(&path, &written) {
                Ok(true) => Ok(()),
                // It was ended before.
                Ok(false) => return,
                Err(error) => Err(error.to_string()),
            };
            let _ = told.send(Input::Exported(path, wrote));
        };
        let thread = thread::Builder::new().name("trapline-export".to_owned()).spawn(write)?;
        Ok(Self { parts, thread })
    }

    /// Writes a part; returns whether it was taken. It is not while others wait. After an error, all are taken.
    pub fn write(&self, part: Part) -> bool {
        !matches!(self.parts.try_send(part), Err(TrySendError::Full(_)))
    }

    /// Nothing more is written: waits for the end.
    pub fn end(self) {
        drop(self.parts);
        // The panic hook has reported a panic.
        let _ = self.thread.join();
    }
}

/// Writes part after part; returns whether the last one was among them.
fn write_all(path: &Path, parts: &Receiver<Part>) -> io::Result<bool> {
    let mut file = File::create(path)?;
    for (text, is_last) in parts {
        file.write_all(text.as_bytes())?;
        if is_last {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A path as a shell takes it: `~/` begins in the user's home.
pub fn in_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => path.to_owned(),
    }
}
