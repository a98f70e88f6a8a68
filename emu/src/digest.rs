//! The digest: XXH3-128 over the architectural state.
//!
//! General registers, EFLAGS, segments with their caches, control, debug and model registers, FPU and SSE with their
//! pointers, device state, the clock, and RAM in data view. It leaves out the TLB, translations, slots and all state of
//! an interposer: a machine that is only observed has the digest of an unobserved one.

use crate::ram::PAGE;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::Hasher;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// A 128-bit digest, printed as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Digest(pub u128);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The digest in stages: comparing them shows what differs. The last stage hashes only the pages written since the
/// previous digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StagedDigest {
    /// The CPU's registers, and the clock.
    pub registers: Digest,
    /// The state of every device.
    pub devices: Digest,
    /// RAM in data view: the root of a tree of the hashes of its pages.
    pub memory: Digest,
}

impl StagedDigest {
    /// The first stage that differs between `self` and `other`.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        let stages = [
            (self.registers == other.registers, "registers"),
            (self.devices == other.devices, "devices"),
            (self.memory == other.memory, "memory"),
        ];
        stages.into_iter().find_map(|(same, stage)| (!same).then_some(stage))
    }
}

/// All stages in one number.
impl fmt::Display for StagedDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut h = StateHasher::default();
        for stage in [self.registers, self.devices, self.memory] {
            h.write_u128(stage.0);
        }
        h.finish128().fmt(f)
    }
}

/// Pages of one node of the tree: 1 MiB.
const NODE: usize = 256;

/// The hashes of RAM's pages, and a tree over them: a node for each mebibyte, and the root over the nodes.
#[derive(Debug, Default)]
pub(crate) struct PageHashes {
    pages: Vec<u128>,
    nodes: Vec<u128>,
    changed: Vec<(u32, u128)>,
}

impl PageHashes {
    /// The root, when the pages of `written`, in order, may have changed. The first call counts all others as zeros.
    pub fn update(&mut self, ram: &[u8], written: &[u32]) -> Digest {
        if self.pages.is_empty() {
            let pages = ram.len() / PAGE as usize;
            self.pages = vec![xxh3_128(&[0; PAGE as usize]); pages];
            self.nodes = self.pages.chunks(NODE).map(hash_of).collect();
        }
        self.changed.clear();
        for &page in written {
            let at = page as usize * PAGE as usize;
            let content = ram.get(at..at + PAGE as usize).unwrap_or_default();
            let (hash, page_hash) = (xxh3_128(content), self.pages.get_mut(page as usize));
            if let Some(known) = page_hash.filter(|known| **known != hash) {
                *known = hash;
                self.changed.push((page, hash));
            }
        }
        let mut last = None;
        for node in self.changed.iter().map(|(page, _)| *page as usize / NODE) {
            if last.replace(node) == Some(node) {
                continue;
            }
            let first = node * NODE;
            let pages = self.pages.get(first..self.pages.len().min(first + NODE)).unwrap_or_default();
            if let Some(known) = self.nodes.get_mut(node) {
                *known = hash_of(pages);
            }
        }
        Digest(hash_of(&self.nodes))
    }

    /// The pages that the last update found changed, with their new hashes.
    pub fn changed(&self) -> &[(u32, u128)] {
        &self.changed
    }
}

/// The hash over hashes.
fn hash_of(hashes: &[u128]) -> u128 {
    let mut h = StateHasher::default();
    hashes.iter().for_each(|hash| h.write_u128(*hash));
    h.finish128().0
}

/// Feeds integers in little-endian order whatever the host, so that the digest is the same everywhere.
#[derive(Default)]
pub(crate) struct StateHasher(Xxh3);

impl StateHasher {
    pub fn finish128(&self) -> Digest {
        Digest(self.0.digest128())
    }
}

impl Hasher for StateHasher {
    fn finish(&self) -> u64 {
        self.0.digest()
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    fn write_u16(&mut self, n: u16) {
        self.write(&n.to_le_bytes());
    }
    fn write_u32(&mut self, n: u32) {
        self.write(&n.to_le_bytes());
    }
    fn write_u64(&mut self, n: u64) {
        self.write(&n.to_le_bytes());
    }
    fn write_u128(&mut self, n: u128) {
        self.write(&n.to_le_bytes());
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }
}
