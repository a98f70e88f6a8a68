//! Writes a recording during the run. Each chunk is written immediately and as a whole, so that a recorder that is
//! killed leaves a file that ends with a complete chunk.

use std::io::{self, Write};

use trapline_emu::Moment;

use super::config::RunConfig;
use super::format::{Framer, Kind};
use super::hash::Hash;
use super::log::{Checkpoint, Event, Logged};
use super::packed;

/// Number of bytes of console text that are written together.
const CONSOLE: usize = 16 << 10;

/// The destination of a recording.
pub type Output = Box<dyn Write + Send>;

/// The content of a file that is stored in a recording.
#[derive(Debug, Clone)]
pub struct Blob {
    /// Its hash.
    pub hash: Hash,
    /// The content.
    pub bytes: Vec<u8>,
}

/// Records a run into a file. [`Session::record`](crate::Session::record) takes it.
///
/// A file that cannot be written ends the run; [`Session::finish_recording`](crate::Session::finish_recording) says why.
pub struct Recorder {
    out: Output,
    framer: Framer,
    every: u64,
    pages: bool,
    console: Vec<u8>,
    saved: u64,
    failed: Option<io::Error>,
}

impl Recorder {
    /// Begins a recording of a run with this start, and stores these files of the guest in it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(out: Output, config: &RunConfig, blobs: &[Blob]) -> io::Result<Self> {
        let (head, framer) = Framer::begin();
        let every = config.checkpoint_insns.max(1);
        let mut recorder =
            Self { out, framer, every, pages: false, console: Vec::new(), saved: 0, failed: None };
        recorder.out.write_all(&head)?;
        recorder.put(Kind::Config, &serde_json::to_vec(config).map_err(io::Error::other)?);
        for blob in blobs {
            let mut content = blob.hash.0.to_le_bytes().to_vec();
            content.extend(packed::pack(&blob.bytes));
            recorder.put(Kind::Blob, &content);
        }
        match recorder.failed.take() {
            Some(error) => Err(error),
            None => Ok(recorder),
        }
    }

    /// Also stores the hashes of the pages that change from checkpoint to checkpoint.
    #[must_use]
    pub fn with_pages(mut self) -> Self {
        self.pages = true;
        self
    }

    /// Instructions from one checkpoint to the next.
    pub(crate) fn every(&self) -> u64 {
        self.every
    }

    /// Whether the file could not be written.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// A number for a snapshot that is taken as a value.
    pub(crate) fn number_snapshot(&mut self) -> u64 {
        self.saved += 1;
        self.saved
    }

    pub(crate) fn event(&mut self, at: Moment, event: Event) {
        self.flush_console();
        match (Logged { at, event }).to_bytes() {
            Ok(bytes) => self.put(Kind::Event, &bytes),
            Err(error) => self.fail(io::Error::other(error)),
        }
    }

    pub(crate) fn checkpoint(&mut self, checkpoint: &Checkpoint, changed: &[(u32, u128)]) {
        self.flush_console();
        self.value(Kind::Checkpoint, checkpoint);
        if self.pages {
            self.value(Kind::Pages, &changed);
        }
    }

    pub(crate) fn console(&mut self, fresh: &[u8]) {
        self.console.extend_from_slice(fresh);
        if self.console.len() >= CONSOLE {
            self.flush_console();
        }
    }

    /// Marks the recording as complete.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.flush_console();
        self.put(Kind::End, &[]);
        match self.failed {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }

    fn flush_console(&mut self) {
        let text = std::mem::take(&mut self.console);
        for part in text.chunks(packed::MOST_CONSOLE) {
            let content = packed::pack(part);
            self.put(Kind::Console, &content);
        }
    }

    fn value<T: serde::Serialize>(&mut self, kind: Kind, value: &T) {
        match postcard::to_stdvec(value) {
            Ok(bytes) => self.put(kind, &bytes),
            Err(error) => self.fail(io::Error::other(error)),
        }
    }

    fn put(&mut self, kind: Kind, content: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        let Some(chunk) = self.framer.chunk(kind, content) else {
            return self.fail(io::Error::other("a part of it has more than 4 GiB"));
        };
        // In one write, without a buffer: written data survives the recorder.
        if let Err(error) = self.out.write_all(&chunk) {
            self.fail(error);
        }
    }

    /// Stops recording: the file no longer matches the run.
    pub(crate) fn fail(&mut self, error: io::Error) {
        self.failed.get_or_insert(error);
    }
}
