//! The pointers of macro-declared probes in kernel modules.
//!
//! Such a pointer has an address only while the guest has loaded its module. It is written when the module is found
//! (`module`), which is before its first instruction runs, and again at each load. When the module is gone, its place is
//! forgotten and nothing is written: the memory is the guest's. A pointer that is found to be 0 is written, since the
//! guest may have loaded the module into the same memory again; one that holds another value is the guest's, and is left
//! alone.
//!
//! Pointers are visible to the guest, by design (docs/providers.md).

use super::Reach;
use super::placed::PlacedPart;
use crate::model::{InsertErrorKind, Probe};
use crate::sites::{SiteTable, Stub};
use serde::{Deserialize, Serialize};
use trapline_emu::Core;

/// A pointer, with the probes on it.
#[derive(Debug, Clone)]
pub(super) struct ModulePointer {
    /// Its part of the module, and its offset in that section.
    part: usize,
    into: u64,
    /// All probes on it, enabled or not.
    probes: Vec<u32>,
    /// Its stub, from the first enabling on.
    stub: Option<Stub>,
    /// The physical address where it was last settled; `None` while it is not to be written or not loaded.
    at: Option<u64>,
}

impl ModulePointer {
    pub fn new(part: usize, into: u64, probe: u32) -> Self {
        Self { part, into, probes: vec![probe], stub: None, at: None }
    }

    /// Whether it is at an offset of a part.
    pub fn is_at(&self, part: usize, into: u64) -> bool {
        (self.part, self.into) == (part, into)
    }

    pub fn add(&mut self, probe: u32) {
        self.probes.push(probe);
    }

    /// Whether a probe is on it.
    pub fn has(&self, probe: u32) -> bool {
        self.probes.contains(&probe)
    }

    /// The probes on it.
    pub fn probes(&self) -> impl Iterator<Item = u32> {
        self.probes.iter().copied()
    }

    /// Whether it has been settled in a loaded module.
    pub fn is_written(&self) -> bool {
        self.at.is_some()
    }

    /// Whether it was settled, and is 0 by now.
    pub fn is_cleared(&self, core: &Core) -> bool {
        self.stub.zip(self.at).is_some_and(|(stub, at)| stub.pointer(core, at) == 0)
    }

    /// A probe on it was enabled: its stub answers from now on.
    pub fn enable(
        &mut self,
        core: &mut Core,
        (probe, wide): (u32, bool),
        sites: &mut SiteTable,
    ) -> Result<(), InsertErrorKind> {
        let stub = match self.stub {
            Some(stub) => stub,
            None => sites.add_stub(core, 0, wide, true)?.1,
        };
        self.stub = Some(stub);
        Ok(sites.attach_stub(core, stub, probe)?)
    }

    /// A probe on it was disabled. With the last one, the pointer becomes 0 if the module is still there.
    pub fn disable(
        &mut self,
        core: &mut Core,
        probe: u32,
        placed: &[Option<PlacedPart>],
        reach: &mut Reach<'_>,
    ) {
        reach.sites.leave_stubs(core, probe);
        if self.is_wanted(reach.probes) {
            return;
        }
        let there = self.address(placed);
        if let Some((stub, at)) = self.stub.zip(self.at.take()).filter(|(_, at)| there == Some(*at)) {
            stub.clear(core, at);
        }
    }

    /// Writes it where it is now, or forgets where it was.
    pub fn settle(&mut self, core: &mut Core, placed: &[Option<PlacedPart>], reach: &mut Reach<'_>) {
        let now = self.address(placed).filter(|_| self.is_wanted(reach.probes));
        let before = std::mem::replace(&mut self.at, now);
        let Some((stub, at)) = self.stub.zip(now) else { return };
        let found = stub.pointer(core, at);
        if found == 0 && stub.write(core, at).is_ok() {
            reach.stats.words_raised += 1;
        } else if found != stub.address && before != now {
            reach.stats.words_left += 1;
        }
    }

    /// Whether a probe on it is enabled.
    fn is_wanted(&self, probes: &[Probe]) -> bool {
        self.probes.iter().any(|probe| probes.get(*probe as usize).is_some_and(|probe| probe.enabled))
    }

    /// Its physical address, if it is aligned as a pointer is.
    fn address(&self, placed: &[Option<PlacedPart>]) -> Option<u64> {
        let bytes = self.stub?.bytes() as u64;
        let paddr = placed.get(self.part)?.as_ref()?.paddr(self.into)?;
        paddr.is_multiple_of(bytes).then_some(paddr)
    }

    pub fn to_stored(&self) -> StoredPointer {
        StoredPointer { stub: self.stub, at: self.at }
    }

    pub fn go_to(&mut self, stored: StoredPointer) {
        (self.stub, self.at) = (stored.stub, stored.at);
    }
}

/// The stored form: what the probes do not tell.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct StoredPointer {
    stub: Option<Stub>,
    at: Option<u64>,
}
