//! The frame of a recording's file: a head, then chunks, each with its kind, its length and its checksums.
//!
//! | Bytes | Of a chunk |
//! |---|---|
//! | 1 | kind |
//! | 4 | length of the content, little endian |
//! | 4 | checksum of these five bytes: the low half of their XXH3 |
//! | length | content |
//! | 8 | XXH3 of kind, length and content |
//!
//! Each checksum begins with that of the chunk before, so no chunk can be left out, put elsewhere or come from another file.
//! The length has a checksum of its own: a file that was cut off is told from one that was damaged. Not here: what chunks
//! mean.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"TRAPRECO";
/// The version of the format that this build writes, and the newest that it reads.
pub const VERSION: u32 = 1;
/// Bytes before a chunk's content.
const HEAD: usize = 9;
/// Bytes after a chunk's content.
const TAIL: usize = 8;

/// The kind of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The start of the run: a `RunConfig` as JSON.
    Config,
    /// A file of the guest.
    Blob,
    /// An input of the run.
    Event,
    /// A digest.
    Checkpoint,
    /// Console output of the guest.
    Console,
    /// Hashes of pages that have changed.
    Pages,
    /// The recorder was closed.
    End,
}

impl Kind {
    const ALL: [(Self, u8); 7] = [
        (Self::Config, 1),
        (Self::Blob, 2),
        (Self::Event, 3),
        (Self::Checkpoint, 4),
        (Self::Console, 5),
        (Self::Pages, 6),
        (Self::End, 7),
    ];

    fn number(self) -> u8 {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or(0, |(_, number)| *number)
    }

    fn of(number: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == number).map(|(kind, _)| *kind)
    }
}

/// Encodes chunks, one after the other.
#[derive(Debug)]
pub struct Framer {
    chain: u64,
}

impl Framer {
    /// The header of a file, and the encoder of its chunks.
    pub fn begin() -> (Vec<u8>, Self) {
        let mut head = MAGIC.to_vec();
        head.extend(VERSION.to_le_bytes());
        let chain = xxh3_64(&head);
        (head, Self { chain })
    }

    /// A chunk; none if the content has more than 4 GiB.
    pub fn chunk(&mut self, kind: Kind, content: &[u8]) -> Option<Vec<u8>> {
        let mut chunk = vec![kind.number()];
        chunk.extend(u32::try_from(content.len()).ok()?.to_le_bytes());
        chunk.extend(head_sum(&chunk, self.chain).to_le_bytes());
        chunk.extend_from_slice(content);
        self.chain = sum(&chunk, self.chain);
        chunk.extend(self.chain.to_le_bytes());
        Some(chunk)
    }
}

fn head_sum(five: &[u8], chain: u64) -> u32 {
    xxh3_64_with_seed(five, chain) as u32
}

fn sum(chunk: &[u8], chain: u64) -> u64 {
    xxh3_64_with_seed(chunk, chain)
}

/// Why a file is not a recording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// It begins with something else.
    #[error("this is not a recording of Trapline")]
    NotARecording,
    /// It was written by a later build.
    #[error(
        "the recording has format {found}, and this build reads formats up to {VERSION}: use the build that wrote it, or a newer one"
    )]
    Newer {
        /// The version of its format.
        found: u32,
    },
    /// Some of its bytes are not those that were written.
    #[error(
        "the recording is damaged: the checksum of chunk {chunk}, at byte {at}, is wrong; use an undamaged copy"
    )]
    Damaged {
        /// The chunk's number, from 0.
        chunk: usize,
        /// Where it begins.
        at: usize,
    },
    /// The content of a chunk is invalid.
    #[error("the recording cannot be read: chunk {chunk}, at byte {at}, {what}")]
    Content {
        /// The chunk's number, from 0.
        chunk: usize,
        /// Where it begins.
        at: usize,
        /// What is wrong, as the end of a sentence.
        what: String,
    },
}

/// Reads the chunks of a file.
#[derive(Debug)]
pub struct Chunks<'a> {
    file: &'a [u8],
    at: usize,
    number: usize,
    chain: u64,
    /// The offset of the chunk that was read last.
    began: usize,
}

/// A chunk's kind and content.
pub type Chunk<'a> = (Kind, &'a [u8]);

impl<'a> Chunks<'a> {
    /// The chunks of a file.
    ///
    /// # Errors
    /// It is not a recording, or has a later format.
    pub fn of(file: &'a [u8]) -> Result<Self, FormatError> {
        let rest = file.strip_prefix(&MAGIC).ok_or(FormatError::NotARecording)?;
        let (version, _) = rest.split_first_chunk().ok_or(FormatError::NotARecording)?;
        match u32::from_le_bytes(*version) {
            VERSION => {}
            found if found > VERSION => return Err(FormatError::Newer { found }),
            _ => return Err(FormatError::NotARecording),
        }
        let at = MAGIC.len() + size_of::<u32>();
        let chain = xxh3_64(file.get(..at).unwrap_or_default());
        Ok(Self { file, at, number: 0, chain, began: at })
    }

    /// The next chunk; none at the end of the file, or if the file ends within the chunk.
    ///
    /// # Errors
    /// The chunk is damaged.
    pub fn next(&mut self) -> Result<Option<Chunk<'a>>, FormatError> {
        let damaged = FormatError::Damaged { chunk: self.number, at: self.at };
        let rest = self.file.get(self.at..).unwrap_or_default();
        let Some(head) = rest.get(..HEAD) else { return Ok(None) };
        let (five, check) = head.split_at_checked(5).ok_or_else(|| damaged.clone())?;
        if check != head_sum(five, self.chain).to_le_bytes() {
            return Err(damaged);
        }
        let length = five.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
        let Some((chunk, tail)) =
            rest.get(..HEAD + length + TAIL).and_then(|all| all.split_last_chunk::<TAIL>())
        else {
            return Ok(None);
        };
        let chain = sum(chunk, self.chain);
        if chain.to_le_bytes() != *tail {
            return Err(damaged);
        }
        let number = five.first().copied().unwrap_or_default();
        let content = chunk.get(HEAD..).unwrap_or_default();
        (self.began, self.chain) = (self.at, chain);
        self.at += HEAD + length + TAIL;
        self.number += 1;
        let kind = Kind::of(number).ok_or_else(|| self.wrong(format!("is of the unknown kind {number}")))?;
        Ok(Some((kind, content)))
    }

    /// Whether all of the file was read.
    pub fn at_end(&self) -> bool {
        self.at >= self.file.len()
    }

    /// What is wrong with the chunk that was read last.
    pub fn wrong(&self, what: impl Into<String>) -> FormatError {
        FormatError::Content { chunk: self.number.saturating_sub(1), at: self.began, what: what.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let (mut file, mut framer) = Framer::begin();
        for (kind, content) in
            [(Kind::Config, &b"{}"[..]), (Kind::Event, b"one"), (Kind::Event, b"one"), (Kind::End, b"")]
        {
            file.extend(framer.chunk(kind, content).unwrap());
        }
        file
    }

    /// The kinds of the chunks, and whether the file ended after the last.
    fn read(file: &[u8]) -> Result<(Vec<Kind>, bool), FormatError> {
        let mut chunks = Chunks::of(file)?;
        let mut kinds = Vec::new();
        while let Some((kind, _)) = chunks.next()? {
            kinds.push(kind);
        }
        Ok((kinds, chunks.at_end()))
    }

    const KINDS: [Kind; 4] = [Kind::Config, Kind::Event, Kind::Event, Kind::End];

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(read(&file()), Ok((KINDS.to_vec(), true)));
    }

    #[test]
    fn a_file_that_was_cut_off_has_its_whole_chunks() {
        let file = file();
        for length in 12..file.len() {
            let (kinds, whole) = read(&file[..length]).unwrap();
            assert!(KINDS.starts_with(&kinds) && kinds.len() < 4);
            assert_eq!(whole, [12, 12 + 19, 12 + 19 + 20, 12 + 19 + 40].contains(&length), "{length}");
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let file = file();
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut flipped = file.clone();
                flipped[at] ^= 1 << bit;
                assert!(read(&flipped).is_err(), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_chunk_that_is_left_out_or_doubled_is_found() {
        let file = file();
        let (first, event) = (12 + 19, 20);
        let without = [&file[..first], &file[first + event..]].concat();
        assert_eq!(read(&without), Err(FormatError::Damaged { chunk: 1, at: first }));
        let doubled = [&file[..first + event], &file[first..]].concat();
        assert_eq!(read(&doubled), Err(FormatError::Damaged { chunk: 2, at: first + event }));
    }

    #[test]
    fn each_refusal_is_one_sentence() {
        assert_eq!(read(b"ELF").unwrap_err().to_string(), "this is not a recording of Trapline");
        let mut newer = file();
        newer[8] = 9;
        assert_eq!(
            read(&newer).unwrap_err().to_string(),
            "the recording has format 9, and this build reads formats up to 1: use the build that wrote it, or a newer one"
        );
    }
}
