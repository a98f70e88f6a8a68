//! Reading trace files: whole pieces in order, then what is wrong, if anything is.
//!
//! No length in the file is trusted: memory grows with bytes that are there. Every error says the offset and the value.

use std::io::{self, Read};

use serde::Deserialize;
use serde_json::{Map, Value};
use xxhash_rust::xxh3::Xxh3;

use super::{Control, FileHead, HASH, HEAD, MAGIC, MAX_RECORD, VERSION};
use crate::channel::Counts;
use crate::record::{DecodeError, HeaderItems, Kind, Reader, Record};
use crate::sink::{End, Reply, RunInfo};

/// Why a file is no trace file, or not a whole one.
#[derive(Debug, thiserror::Error)]
pub enum TraceFileError {
    /// It cannot be read.
    #[error("{}", plain(.0))]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("this is no trace file: it begins with {found}; 89 54 52 43 0d 0a 1a 0a would be right")]
    Magic {
        /// Its first bytes.
        found: String,
    },
    /// A field of the head has a value that it cannot have.
    #[error("the head's {field}, at byte {at}, is {value}; {right} would be right")]
    Head {
        /// Which.
        field: &'static str,
        /// Its offset.
        at: u64,
        /// What it holds.
        value: u32,
        /// What it could hold.
        right: &'static str,
    },
    /// The file ends inside something.
    #[error("the file ends early: the {what} at byte {at} has {needed} bytes, {have} are there")]
    Truncated {
        /// What is cut.
        what: &'static str,
        /// Its offset.
        at: u64,
        /// Its size.
        needed: u64,
        /// How much there is of it.
        have: u64,
    },
    /// The file ends where a record could begin, but has not ended.
    #[error("the file ends early: at byte {at} its end record is missing")]
    NoEnd {
        /// The file's size.
        at: u64,
    },
    /// A length that no record has.
    #[error("the record at byte {at} has the length {length}; 24 to {MAX_RECORD} would be right")]
    Length {
        /// The record's offset.
        at: u64,
        /// Its length.
        length: u32,
    },
    /// A record that is none.
    #[error("the record at byte {at} is damaged: {error}")]
    Record {
        /// Its offset.
        at: u64,
        /// What is wrong.
        error: DecodeError,
    },
    /// A record of a guest with another word.
    #[error("the record at byte {at} has the width {width}; {right}, the file's, would be right")]
    Width {
        /// Its offset.
        at: u64,
        /// Its width in bits.
        width: u8,
        /// The file's.
        right: u8,
    },
    /// A control record that says nothing known, or what cannot be said there.
    #[error("the control record at byte {at} is damaged: {why}")]
    Control {
        /// Its offset.
        at: u64,
        /// What is wrong.
        why: String,
    },
    /// Something else than the end record's count of records.
    #[error("the end record at byte {at} counts {said} records; {read} are before it")]
    Count {
        /// The end record's offset.
        at: u64,
        /// What it says.
        said: u64,
        /// What there are.
        read: u64,
    },
    /// Bytes that were changed where no field shows it.
    #[error(
        "the file is damaged somewhere before byte {at}: its bytes have the hash {found:016x}; {right:016x} would be right"
    )]
    Hash {
        /// Where the hash stands.
        at: u64,
        /// Of the bytes that are there.
        found: u64,
        /// What the file says.
        right: u64,
    },
    /// Something behind the end record.
    #[error("the file goes on at byte {at}, behind its end record")]
    Trailing {
        /// Where.
        at: u64,
    },
}

fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// One thing that a trace file holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// What ran. It comes first.
    Begin(RunInfo),
    /// The symbol of an address.
    Symbol {
        /// The address.
        ip: u64,
        /// Its symbol.
        name: String,
    },
    /// The symbol of an address in a module, for stacks.
    Frame {
        /// Of which stack records.
        kind: Kind,
        /// The module.
        module: String,
        /// The address in it.
        address: u64,
        /// Its symbol.
        name: String,
        /// How far into that it is.
        offset: u64,
    },
    /// A record.
    Record(Record),
    /// The answer to a script.
    Reply(Reply),
    /// How the run ended. It comes last.
    End(End),
}

/// Where in the file the reader is.
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
    /// Offset behind what was read.
    at: u64,
    /// Bytes of the last piece; at first of the head.
    raw: Vec<u8>,
    state: State,
    records: u64,
    /// Of all bytes before the last piece.
    hash: Xxh3,
}

impl<R: Read> TraceReader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// It is no head of a trace file.
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
        if version != VERSION {
            return Err(wrong("version", 8, version.into(), "1"));
        }
        if !matches!(width, 32 | 64) {
            return Err(wrong("width", 10, width.into(), "32 or 64"));
        }
        if zero != 0 {
            return Err(wrong("byte of zero", 11, zero.into(), "0"));
        }
        let bits = u32::from_le_bytes([i0, i1, i2, i3]);
        let items = HeaderItems::from_bits(bits)
            .ok_or_else(|| wrong("items", 12, bits, "a sum of 1, 2, 4 .. 1024"))?;
        let head = FileHead { width, items };
        Ok(Self { input, head, at: HEAD as u64, raw, state: State::Start, records: 0, hash: Xxh3::new() })
    }

    /// The head.
    #[must_use]
    pub const fn head(&self) -> FileHead {
        self.head
    }

    /// The bytes of the piece that was read last, before any of the head.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// The next piece; `None` when the file has ended as it should.
    ///
    /// # Errors
    /// What is wrong. The reader is then at its end.
    pub fn next_piece(&mut self) -> Result<Option<Piece>, TraceFileError> {
        let at = self.at;
        self.hash.update(&self.raw);
        let Some(length) = self.length(at)? else { return Ok(None) };
        self.input.by_ref().take(length.into()).read_to_end(&mut self.raw)?;
        let have = self.raw.len() as u64;
        let needed = u64::from(length) + 4;
        if have < needed {
            return Err(TraceFileError::Truncated { what: "record", at, needed, have });
        }
        self.at += needed;
        let (record, ..) = Record::decode(&self.raw).map_err(|error| TraceFileError::Record { at, error })?;
        let (width, right) = (record.header.width, self.head.width);
        if width != right {
            return Err(TraceFileError::Width { at, width, right });
        }
        let control = record.header.kind == Kind::Control;
        let piece = if control { self.control(at, &record.data)? } else { Piece::Record(record) };
        let wrong = |why: &str| TraceFileError::Control { at, why: why.to_owned() };
        match (&piece, self.state) {
            (Piece::Begin(_), State::Start) => self.state = State::Running,
            (Piece::Begin(_), _) => return Err(wrong("it says for the second time what runs")),
            (_, State::Start) => return Err(wrong("the first record does not say what runs")),
            (Piece::End(_), _) => self.state = State::Ended,
            (Piece::Record(_), _) => self.records += 1,
            _ => {}
        }
        Ok(Some(piece))
    }

    /// The length of the next record; `None` behind the end.
    fn length(&mut self, at: u64) -> Result<Option<u32>, TraceFileError> {
        self.raw.clear();
        self.input.by_ref().take(4).read_to_end(&mut self.raw)?;
        match (self.raw.first_chunk(), self.raw.len(), self.state) {
            (_, 0, State::Ended) => Ok(None),
            (_, _, State::Ended) => Err(TraceFileError::Trailing { at }),
            (_, 0, _) => Err(TraceFileError::NoEnd { at }),
            (Some(raw), ..) => {
                let length = u32::from_le_bytes(*raw);
                // An envelope and flags are the least.
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
        let wrong = |why: String| TraceFileError::Control { at, why };
        let json = |error: serde_json::Error| wrong(format!("its JSON is wrong: {error}"));
        let (first, rest) = data.split_first().ok_or_else(|| wrong("it is empty".to_owned()))?;
        let control = Control::from_byte(*first)
            .ok_or_else(|| wrong(format!("its first byte is {first:#04x}; 1 to 5 would be right")))?;
        match control {
            Control::Begin => {
                let mut extra: Map<String, Value> = serde_json::from_slice(rest).map_err(json)?;
                let Some(Value::String(image)) = extra.shift_remove("image") else {
                    return Err(wrong("it names no image".to_owned()));
                };
                Ok(Piece::Begin(RunInfo {
                    image,
                    width: self.head.width,
                    extra: extra.into_iter().collect(),
                }))
            }
            Control::Symbol => {
                let parts =
                    rest.split_first_chunk().and_then(|(ip, name)| Some((ip, str::from_utf8(name).ok()?)));
                let (ip, name) = parts.ok_or_else(|| wrong("it is no address with a name".to_owned()))?;
                Ok(Piece::Symbol { ip: u64::from_le_bytes(*ip), name: name.to_owned() })
            }
            Control::Frame => {
                frame(rest).ok_or_else(|| wrong("it is no address in a module with a name".to_owned()))
            }
            Control::Reply => {
                let said: SaidReply = serde_json::from_slice(rest).map_err(json)?;
                Ok(Piece::Reply(Reply { lines: said.lines, object: said.object }))
            }
            Control::End => {
                let (records, mut end, left) = counts(rest).map_err(|error| wrong(error.to_string()))?;
                let (left, hash) =
                    left.split_last_chunk().ok_or_else(|| wrong("it has no hash".to_owned()))?;
                if records != self.records {
                    return Err(TraceFileError::Count { at, said: records, read: self.records });
                }
                let said: SaidEnd = serde_json::from_slice(left).map_err(json)?;
                end.digest = said.digest;
                end.extra = said.extra.into_iter().collect();
                self.check_hash(at, u64::from_le_bytes(*hash))?;
                Ok(Piece::End(end))
            }
        }
    }
}

impl<R> TraceReader<R> {
    /// Compares with the hash of all bytes before it, which is at the end of the record in hand.
    fn check_hash(&self, at: u64, right: u64) -> Result<(), TraceFileError> {
        let before = self.raw.len().saturating_sub(HASH);
        let mut hash = self.hash.clone();
        hash.update(self.raw.get(..before).unwrap_or_default());
        let found = hash.digest();
        let at = at + before as u64;
        if found == right { Ok(()) } else { Err(TraceFileError::Hash { at, found, right }) }
    }
}

/// Kind, address, module and name of a frame.
fn frame(bytes: &[u8]) -> Option<Piece> {
    let (&kind, rest) = bytes.split_first()?;
    let (address, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (module, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    let (offset, name) = rest.split_first_chunk()?;
    Some(Piece::Frame {
        kind: Kind::from_byte(kind).filter(|kind| kind.is_guest_stack())?,
        module: str::from_utf8(module).ok()?.to_owned(),
        address: u64::from_le_bytes(*address),
        name: str::from_utf8(name).ok()?.to_owned(),
        offset: u64::from_le_bytes(*offset),
    })
}

/// The binary part of an end record: the count of records, the end without its words, and the rest.
fn counts(bytes: &[u8]) -> Result<(u64, End, &[u8]), DecodeError> {
    let mut r = Reader { bytes, at: 0 };
    let records = r.u64()?;
    let counts = Counts { committed: r.u64()?, overwritten: r.u64()?, oversized: r.u64()? };
    let end = End {
        counts,
        insns: r.u64()?,
        hits: r.u64()?,
        lost: r.u64()?,
        exit: r.u32()? as i32,
        ..End::default()
    };
    Ok((records, end, bytes.get(r.at..).unwrap_or_default()))
}

#[derive(Deserialize)]
struct SaidReply {
    lines: Vec<String>,
    object: Value,
}

#[derive(Deserialize)]
struct SaidEnd {
    digest: Option<String>,
    extra: Map<String, Value>,
}
