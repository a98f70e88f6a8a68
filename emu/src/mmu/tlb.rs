//! The architectural TLB: the translations that the guest's CPU would have cached.
//!
//! The engine's own TLB is a cache of this one. It may drop entries whenever it likes (it resizes by host
//! time), so every refill must find here what it found before: a translation lives until the *guest*
//! flushes it. That makes accessed bits and stale translations a function of the guest alone.
//!
//! Invariant: the set of entries depends on the guest's instructions only, never on the engine's refills.
//!
//! It is larger than any CPU's, but not without bound: a guest could map one page everywhere. A CPU may drop an entry at
//! any time (SDM volume 3, 4.10.2.2), and this one drops all when it is full.

use super::front::Front;
use super::walk::Translation;
use crate::ram::PAGE;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Bytes of the largest page that either CPU model has; smaller large pages lie inside one.
const REGION: u64 = 4 << 20;
/// Entries after which dead ones are swept out.
const SWEEP_AT: usize = 1 << 16;
/// Live entries of a TLB that is full: 1 GiB in pages of 4 KiB.
const MOST: usize = 1 << 18;

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
    /// `Tlb::announcing` when user code on the page was announced to the interposer; 0 before.
    announced: u64,
}

impl Entry {
    /// An entry that is never live.
    pub const DEAD: Self = Self {
        translation: Translation {
            paddr: 0,
            writable: false,
            user: false,
            executable: false,
            dirty: false,
            global: false,
            large: false,
        },
        generation: u64::MAX,
        global_generation: u64::MAX,
        announced: 0,
    };
}

/// How many live entries there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    local: usize,
    global: usize,
}

impl Count {
    fn of(&mut self, translation: &Translation) -> &mut usize {
        if translation.global { &mut self.global } else { &mut self.local }
    }

    /// The live entry of a page is replaced.
    fn replace(&mut self, old: Option<Translation>, new: Option<Translation>) {
        if let Some(old) = old {
            *self.of(&old) -= 1;
        }
        if let Some(new) = new {
            *self.of(&new) += 1;
        }
    }
}

/// The architectural TLB. Entries cached since the last snapshot are layered over those that snapshots share.
#[derive(Debug, Clone)]
pub(crate) struct Tlb {
    top: Map,
    /// Newest last. An entry hides those of the same page in the layers below it, even when it is dead.
    layers: Vec<Arc<Map>>,
    front: Front<Entry>,
    generation: u64,
    global_generation: u64,
    /// Regions of 4 MiB, by number, of which a large page may be cached, and whether a global one.
    large: BTreeMap<u64, bool>,
    live: Count,
    /// The number of requests to announce everything anew; entries announced since carry this number.
    announcing: u64,
    /// Entries of `top` at which dead ones are swept out.
    sweep_at: usize,
}

impl Default for Tlb {
    fn default() -> Self {
        Tlb {
            top: Map::default(),
            layers: Vec::new(),
            front: Front::default(),
            generation: 0,
            global_generation: 0,
            large: BTreeMap::new(),
            live: Count::default(),
            announcing: 0,
            sweep_at: SWEEP_AT,
        }
    }
}

/// Saved state of the TLB. Its stored form is the list of its live entries.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(into = "Listed", from = "Listed")]
pub(crate) struct TlbImage {
    layers: Vec<Arc<Map>>,
    generation: u64,
    global_generation: u64,
    large: BTreeMap<u64, bool>,
    live: Count,
    announcing: u64,
}

/// The stored form: live entries by linear page, and whether each was announced to the interposer.
#[derive(Serialize, Deserialize)]
struct Listed {
    entries: Vec<(u64, Translation, bool)>,
    announcing: u64,
}

impl From<TlbImage> for Listed {
    fn from(image: TlbImage) -> Self {
        let mut tlb = Tlb::default();
        tlb.restore(&image);
        let mut pages: Vec<u64> = image.layers.iter().flat_map(|layer| layer.keys().copied()).collect();
        pages.sort_unstable();
        pages.dedup();
        let live = |page| {
            let entry = tlb.entry(page).filter(|entry| tlb.live(entry))?;
            Some((page, entry.translation, entry.announced == image.announcing))
        };
        Listed { entries: pages.into_iter().filter_map(live).collect(), announcing: image.announcing }
    }
}

impl From<Listed> for TlbImage {
    fn from(list: Listed) -> Self {
        let entry = |(page, translation, told): (u64, Translation, bool)| {
            let announced = if told { list.announcing } else { 0 };
            (page, Entry { translation, generation: 0, global_generation: 0, announced })
        };
        let entries: Map = list.entries.into_iter().map(entry).collect();
        let (mut large, mut live) = (BTreeMap::new(), Count::default());
        for (page, Entry { translation, .. }) in &entries {
            live.replace(None, Some(*translation));
            if translation.large {
                *large.entry(page / REGION).or_default() |= translation.global;
            }
        }
        let layers = if entries.is_empty() { Vec::new() } else { vec![Arc::new(entries)] };
        TlbImage { layers, generation: 0, global_generation: 0, large, live, announcing: list.announcing }
    }
}

impl TlbImage {
    /// Whether all pages are where pages begin.
    pub fn is_sound(&self) -> bool {
        let aligned = |(page, entry): (&u64, &Entry)| (page | entry.translation.paddr).is_multiple_of(PAGE);
        self.layers.iter().all(|layer| layer.iter().all(aligned))
    }
}

impl Tlb {
    /// The live translation of a linear page (address of its first byte).
    #[inline]
    pub fn lookup(&self, page: u64) -> Option<Translation> {
        let entry = self.entry(page)?;
        self.live(&entry).then_some(entry.translation)
    }

    #[inline]
    fn entry(&self, page: u64) -> Option<Entry> {
        self.front.get(page).or_else(|| self.entry_in_maps(page))
    }

    fn entry_in_maps(&self, page: u64) -> Option<Entry> {
        let maps = || self.layers.iter().rev().find_map(|layer| layer.get(&page));
        let entry = *self.top.get(&page).or_else(maps)?;
        self.front.set(page, entry);
        Some(entry)
    }

    #[inline]
    fn live(&self, e: &Entry) -> bool {
        e.global_generation == self.global_generation
            && (e.translation.global || e.generation == self.generation)
    }

    /// Whether there is no room for a page that is not cached.
    pub fn is_full(&self) -> bool {
        self.live.local + self.live.global >= MOST
    }

    /// Caches a translation.
    pub fn insert(&mut self, page: u64, translation: Translation) {
        if translation.large {
            *self.large.entry(page / REGION).or_default() |= translation.global;
        }
        self.live.replace(self.lookup(page), Some(translation));
        if self.top.len() >= self.sweep_at {
            self.sweep();
        }
        // Before the first request nothing has been announced.
        let known = if self.announcing > 0 { self.entry(page) } else { None };
        let same = |old: &Entry| self.live(old) && old.translation.paddr == translation.paddr;
        let entry = Entry {
            translation,
            generation: self.generation,
            global_generation: self.global_generation,
            announced: known.filter(same).map_or(0, |old| old.announced),
        };
        self.put(page, entry);
    }

    fn put(&mut self, page: u64, entry: Entry) {
        self.top.insert(page, entry);
        self.front.set(page, entry);
    }

    /// Drops dead entries except those that hide others.
    #[cold]
    fn sweep(&mut self) {
        let mut top = std::mem::take(&mut self.top);
        top.retain(|page, e| self.live(e) || self.layers.iter().any(|layer| layer.contains_key(page)));
        // Where most are alive, postpone the next sweep until the table has doubled.
        self.sweep_at = SWEEP_AT.max(2 * top.len());
        self.top = top;
    }

    /// Whether user code on a linear page was announced to the interposer since its translation was cached and since
    /// the last request to announce everything anew, of which there must have been one.
    pub fn announced(&self, page: u64) -> bool {
        self.entry(page).is_some_and(|e| self.live(&e) && e.announced == self.announcing)
    }

    /// Notes that user code on a linear page, whose translation is cached, was announced to the interposer.
    pub fn announce(&mut self, page: u64) {
        if let Some(entry) = self.entry(page).filter(|entry| self.live(entry)) {
            self.put(page, Entry { announced: self.announcing, ..entry });
        }
    }

    /// Requests that everything be announced anew.
    pub fn announce_again(&mut self) {
        self.announcing += 1;
    }

    /// MOV to CR3: drops everything but global pages.
    pub fn flush_local(&mut self) {
        self.generation += 1;
        self.live.local = 0;
        self.large.retain(|_, global| *global);
    }

    /// Drops everything.
    pub fn flush_all(&mut self) {
        self.generation += 1;
        self.global_generation += 1;
        self.live = Count::default();
        self.large.clear();
    }

    /// INVLPG of one linear page. Returns whether it was part of a large page, all of which is dropped.
    pub fn invalidate(&mut self, page: u64) -> bool {
        let mut hit_large = false;
        for p in self.reach(page) {
            let large = self.lookup(p).is_some_and(|t| t.large);
            hit_large |= large;
            if p == page || large {
                self.kill(p);
            }
        }
        self.large.remove(&(page / REGION));
        hit_large
    }

    /// The pages that INVLPG of `page` may affect: itself alone, unless a large page may be cached around it.
    fn reach(&self, page: u64) -> impl Iterator<Item = u64> + use<> {
        let region = page / REGION;
        let (first, count) =
            if self.large.contains_key(&region) { (region * REGION, REGION / PAGE) } else { (page, 1) };
        (0..count).map(move |n| first + n * PAGE)
    }

    fn kill(&mut self, page: u64) {
        self.live.replace(self.lookup(page), None);
        self.front.forget(page);
        if self.layers.iter().any(|layer| layer.contains_key(&page)) {
            self.top.insert(page, Entry::DEAD);
        } else {
            self.top.remove(&page);
        }
    }

    /// Saves the state. What was cached since the last time becomes a layer; layers are merged so that each is at least
    /// twice as large as the one above it, so an entry is copied a few times at most, however often the state is saved.
    pub fn save(&mut self) -> TlbImage {
        if !self.top.is_empty() {
            self.layers.push(Arc::new(std::mem::take(&mut self.top)));
            while let [.., below, above] = self.layers.as_slice()
                && below.len() < 2 * above.len()
            {
                self.merge_newest();
            }
            self.drop_dead();
        }
        TlbImage {
            layers: self.layers.clone(),
            generation: self.generation,
            global_generation: self.global_generation,
            large: self.large.clone(),
            live: self.live,
            announcing: self.announcing,
        }
    }

    /// Makes one layer of the two newest.
    fn merge_newest(&mut self) {
        let (Some(above), Some(below)) = (self.layers.pop(), self.layers.pop()) else { return };
        let mut merged = Arc::unwrap_or_clone(below);
        merged.extend(above.iter().map(|(page, entry)| (*page, *entry)));
        self.layers.push(Arc::new(merged));
    }

    /// Drops the dead entries of a single layer: they hide nothing there.
    fn drop_dead(&mut self) {
        if let [only] = self.layers.as_slice() {
            let live = only.iter().filter(|(_, entry)| self.live(entry));
            let live: Map = live.map(|(page, entry)| (*page, *entry)).collect();
            self.layers = if live.is_empty() { Vec::new() } else { vec![Arc::new(live)] };
        }
    }

    /// Goes back to a saved state.
    pub fn restore(&mut self, image: &TlbImage) {
        self.top.clear();
        self.front.clear();
        self.sweep_at = SWEEP_AT;
        self.layers.clone_from(&image.layers);
        self.generation = image.generation;
        self.global_generation = image.global_generation;
        self.large.clone_from(&image.large);
        self.live = image.live;
        self.announcing = image.announcing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn translation(paddr: u64, global: bool, large: bool) -> Translation {
        Translation { paddr, writable: true, user: true, executable: true, dirty: true, global, large }
    }

    /// A model of the TLB as a plain map that drops entries at once.
    #[derive(Clone, Default)]
    struct Model(BTreeMap<u64, Translation>);

    #[test]
    fn a_page_is_dropped_without_a_look_at_others_unless_a_large_one_is_cached_around_it() {
        let mut tlb = Tlb::default();
        let far = 0x4000_0000;
        tlb.insert(far, translation(far, true, true));
        assert_eq!(tlb.reach(0x1000).collect::<Vec<_>>(), [0x1000]);
        assert_eq!(tlb.reach(far + 0x5000).count(), 1024);
        let image = tlb.save();
        tlb.restore(&image);
        assert!(tlb.invalidate(far + 0x5000));
        assert!(tlb.lookup(far).is_none());
        assert_eq!(tlb.reach(far + 0x5000).count(), 1);
        tlb.insert(far, translation(far, true, true));
        assert_eq!(tlb.reach(far).count(), 1024);
    }

    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    fn flush_or_drop(n: u64, page: u64, tlb: &mut Tlb, model: &mut Model) {
        match n {
            0 => {
                tlb.flush_all();
                model.0.clear();
            }
            1..=4 => {
                tlb.flush_local();
                model.0.retain(|_, t| t.global);
            }
            _ => {
                tlb.invalidate(page);
                model.0.remove(&page);
            }
        }
    }

    #[test]
    fn snapshots_change_nothing_and_lead_back_from_anywhere() {
        let mut seed = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..20 {
            let (mut tlb, mut model) = (Tlb::default(), Model::default());
            let mut saved: Vec<(TlbImage, Model)> = Vec::new();
            for _ in 0..3000 {
                let page = random(&mut seed) % 300 * 4096;
                match random(&mut seed) % 100 {
                    0..=69 => {
                        let t = translation(random(&mut seed) & 0xff_f000, seed & 1 != 0, false);
                        tlb.insert(page, t);
                        model.0.insert(page, t);
                    }
                    n @ 70..=85 => flush_or_drop(n - 70, page, &mut tlb, &mut model),
                    86 if !saved.is_empty() => {
                        let (image, before) = &saved[random(&mut seed) as usize % saved.len()];
                        tlb.restore(image);
                        model = before.clone();
                    }
                    87..=92 => saved.push((tlb.save(), model.clone())),
                    _ => assert_eq!(tlb.lookup(page), model.0.get(&page).copied()),
                }
            }
            for page in (0..300).map(|n| n * 4096) {
                assert_eq!(tlb.lookup(page), model.0.get(&page).copied());
            }
            // A stored form counts its entries anew.
            let counts = [tlb.live, TlbImage::from(Listed::from(tlb.save())).live];
            let global = model.0.values().filter(|t| t.global).count();
            assert_eq!(counts, [Count { local: model.0.len() - global, global }; 2]);
        }
    }

    #[test]
    fn it_is_full_at_the_limit_and_empty_after_a_flush() {
        let mut tlb = Tlb::default();
        for n in 0..MOST as u64 {
            assert!(!tlb.is_full());
            tlb.insert(n * 4096, translation(0x2000, n % 2 == 0, false));
        }
        assert!(tlb.is_full());
        tlb.insert(0, translation(0x3000, false, false));
        tlb.flush_local();
        assert_eq!(tlb.live, Count { local: 0, global: MOST / 2 - 1 });
        tlb.flush_all();
        assert_eq!(tlb.live, Count::default());
    }

    #[test]
    fn a_page_that_was_invalidated_stays_so_when_dead_entries_are_swept_out() {
        let mut tlb = Tlb::default();
        tlb.insert(0x5000, translation(0x1000, true, false));
        tlb.save();
        tlb.invalidate(0x5000);
        for n in 0..2 * SWEEP_AT as u64 {
            tlb.insert(0x10_0000 + n * 4096, translation(0x2000, false, false));
            if n == 100 {
                tlb.flush_local();
            }
        }
        assert_eq!(tlb.lookup(0x5000), None);
    }

    #[test]
    fn more_live_entries_than_are_swept_at_are_not_swept_at_each_insertion() {
        let mut tlb = Tlb::default();
        for n in 0..4 * SWEEP_AT as u64 {
            tlb.insert(n * 4096, translation(0x2000, true, false));
        }
        assert!(tlb.sweep_at >= 2 * SWEEP_AT);
        assert!(tlb.lookup(0).is_some());
    }
}
