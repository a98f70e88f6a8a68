//! Reads a recording from bytes. Any bytes give either a recording or an error in one sentence.

use std::path::Path;

use trapline_emu::Moment;

use super::config::RunConfig;
use super::format::{Chunks, FormatError, Kind};
use super::hash::Hash;
use super::log::{Checkpoint, Event, Logged, from_postcard};
use super::packed;
use super::position::Position;
use crate::ending::Ending;
use crate::files::{FileError, read_file};

/// Most bytes of a file that a recording may contain.
const MOST_BLOB: u64 = 4 << 30;

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// Its file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its file is not a recording, or is damaged.
    #[error("{file}: {error}")]
    Format {
        /// The file.
        file: String,
        /// What is wrong with it.
        error: FormatError,
    },
}

/// A file in a recording, still packed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Brought {
    hash: Hash,
    packed: Vec<u8>,
}

/// A run as a value: its start, its inputs with their moments, and the expected results.
#[derive(Debug, Clone)]
pub struct Recording {
    config: RunConfig,
    brought: Vec<Brought>,
    log: Vec<Logged>,
    checkpoints: Vec<Checkpoint>,
    /// The hashes of pages of each checkpoint, if they were kept.
    pages: Vec<Vec<(u32, u128)>>,
    console: Vec<u8>,
    /// Of what was read last.
    last: Moment,
    whole: bool,
}

impl Recording {
    /// Reads the file of a recording. `-` is standard input.
    ///
    /// # Errors
    /// It cannot be read, is not a recording, has a later format, or is damaged. An incomplete one is read up to its
    /// end.
    pub fn read(path: &Path) -> Result<Self, RecordingError> {
        let bytes = read_file(path)?;
        Self::from_bytes(&bytes)
            .map_err(|error| RecordingError::Format { file: path.display().to_string(), error })
    }

    /// As [`Recording::read`], from bytes.
    ///
    /// # Errors
    /// As [`Recording::read`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut chunks = Chunks::of(bytes)?;
        let config = match chunks.next()? {
            Some((Kind::Config, content)) => {
                RunConfig::from_json(content).map_err(|what| chunks.wrong(what))?
            }
            Some(_) => return Err(chunks.wrong("is not the configuration, which comes first")),
            None => return Err(chunks.wrong("is cut off: the recorder was ended before the run began")),
        };
        let (brought, log, checkpoints) = (Vec::new(), Vec::new(), Vec::new());
        let (pages, console) = (Vec::new(), Vec::new());
        let last = Moment::default();
        let mut read = Self { config, brought, log, checkpoints, pages, console, last, whole: false };
        while let Some((kind, content)) = chunks.next()? {
            if read.whole {
                return Err(chunks.wrong("comes after the end"));
            }
            read.add(kind, content).map_err(|what| chunks.wrong(what))?;
        }
        if read.whole && !chunks.at_end() {
            return Err(chunks.wrong("is the end, and more bytes follow"));
        }
        Ok(read)
    }

    fn add(&mut self, kind: Kind, content: &[u8]) -> Result<(), String> {
        match kind {
            Kind::Config => return Err("is a second configuration".to_owned()),
            Kind::Blob => {
                let (hash, packed) =
                    content.split_first_chunk().ok_or_else(|| "is not a file of the guest".to_owned())?;
                let hash = Hash(u128::from_le_bytes(*hash));
                self.brought.push(Brought { hash, packed: packed.to_vec() });
            }
            Kind::Event => {
                let logged = Logged::from_bytes(content)?;
                self.last = logged.at;
                self.log.push(logged);
            }
            Kind::Checkpoint => {
                let checkpoint: Checkpoint = from_postcard(content)?;
                self.last = checkpoint.at;
                self.checkpoints.push(checkpoint);
            }
            Kind::Pages => self.pages.push(from_postcard(content)?),
            Kind::Console => self.console.extend(packed::unpack(content, packed::MOST_CONSOLE as u64)?),
            Kind::End => self.whole = true,
        }
        Ok(())
    }

    /// The start of the run.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// The inputs, in the order in which they arrived.
    pub fn log(&self) -> &[Logged] {
        &self.log
    }

    /// The checkpoints, in their order; the last one of a complete recording is that of its end.
    pub fn checkpoints(&self) -> &[Checkpoint] {
        &self.checkpoints
    }

    /// Of each checkpoint the hashes of the pages that had changed since the one before, if they were kept.
    pub fn changed_pages(&self) -> &[Vec<(u32, u128)>] {
        &self.pages
    }

    /// The output of the guest to its console.
    pub fn console(&self) -> &[u8] {
        &self.console
    }

    /// Whether the recorder was closed; otherwise the recording is incomplete.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// The last moment in the recording; if it is complete, its end.
    pub fn end(&self) -> Moment {
        self.last
    }

    /// Whether a position is its last instruction count.
    pub fn ends_at(&self, position: Position) -> bool {
        match position {
            Position::At { icount, ordinal } => icount == self.last.icount && ordinal == 0,
            Position::BeforeEnd(before) => before == 0,
            Position::Hit(_) | Position::InHit { .. } => false,
        }
    }

    /// Why its last run ended; none if the recording is incomplete.
    pub fn ending(&self) -> Option<&Ending> {
        self.log.iter().rev().find_map(|logged| match &logged.event {
            Event::End(ending) => Some(ending),
            _ => None,
        })
    }

    /// The content of a file of the guest, if the recording contains it.
    ///
    /// # Errors
    /// The end of a sentence about it: it cannot be unpacked.
    pub fn brings(&self, hash: Hash) -> Option<Result<Vec<u8>, String>> {
        let brought = self.brought.iter().find(|brought| brought.hash == hash)?;
        let bytes = packed::unpack(&brought.packed, MOST_BLOB);
        Some(bytes.and_then(|bytes| match Hash::of(&bytes) {
            found if found == hash => Ok(bytes),
            found => Err(format!("has the hash {found} and not {hash}")),
        }))
    }

    /// The number of bytes of the files that it contains, and the number of files.
    pub fn brought(&self) -> (usize, u64) {
        let bytes = self.brought.iter().filter_map(|brought| packed::length(&brought.packed)).sum();
        (self.brought.len(), bytes)
    }
}
