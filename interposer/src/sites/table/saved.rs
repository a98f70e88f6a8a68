//! The table at one moment, in pieces that snapshots share.
//!
//! A piece that has not changed since it was saved is not saved again, and restoring it costs nothing: the
//! displacements of its sites stay valid. Derived data is not saved: the maps, and how sites are displaced.

use super::SiteTable;
use crate::sites::site::{Site, Stub};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use trapline_emu::{Core, RamLayout, Watch};

/// Sites of a piece.
const PIECE: usize = 64;

/// A site, saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SavedSite {
    paddr: u64,
    watch: Option<Watch>,
    stub: Option<Stub>,
    patch: u8,
    runs_after: bool,
    awaited: bool,
    armed: bool,
    probes: Vec<u32>,
    /// A guest that has rewritten it may not have arrived there since.
    original: [u8; 15],
}

/// The table at one moment. Its stored form is the list of its sites.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(into = "Vec<SavedSite>", from = "Vec<SavedSite>")]
pub(crate) struct SavedSites {
    pieces: Vec<Arc<[SavedSite]>>,
}

impl From<SavedSites> for Vec<SavedSite> {
    fn from(saved: SavedSites) -> Self {
        saved.iter().cloned().collect()
    }
}

impl From<Vec<SavedSite>> for SavedSites {
    fn from(list: Vec<SavedSite>) -> Self {
        Self { pieces: list.chunks(PIECE).map(Arc::from).collect() }
    }
}

impl SavedSites {
    fn iter(&self) -> impl Iterator<Item = &SavedSite> {
        self.pieces.iter().flat_map(|piece| piece.iter())
    }

    fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// Whether it is possible for `probes` probes in a machine whose memory is `ram`.
    pub fn is_sound(&self, probes: usize, ram: RamLayout) -> bool {
        let mut places = BTreeSet::new();
        self.iter().all(|site| {
            let known = site.probes.iter().all(|probe| (*probe as usize) < probes);
            let user = site.stub.is_some_and(|stub| stub.user);
            let own = match site.watch {
                Some(watch) => watch.low <= watch.high && places.insert((watch.low, Some(watch.high))),
                None => user || ram.contains(site.paddr, 1) && places.insert((site.paddr, None)),
            };
            known && own && site.probes.is_sorted_by(|one, other| one < other)
        })
    }
}

impl SavedSite {
    fn of(site: &Site) -> Self {
        Self {
            paddr: site.paddr,
            watch: site.watch,
            stub: site.stub,
            patch: site.patch,
            runs_after: site.runs_after,
            awaited: site.awaited,
            armed: site.armed,
            probes: site.probes.clone(),
            original: site.original,
        }
    }

    /// Whether a site is the same place.
    fn is_at(&self, site: &Site) -> bool {
        (self.paddr, self.watch, self.stub) == (site.paddr, site.watch, site.stub)
    }

    /// Whether a site is armed in the same way as this one.
    fn stays(&self, site: &Site) -> bool {
        site.armed && self.armed && self.is_at(site) && self.patch == site.patch
    }
}

/// The saved form of the sites, piece by piece; `None` where a site has changed since.
#[derive(Debug, Default)]
pub(super) struct Pieces(Vec<Option<Arc<[SavedSite]>>>);

impl Pieces {
    /// Drops the saved piece of a site that has changed.
    pub fn forget(&mut self, index: usize) {
        if let Some(piece) = self.0.get_mut(index / PIECE) {
            *piece = None;
        }
    }
}

/// The sites of a piece.
fn range(piece: usize) -> Range<usize> {
    piece * PIECE..(piece + 1) * PIECE
}

impl SiteTable {
    /// Saves the table.
    pub fn save(&mut self) -> SavedSites {
        let mut known = std::mem::take(&mut self.saved.0).into_iter();
        let pieces = self
            .list
            .chunks(PIECE)
            .map(|piece| known.next().flatten().unwrap_or_else(|| piece.iter().map(SavedSite::of).collect()));
        let pieces: Vec<Arc<[SavedSite]>> = pieces.collect();
        self.saved = Pieces(pieces.iter().cloned().map(Some).collect());
        SavedSites { pieces }
    }

    /// Restores a saved table, after guest memory has been restored. The same sites are armed as when it was saved.
    pub fn restore(&mut self, core: &mut Core, saved: &SavedSites) {
        let same = |piece: usize| {
            let both = self.saved.0.get(piece).and_then(Option::as_ref).zip(saved.pieces.get(piece));
            both.is_some_and(|(now, was)| Arc::ptr_eq(now, was))
        };
        let pieces = self.list.len().div_ceil(PIECE).max(saved.pieces.len());
        let others: Vec<usize> = (0..pieces).filter(|piece| !same(*piece)).collect();
        self.emptied.clear();
        if others.is_empty() {
            return;
        }
        for &piece in &others {
            let was = saved.pieces.get(piece).map(|piece| &**piece).unwrap_or_default();
            for (n, index) in range(piece).enumerate() {
                let Some(site) = self.list.get_mut(index) else { break };
                site.forget_way(core);
                if site.armed && !was.get(n).is_some_and(|was| was.stays(site)) {
                    match site.stub {
                        Some(_) => site.armed = false,
                        None => site.disarm(core, index),
                    }
                }
            }
        }
        let mut moved = self.list.len() != saved.len();
        self.list.resize_with(saved.len(), || Site::new(0));
        for &piece in &others {
            let was = saved.pieces.get(piece).map(|piece| &**piece).unwrap_or_default();
            for (index, was) in range(piece).zip(was) {
                let Some(site) = self.list.get_mut(index) else { break };
                moved |= !was.is_at(site);
                put_back(core, site, index, was);
            }
        }
        if moved {
            self.map();
        }
        self.saved = Pieces(saved.pieces.iter().cloned().map(Some).collect());
    }

    /// Makes the maps, from the list.
    fn map(&mut self) {
        self.by_paddr.clear();
        self.by_range.clear();
        self.by_stub.clear();
        for (index, site) in self.list.iter().enumerate() {
            if let Some(watch) = site.watch {
                self.by_range.insert((watch.low, watch.high), index);
            } else if !site.stub.is_some_and(|stub| stub.user) {
                self.by_paddr.insert(site.paddr, index);
            }
            if site.stub.is_some() {
                self.by_stub.push(index);
            }
        }
    }
}

/// Restores a site, and arms it if it was armed.
fn put_back(core: &mut Core, site: &mut Site, index: usize, was: &SavedSite) {
    let armed = site.armed;
    *site = Site {
        watch: was.watch,
        stub: was.stub,
        runs_after: was.runs_after,
        awaited: was.awaited,
        patch: was.patch,
        original: was.original,
        ..Site::new(was.paddr)
    };
    site.change(|probes| probes.clone_from(&was.probes));
    site.armed = match site.stub {
        // The pointer is in guest memory, which has been restored.
        Some(_) => was.armed,
        // It was armed before, so no other patch is there.
        None => was.armed && (armed || site.arm(core, index).is_ok()),
    };
}
