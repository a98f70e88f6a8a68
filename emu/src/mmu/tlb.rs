//! The architectural TLB: what the guest's CPU would have cached.
//!
//! The engine's own TLB is a cache of this one. It may drop entries whenever it likes (it resizes by host
//! time), so every refill must find here what it found before: a translation lives until the *guest*
//! flushes it. That makes accessed bits and stale translations a function of the guest alone.
//!
//! Invariant: the set of entries depends on the guest's instructions only, never on the engine's refills.

use super::walk::Translation;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Entries after which dead ones are swept out.
const SWEEP_AT: usize = 1 << 16;

/// Multiplicative hasher for page numbers; iteration order is never used for a result.
#[derive(Default)]
pub(crate) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(b.into());
        }
    }
    fn write_u64(&mut self, n: u64) {
        let x = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = x ^ (x >> 32);
    }
}

type Map = HashMap<u64, Entry, BuildHasherDefault<PageHasher>>;

#[derive(Debug, Clone, Copy)]
struct Entry {
    translation: Translation,
    /// `Tlb::generation` when filled; older non-global entries are dead.
    generation: u64,
    /// Generation of global entries.
    global_generation: u64,
    /// `Tlb::announcing` when the interposer was told of user code on the page; 0 before.
    announced: u64,
}

/// The architectural TLB, in two layers so that a snapshot can be restored in time proportional to what
/// was added since.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tlb {
    base: Arc<Map>,
    top: Map,
    generation: u64,
    global_generation: u64,
    /// A large page was cached since the last full flush.
    large: bool,
    /// How often all was to be announced anew: what was announced since is marked with it.
    announcing: u64,
}

/// Saved state of the TLB.
#[derive(Debug, Clone)]
pub(crate) struct TlbImage {
    base: Arc<Map>,
    generation: u64,
    global_generation: u64,
    large: bool,
    announcing: u64,
}

impl Tlb {
    /// The live translation of a linear page (address of its first byte).
    #[inline]
    pub fn lookup(&self, page: u64) -> Option<&Translation> {
        let entry = self.entry(page)?;
        self.live(entry).then_some(&entry.translation)
    }

    #[inline]
    fn entry(&self, page: u64) -> Option<&Entry> {
        self.top.get(&page).or_else(|| self.base.get(&page))
    }

    #[inline]
    fn live(&self, e: &Entry) -> bool {
        e.global_generation == self.global_generation
            && (e.translation.global || e.generation == self.generation)
    }

    /// Caches a translation.
    pub fn insert(&mut self, page: u64, translation: Translation) {
        self.large |= translation.large;
        if self.top.len() >= SWEEP_AT {
            let (generation, global) = (self.generation, self.global_generation);
            self.top.retain(|_, e| {
                e.global_generation == global && (e.translation.global || e.generation == generation)
            });
        }
        // Before anything was to be announced nothing has been.
        let known = if self.announcing > 0 { self.entry(page) } else { None };
        let same = |old: &&Entry| self.live(old) && old.translation.paddr == translation.paddr;
        let entry = Entry {
            translation,
            generation: self.generation,
            global_generation: self.global_generation,
            announced: known.filter(same).map_or(0, |old| old.announced),
        };
        self.top.insert(page, entry);
    }

    /// Whether the interposer was told of user code on a linear page since its translation was cached and since all was
    /// to be announced anew, which must have been once.
    pub fn announced(&self, page: u64) -> bool {
        self.entry(page).is_some_and(|e| self.live(e) && e.announced == self.announcing)
    }

    /// The interposer has been told of user code on a linear page, whose translation is cached.
    pub fn announce(&mut self, page: u64) {
        if let Some(entry) = self.entry(page).filter(|entry| self.live(entry)) {
            self.top.insert(page, Entry { announced: self.announcing, ..*entry });
        }
    }

    /// Whatever was announced is to be announced anew.
    pub fn announce_again(&mut self) {
        self.announcing += 1;
    }

    /// MOV to CR3: everything but global pages goes.
    pub fn flush_local(&mut self) {
        self.generation += 1;
    }

    /// Everything goes.
    pub fn flush_all(&mut self) {
        self.generation += 1;
        self.global_generation += 1;
        self.large = false;
    }

    /// INVLPG of one linear page. Returns whether it was part of a large page, all of which is dropped.
    pub fn invalidate(&mut self, page: u64) -> bool {
        let dead = Entry {
            translation: Translation::default(),
            generation: u64::MAX,
            global_generation: u64::MAX,
            announced: 0,
        };
        if !self.large {
            self.kill(page, dead);
            return false;
        }
        // 4 MiB is the largest page either CPU model has; smaller large pages lie inside one.
        let start = page & !0x3f_ffff;
        let mut hit_large = false;
        for p in (0..1024u64).map(|n| start.wrapping_add(n * 4096)) {
            let large = self.lookup(p).is_some_and(|t| t.large);
            hit_large |= large;
            if p == page || large {
                self.kill(p, dead);
            }
        }
        hit_large
    }

    fn kill(&mut self, page: u64, dead: Entry) {
        if self.base.contains_key(&page) {
            self.top.insert(page, dead);
        } else {
            self.top.remove(&page);
        }
    }

    /// Saves the state; the top layer becomes part of the shared base.
    pub fn save(&mut self) -> TlbImage {
        if !self.top.is_empty() {
            let mut merged = (*self.base).clone();
            merged.extend(self.top.drain());
            merged.retain(|_, e| self.live_parts(e));
            self.base = Arc::new(merged);
        }
        TlbImage {
            base: self.base.clone(),
            generation: self.generation,
            global_generation: self.global_generation,
            large: self.large,
            announcing: self.announcing,
        }
    }

    fn live_parts(&self, e: &Entry) -> bool {
        self.live(e)
    }

    /// Goes back to a saved state.
    pub fn restore(&mut self, image: &TlbImage) {
        self.top.clear();
        if !Arc::ptr_eq(&self.base, &image.base) {
            self.base = image.base.clone();
        }
        self.generation = image.generation;
        self.global_generation = image.global_generation;
        self.large = image.large;
        self.announcing = image.announcing;
    }
}
