//! Probes on kernel modules: armed where the guest has loaded the module, wherever that is.
//!
//! The profile reads the guest's list of modules when the guest is about to execute a page for the first time. A loaded
//! module has new pages, so it is found before its first instruction runs, its initialisation included; a module that
//! is loaded again is found again at its new address. Probes at the old address are removed when the page is
//! overwritten, when the kernel next executes a page for the first time, or [`LOOK`] instructions later. The guest
//! itself is not changed for this.
//!
//! A check costs a walk of the guest's list of modules and of the pages of those that have probes; the probes
//! themselves are visited only when something has moved.

use super::Reach;
use crate::model::{INT3, Place, Probe};
use crate::sites::SiteTable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use trapline_emu::symbols::KernelModule;
use trapline_emu::{Core, PAGE};
use trapline_os::{Module, OsProfile};

/// Modules with armed probes are checked again after at most this many instructions.
const LOOK: u64 = 1 << 20;

/// A kernel module that has probes.
#[derive(Debug, Clone)]
struct ProbedModule {
    module: Arc<KernelModule>,
    parts: Vec<Part>,
    points: Vec<ModulePoint>,
    /// The number of its enabled probes.
    enabled: usize,
    /// Where its parts were when its probes were last armed; `None` to arm them anew.
    seen: Option<Vec<Option<PlacedPart>>>,
    /// Physical addresses of the probes that are armed, by their number.
    armed: BTreeMap<u32, u64>,
}

/// A section that has probes, from the first to the last of them.
#[derive(Debug, Clone)]
struct Part {
    name: String,
    first: u64,
    last: u64,
}

/// A probe: its number, its part, and its offset in the section.
#[derive(Debug, Clone, Copy)]
struct ModulePoint {
    probe: u32,
    part: usize,
    into: u64,
}

/// Where a part is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PlacedPart {
    /// Linear address of its section.
    address: u64,
    /// Linear address of the page that its first probe is on.
    page: u64,
    /// Physical pages from that one on.
    frames: Vec<Option<u64>>,
}

impl PlacedPart {
    fn paddr(&self, into: u64) -> Option<u64> {
        let va = self.address.checked_add(into)?;
        let page = usize::try_from(va.checked_sub(self.page)? / PAGE).ok()?;
        Some(self.frames.get(page).copied()?? + va % PAGE)
    }
}

impl ProbedModule {
    fn new(module: &Arc<KernelModule>) -> Self {
        Self {
            module: Arc::clone(module),
            parts: Vec::new(),
            points: Vec::new(),
            enabled: 0,
            seen: None,
            armed: BTreeMap::new(),
        }
    }

    /// Whether one of its probes is enabled.
    fn is_enabled(&self) -> bool {
        self.enabled > 0
    }

    /// Adds the probe at `offset` in the module's file. A probe outside its sections is never armed.
    fn add(&mut self, probe: u32, offset: u64) {
        let Some((name, into)) = self.module.section_at(offset) else { return };
        let part = self.parts.iter().position(|part| part.name == name).unwrap_or_else(|| {
            self.parts.push(Part { name: name.to_owned(), first: into, last: into });
            self.parts.len() - 1
        });
        if let Some(known) = self.parts.get_mut(part) {
            (known.first, known.last) = (known.first.min(into), known.last.max(into));
        }
        self.points.push(ModulePoint { probe, part, into });
    }

    /// Where its parts are now; nothing when it is not loaded.
    fn placed(&self, core: &Core, profile: &dyn OsProfile, loaded: &[Module]) -> Vec<Option<PlacedPart>> {
        let name = self.module.name();
        if !self.is_enabled() || !loaded.iter().any(|module| module.name == name) {
            return Vec::new();
        }
        let sections = profile.module_sections(core, name);
        let place = |part: &Part| {
            let (_, address) = sections.iter().find(|(section, _)| *section == part.name)?;
            let page = address.checked_add(part.first)? & !(PAGE - 1);
            let last = address.checked_add(part.last)?;
            let pages = (page..=last).step_by(PAGE as usize);
            let frames = pages.map(|va| profile.kernel_paddr(core, va)).collect();
            Some(PlacedPart { address: *address, page, frames })
        };
        self.parts.iter().map(place).collect()
    }

    /// Moves its probes to where its parts are now.
    fn go_to(&mut self, core: &mut Core, placed: Vec<Option<PlacedPart>>, reach: &mut Reach<'_>) {
        let now = self.addresses(&placed, reach.probes);
        self.seen = Some(placed);
        let before = std::mem::replace(&mut self.armed, now.clone());
        for (probe, paddr) in before.into_iter().filter(|(probe, paddr)| now.get(probe) != Some(paddr)) {
            reach.sites.leave_address(core, paddr, probe);
        }
        for (number, paddr) in now {
            // A clash with another patch leaves the module without the probe; it cannot happen between breakpoint
            // probes, which share sites.
            if let Some(probe) = reach.probes.get(number as usize) {
                let _ = reach.sites.attach(core, (paddr, INT3), number, probe);
            }
        }
    }

    /// Its enabled probes that have an address, where its parts are at `placed`.
    fn addresses(&self, placed: &[Option<PlacedPart>], probes: &[Probe]) -> BTreeMap<u32, u64> {
        let enabled = |point: &&ModulePoint| probes.get(point.probe as usize).is_some_and(|p| p.enabled);
        let address =
            |point: &ModulePoint| Some((point.probe, placed.get(point.part)?.as_ref()?.paddr(point.into)?));
        self.points.iter().filter(enabled).filter_map(address).collect()
    }
}

/// The kernel modules that have probes. A clone shares them until either is changed.
#[derive(Debug, Default, Clone)]
pub(crate) struct KernelModules {
    list: Arc<Vec<ProbedModule>>,
    /// The instruction count from which on they are checked again.
    next_look: u64,
}

impl KernelModules {
    /// Whether a probe of any is enabled.
    pub fn any_enabled(&self) -> bool {
        self.list.iter().any(ProbedModule::is_enabled)
    }

    /// Notes the probes from number `first` on that are in kernel modules.
    pub fn note_points(&mut self, first: usize, probes: &[Probe]) {
        for (number, probe) in (first as u32..).zip(probes.get(first..).unwrap_or_default()) {
            let Place::Module { module, offset } = &probe.place else { continue };
            let list = Arc::make_mut(&mut self.list);
            let known = list.iter().position(|known| Arc::ptr_eq(&known.module, module));
            let index = known.unwrap_or_else(|| {
                list.push(ProbedModule::new(module));
                list.len() - 1
            });
            if let Some(known) = list.get_mut(index) {
                known.add(number, *offset);
            }
        }
    }

    /// A module that has probes.
    fn known(&mut self, module: &Arc<KernelModule>) -> Option<&mut ProbedModule> {
        Arc::make_mut(&mut self.list).iter_mut().find(|known| Arc::ptr_eq(&known.module, module))
    }

    /// A probe of a module was enabled: [`KernelModules::arm`] is to see to it.
    pub fn enable(&mut self, module: &Arc<KernelModule>) {
        if let Some(known) = self.known(module) {
            known.enabled += 1;
            known.seen = None;
        }
    }

    /// A probe of a module was disabled.
    pub fn disable(
        &mut self,
        core: &mut Core,
        module: &Arc<KernelModule>,
        probe: u32,
        sites: &mut SiteTable,
    ) {
        let armed = self.known(module).and_then(|known| {
            known.enabled = known.enabled.saturating_sub(1);
            known.armed.remove(&probe)
        });
        if let Some(paddr) = armed {
            sites.leave_address(core, paddr, probe);
        }
    }

    /// The instruction count at which modules with armed probes are to be checked. A run must stop there, so that the
    /// result does not depend on its other stops.
    pub fn next_look(&self) -> Option<u64> {
        self.list.iter().any(|module| !module.armed.is_empty()).then_some(self.next_look)
    }

    /// After a stop of the run, checks whether armed modules are still loaded, if the check is due.
    pub fn look_after(&mut self, core: &mut Core, reach: &mut Reach<'_>) {
        if self.next_look().is_some_and(|next| core.icount() >= next) {
            self.arm(core, reach);
        }
    }

    /// Arms the enabled probes of kernel modules that are loaded now, and only there.
    pub fn arm(&mut self, core: &mut Core, reach: &mut Reach<'_>) {
        self.next_look = core.icount().saturating_add(LOOK);
        let Some(profile) = reach.profile.filter(|_| !self.list.is_empty()) else { return };
        let loaded = profile.modules(core);
        for index in 0..self.list.len() {
            let Some(module) = self.list.get(index) else { break };
            let placed = module.placed(core, profile, &loaded);
            if module.seen.as_ref() == Some(&placed) {
                continue;
            }
            if let Some(module) = Arc::make_mut(&mut self.list).get_mut(index) {
                module.go_to(core, placed, reach);
            }
        }
    }

    /// The stored form: the data that cannot be derived from the probes.
    pub fn to_stored(&self) -> StoredModules {
        let of =
            |module: &ProbedModule| StoredModule { seen: module.seen.clone(), armed: module.armed.clone() };
        StoredModules { list: self.list.iter().map(of).collect(), next_look: self.next_look }
    }

    /// Restores the modules of the probes; `None` if the stored ones differ or are impossible.
    pub fn from_stored(stored: StoredModules, probes: &[Probe]) -> Option<Self> {
        let mut modules = Self::default();
        modules.note_points(0, probes);
        let list = Arc::make_mut(&mut modules.list);
        if list.len() != stored.list.len() {
            return None;
        }
        for (known, module) in list.iter_mut().zip(stored.list) {
            (known.seen, known.armed) = (module.seen, module.armed);
        }
        for probe in probes.iter().filter(|probe| probe.enabled) {
            if let Place::Module { module, .. } = &probe.place
                && let Some(known) = modules.known(module)
            {
                known.enabled += 1;
            }
        }
        modules.next_look = stored.next_look;
        Some(modules)
    }
}

/// The stored form of [`KernelModules`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredModules {
    list: Vec<StoredModule>,
    next_look: u64,
}

/// Where a module's parts were seen, and where its probes are armed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredModule {
    seen: Option<Vec<Option<PlacedPart>>>,
    armed: BTreeMap<u32, u64>,
}
