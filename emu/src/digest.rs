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

/// A hash as it is hashed itself: in little-endian order whatever the host.
type Hash = [u8; 16];

/// The hashes of RAM's pages, and a tree over them: a node for each mebibyte, and the root over the nodes. Memory that the
/// guest has never written costs nothing but its node.
#[derive(Debug, Default)]
pub(crate) struct PageHashes {
    nodes: Vec<Hash>,
    /// The hashes of each node's pages; `None` while all are zeros.
    pages: Vec<Option<Box<[Hash]>>>,
    changed: Vec<(u32, u128)>,
}

impl PageHashes {
    /// The root, when the pages of `written`, in order, may have changed. The first call counts all others as zeros.
    pub fn update(&mut self, ram: &[u8], written: &[u32]) -> Digest {
        let zero = || hash_of(&[0; PAGE as usize]);
        let all = ram.len() / PAGE as usize;
        let pages_of = |node: usize| NODE.min(all.saturating_sub(node * NODE));
        if self.nodes.is_empty() {
            self.pages = vec![None; all.div_ceil(NODE)];
            self.nodes = vec![hash_of([zero(); NODE].as_flattened()); all.div_ceil(NODE)];
            if let (Some(last), part @ 1..) = (self.nodes.last_mut(), all % NODE) {
                *last = hash_of(vec![zero(); part].as_flattened());
            }
        }
        self.changed.clear();
        for &page in written {
            let at = page as usize * PAGE as usize;
            let Some(content) = ram.get(at..at + PAGE as usize) else { continue };
            let (hash, number) = (hash_of(content), page as usize / NODE);
            let Some(pages) = self.pages.get_mut(number) else { continue };
            let pages = pages.get_or_insert_with(|| vec![zero(); pages_of(number)].into());
            if let Some(known) = pages.get_mut(page as usize % NODE).filter(|known| **known != hash) {
                *known = hash;
                self.changed.push((page, u128::from_le_bytes(hash)));
            }
        }
        let mut last = None;
        for number in self.changed.iter().map(|(page, _)| *page as usize / NODE) {
            if last.replace(number) == Some(number) {
                continue;
            }
            if let (Some(node), Some(Some(pages))) = (self.nodes.get_mut(number), self.pages.get(number)) {
                *node = hash_of(pages.as_flattened());
            }
        }
        Digest(xxh3_128(self.nodes.as_flattened()))
    }

    /// The pages that the last update found changed, with their new hashes.
    pub fn changed(&self) -> &[(u32, u128)] {
        &self.changed
    }
}

fn hash_of(bytes: &[u8]) -> Hash {
    xxh3_128(bytes).to_le_bytes()
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
