//! Reads trace files: complete pieces in order, then the damage, if there is any.
//!
//! No length in the file is trusted: memory grows only with the bytes read.

use std::io::{ErrorKind, Read};

use xxhash_rust::xxh3::Xxh3;

use super::control::{self, Said};
use super::error::TraceFileError;
use super::names::Name;
use super::{CHECKED, CHECKSUM, FileHead, HASH, HEAD, MAGIC, MAX_RECORD, OLDEST, VERSION, checksum};
use crate::record::{HeaderItems, Kind, Record};
use crate::sink::Shown;
use crate::sink::{End, Reply, RunInfo};

/// Most bytes that are read at once.
const CHUNK: usize = 1 << 16;

/// One piece of a trace file.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// The start of the run: always the first piece.
    Begin(RunInfo),
    /// A name that records from here on refer to.
    Name(Name),
    /// A record.
    Record(Record),
    /// The answer to a line of a script.
    Reply(Reply),
    /// A piece of the output of a D program.
    D(Shown),
    /// How the run ended: always the last piece.
    End(End),
}

/// The reader's position in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Running,
    Ended,
}

/// Reads a trace file piece by piece.
pub struct TraceReader<R> {
    input: R,
    head: FileHead,
    /// Offset of the next unread byte.
    at: u64,
    /// Bytes of the last piece read; before the first one, those of the head.
    raw: Vec<u8>,
    state: State,
    records: u64,
    /// The hash of all bytes before the last piece.
    hash: Xxh3,
    /// The last checksum.
    check: u32,
}

impl<R: Read> TraceReader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// The input does not begin with the head of a trace file.
    pub fn open(mut input: R) -> Result<Self, TraceFileError> {
        let mut raw = Vec::new();
        input.by_ref().take(HEAD as u64).read_to_end(&mut raw)?;
        let begins = raw.get(..MAGIC.len()).unwrap_or(&raw);
        if !MAGIC.starts_with(begins) || raw.is_empty() {
            let bytes: Vec<String> = begins.iter().map(|byte| format!("{byte:02x}")).collect();
            let found = if bytes.is_empty() { "nothing".to_owned() } else { bytes.join(" ") };
            return Err(TraceFileError::Magic { found });
        }
        let have = raw.len() as u64;
        let Some(&[v0, v1, width, zero, i0, i1, i2, i3]) =
            raw.get(MAGIC.len()..).and_then(|b| b.first_chunk())
        else {
            return Err(TraceFileError::Truncated { what: "head", at: 0, needed: HEAD as u64, have });
        };
        let wrong = |field, at, value, right| TraceFileError::Head { field, at, value, right };
        let version = u16::from_le_bytes([v0, v1]);
        if !(OLDEST..=VERSION).contains(&version) {
            return Err(wrong("version", 8, version.into(), "1 to 5"));
        }
        if !matches!(width, 32 | 64) {
            return Err(wrong("width", 10, width.into(), "32 or 64"));
        }
        if zero != 0 {
            return Err(wrong("reserved byte", 11, zero.into(), "0"));
        }
        let bits = u32::from_le_bytes([i0, i1, i2, i3]);
        let items = HeaderItems::from_bits(bits)
            .ok_or_else(|| wrong("items", 12, bits, "a sum of 1, 2, 4 .. 1024"))?;
        let head = FileHead { version, width, items };
        let (hash, check) = (Xxh3::new(), checksum(&raw, 0));
        Ok(Self { input, head, at: HEAD as u64, raw, state: State::Start, records: 0, hash, check })
    }

    /// The head.
    #[must_use]
    pub const fn head(&self) -> FileHead {
        self.head
    }

    /// The bytes of the last piece read; before the first one, those of the head.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// Reads the next piece; returns `None` after the end record of an undamaged file.
    ///
    /// # Errors
    /// The file is damaged here. Nothing more can be read.
    pub fn next_piece(&mut self) -> Result<Option<Piece>, TraceFileError> {
        let at = self.at;
        self.hash.update(&self.raw);
        let Some(length) = self.length(at)? else { return Ok(None) };
        let more = u64::from(length) + self.checksum_size() as u64;
        self.fill(more)?;
        let (have, needed) = (self.raw.len() as u64, 4 + more);
        if have < needed {
            return Err(TraceFileError::Truncated { what: "record", at, needed, have });
        }
        self.at += needed;
        self.check_record(at)?;
        let (record, ..) =
            Record::decode(self.envelope()).map_err(|error| TraceFileError::Record { at, error })?;
        let (width, right) = (record.header.width, self.head.width);
        if width != right {
            return Err(TraceFileError::Width { at, width, right });
        }
        let control = record.header.kind == Kind::Control;
        let piece = if control { self.control(at, &record.data)? } else { Piece::Record(record) };
        let wrong = |why: &str| TraceFileError::Control { at, why: why.to_owned() };
        match (&piece, self.state) {
            (Piece::Begin(_), State::Start) => self.state = State::Running,
            (Piece::Begin(_), _) => return Err(wrong("a second record says what runs")),
            (_, State::Start) => return Err(wrong("the first record does not say what runs")),
            (Piece::End(_), _) => self.state = State::Ended,
            (Piece::Record(_), _) => self.records += 1,
            _ => {}
        }
        Ok(Some(piece))
    }

    /// Reads `more` further bytes of the piece, or as many as the file has.
    fn fill(&mut self, more: u64) -> Result<(), TraceFileError> {
        let mut left = usize::try_from(more).unwrap_or(usize::MAX);
        while left > 0 {
            let from = self.raw.len();
            self.raw.resize(from + left.min(CHUNK), 0);
            let part = self.raw.get_mut(from..).unwrap_or_default();
            let read = match self.input.read(part) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    self.raw.truncate(from);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            self.raw.truncate(from + read);
            if read == 0 {
                break;
            }
            left -= read;
        }
        Ok(())
    }

    /// The length of the next record; `None` after the end record.
    fn length(&mut self, at: u64) -> Result<Option<u32>, TraceFileError> {
        self.raw.clear();
        self.fill(4)?;
        match (self.raw.first_chunk(), self.raw.len(), self.state) {
            (_, 0, State::Ended) => Ok(None),
            (_, _, State::Ended) => Err(TraceFileError::Trailing { at }),
            (_, 0, _) => Err(TraceFileError::NoEnd { at }),
            (Some(raw), ..) => {
                let length = u32::from_le_bytes(*raw);
                // The smallest record has an envelope and flags.
                if !(24..=MAX_RECORD).contains(&length) {
                    return Err(TraceFileError::Length { at, length });
                }
                Ok(Some(length))
            }
            (None, have, _) => Err(TraceFileError::Truncated {
                what: "length of a record",
                at,
                needed: 4,
                have: have as u64,
            }),
        }
    }

    fn control(&self, at: u64, data: &[u8]) -> Result<Piece, TraceFileError> {
        let said = control::decode(data, self.head).map_err(|why| TraceFileError::Control { at, why })?;
        Ok(match said {
            Said::Begin(run) => Piece::Begin(run),
            Said::Name(name) => Piece::Name(name),
            Said::Reply(reply) => Piece::Reply(reply),
            Said::D(shown) => Piece::D(shown),
            Said::End { end, records, .. } if records != self.records => {
                drop(end);
                return Err(TraceFileError::Count { at, said: records, read: self.records });
            }
            Said::End { end, hash, .. } => {
                self.check_hash(at, hash)?;
                Piece::End(*end)
            }
        })
    }
}

impl<R> TraceReader<R> {
    /// Bytes of a record's checksum, which old files do not have.
    const fn checksum_size(&self) -> usize {
        if self.head.version >= CHECKED { CHECKSUM } else { 0 }
    }

    /// The last piece read without its checksum.
    fn envelope(&self) -> &[u8] {
        self.raw.get(..self.raw.len().saturating_sub(self.checksum_size())).unwrap_or_default()
    }

    /// Compares the checksum of the last record read, if the file has checksums.
    fn check_record(&mut self, at: u64) -> Result<(), TraceFileError> {
        let envelope = self.envelope();
        let Some(right) = self.raw.get(envelope.len()..).and_then(|bytes| bytes.first_chunk()) else {
            return Ok(());
        };
        let (found, right) = (checksum(envelope, self.check), u32::from_le_bytes(*right));
        self.check = found;
        if found == right { Ok(()) } else { Err(TraceFileError::Checksum { at, found, right }) }
    }

    /// Compares the hash at the end of the last record read with that of all bytes before it.
    fn check_hash(&self, at: u64, right: u64) -> Result<(), TraceFileError> {
        let before = self.envelope().len().saturating_sub(HASH);
        let mut hash = self.hash.clone();
        hash.update(self.raw.get(..before).unwrap_or_default());
        let found = hash.digest();
        let at = at + before as u64;
        if found == right { Ok(()) } else { Err(TraceFileError::Hash { at, found, right }) }
    }
}
