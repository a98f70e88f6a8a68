//! The digest: XXH3-128 over the architectural state.
//!
//! General registers, EFLAGS, segments with their caches, control, debug and model registers, FPU and SSE
//! with their pointers, device state, the clock, and RAM in data view. Not the TLB, translations, slots or
//! anything of an interposer: a machine that is only observed has the digest of one that is not.

use std::fmt;
use std::hash::Hasher;
use xxhash_rust::xxh3::Xxh3;

/// A 128-bit digest, printed as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub u128);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
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
