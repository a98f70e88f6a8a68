//! The file form of snapshots: named parts under one checksum.
//!
//! A file is the magic, the version of the form, a list of parts, and XXH3-128 of all that. A part has a name, its own
//! version and bytes, mostly a serde value in the postcard format. The machine's parts are in
//! [`Snapshot::store`](super::Snapshot::store); a caller that stores more with a machine adds parts.
//!
//! Invariant: reading a file gives parts or an error, whatever its bytes.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_128;

const MAGIC: [u8; 8] = *b"TRAPSNAP";
/// Version of the form that this build writes, and the newest that it reads.
const VERSION: u32 = 1;
const CHECKSUM: usize = 16;

/// Why a snapshot's file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// It does not begin with the magic.
    #[error("this is not a snapshot of Trapline")]
    NotASnapshot,
    /// A later build has written it.
    #[error(
        "the snapshot has form {found}, and this build reads forms up to {known}: use the build that wrote it, or a newer one"
    )]
    Newer {
        /// Its version.
        found: u32,
        /// The newest that is known.
        known: u32,
    },
    /// Some of its bytes have changed since it was written.
    #[error("the snapshot is damaged: its checksum does not match its {0} bytes; take it again")]
    Damaged(usize),
    /// A part is missing.
    #[error("the snapshot has no part `{0}`: it was not taken of such a session")]
    Missing(String),
    /// A part has another version.
    #[error("part `{part}` of the snapshot has version {found}, and this build reads version {known}")]
    PartVersion {
        /// The part.
        part: String,
        /// Its version.
        found: u16,
        /// The version that this build knows.
        known: u16,
    },
    /// The content of a part is invalid.
    #[error("part `{part}` of the snapshot cannot be read: {reason}")]
    Part {
        /// The part.
        part: String,
        /// What is wrong.
        reason: String,
    },
}

/// The parts of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Archive {
    parts: BTreeMap<String, (u16, Vec<u8>)>,
}

impl Archive {
    /// No parts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part, or replaces it.
    ///
    /// # Errors
    /// When the value cannot be written in the postcard format.
    pub fn put<T: Serialize>(&mut self, part: &str, version: u16, value: &T) -> Result<(), ArchiveError> {
        let bytes = postcard::to_stdvec(value).map_err(|error| unreadable(part, &error.to_string()))?;
        self.put_bytes(part, version, bytes);
        Ok(())
    }

    /// Adds a part of plain bytes, or replaces it.
    pub fn put_bytes(&mut self, part: &str, version: u16, bytes: Vec<u8>) {
        self.parts.insert(part.to_owned(), (version, bytes));
    }

    /// The value of a part.
    ///
    /// # Errors
    /// When it is missing, has another version, or is not such a value.
    pub fn get<T: DeserializeOwned>(&self, part: &str, version: u16) -> Result<T, ArchiveError> {
        let bytes = self.bytes(part, version)?;
        let (value, rest) =
            postcard::take_from_bytes(bytes).map_err(|error| unreadable(part, &error.to_string()))?;
        if !rest.is_empty() {
            return Err(unreadable(part, &format!("{} bytes too many", rest.len())));
        }
        Ok(value)
    }

    /// The bytes of a part.
    ///
    /// # Errors
    /// When it is missing or has another version.
    pub fn bytes(&self, part: &str, version: u16) -> Result<&[u8], ArchiveError> {
        match self.parts.get(part) {
            None => Err(ArchiveError::Missing(part.to_owned())),
            Some((found, _)) if *found != version => {
                Err(ArchiveError::PartVersion { part: part.to_owned(), found: *found, known: version })
            }
            Some((_, bytes)) => Ok(bytes),
        }
    }

    /// Whether there is such a part.
    pub fn has(&self, part: &str) -> bool {
        self.parts.contains_key(part)
    }

    /// The file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend(VERSION.to_le_bytes());
        file.extend((self.parts.len() as u32).to_le_bytes());
        for (name, (version, bytes)) in &self.parts {
            file.extend((name.len() as u32).to_le_bytes());
            file.extend(name.as_bytes());
            file.extend(version.to_le_bytes());
            file.extend((bytes.len() as u64).to_le_bytes());
            file.extend(bytes);
        }
        file.extend(xxh3_128(&file).to_le_bytes());
        file
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it is not a snapshot, has a later form, or is damaged.
    pub fn from_bytes(file: &[u8]) -> Result<Self, ArchiveError> {
        let damaged = || ArchiveError::Damaged(file.len());
        let body = file.strip_prefix(&MAGIC).ok_or(ArchiveError::NotASnapshot)?;
        let (version, _) = body.split_first_chunk().ok_or_else(damaged)?;
        let found = u32::from_le_bytes(*version);
        if found > VERSION {
            return Err(ArchiveError::Newer { found, known: VERSION });
        }
        let (summed, sum) = file.split_last_chunk::<CHECKSUM>().ok_or_else(damaged)?;
        if xxh3_128(summed).to_le_bytes() != *sum {
            return Err(damaged());
        }
        let parts = summed.get(MAGIC.len() + 4..).ok_or_else(damaged)?;
        Cursor(parts).parts().map(|parts| Archive { parts }).ok_or_else(damaged)
    }
}

fn unreadable(part: &str, reason: &str) -> ArchiveError {
    ArchiveError::Part { part: part.to_owned(), reason: reason.to_owned() }
}

/// The bytes left to read.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (found, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*found)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (found, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(found)
    }

    fn parts(mut self) -> Option<BTreeMap<String, (u16, Vec<u8>)>> {
        let mut parts = BTreeMap::new();
        for _ in 0..u32::from_le_bytes(self.array()?) {
            let length = u32::from_le_bytes(self.array()?);
            let name = std::str::from_utf8(self.take(usize::try_from(length).ok()?)?).ok()?;
            let version = u16::from_le_bytes(self.array()?);
            let length = u64::from_le_bytes(self.array()?);
            let bytes = self.take(usize::try_from(length).ok()?)?;
            parts.insert(name.to_owned(), (version, bytes.to_vec()));
        }
        self.0.is_empty().then_some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive() -> Archive {
        let mut archive = Archive::new();
        archive.put("one", 3, &(7u32, "text".to_owned())).unwrap();
        archive.put_bytes("two", 1, vec![1, 2, 3]);
        archive
    }

    #[test]
    fn parts_are_read_back() {
        let back = Archive::from_bytes(&archive().to_bytes()).unwrap();
        assert_eq!(back, archive());
        assert_eq!(back.get::<(u32, String)>("one", 3).unwrap(), (7, "text".to_owned()));
        assert!(back.has("two") && !back.has("three"));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        let file = archive().to_bytes();
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut damaged = file.clone();
                damaged[at] ^= 1 << bit;
                assert!(Archive::from_bytes(&damaged).is_err(), "byte {at}, bit {bit}");
            }
            assert!(Archive::from_bytes(&file[..at]).is_err(), "{at} bytes");
        }
        let longer = [file.as_slice(), &[0]].concat();
        assert_eq!(Archive::from_bytes(&longer), Err(ArchiveError::Damaged(longer.len())));
    }

    #[test]
    fn each_refusal_is_one_sentence() {
        let sentence = |result: Result<Archive, ArchiveError>| result.unwrap_err().to_string();
        assert_eq!(sentence(Archive::from_bytes(b"ELF")), "this is not a snapshot of Trapline");
        let mut newer = archive().to_bytes();
        newer[8] = 9;
        assert_eq!(
            sentence(Archive::from_bytes(&newer)),
            "the snapshot has form 9, and this build reads forms up to 1: use the build that wrote it, or a newer one"
        );
        let found = archive();
        let version = found.get::<u32>("one", 2).unwrap_err().to_string();
        assert_eq!(version, "part `one` of the snapshot has version 3, and this build reads version 2");
        assert!(matches!(found.get::<u32>("three", 1), Err(ArchiveError::Missing(_))));
        assert!(matches!(found.get::<u8>("two", 1), Err(ArchiveError::Part { .. })));
    }
}
